"""Plans of all ranks: sent rows equal needed rows, and volumes equal brute-force counts.

Plans of products are compared with a simulation of every strategy, for up to 12 ranks.
"""
from itertools import pairwise
from itertools import product as all_of
from math import prod

import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_all
from graphs import make
from simulated import SIMULATED, halo_plans

from hpgcn.parallel.layout import BlockLayout, RowPartition, divisors
from hpgcn.parallel.pattern import BlockPattern, Pattern, permuted
from hpgcn.parallel.pattern_counts import with_loops
from hpgcn.partition import Partition
from hpgcn.strategies import STRATEGIES, Product, RankGrid


def plans_of(k, *, directed=True, seed=0, empty=()):
    graph = make(directed=directed)
    part = np.random.default_rng(seed).integers(0, k, graph.num_rows)
    part[np.isin(part, empty)] = (max(empty, default=0) + 1) % k
    partition = Partition.from_parts(part, k)
    moved = graph.permuted(partition.perm)
    plans = halo_plans(moved.indptr, moved.indices, partition.offsets)
    return moved, partition.offsets, plans


@pytest.mark.parametrize("k, empty", [(1, ()), (2, ()), (3, (1,)), (7, ()), (12, (0, 5))])
def test_sends_match_receives(k, empty):
    graph, offsets, plans = plans_of(k, empty=empty)
    A = graph.adjacency
    for p, mine in enumerate(plans):
        needed = np.unique(A[offsets[p]:offsets[p + 1]].indices)
        expected = needed[(needed < offsets[p]) | (needed >= offsets[p + 1])]
        np.testing.assert_array_equal(mine.ghosts, expected)
        for q, theirs in enumerate(plans):
            received = mine.ghosts[mine.recv_offsets[q]:mine.recv_offsets[q + 1]]
            sent = theirs.send_rows[theirs.send_offsets[p]:theirs.send_offsets[p + 1]] + offsets[q]
            np.testing.assert_array_equal(received, sent)
            assert (q in mine.sources) == (p in theirs.destinations) == bool(received.size)


@pytest.mark.parametrize("directed", [False, True])
def test_volume_is_connectivity_minus_one(directed):
    graph, offsets, plans = plans_of(5, directed=directed)
    part = np.repeat(np.arange(5), np.diff(offsets))
    volume = 0
    for column in range(graph.num_rows):
        readers = set(part[graph.adjacency.tocsc()[:, [column]].tocoo().coords[0]]) | {part[column]}
        volume += len(readers) - 1
    assert sum(p.send_rows.size for p in plans) == sum(p.ghosts.size for p in plans) == volume


def test_a_row_partition_by_hand():
    layout = RowPartition(np.array([0, 3, 3, 5]), 0)
    assert (layout.size, layout.start, layout.stop, layout.num_rows) == (3, 0, 3, 3)


def grids():
    """Yield (strategy, grid) for up to 8 ranks, and for 12 if the grid has several axes."""
    for name in SIMULATED:
        axes = STRATEGIES[name].axes.count("x") + 1
        for ranks in [*range(1, 9), 12]:
            for shape in all_of(divisors(ranks), repeat=axes):
                if prod(shape) == ranks and (axes > 1 or ranks < 12):
                    yield pytest.param(name, shape, id=f"{name}-{'x'.join(map(str, shape))}")


def cube_of(strategy, shape):
    """Return (R, L, C): the numbers of big row blocks, pieces of each, and column blocks."""
    rows, columns = strategy.block_grid(shape)
    return shape[0], rows // shape[0], columns


def matrix_of(n, *, directed):
    """Return a random dense float32 matrix with a full diagonal, symmetric unless directed."""
    rng = np.random.default_rng(0)
    A = (rng.random((n, n)) < 0.15) * rng.integers(1, 9, (n, n)) / 8
    A = A if directed else np.maximum(A, A.T)
    return (A + np.eye(n)).astype(np.float32)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("blocks", ["balanced", "gaps"])
