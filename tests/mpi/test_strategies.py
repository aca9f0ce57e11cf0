"""Every strategy is the linear map A-hat, and its backward the transpose; messages in pieces change no bit."""
import numpy as np
import oracle
import pytest
from graphs import make

from hpgcn import cost
from hpgcn.comm import collectives
from hpgcn.config import Config
from hpgcn.cost.step import Product
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


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kept_out, kept_in", [
    (0.3, 0.8), (0.05, 0.05), (0.0, 0.5), (1.0, 0.4), ("same", 0.5), (0.2, 1.0)])
def test_a_restricted_map_is_a_submatrix(name, comm, directed, kept_out, kept_in):
    graph = make(directed=directed, weighted=True)
    strategy, _ = build(name, comm, graph)
    part = np.random.default_rng(1).integers(0, comm.size, graph.num_rows)
    A = oracle.normalised(graph)
    order = Partition.from_parts(part, comm.size).perm
    A = A[order][:, order]
    rng = np.random.default_rng(7)
    columns = rng.random(graph.num_rows) < kept_in
    rows = columns.copy() if kept_out == "same" else rng.random(graph.num_rows) < kept_out
    cut = A[rows][:, columns]
    restricted = strategy.restrict(rows, columns)

    def mine(matrix, grid):
        own = matrix[grid.rows.start:grid.rows.stop, grid.columns_of(matrix.shape[1])]
        return np.ascontiguousarray(own)

    for width in (1, 11, 20):
        H, G = (rng.standard_normal((size, width)) for size in (cut.shape[1], cut.shape[0]))
        H, G = comm.bcast((H, G))
        keep = np.random.default_rng(8).random((2, graph.num_rows, width)) < 0.5
        for product, given, expected, to, of in ((restricted.forward, H, cut @ H, "layout", "layout_in"),
                                                 (restricted.backward, G, cut.T @ G, "layout_in", "layout")):
            to, of = getattr(restricted, to), getattr(restricted, of)
            found = product(mine(given, of), layer=0)
            np.testing.assert_allclose(found, mine(expected, to), atol=1e-12)
            bits = mine(keep[0, :len(expected)], to)
            out = np.full_like(found, np.nan)
            assert product(mine(given, of), layer=0, mask=reference.pack(bits), out=out) is out
            np.testing.assert_array_equal(out, np.where(bits, found, 0))
    H = rng.standard_normal((graph.num_rows, 20))
    whole = mine(comm.bcast(H), strategy.layout)  # the strategy itself is as it was
    np.testing.assert_allclose(strategy.forward(whole, layer=0), mine(A @ comm.bcast(H), strategy.layout), atol=1e-12)
    restricted.close()
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_a_restricted_map_sends_what_is_predicted(name, comm, directed):
    graph = make(directed=directed, degree=3)
    strategy, _ = build(name, comm, graph)
    rng = np.random.default_rng(9)
    rows, columns = (rng.random(graph.num_rows) < share for share in (0.1, 0.6))
    for one in (strategy, strategy.restrict(rows, columns)):
        of = one.costs()
        for direction in ("forward", "backward"):
            start, grid = (one.layout_in if direction == "forward" else one.layout), one.layout
            comm.counters.phase = f"{direction} {directed} {one is strategy}"
            mine = grid.columns_of(20)
            getattr(one, direction)(np.zeros((start.rows.num_rows, mine.stop - mine.start)), layer=0)
            counted = comm.counters.total(comm.counters.phase)
            calls = cost.product_counts(name, of, Product(0, 20), 8, direction == "backward")
            expected = [sum(np.asarray(call[i]).reshape(-1)[comm.rank] for call in calls) for calls in [list(calls)]
                        for i in (0, 1)]
            assert list(counted) == expected
        if one is not strategy:
            one.close()
    strategy.close()
