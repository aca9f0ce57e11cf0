"""Method stream: balance, blocks, files, degenerate graphs and volume."""
import numpy as np
import pytest
from arrays import assert_all, assert_some
from small_graphs import edges, grid, two_cliques

from hpgcn import load, save
from hpgcn.kernels.host import threads
from hpgcn.partition import make_partition
from hpgcn.partition.rows import group_passes, streaming
from hpgcn.partition.rows.partition_model import pattern
from hpgcn.partition.rows.stream_kernels import keep_between, merge_entries, weight_between
from hpgcn.partition.rows.streaming import memory_level, stored_level, stream_parts


def communities(n=1200, groups=4, degree=12, seed=0, symmetrize=True):
    """Return a graph of `groups` communities: 4 of 5 edges join two members of one."""
    draws = np.random.default_rng(seed)
    u = draws.integers(0, n, n * degree // 2)
    v = draws.integers(0, n, u.size)
    inside = draws.random(u.size) < 0.8
    v[inside] += (u[inside] - v[inside]) % groups  # vertices of a community: equal mod `groups`
    return edges(n, np.unique(np.stack([u, v % n], 1), axis=0), symmetrize)


@pytest.mark.parametrize("symmetrize", [True, False])
def test_volume_on_communities(symmetrize):
    graph = communities(symmetrize=symmetrize)
    volume = {method: make_partition(graph, 4, method=method, rcm=False).statistics["volume"]
              for method in ("stream", "block", "random")}
    assert volume["stream"] < 0.7 * volume["block"]
    assert volume["stream"] < 0.7 * volume["random"]


def test_mesh_is_cut_along_few_lines():
    made = make_partition(grid(40), 4, method="stream")
    assert made.statistics["volume"] < 320  # two straight lines: 160
    assert made.statistics["imbalance_nnz"] <= 0.01


@pytest.mark.parametrize("k", [2, 3, 7, 50])
def test_parts_keep_the_limit(k):
    graph = communities(600)
    weights = np.diff(pattern(graph).indptr)
    made = make_partition(graph, k, method="stream", epsilon=0.02, refine=False)
    load = np.bincount(made.part, weights, k)
    assert load.max() <= max(1.02 * weights.sum() / k, weights.sum() / k + weights.max())
    assert made.epsilon == 0.02


@pytest.mark.parametrize("symmetrize", [True, False])
def test_blocks_and_files_change_nothing(tmp_path, symmetrize):
    graph = communities(symmetrize=symmetrize)
    rows = pattern(graph)
    weights = np.diff(rows.indptr).astype(np.int64)
    whole = stream_parts(memory_level(rows, weights), 4, 0.01, seed=3)
    for block in (1, 100, 5000):
        level = memory_level(rows, weights, block)
        np.testing.assert_array_equal(stream_parts(level, 4, 0.01, seed=3), whole)

    save(graph, tmp_path / "graph.h5")
    with load(tmp_path / "graph.h5") as stored:
        level, _ = stored_level(stored, block=777)
        np.testing.assert_array_equal(level.weights, weights)
        np.testing.assert_array_equal(stream_parts(level, 4, 0.01, seed=3), whole)
    level = memory_level(rows, weights)
    assert_some(stream_parts(level, 4, 0.01, seed=4) != whole)


@pytest.mark.long
def test_groups_are_the_same_on_any_threads_and_blocks(monkeypatch):
    monkeypatch.setattr(group_passes, "LARGE_LEVEL", 0)
    monkeypatch.setattr(group_passes, "GROUP", 512)
    rows = pattern(communities())
    weights = np.diff(rows.indptr).astype(np.int64)
    made = [stream_parts(memory_level(rows, weights), 4, 0.01, seed=3)]
    with threads.threshold(0):
        made += [stream_parts(memory_level(rows, weights, block), 4, 0.01, seed=3)
                 for block in (1, 777, 5000)]
    for part in made[1:]:
        np.testing.assert_array_equal(part, made[0])
    entry_row = np.repeat(np.arange(weights.size), np.diff(rows.indptr))
    assert np.mean(made[0][entry_row] != made[0][rows.indices]) < 0.4
    assert np.bincount(made[0], weights).max() <= 1.01 * weights.sum() / 4


def test_other_parts_of_clusters_are_compared_at_the_end(monkeypatch):
    monkeypatch.setattr(streaming, "FEWEST", 1000)
    rows = pattern(communities())
    level = memory_level(rows, np.diff(rows.indptr).astype(np.int64))
    own = stream_parts(level, 4, 0.01)
    seen = []

    def last_is_better(part):
        seen.append(part)
        return -len(seen)

    def cut(clusters):
        return np.arange(clusters.weights.size, dtype=np.int32) % 4

    other = stream_parts(level, 4, 0.01, cut=cut, cost=last_is_better)
    assert other is seen[1]
    np.testing.assert_array_equal(seen[0], own)
    assert_some(other != own)
    first = stream_parts(level, 4, 0.01, cut=cut, cost=lambda part: 0)
    np.testing.assert_array_equal(first, own)


def test_stored_loops_are_counted_once():
    graph = edges(3, [(0, 0), (0, 1), (2, 2)])
    level, alone = stored_level(graph, w0=5)
    assert level.weights.tolist() == [7, 7, 6]
    assert alone.tolist() == [False, False, True]
    assert stored_level(graph)[0].entries == 2


def test_degenerate_graphs():
    cliques = make_partition(two_cliques(), 2, method="stream")
    assert cliques.statistics["volume"] == 2
    star = edges(300, [(0, j) for j in range(1, 300)])
    made = make_partition(star, 4, method="stream")  # the hub weighs more than its part may
    assert np.bincount(made.part, minlength=4).min() > 0
    assert np.count_nonzero(made.part == made.part[0]) < 30
    empty = make_partition(edges(8, []), 4, method="stream")
    assert np.bincount(empty.part).tolist() == [2] * 4
    loose = make_partition(edges(9, [(0, 1)]), 3, method="stream", epsilon=1.0)
    assert loose.part[0] == loose.part[1]
    assert np.bincount(loose.part).tolist() == [3, 3, 3]
    for k in (1, 20):
        made = make_partition(two_cliques(), k, method="stream")
        assert np.bincount(made.part).tolist() == [20 // k] * k


def test_entries_between_clusters_are_added():
    indices = np.array([1, 2, 0, 2, 0], np.int32)
    block = 0, np.array([0, 2, 4, 5]), indices, np.array([1, 6, 1, 3, 6])
    number = np.array([0, 0, 1], np.int32)
    assert weight_between(*block, number) == 15
    kept = np.empty(5, np.int32), np.empty(5, np.int32), np.empty(5, np.int64)
    assert keep_between(*block, number, 3, 0, *kept) == 3
    assert [array[:3].tolist() for array in kept] == [[0, 0, 1], [1, 1, 0], [6, 3, 6]]
    indptr, columns, sums = merge_entries(*(array[:3] for array in kept), 2)
    assert (indptr.tolist(), columns.tolist(), sums.tolist()) == ([0, 1, 2], [1, 0], [9, 6])


def test_sampled_entries_keep_the_weight_and_both_directions():
    graph = communities()
    block = 0, graph.indptr, graph.indices.copy(), np.empty(0, np.int64)
    own = np.arange(1200, dtype=np.int32)
    size = graph.indices.size
    rows, columns, kept = arrays = (np.empty(size, np.int32), np.empty(size, np.int32),
                                    np.empty(size, np.int64))
    count = keep_between(*block, own, 4, 0, *arrays)
    assert_all(kept[:count] == 4)
    assert 0.9 * size < 4 * count < 1.1 * size
    pairs = {*zip(rows[:count].tolist(), columns[:count].tolist())}
    assert pairs == {(column, row) for row, column in pairs}
