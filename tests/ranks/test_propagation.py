"""hpgcn.propagation multiplies by A without a model, on any number of ranks, by every strategy."""
import numpy as np
import oracle
import pytest
from graphs import make, scattered

import hpgcn
from hpgcn.errors import UsageError
from hpgcn.strategies import STRATEGIES


@pytest.mark.parametrize("comm", [1, 3, 4], indirect=True)
@pytest.mark.parametrize("norm, self_loops, directed", [
    ("sym", True, False), ("row", False, True), ("none", True, True), ("sym", False, False)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_products_equal_those_of_dense_matrices(comm, strategy, norm, self_loops, directed):
    graph = make(directed=directed, weighted=True)
    A = oracle.normalized(graph, norm, self_loops)
    n = graph.num_rows
    with hpgcn.propagation(graph, comm, strategy=strategy, norm=norm, self_loops=self_loops,
                           device="cpu", dtype="float64") as product:
        assert product.num_rows == n
        for width in (1, 5, 17, 3):  # buffers grow
            H = np.random.default_rng(width).standard_normal((n, width))
            mine = product.rows, product.columns(width)
            for multiply, matrix in ((product.forward, A), (product.backward, A.T)):
                np.testing.assert_allclose(multiply(H[mine]), (matrix @ H)[mine], atol=1e-12)
        assert (product.traffic.bytes > 0) == (comm.size > 1)


@pytest.mark.parametrize("comm", [1, 3], indirect=True)
def test_every_row_has_one_owner(comm):
    graph = scattered(make(), comm)
    with hpgcn.propagation(graph, comm, device="cpu") as product:
        owned = np.concatenate(comm.allgather(product.rows))
        assert sorted(owned) == list(range(graph.num_rows))
        H = np.ones((len(product.rows), 2), np.float32)
        out = np.empty_like(H)
        assert product.forward(H, out) is out and out.dtype == np.float32


@pytest.mark.parametrize("comm", [1, 3], indirect=True)
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


@pytest.mark.parametrize("comm", [2], indirect=True)
def test_refusals(comm):
    graph = scattered(make(), comm)
    with pytest.raises(UsageError, match="expected one of sym, in, row, none"):
        hpgcn.propagation(graph, comm, norm="left")
    with pytest.raises(UsageError, match="expected one of auto, p2p"):
        hpgcn.propagation(graph, comm, strategy="4d")
    with hpgcn.propagation(graph, comm, device="cpu") as product:
        with pytest.raises(UsageError, match=r"H has shape \(1, 2, 3\)"):
            product.forward(np.ones((1, 2, 3)))
        H = np.ones((len(product.rows), 2))
        with pytest.raises(UsageError, match="out has shape"):
            product.forward(H, np.empty((1, 1), np.float32))
