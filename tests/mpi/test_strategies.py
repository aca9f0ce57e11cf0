"""Every strategy is the linear map A-hat, and its backward the transpose; messages in pieces change no bit."""
import numpy as np
import oracle
import pytest
from graphs import make

from hpgcn import exchange
from hpgcn.kernels import reference
from hpgcn.layout import Layout
from hpgcn.partition import Partition
from hpgcn.strategies import STRATEGIES

pytestmark = [pytest.mark.mpi, pytest.mark.parametrize("name", STRATEGIES)]


def build(name, comm, graph, **options):
    """The strategy on a random partition, and this rank's original vertices."""
    part = np.random.default_rng(1).integers(0, comm.size, graph.num_rows)
    partition = Partition.from_parts(part, comm.size)
    moved = graph.permuted(partition.perm, partition.offsets)
    layout = Layout(partition.offsets, comm.rank)
    slab = moved.slab(layout.start, layout.stop)
    return STRATEGIES[name](slab, layout, comm, dtype=np.float64, max_width=20, **options), slab.vertex


@pytest.mark.parametrize("directed, weighted", [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("width", [1, 7, 20])
def test_equals_the_dense_matrix(name, comm, directed, weighted, width):
    graph = make(directed=directed, weighted=weighted)
    A = oracle.normalised(graph)
    strategy, mine = build(name, comm, graph)
    H = np.random.default_rng(2).standard_normal((graph.num_rows, width))
    np.testing.assert_allclose(strategy.forward(H[mine], layer=0), (A @ H)[mine], atol=1e-12)
    np.testing.assert_allclose(strategy.backward(H[mine], layer=0), (A.T @ H)[mine], atol=1e-12)
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_without_norm_and_loops_it_is_the_adjacency(name, comm, directed):
    graph = make(directed=directed, weighted=True)
    strategy, mine = build(name, comm, graph, norm="none", self_loops=False)
    H = np.random.default_rng(2).standard_normal((graph.num_rows, 3))
    A = graph.adjacency.astype(np.float64)
    np.testing.assert_allclose(strategy.forward(H[mine], layer=0), (A @ H)[mine], atol=1e-12)
    np.testing.assert_allclose(strategy.backward(H[mine], layer=0), (A.T @ H)[mine], atol=1e-12)
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_dot_product(name, comm, directed):
    graph = make(directed=directed, weighted=True)
    strategy, mine = build(name, comm, graph)
    rng = np.random.default_rng(3)
    h, g = rng.standard_normal((2, graph.num_rows, 9))
    forward = (strategy.forward(h[mine], layer=0) * g[mine]).sum()
    backward = (h[mine] * strategy.backward(g[mine], layer=0)).sum()
    forward, backward = comm.sum([forward, backward])
    assert forward == pytest.approx(backward, rel=1e-12)
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_mask_applies_to_the_result(name, comm, directed, direction):
    graph = make(directed=directed)
    strategy, mine = build(name, comm, graph)
    rng = np.random.default_rng(4)
    H, keep = rng.standard_normal((graph.num_rows, 11)), rng.random((graph.num_rows, 11)) < 0.5
    product = getattr(strategy, direction)
    expected = np.where(keep[mine], product(H[mine], layer=0), 0)
    np.testing.assert_array_equal(product(H[mine], layer=0, mask=reference.pack(keep[mine])), expected)
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_messages_in_pieces_change_no_bit(name, comm, directed, monkeypatch):
    graph = make(directed=directed)
    H = np.random.default_rng(5).standard_normal((graph.num_rows, 20))
    results, counts = [], []
    for limit in (1 << 30, 1000):
        monkeypatch.setattr(exchange, "MAX_MESSAGE_BYTES", limit)
        strategy, mine = build(name, comm, graph)
        comm.counters.phase = f"limit {limit} {directed}"
        results.append((strategy.forward(H[mine], layer=0).tobytes(), strategy.backward(H[mine], layer=0).tobytes()))
        counts.append(comm.counters.total(comm.counters.phase))
        strategy.close()
    assert results[0] == results[1]
    assert counts[0] == counts[1]
