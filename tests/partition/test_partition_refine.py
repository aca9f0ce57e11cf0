"""Refinement: what it may never raise, counted again from nothing; what it must lower."""
import logging
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from hpgcn.graph import Graph
from hpgcn.partition import make_partition, statistics
from hpgcn.partition.model import pattern
from hpgcn.partition.refine import no_busier, refine


def drawn(n, density, *, directed, seed):
    """A random graph with a few vertices that many others read."""
    rng = np.random.default_rng(seed)
    A = (rng.random((n, n)) < density * (1 + 20 * (np.arange(n) < n // 50))).astype(np.float32)
    return Graph.from_scipy(sp.csr_array(A if directed else np.maximum(A, A.T)))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("k", [2, 3, 7, 20])
def test_nothing_is_raised(k, directed):
    graph = drawn(400, 0.01, directed=directed, seed=k)
    rows = pattern(graph)
    weights, part = np.diff(rows.indptr).astype(np.int64), np.random.default_rng(k).integers(0, k, 400).astype(np.int32)
    given = part.copy()
    better = refine(rows, part, k, weights, 0.1, seed=3)
    np.testing.assert_array_equal(part, given)
    before, after = statistics(graph, part, k), statistics(graph, better, k)
    for key in ("volume", "volume_max", "messages"):
        assert after[key] <= before[key], key
    assert after["volume"] < before["volume"]
    assert after["volume_max"] < before["volume_max"]
    loads, cap = np.bincount(better, weights, k), 1.1 * weights.sum() / k
    assert (loads <= np.maximum(np.bincount(part, weights, k), cap)).all()
    np.testing.assert_array_equal(refine(rows, part, k, weights, 0.1, seed=3), better)


def test_the_busiest_part_is_relieved():
    # vertices 0..3 are read by all and lie in part 0; 20..23 as well, one in each part, so that all pairs talk anyway
    n, k = 40, 4
    A = np.zeros((n, n), np.float32)
    A[:, [0, 1, 2, 3, 20, 21, 22, 23]] = 1
    np.fill_diagonal(A, 0)
    part = np.arange(n, dtype=np.int32) % k
    part[:4] = 0
    part[[4, 8, 12]] = 1, 2, 3
    graph = Graph.from_scipy(sp.csr_array(A))
    rows = pattern(graph)
    assert statistics(graph, part, k)["volume_max"] == 15
    better = refine(rows, part, k, np.diff(rows.indptr), 0.3)
    assert statistics(graph, better, k) | {"volume": 24} == statistics(graph, better, k)
    assert statistics(graph, better, k)["volume_max"] == 6


def test_a_part_at_its_limit_takes_nothing():
    graph = drawn(100, 0.05, directed=False, seed=1)
    rows = pattern(graph)
    weights, part = np.diff(rows.indptr), (np.arange(100) % 4).astype(np.int32)
    loads = np.bincount(part, weights, 4)
    better = refine(rows, part, 4, weights, 0.0)
    assert np.bincount(better, weights, 4).max() <= loads.max()


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
    graph, k = drawn(400, 0.01, directed=False, seed=1), 7
    rows = pattern(graph)
    weights = np.diff(rows.indptr).astype(np.int64)
    block = np.repeat(np.arange(k), 58)[:400].astype(np.int32)
    good = refine(rows, block, k, weights, 0.1)
    assert no_busier(rows, good, block, k, weights, 0.1) is good
    assert no_busier(rows, good, good.copy(), k, weights, 0.1) is good
    relieved = no_busier(rows, block, good, k, weights, 0.1)
    before, goal, found = (statistics(graph, each, k) for each in (block, good, relieved))
    assert found["volume_max"] <= goal["volume_max"] < before["volume_max"]
    assert found["volume"] <= max(before["volume"], goal["volume"])
    np.testing.assert_array_equal(no_busier(rows, block, good, k, weights, 0.1), relieved)


def test_a_rival_out_of_reach():
    # two rings: parts that interleave send all of them, parts that follow them nothing, and no single move leads there
    ring = sp.diags_array([np.ones(20), np.ones(20)], offsets=[-2, 2], shape=(20, 20))
    rows, ends = pattern(Graph.from_scipy(sp.csr_array(ring))), np.arange(20)
    weights = np.diff(rows.indptr).astype(np.int64)
    part, rival, uneven = ((ends // 2 % 2).astype(np.int32), (ends % 2).astype(np.int32), np.zeros(20, np.int32))
    assert no_busier(rows, part, rival, 2, weights, 0.0) is rival
    found = no_busier(rows, part, uneven, 2, weights, 0.0)
    assert np.bincount(found, weights, 2).max() <= max(np.bincount(part, weights, 2).max(), weights.sum() / 2)


def test_without_the_rival_engine(monkeypatch, caplog):
    graph = drawn(200, 0.03, directed=False, seed=2)
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with caplog.at_level(logging.WARNING, "hpgcn"):
        found = make_partition(graph, 4)
    assert found.engine == "mtkahypar"
    assert "were not held against those of method graph" in caplog.text
    assert "pymetis" in caplog.text


def test_one_part_and_isolated_vertices():
    graph = Graph.from_scipy(sp.csr_array((5, 5), dtype=np.float32))
    rows = pattern(graph)
    np.testing.assert_array_equal(refine(rows, np.zeros(5, np.int32), 1, np.ones(5, int), 0.0), 0)
    np.testing.assert_array_equal(refine(rows, np.arange(5, dtype=np.int32) % 2, 2, np.ones(5, int), 0.0),
                                  np.arange(5) % 2)
