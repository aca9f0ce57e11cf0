"""Vertex orders: RCM places neighbors near each other within parts; random ones are keyed."""
import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_some
from small_graphs import edges, grid

from hpgcn.graphs import reordering
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.reordering import bandwidth, random_order, rcm_within_parts
from hpgcn.partition import Partition, make_partition
from hpgcn.partition.rows import partition_model
from hpgcn.partition.rows.partition_model import pattern


def shuffled(graph, seed=0):
    return graph.permuted(np.random.default_rng(seed).permutation(graph.header.num_nodes))


def rcm_order(graph):
    """Return the RCM order of a graph with one part, after checking that it is a permutation."""
    order = rcm_within_parts(graph, np.zeros(graph.num_rows, int), 1)
    np.testing.assert_array_equal(np.sort(order), np.arange(graph.num_rows))
    return order


def dense_bandwidth(dense):
    i, j = np.nonzero(dense)
    return int(np.abs(i - j).max()) if i.size else 0


@pytest.mark.parametrize("symmetrize", [False, True])
@pytest.mark.parametrize(("pairs", "expected"), [
    ([], 0), ([(2, 2)], 0), ([(0, 1)], 1), ([(0, 3), (1, 2)], 3)])
def test_bandwidth(pairs, expected, symmetrize):
    assert bandwidth(edges(4, pairs, symmetrize).adjacency) == expected


@pytest.mark.parametrize("directed", [False, True])
def test_path_gets_bandwidth_one(directed):
    path = shuffled(edges(500, [(i, i + 1) for i in range(499)], symmetrize=not directed))
    assert path.header.directed == directed and bandwidth(path.adjacency) > 100
    assert bandwidth(path.permuted(rcm_order(path)).adjacency) == 1


def test_grid():
    graph = shuffled(grid(15))
    order = rcm_order(graph)
    assert dense_bandwidth(graph.adjacency.toarray()[np.ix_(order, order)]) <= 16
    assert order.dtype == np.int64
    np.testing.assert_array_equal(order, rcm_order(graph))


@pytest.mark.parametrize("pairs", [
    [], [(0, 0), (3, 3)], [(0, j) for j in range(1, 6)], [(1, 2)]])
def test_small_graphs(pairs):
    rcm_order(edges(6, pairs))


def test_breadth_first_levels():
    # in a Cuthill-McKee order every vertex but a component's first touches an earlier one;
    # reversed, a later one
    rng = np.random.default_rng(3)
    graph = Graph.from_scipy(sp.random_array((80, 80), density=0.03, rng=rng), symmetrize=True)
    order = rcm_order(graph)
    dense = graph.adjacency.toarray()[np.ix_(order, order)] != 0
    np.fill_diagonal(dense, False)
    roots = sum(not dense[i, i + 1:].any() for i in range(80))
    assert roots == sp.csgraph.connected_components(graph.adjacency)[0]


@pytest.mark.parametrize("directed", [False, True])
def test_within_parts(directed):
    # two paths, each one part, joined by random edges that RCM must not see; part 1 is empty
    rng = np.random.default_rng(0)
    across = np.stack([rng.integers(0, 100, 50), rng.integers(100, 200, 50)], 1)
    steps = [(i, i + 1) for i in range(199) if i != 99]
    graph = edges(200, np.concatenate([steps, across]), symmetrize=not directed)
    mixing = rng.permutation(200)
    graph = graph.permuted(mixing)
    part = np.where(mixing < 100, 0, 2)
    order = rcm_within_parts(graph, part, 3)
    np.testing.assert_array_equal(np.sort(order), np.arange(200))
    np.testing.assert_array_equal(Partition.from_parts(part, 3, order=order).perm, order)
    dense = graph.adjacency.toarray()[np.ix_(order, order)]
    assert dense_bandwidth(dense[:100, :100]) == dense_bandwidth(dense[100:, 100:]) == 1


def test_make_partition_orders_each_part():
    graph = shuffled(grid(24))
    bands = []
    for rcm in (False, True):
        result = make_partition(graph, 3, method="random", rcm=rcm)
        local = graph.permuted(result.perm).adjacency.toarray()[:192, :192]
        bands.append(dense_bandwidth(local))
    assert bands[1] < bands[0] / 2
    one = make_partition(graph, 1, method="block", rcm=False)
    np.testing.assert_array_equal(np.diff(one.perm), 1)


def test_random_order_is_keyed():
    order = random_order(1000, 7)
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    np.testing.assert_array_equal(order, random_order(1000, 7))
    assert_some(order != random_order(1000, 8))
    # the key of a vertex does not depend on n: the first 500 stand in the same order
    np.testing.assert_array_equal(order[order < 500], random_order(500, 7))
    # uniform: the mean rank of the first half is that of the second, to 5 standard deviations
    deviation = np.sqrt(1000**2 / 12 / 500)
    assert abs(np.flatnonzero(order < 500).mean() - 499.5) < 5 * deviation
    assert random_order(0, 0).size == 0


@pytest.mark.long
def test_compiled_passes_of_large_graphs_change_nothing(monkeypatch):
    pairs = np.random.default_rng(0).integers(0, 200, (500, 2))
    graph = edges(200, [*np.unique(pairs, axis=0), (7, 7), (0, 0)])
    part = np.arange(200) % 3
    order, rows = rcm_within_parts(graph, part, 3), pattern(graph)
    monkeypatch.setattr(reordering, "LARGE", 0)
    monkeypatch.setattr(partition_model, "LARGE", 0)
    np.testing.assert_array_equal(rcm_within_parts(graph, part, 3), order)
    moved = graph.permuted(random_order(200, 1))
    again = rcm_within_parts(moved, part[moved.vertex], 3, original_ties=True)
    np.testing.assert_array_equal(moved.vertex[again], order)
    compiled = pattern(graph)
    np.testing.assert_array_equal(compiled.indptr, rows.indptr)
    np.testing.assert_array_equal(compiled.indices, rows.indices)
    assert compiled.indices.dtype == rows.indices.dtype
