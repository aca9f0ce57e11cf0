"""Vertex cuts: Libra's rule against sets and dicts, and what the cuts cost."""
import collections
import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from small_graphs import edges, grid, two_cliques

from hpgcn.datasets.generate import generate
from hpgcn.errors import DataError, UsageError
from hpgcn.graph import Graph
from hpgcn.partition import vertex_cut as module
from hpgcn.partition.partition import Partition
from hpgcn.partition.vertex_cut import vertex_cut, vertex_cut_statistics


def entries(graph):
    """(row, column) of each stored entry, in order."""
    rows = np.repeat(np.arange(graph.num_rows), np.diff(graph.indptr)).tolist()
    return list(zip(rows, graph.indices.tolist()))


def libra(graph, k, seed=0):
    """The rule, one edge at a time: (part of each stored entry, owner of each vertex)."""
    stored, n = entries(graph), graph.num_rows
    stream = sorted({(min(pair), max(pair)) for pair in stored if pair[0] != pair[1]})
    keys = np.random.Philox(key=seed).random_raw(len(stream)).tolist()
    degree = collections.Counter(vertex for pair in stream for vertex in pair)
    places, load, part = collections.defaultdict(set), [0] * k, {}
    for _, (u, v) in sorted(zip(keys, stream)):
        if not places[u] and not places[v]:
            choice = range(k)
        elif not places[u] or not places[v]:
            choice = places[u] | places[v]
        elif places[u] & places[v]:
            choice = places[u] & places[v]
        else:
            choice = places[min((degree[u], u), (degree[v], v))[1]]
        p = min(choice, key=lambda q: (load[q], q))
        load[p] += 1
        places[u].add(p)
        places[v].add(p)
        part[u, v] = part[v, u] = p
    rows, owner = [0] * k, {}
    for _, v in sorted((len(places[v]) or k, v) for v in range(n)):
        owner[v] = min(places[v] or range(k), key=lambda q: (rows[q], q))
        rows[owner[v]] += 1
    part.update({(v, v): owner[v] for v in range(n)})
    return [part[pair] for pair in stored], [owner[v] for v in range(n)]


def costs(graph, edge_part, owner, k):
    """The statistics, from sets of vertices."""
    n, stored = graph.num_rows, entries(graph)
    holders = [{p} for p in owner]
    nonzeros = collections.Counter(edge_part)
    for (u, v), p in zip(stored, edge_part):
        holders[u].add(p)
        holders[v].add(p)
    nonzeros.update(owner[v] for v in set(range(n)) - {u for u, v in stored if u == v})
    sent, received, pairs, rows = (collections.Counter() for _ in range(4))
    for root, parts in zip(owner, holders):
        rows[root] += 1
        for clone in parts - {root}:
            sent[root] += 1
            received[clone] += 1
            pairs[root, clone] += 1
    messages = collections.Counter(root for root, _ in pairs)
    return {
        "volume": sent.total(), "volume_max": max(sent.values(), default=0), "volume_avg": sent.total() / k,
        "ghosts_max": max(received.values(), default=0), "messages": len(pairs),
        "messages_max": max(messages.values(), default=0), "messages_avg": len(pairs) / k,
        "replication_factor": sum(map(len, holders)) / n,
        "imbalance_nnz": max(nonzeros.values()) * k / nonzeros.total() - 1,
        "imbalance_rows": max(rows.values()) * k / n - 1}


def random_graph(n, density, *, directed, seed):
    """Weights, loops, isolated vertices."""
    A = sp.random_array((n, n), density=density, rng=np.random.default_rng(seed), format="csr")
    return Graph.from_scipy(A, symmetrize=not directed)


