"""Refinement of partitions never raises the brute-force volume, and lowers it where it can."""
import logging
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_all

from hpgcn import store
from hpgcn.graphs.graph import Graph
from hpgcn.partition import format_statistics, make_partition, statistics
from hpgcn.partition.partition_request import Parts
from hpgcn.partition.quality import count
from hpgcn.partition.rows import row_methods, row_moves
from hpgcn.partition.rows.partition_model import pattern
from hpgcn.partition.rows.refine import match_rival_maximum, refine
from hpgcn.partition.rows.row_moves import find_best, may_gain, refinement_state


def drawn(n, density, *, directed, seed):
    """Return a random graph in which many vertices read a few others, with pattern and weights."""
    rng = np.random.default_rng(seed)
    chances = density * (1 + 20 * (np.arange(n) < n // 50))
    A = (rng.random((n, n)) < chances).astype(np.float32)
    return weighed(A if directed else np.maximum(A, A.T))


def weighed(A):
    """Return a graph made of a matrix, its pattern, and the row lengths as vertex weights."""
    graph = Graph.from_scipy(sp.csr_array(A, dtype=np.float32))
    rows = pattern(graph)
    return graph, rows, np.diff(rows.indptr).astype(np.int64)


@pytest.mark.parametrize(("k", "directed"), [(2, False), (3, True), (7, False), (20, True)])
def test_nothing_is_raised(k, directed):
    graph, rows, weights = drawn(400, 0.01, directed=directed, seed=k)
    part = np.random.default_rng(k).integers(0, k, 400).astype(np.int32)
    given = part.copy()
    better = refine(rows, part, k, weights, 0.1, seed=3)
    np.testing.assert_array_equal(part, given)
    before, after = (statistics(graph, parts, k) for parts in (part, better))
    assert after["volume"] < before["volume"]
    assert after["volume_max"] < before["volume_max"]
    assert after["messages"] <= before["messages"]
    loads = np.bincount(better, weights, k)
    cap = np.maximum(np.bincount(part, weights, k), 1.1 * weights.sum() / k)
    assert_all(loads <= cap)
    np.testing.assert_array_equal(refine(rows, part, k, weights, 0.1, seed=3), better)


def test_the_busiest_part_is_relieved():
    # vertices 0..3 are read by all and lie in part 0; 20..23 as well, one in each part, so that
    # all pairs send messages anyway
    n, k = 40, 4
    A = np.zeros((n, n))
    A[:, [0, 1, 2, 3, 20, 21, 22, 23]] = 1
    np.fill_diagonal(A, 0)
    part = np.arange(n, dtype=np.int32) % k
    part[:4] = 0
    part[[4, 8, 12]] = 1, 2, 3
    graph, rows, weights = weighed(A)
    assert statistics(graph, part, k)["volume_max"] == 15
    counted = statistics(graph, refine(rows, part, k, weights, 0.3), k)
    assert (counted["volume"], counted["volume_max"]) == (24, 6)


@pytest.mark.release
def test_an_engine_is_refined_unless_told_otherwise(enron):
    plain, refined = (make_partition(enron, 16, refine=wanted, rcm=False, epsilon=0.03).statistics
                      for wanted in (False, True))
    assert plain["volume"] == plain["engine_volume"] == refined["engine_volume"]
    assert refined["volume"] <= 1.03 * plain["volume"]  # the price of the maximum
    assert refined["messages"] <= plain["messages"]
    assert refined["volume_max"] < 0.95 * plain["volume_max"]
    assert refined["imbalance_nnz"] <= max(plain["imbalance_nnz"], 0.03)
    by_edges = make_partition(enron, 16, method="graph", rcm=False, epsilon=0.03).statistics
    assert refined["volume_max"] <= by_edges["volume_max"]
    assert refined["volume"] < by_edges["volume"]


def test_the_busiest_part_is_held_against_a_rival():
    k = 7
    graph, rows, weights = drawn(400, 0.01, directed=False, seed=1)
    block = np.repeat(np.arange(k), 58)[:400].astype(np.int32)
    good = refine(rows, block, k, weights, 0.1)
    assert match_rival_maximum(rows, good, block, k, weights, 0.1) is good
    relieved = match_rival_maximum(rows, block, good, k, weights, 0.1)
    before, goal, after = (statistics(graph, parts, k) for parts in (block, good, relieved))
    assert after["volume_max"] <= goal["volume_max"] < before["volume_max"]
    assert after["volume"] <= max(before["volume"], goal["volume"])


def test_a_rival_out_of_reach():
    # two rings: parts that interleave send all rows, parts that follow the rings send none, and no
    # single move leads there
    _, rows, weights = weighed(sp.diags_array(
        [np.ones(20), np.ones(20)], offsets=[-2, 2], shape=(20, 20)))
    ends = np.arange(20)
    part = (ends // 2 % 2).astype(np.int32)
    rival = (ends % 2).astype(np.int32)
    assert match_rival_maximum(rows, part, rival, 2, weights, 0.0) is rival
    uneven = match_rival_maximum(rows, part, np.zeros(20, np.int32), 2, weights, 0.0)
    limit = max(np.bincount(part, weights, 2).max(), weights.sum() / 2)
    assert np.bincount(uneven, weights, 2).max() <= limit


def test_only_best_takes_the_parts_of_another_method(monkeypatch, tmp_path):
    # the two rings again: mtkahypar's parts interleave, METIS's do not
    graph, _, _ = weighed(sp.diags_array([np.ones(20), np.ones(20)], offsets=[-2, 2],
                                         shape=(20, 20)))
    ends = np.arange(20)
    found = {"mtkahypar": (ends // 2 % 2).astype(np.int32), "metis": (ends % 2).astype(np.int32)}
    monkeypatch.setattr(row_methods, "run", lambda arrays, weights, request, *_, **__: Parts(
        found[request.engine], request.engine))
    made = {method: make_partition(graph, 2, method=method, baseline=True)
            for method in ("hypergraph", "graph", "best")}
    for method, engine in (("hypergraph", "mtkahypar"), ("graph", "metis"), ("best", "metis")):
        np.testing.assert_array_equal(made[method].part, found[engine])
        assert made[method].engine == engine
        assert made[method].statistics["unrefined_volume"] == made[method].statistics["volume"]
    assert [made[method].title for method in made] == ["hypergraph", "graph", "best (graph)"]
    assert make_partition(graph, 2, method="best", refine=False).winner == "hypergraph"

    # the file and the table of --compare say which method won
    store.write_partitioned(tmp_path / "g.h5", graph, made["best"])
    assert store.load(tmp_path / "g.h5").vertex_partition.title == "best (graph)"
    heading, *lines = format_statistics(made).splitlines()
    total = next(at for at, line in enumerate(lines) if line.startswith("rows sent, total"))
    assert "best (graph) / random" in format_statistics({"best": made["best"]})
    assert heading.split()[:4] == ["hypergraph", "hypergraph", "/", "random"]
    assert lines[total + 1].split()[:2] == ["before", "refinement"]


def test_without_the_rival_engine(monkeypatch, caplog):
    graph, _, _ = drawn(200, 0.03, directed=False, seed=2)
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with caplog.at_level(logging.WARNING, "hpgcn"):
        made = make_partition(graph, 4)
    assert (made.title, made.engine) == ("best (hypergraph)", "mtkahypar")
    assert "were not compared with those of method graph" in caplog.text
    assert "pymetis" in caplog.text


def test_a_part_at_its_limit_takes_nothing():
    _, rows, weights = drawn(100, 0.05, directed=False, seed=1)
    part = (np.arange(100) % 4).astype(np.int32)
    better = refine(rows, part, 4, weights, 0.0)
    assert np.bincount(better, weights, 4).max() <= np.bincount(part, weights, 4).max()


@pytest.mark.parametrize("k", [1, 2])
def test_isolated_vertices_stay(k):
    _, rows, weights = weighed(sp.csr_array((5, 5)))
    part = np.arange(5, dtype=np.int32) % k
    np.testing.assert_array_equal(refine(rows, part, k, weights, 0.0), part)


@pytest.mark.parametrize("k", [5, 70, 140])
def test_bound_excludes_no_move_that_pays(k):
    _, rows, weights = drawn(300, 0.01, directed=True, seed=k)
    part = np.random.default_rng(k).integers(0, k, 300).astype(np.int32)
    part = refine(rows, part, k, weights, 1.0)
    part[:100] = (part[:100] + 1) % k
    state = refinement_state(rows, part, k, weights)
    work = np.zeros(k), np.zeros(k, np.int64), np.empty(k, np.int32)
    excluded = 0
    for target, steepness in ((np.inf, 0.0), (state.sent.mean(), 0.2)):
        for v in range(300):
            q, _ = find_best(state, v, weights.sum(), target, steepness, state.totals[0], *work)
            if not may_gain(state, v, weights.sum(), target, steepness, np.empty(64, np.uint64)):
                assert q == state.part[v]
                excluded += 1
    assert 10 < excluded < 590


@pytest.mark.parametrize("apart", [1, 64])
def test_bound_excludes_vertices_inside_a_part_of_many(apart):
    # two parts that touch in the middle of a path, with other bits or with the same one
    k = 80
    _, rows, weights = weighed(sp.diags_array([np.ones(9), np.ones(9)], offsets=[-1, 1],
                                              shape=(10, 10)))
    part = np.repeat(np.array([3, 3 + apart], np.int32), 5)
    state = refinement_state(rows, part, k, weights)
    hopeful = [may_gain(state, v, weights.sum(), np.inf, 0.0, np.empty(64, np.uint64))
               or may_gain(state, v, weights.sum(), state.sent.mean(), 0.2, np.empty(64, np.uint64))
               for v in range(10)]
    assert not any(hopeful[:3] + hopeful[-3:])
    assert hopeful[4]


def test_groups_keep_limits_and_lower_the_volume(monkeypatch):
    monkeypatch.setattr(row_moves, "LARGE", 0)
    monkeypatch.setattr(row_moves, "GROUP", 64)
    _, rows, weights = drawn(300, 0.02, directed=False, seed=3)
    part = np.random.default_rng(3).integers(0, 4, 300).astype(np.int32)
    better = [refine(rows, part, 4, weights, 0.1, symmetric=symmetric)
              for symmetric in (False, True)]
    np.testing.assert_array_equal(*better)
    before, after = (count(rows, each, 4) for each in (part, better[0]))
    assert after["volume"] < 0.95 * before["volume"]
    assert after["volume_max"] < before["volume_max"]
    heaviest, before = (np.bincount(each, weights, 4).max() for each in (better[0], part))
    assert heaviest <= max(1.1 * weights.sum() / 4, before)