@pytest.mark.parametrize("name, shape", list(grids()))
def test_a_simulation_of_all_ranks_sends_what_is_planned(name, shape, blocks, directed):
    strategy = STRATEGIES[name]
    n = 23
    A = matrix_of(n, directed=directed)
    pattern = Pattern(sp.csr_array(A), not directed)
    rows, columns = strategy.block_grid(shape)
    offsets = strategy.row_offsets(shape, pattern.indptr)
    if blocks == "gaps":
        offsets = np.sort(np.resize([0, 0, 4, n, n], rows + 1))
        offsets[0], offsets[-1] = 0, n
    layout = BlockLayout(offsets, columns, 0)
    options = {"pipeline_batches": 1, "on_host": False}
    planned = strategy.Plan.of(pattern, RankGrid(shape, layout, options))
    for width, masked, backward in ((5, False, False), (5, False, True), (9, True, False),
                                    (9, True, True)):
        simulated = SIMULATED[name](A, cube_of(strategy, shape), offsets)
        H = np.random.default_rng(1).standard_normal((n, width)).astype(np.float32)
        mask = simulated.scatter(np.ones(H.shape, bool)) if masked else None
        multiply = simulated.backward if backward else simulated.forward
        result = simulated.gather(multiply(simulated.scatter(H), mask))
        np.testing.assert_allclose(result, (A.T if backward else A) @ H, rtol=1e-4, atol=1e-4)
        counts = planned.traffic.counts(Product(0, width, masked, backward), A.itemsize)
        assert counts.tolist() == [simulated.ranks.bytes, simulated.ranks.messages]


@pytest.mark.parametrize("piece", [3, 1 << 20])
def test_counts_of_a_pattern_are_those_of_dense_blocks(piece, monkeypatch):
    monkeypatch.setattr("hpgcn.parallel.pattern_counts.PIECE", piece)
    A = sp.random(23, 23, 0.2, random_state=1, format="csr") != 0
    A.sort_indices()
    pointers, columns = with_loops(A.indptr, A.indices)
    looped = (A + sp.eye(23)).tocsr()
    looped.sort_indices()
    np.testing.assert_array_equal(pointers, looped.indptr)
    np.testing.assert_array_equal(columns, looped.indices)

    # blocks, with an empty one
    dense = A.toarray()
    rows, cols = np.array([0, 0, 4, 11, 23]), np.array([0, 7, 8, 23])
    pattern = Pattern(sp.csr_array(A), False)
    blocks = [[dense[a:b, c:d] for c, d in pairwise(cols)] for a, b in pairwise(rows)]
    assert pattern.nonzeros(rows, cols).tolist() == [[b.sum() for b in row] for row in blocks]
    assert pattern.touched_rows(rows, cols).tolist() == [
        [b.any(1).sum() for b in row] for row in blocks]
    assert pattern.bandwidth == np.abs(np.subtract(*A.nonzero())).max()

    # columns that other blocks read; the diagonal ones are own
    read, matched = pattern.ghosts(rows)
    square = [[dense[a:b, c:d] for c, d in pairwise(rows)] for a, b in pairwise(rows)]
    expected = np.array([[b.any(0).sum() for b in row] for row in square])
    np.fill_diagonal(expected, 0)
    assert read.tolist() == expected.tolist()
    largest = [[sp.csgraph.structural_rank(sp.csr_array(b)) for b in row] for row in square]
    np.fill_diagonal(largest := np.array(largest), 0)
    assert_all(matched <= largest)
    assert_all(2 * matched >= largest)

    # another order
    order = np.random.default_rng(0).permutation(23)
    np.testing.assert_array_equal(permuted(pattern, order).matrix.toarray(), dense[order][:, order])


@pytest.mark.parametrize("symmetric", [True, False])
def test_counts_of_parts_are_those_of_moved_rows(symmetric):
    A = sp.random(29, 29, 0.2, random_state=2, format="csr") != 0
    A = ((A + A.T) if symmetric else A).tocsr()
    A.sort_indices()
    part = np.random.default_rng(3).integers(0, 5, 29).astype(np.int16)
    part[part == 3] = 4  # an empty part
    order = np.argsort(part, kind="stable")
    offsets = np.searchsorted(part[order], np.arange(6))
    pattern = BlockPattern(Pattern(sp.csr_array(A), symmetric), part, order, offsets, None)
    moved = permuted(pattern.whole, order)
    np.testing.assert_array_equal(pattern.indptr, moved.indptr)
    for one, other in ((pattern, moved), (pattern.transposed, moved.transposed)):
        np.testing.assert_array_equal(one.ghosts(offsets)[0], other.ghosts(offsets)[0])
        for bounds in (offsets, offsets[[0, 2, 5]], offsets[::5]):
            np.testing.assert_array_equal(one.nonzeros(bounds, bounds),
                                          other.nonzeros(bounds, bounds))
            np.testing.assert_array_equal(one.touched_rows(bounds, bounds),
                                          other.touched_rows(bounds, bounds))
    np.testing.assert_array_equal(pattern.ghosts(offsets)[1], moved.ghosts(offsets)[1])