def test_by_hand(monkeypatch):
    """Edges in the order written in the comments, into three parts; loops at 2 and 7; 8 is isolated."""
    graph = edges(9, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (5, 6), (2, 2), (7, 7)])
    # 5-6: new, 0; 0-1: new, 1; 2-3: new, 2; 0-2: equal degrees, 2 joins 0 in 1; 1-3: 3 has the higher degree and
    # joins 1 in 1; 3-4: 4 is new, and 2 is the less loaded of 3's parts {1, 2}
    monkeypatch.setattr(module, "random_order", lambda n, seed: np.array([5, 0, 3, 1, 2, 4]))
    cut = vertex_cut(graph, 3)
    expected = np.full((9, 9), -1)
    for (u, v), p in {(0, 1): 1, (0, 2): 1, (1, 3): 1, (2, 3): 2, (3, 4): 2, (5, 6): 0, (2, 2): 2, (7, 7): 0}.items():
        expected[u, v] = expected[v, u] = p
    assert cut.edge_part.tolist() == [expected[pair] for pair in entries(graph)]
    assert cut.owner.tolist() == [1, 1, 2, 1, 2, 0, 0, 0, 2]
    assert cut.edge_part.dtype == cut.owner.dtype == np.int32
    assert vertex_cut_statistics(graph, cut.edge_part, cut.owner, 3) == {
        "volume": 2, "volume_max": 1, "volume_avg": 2 / 3, "ghosts_max": 1, "messages": 2, "messages_max": 1,
        "messages_avg": 2 / 3, "replication_factor": 11 / 9, "imbalance_nnz": 9 * 3 / 21 - 1, "imbalance_rows": 0}


@pytest.mark.parametrize("k", [1, 2, 3, 7, 63, 64, 65, 150])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("density", [0.002, 0.02, 0.2])
def test_parts_and_costs_follow_the_rule(density, directed, k):
    graph = random_graph(150, density, directed=directed, seed=k)
    assert graph.header.directed == directed
    cut = vertex_cut(graph, k, seed=k)
    edge_part, owner = libra(graph, k, seed=k)
    assert cut.edge_part.tolist() == edge_part
    assert cut.owner.tolist() == owner
    found, wanted = vertex_cut_statistics(graph, cut.edge_part, cut.owner, k), costs(graph, edge_part, owner, k)
    assert found == pytest.approx(wanted)
    assert {name: type(value) for name, value in found.items()} == {name: type(wanted[name]) for name in found}


@pytest.mark.parametrize("k", [2, 4, 8, 16])
def test_power_law_graphs(k):
    graph = generate("rmat", scale=11, features=0, classes=0)
    cut = vertex_cut(graph, k)
    edge_part, owner = libra(graph, k)
    assert cut.edge_part.tolist() == edge_part
    found = vertex_cut_statistics(graph, cut.edge_part, cut.owner, k)
    assert found["replication_factor"] == pytest.approx(costs(graph, edge_part, owner, k)["replication_factor"])
    loads = np.bincount(cut.edge_part, minlength=k)
    assert loads.sum() == graph.header.num_edges
    assert loads.max() <= 1.01 * loads.mean()
    assert np.ptp(np.bincount(cut.owner, minlength=k)) <= 1
    # each edge anywhere: the balance of the cut, without its locality
    arcs = sp.triu(sp.csr_array((np.ones(graph.indices.size, np.int32), graph.indices, graph.indptr)), format="csr")
    arcs.data = np.random.default_rng(0).integers(0, k, arcs.nnz, np.int32) + 1
    anywhere = sp.csr_array(arcs + arcs.T).data - 1
    assert found["volume"] < 0.8 * vertex_cut_statistics(graph, anywhere, cut.owner, k)["volume"]


def test_costs_of_any_parts():
    """Not only of Libra's: arcs of an edge apart, owners without an edge of their vertex, empty parts."""
    rng = np.random.default_rng(5)
    graph = random_graph(80, 0.05, directed=True, seed=6)
    for k in (2, 9, 70):
        edge_part, owner = rng.integers(0, k, graph.indices.size), rng.integers(0, max(1, k - 2), 80)
        found = vertex_cut_statistics(graph, edge_part, owner, k)
        assert found == pytest.approx(costs(graph, edge_part.tolist(), owner.tolist(), k))


def test_both_arcs_lie_together():
    """A directed graph is cut as its symmetric one: only the arcs that exist are left."""
    graph = random_graph(200, 0.02, directed=True, seed=3)
    whole = Graph.from_scipy(graph.adjacency, symmetrize=True)
    cut, of_whole = vertex_cut(graph, 5), vertex_cut(whole, 5)
    np.testing.assert_array_equal(cut.owner, of_whole.owner)
    parts = dict(zip(entries(whole), of_whole.edge_part.tolist()))
    assert cut.edge_part.tolist() == [parts[pair] for pair in entries(graph)]
    assert all(parts[u, v] == parts[v, u] for u, v in parts)
    assert all(cut.owner[u] == p for (u, v), p in zip(entries(graph), cut.edge_part) if u == v)


