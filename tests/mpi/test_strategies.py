"""Every strategy is the linear map A-hat, and its backward the transpose; messages in pieces change no bit."""
import numpy as np
import oracle
import pytest
from graphs import make

from hpgcn import collectives
from hpgcn.config import Config
from hpgcn.kernels import reference
from hpgcn.partition import Partition
from hpgcn.place import place
from hpgcn.strategies import STRATEGIES

pytestmark = [pytest.mark.mpi, pytest.mark.parametrize("name", STRATEGIES)]


def build(name, comm, graph, **options):
    """The strategy on a random partition, and this rank's block of a matrix in original order."""
    part = np.random.default_rng(1).integers(0, comm.size, graph.num_rows)
    partition = Partition.from_parts(part, comm.size)
    moved = graph.permuted(partition.perm, partition.offsets)
    moved, grid, axes = place(moved, comm, Config(strategy=name))
    strategy = STRATEGIES[name](moved, grid, comm, axes=axes, dtype=np.float64, max_width=20, **options)
    rows = partition.perm[grid.rows.start:grid.rows.stop]
    return strategy, lambda matrix: np.ascontiguousarray(matrix[rows][:, grid.columns_of(matrix.shape[1])])


@pytest.mark.parametrize("directed, weighted", [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("width", [1, 7, 20])
def test_equals_the_dense_matrix(name, comm, directed, weighted, width):
    graph = make(directed=directed, weighted=weighted)
    A = oracle.normalised(graph)
    strategy, mine = build(name, comm, graph)
    H = np.random.default_rng(2).standard_normal((graph.num_rows, width))
    np.testing.assert_allclose(strategy.forward(mine(H), layer=0), mine(A @ H), atol=1e-12)
    np.testing.assert_allclose(strategy.backward(mine(H), layer=0), mine(A.T @ H), atol=1e-12)
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_without_norm_and_loops_it_is_the_adjacency(name, comm, directed):
    graph = make(directed=directed, weighted=True)
    strategy, mine = build(name, comm, graph, norm="none", self_loops=False)
    H = np.random.default_rng(2).standard_normal((graph.num_rows, 3))
    A = graph.adjacency.astype(np.float64)
    np.testing.assert_allclose(strategy.forward(mine(H), layer=0), mine(A @ H), atol=1e-12)
    np.testing.assert_allclose(strategy.backward(mine(H), layer=0), mine(A.T @ H), atol=1e-12)
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_dot_product(name, comm, directed):
    graph = make(directed=directed, weighted=True)
    strategy, mine = build(name, comm, graph)
    rng = np.random.default_rng(3)
    h, g = rng.standard_normal((2, graph.num_rows, 9))
    forward = (strategy.forward(mine(h), layer=0) * mine(g)).sum()
    backward = (mine(h) * strategy.backward(mine(g), layer=0)).sum()
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
    keep = mine(keep)
    expected = np.where(keep, product(mine(H), layer=0), 0)
    np.testing.assert_array_equal(product(mine(H), layer=0, mask=reference.pack(keep)), expected)
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_messages_in_pieces_change_no_bit(name, comm, directed, monkeypatch):
    graph = make(directed=directed)
    H = np.random.default_rng(5).standard_normal((graph.num_rows, 20))
    results, counts = [], []
    for limit in (1 << 30, 1000):
        monkeypatch.setattr(collectives, "MAX_MESSAGE_BYTES", limit)
        strategy, mine = build(name, comm, graph)
        comm.counters.phase = f"limit {limit} {directed}"
        results.append((strategy.forward(mine(H), layer=0).tobytes(), strategy.backward(mine(H), layer=0).tobytes()))
        counts.append(comm.counters.total(comm.counters.phase))
        strategy.close()
    if directed and name in ("1d", "1.5d"):  # MPI may add the pieces of a reduction in another order than the whole
        for one, other in zip(*results):
            np.testing.assert_allclose(np.frombuffer(one), np.frombuffer(other), atol=1e-13)
    else:
        assert results[0] == results[1]
    assert counts[0] == counts[1]
