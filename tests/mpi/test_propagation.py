"""hpgcn.propagation: products with A without a model, on any number of ranks, by every strategy."""
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import make

import hpgcn
from hpgcn.errors import UsageError
from hpgcn.strategies import STRATEGIES

pytestmark = pytest.mark.mpi
EXAMPLES = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs/propagation.md").read_text(), re.S)


def normalized(graph, norm, self_loops):
    """A-hat in float64, by SciPy alone."""
    A = graph.adjacency.astype(np.float64).tolil()
    if self_loops:
        diagonal = A.diagonal()
        A.setdiag(np.where(diagonal == 0, 1, diagonal))
    A = A.tocsr()

    def power(degree, exponent):
        with np.errstate(divide="ignore", invalid="ignore"):
            return sp.diags_array(np.where(degree > 0, degree**exponent, 0))

    rows = np.asarray(A.sum(1)).ravel()
    columns = np.asarray(A.sum(0)).ravel()
    if norm == "sym":
        return power(rows, -0.5) @ A @ power(columns, -0.5)
    return power(rows, -1.0) @ A if norm == "row" else A


@pytest.mark.parametrize("norm, self_loops, directed", [
    ("sym", True, False), ("row", False, True), ("none", True, True), ("sym", False, False)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_products_equal_those_of_scipy(comm, strategy, norm, self_loops, directed):
    graph = make(directed=directed, weighted=True)
    A = normalized(graph, norm, self_loops)
    n = graph.num_rows
    with hpgcn.propagation(graph, comm, strategy=strategy, norm=norm, self_loops=self_loops,
                           device="cpu", dtype="float64") as product:
        assert product.num_rows == n
        for width in (1, 5, 17, 3):  # buffers grow
            H = np.random.default_rng(width).standard_normal((n, width))
            mine = product.columns(width)
            np.testing.assert_allclose(
                product.forward(H[product.rows, mine]), (A @ H)[product.rows, mine], atol=1e-12)
            np.testing.assert_allclose(
                product.backward(H[product.rows, mine]), (A.T @ H)[product.rows, mine], atol=1e-12)
        assert (product.traffic.bytes > 0) == (comm.size > 1)


def test_every_row_has_one_owner(comm):
    graph = make()
    with hpgcn.propagation(graph, comm, device="cpu") as product:
        owned = np.concatenate(comm.allgather(product.rows))
        assert sorted(owned) == list(range(graph.num_rows))
        H = np.ones((len(product.rows), 2), np.float32)
        out = np.empty_like(H)
        assert product.forward(H, out) is out
        assert out.dtype == np.float32


@pytest.mark.parametrize("collective", [True, False])
def test_an_error_closes_it_where_all_ranks_raise_it(comm, monkeypatch, collective):
    product = hpgcn.propagation(make(), comm, device="cpu")
    close = product.close
    closed = []
    monkeypatch.setattr(product, "close", lambda: closed.append(close()))
    error = UsageError("of the caller")
    error.collective = collective
    with pytest.raises(UsageError, match="of the caller"), product:
        raise error
    assert bool(closed) == (collective or comm.size == 1)
    if not closed:
        close()


def test_refusals(comm):
    graph = make()
    with pytest.raises(UsageError, match="expected one of sym, row, none"):
        hpgcn.propagation(graph, comm, norm="left")
    with pytest.raises(UsageError, match="expected one of p2p"):
        hpgcn.propagation(graph, comm, strategy="4d")
    with hpgcn.propagation(graph, comm, device="cpu") as product:
        with pytest.raises(UsageError, match=r"H has shape \(1, 2, 3\)"):
            product.forward(np.ones((1, 2, 3)))
        H = np.ones((len(product.rows), 2))
        with pytest.raises(UsageError, match="out has shape"):
            product.forward(H, np.empty((1, 1), np.float32))


@pytest.mark.parametrize("example", EXAMPLES, ids=["power_iteration", "appnp"])
def test_examples_of_the_documentation(comm, example, tmp_path, capsys):
    pytest.importorskip("mpi4py")
    path = comm.bcast(str(tmp_path / "cora.h5"))
    if comm.rank == 0:
        make(n=40).save(path)
    comm.barrier()
    exec(example.replace("cora.h5", path).replace("200", "400"), {})
    out = capsys.readouterr().out
    if "eigenvalue" in example:
        assert comm.rank or "largest eigenvalue 1.000" in out
    else:
        assert out.startswith(f"rank {comm.rank}: ")