def test_same_again_and_by_seed():
    graph = generate("rmat", scale=9, features=0, classes=0)
    first, again, other = vertex_cut(graph, 4, seed=1), vertex_cut(graph, 4, seed=1), vertex_cut(graph, 4, seed=2)
    np.testing.assert_array_equal(first.edge_part, again.edge_part)
    np.testing.assert_array_equal(first.owner, again.owner)
    assert (first.edge_part != other.edge_part).any()
    wide = dataclasses.replace(graph, indices=graph.indices.astype(np.int64))
    np.testing.assert_array_equal(vertex_cut(wide, 4, seed=1).edge_part, first.edge_part)
    found = vertex_cut_statistics(wide, first.edge_part, first.owner, 4)
    assert found == vertex_cut_statistics(graph, first.edge_part, first.owner, 4)


def test_components_stay_whole_and_lattices_are_cut():
    apart = edges(6, [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)])
    cut = vertex_cut(apart, 2)
    assert vertex_cut_statistics(apart, cut.edge_part, cut.owner, 2)["volume"] == 0
    assert len(set(cut.edge_part[:6])) == 1
    for graph, k in ((grid(20), 4), (two_cliques(), 2)):
        cut = vertex_cut(graph, k)
        assert vertex_cut_statistics(graph, cut.edge_part, cut.owner, k)["volume"] > 0
        assert (cut.edge_part.tolist(), cut.owner.tolist()) == libra(graph, k)


def test_nothing_to_cut():
    none = edges(5, [])
    cut = vertex_cut(none, 2)
    assert cut.edge_part.shape == (0,)
    assert cut.owner.tolist() == [0, 1, 0, 1, 0]
    assert vertex_cut_statistics(none, cut.edge_part, cut.owner, 2) == {
        "volume": 0, "volume_max": 0, "volume_avg": 0, "ghosts_max": 0, "messages": 0, "messages_max": 0,
        "messages_avg": 0, "replication_factor": 1, "imbalance_nnz": pytest.approx(0.2),
        "imbalance_rows": pytest.approx(0.2)}
    loops = edges(3, [(0, 0), (2, 2)])
    assert vertex_cut(loops, 3).edge_part.tolist() == [0, 2]
    one = edges(1, [])
    assert vertex_cut(one, 1).owner.tolist() == [0]
    empty = edges(0, [])
    cut = vertex_cut(empty, 1)
    assert cut.owner.size == cut.edge_part.size == 0
    assert vertex_cut_statistics(empty, cut.edge_part, cut.owner, 1)["replication_factor"] == 1


def test_more_parts_than_memory(monkeypatch):
    monkeypatch.setattr(module, "memory_budget", lambda: 1599)
    assert vertex_cut(edges(100, [(0, 1)]), 64).owner.size == 100
    with pytest.raises(UsageError, match=r"the parts of 100 vertices, 65 at most each, need 1600 bytes"):
        vertex_cut(edges(100, [(0, 1)]), 65)


def test_parts_that_do_not_fit_are_refused():
    graph = edges(3, [(0, 1), (1, 2)])
    owner = np.zeros(3, int)
    for edge_part, message in [(np.array([0, 1, 2, 0]), r"edge_part: entry 2 has part 2, expected 0\.\.1"),
                               (np.array([0, -1, 1, 0]), "edge_part: entry 1 has part -1"),
                               (np.zeros(3, int), r"shape \(3,\), expected integers \(4,\)"), (np.zeros(4), "float64")]:
        with pytest.raises(DataError, match=message):
            vertex_cut_statistics(graph, edge_part, owner, 2)
    with pytest.raises(DataError, match="owner: vertex 1 has part 2"):
        vertex_cut_statistics(graph, np.zeros(4, int), np.array([0, 2, 0]), 2)
    with pytest.raises(DataError, match=r"edge_part: entry 3 has part 2, expected 0\.\.1"):
        Partition.from_parts(owner, 2, edge_part=np.array([0, 0, 0, 2]))


def test_a_real_graph(enron):
    factors = []
    for k in (2, 16):
        cut = vertex_cut(enron, k)
        found = vertex_cut_statistics(enron, cut.edge_part, cut.owner, k)
        assert found["imbalance_nnz"] < 0.01
        assert found["imbalance_rows"] < 0.01
        assert found["replication_factor"] == pytest.approx(1 + found["volume"] / enron.num_rows)
        factors.append(found["replication_factor"])
    assert 1 < factors[0] < factors[1] < 3
