"""Vertex cuts: Libra's rule compared with plain sets and dicts, and the volume of the cuts."""
import collections
import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_some
from small_graphs import edges, grid

from hpgcn.datasets.generators.generate import generate
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.partition import Partition
from hpgcn.partition import make_partition, statistics
from hpgcn.partition.nonzeros import cut_edges as module
from hpgcn.partition.nonzeros.cut_edges import vertex_cut


def entries(graph):
    """Return the (row, column) of each stored entry, in the order of the matrix."""
    rows = np.repeat(np.arange(graph.num_rows), np.diff(graph.indptr)).tolist()
    return list(zip(rows, graph.indices.tolist()))


def libra(graph, k, seed=0):
    """Return (part of each entry, owner of each vertex) by Libra's rule, edge by edge."""
    stored = entries(graph)
    n = graph.num_rows
    stream = sorted({(min(pair), max(pair)) for pair in stored if pair[0] != pair[1]})
    keys = np.random.Philox(key=seed).random_raw(len(stream)).tolist()
    degree = collections.Counter(vertex for pair in stream for vertex in pair)
    places = collections.defaultdict(set)
    load = [0] * k
    part = {}
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
    rows = [0] * k
    owner = {}
    for _, v in sorted((len(places[v]) or k, v) for v in range(n)):
        owner[v] = min(places[v] or range(k), key=lambda q: (rows[q], q))
        rows[owner[v]] += 1
    part.update({(v, v): owner[v] for v in range(n)})
    return [part[pair] for pair in stored], [owner[v] for v in range(n)]


def costs(graph, edge_part, owner, k):
    """Return the statistics of a vertex cut, counted with sets of vertices."""
    n = graph.num_rows
    in_rows, in_columns = ([{p} for p in owner] for _ in range(2))
    nonzeros = collections.Counter(owner)
    for (u, v), p in zip(entries(graph), edge_part):
        if u != v:
            in_rows[u].add(p)
            in_columns[v].add(p)
            nonzeros[p] += 1
    sent, received, pulls, pushes, rows = (collections.Counter() for _ in range(5))
    for root, readers, adders in zip(owner, in_columns, in_rows):
        rows[root] += 1
        pulls.update((root, p) for p in readers - {root})
        pushes.update((p, root) for p in adders - {root})
    messages = collections.Counter(source for pairs in (pulls, pushes) for source, _ in pairs)
    for (source, target), count in [*pulls.items(), *pushes.items()]:
        sent[source] += count
        received[target] += count
    copies = sum(len(a | b) for a, b in zip(in_rows, in_columns))
    return {"volume": sent.total(), "volume_max": max(sent.values(), default=0),
            "volume_avg": sent.total() / k, "ghosts_max": max(received.values(), default=0),
            "messages": messages.total(), "messages_max": max(messages.values(), default=0),
            "messages_avg": messages.total() / k, "replication_factor": copies / n,
            **split_shares(graph, edge_part, k),
            "imbalance_nnz": max(nonzeros.values()) * k / nonzeros.total() - 1,
            "imbalance_rows": max(rows.values()) * k / n - 1}


def split_shares(graph, edge_part, k):
    """Return the share of split vertices, of all and as the mean over parts.

    The edges of a split vertex are in several parts.
    """
    holders = [set() for _ in range(graph.num_rows)]
    for (u, v), p in zip(entries(graph), edge_part):
        if u != v:
            holders[u].add(p)
            holders[v].add(p)
    shares = [np.mean([len(parts) > 1 for parts in holders if p in parts] or [0])
              for p in range(k)]
    return {"split_share": float(np.mean([len(parts) > 1 for parts in holders])),
            "split_share_avg": float(np.mean(shares))}


def random_graph(n, density, *, directed, seed):
    """Return a random graph with weights, loops and isolated vertices."""
    A = sp.random_array((n, n), density=density, rng=np.random.default_rng(seed), format="csr")
    return Graph.from_scipy(A, symmetrize=not directed)


def test_by_hand(monkeypatch):
    """Libra's rule distributes a graph with loops over three parts as by hand.

    One vertex is isolated.
    """
    graph = edges(9, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (5, 6), (2, 2), (7, 7)])
    # 5-6: new, 0; 0-1: new, 1; 2-3: new, 2; 0-2: equal degrees, 2 joins 0 in 1; 1-3: 3 has the
    # higher degree and joins 1 in 1; 3-4: 4 is new, 2 is the less loaded of 3's parts {1, 2}
    monkeypatch.setattr(module, "random_order", lambda n, seed: np.array([5, 0, 3, 1, 2, 4]))
    edge_part, owner = vertex_cut(graph, 3)
    parts = {(0, 1): 1, (0, 2): 1, (1, 3): 1, (2, 3): 2, (3, 4): 2, (5, 6): 0, (2, 2): 2, (7, 7): 0}
    expected = np.full((9, 9), -1)
    for (u, v), p in parts.items():
        expected[u, v] = expected[v, u] = p
    assert edge_part.tolist() == [expected[pair] for pair in entries(graph)]
    assert owner.tolist() == [1, 1, 2, 1, 2, 0, 0, 0, 2]
    assert edge_part.dtype == owner.dtype == np.int32
    assert statistics(graph, owner, 3, edge_part) == {
        "volume": 4, "volume_max": 2, "volume_avg": 4 / 3, "ghosts_max": 2, "messages": 4,
        "messages_max": 2, "messages_avg": 4 / 3, "replication_factor": 11 / 9,
        # 2 is in parts 1 and 2, 3 likewise; 5-6 are part 0, 0-1-2-3 part 1, 2-3-4 part 2
        "split_share": 2 / 9, "split_share_avg": (0 + 2 / 4 + 2 / 3) / 3,
        "imbalance_nnz": 9 * 3 / 21 - 1, "imbalance_rows": 0}


@pytest.mark.parametrize(("density", "k"), [
    (0.002, 3), (0.02, 1), (0.02, 2), (0.02, 7), (0.2, 63), (0.2, 64), (0.2, 65), (0.02, 150)])
@pytest.mark.parametrize("directed", [False, True])
def test_parts_and_costs_follow_the_rule(density, directed, k):
    """Parts and statistics equal those of the slow rule; both arcs of an edge are in one part."""
    graph = random_graph(150, density, directed=directed, seed=k)
    assert graph.header.directed == directed
    edge_part, owner = vertex_cut(graph, k, seed=k)
    assert (edge_part.tolist(), owner.tolist()) == libra(graph, k, seed=k)
    counted = statistics(graph, owner, k, edge_part)
    expected = costs(graph, edge_part.tolist(), owner.tolist(), k)
    assert counted == pytest.approx(expected)
    assert {name: type(value) for name, value in counted.items()} == {
        name: type(value) for name, value in expected.items()}


@pytest.mark.parametrize("k", [2, 16])
def test_power_law_graphs(k):
    graph = generate("rmat", scale=11, features=0, classes=0)
    edge_part, owner = vertex_cut(graph, k)
    assert edge_part.tolist() == libra(graph, k)[0]
    loads = np.bincount(edge_part, minlength=k)
    assert loads.max() <= 1.01 * loads.mean()
    assert np.ptp(np.bincount(owner, minlength=k)) <= 1
    # each edge anywhere: the balance of the cut, without its locality
    ones = np.ones(graph.indices.size, np.int32)
    arcs = sp.triu(sp.csr_array((ones, graph.indices, graph.indptr)), format="csr")
    arcs.data = np.random.default_rng(0).integers(0, k, arcs.nnz, np.int32) + 1
    anywhere = sp.csr_array(arcs + arcs.T).data - 1
    volumes = [statistics(graph, owner, k, parts)["volume"]
               for parts in (edge_part, anywhere)]
    assert volumes[0] < 0.8 * volumes[1]


@pytest.mark.parametrize("k", [2, 70])
def test_costs_of_any_parts(k):
    """Statistics are right for random parts, where arcs of an edge may be in two parts."""
    rng = np.random.default_rng(5)
    graph = random_graph(80, 0.05, directed=True, seed=6)
    edge_part = rng.integers(0, k, graph.indices.size)
    owner = rng.integers(0, max(1, k - 2), 80)
    counted = statistics(graph, owner, k, edge_part)
    assert counted == pytest.approx(costs(graph, edge_part.tolist(), owner.tolist(), k))


@pytest.mark.parametrize("k", [3, 70])
def test_roots_at_random(k):
    graph = random_graph(400, 0.01, directed=False, seed=k)
    edge_part, fewest = vertex_cut(graph, k, seed=2)
    made = make_partition(graph, k, method="distgnn", seed=2)
    rows = np.repeat(np.arange(400), np.diff(graph.indptr))
    off = rows != graph.indices
    np.testing.assert_array_equal(made.edge_part[off], edge_part[off])
    held = [set(edge_part[off & (rows == vertex)]) for vertex in range(400)]
    assert all(not parts or root in parts for parts, root in zip(held, made.part))
    # each of two parts is the root of about half of their vertices
    lower = [root == min(parts) for parts, root in zip(held, made.part) if len(parts) == 2]
    assert 0.3 < np.mean(lower) < 0.7
    assert_some(made.part != fewest)
    for seed in (2, 3):
        again = make_partition(graph, k, method="distgnn", seed=seed).part
        assert (again == made.part).all() == (seed == 2)


def test_same_again_and_by_seed():
    graph = generate("rmat", scale=9, features=0, classes=0)
    edge_part, owner = vertex_cut(graph, 4, seed=1)
    assert_some(edge_part != vertex_cut(graph, 4, seed=2)[0])
    wide = dataclasses.replace(graph, indices=graph.indices.astype(np.int64))
    for same in (graph, wide):
        for array, again in zip((edge_part, owner), vertex_cut(same, 4, seed=1)):
            np.testing.assert_array_equal(array, again)
    assert statistics(wide, owner, 4, edge_part) == statistics(graph, owner, 4, edge_part)


def test_nothing_to_cut():
    none = edges(5, [])
    edge_part, owner = vertex_cut(none, 2)
    assert edge_part.shape == (0,) and owner.tolist() == [0, 1, 0, 1, 0]
    counted = statistics(none, owner, 2, edge_part)
    assert counted == pytest.approx(costs(none, [], owner.tolist(), 2))
    assert vertex_cut(edges(3, [(0, 0), (2, 2)]), 3)[0].tolist() == [0, 2]


@pytest.mark.parametrize(("graph", "k", "cut"), [
    (edges(6, [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)]), 2, False), (grid(20), 4, True)])
def test_components_stay_whole_and_lattices_are_cut(graph, k, cut):
    edge_part, owner = vertex_cut(graph, k)
    assert (statistics(graph, owner, k, edge_part)["volume"] > 0) == cut


def test_more_parts_than_memory(monkeypatch):
    monkeypatch.setattr(module, "memory_budget", lambda: 1599)
    assert vertex_cut(edges(100, [(0, 1)]), 64)[1].size == 100
    with pytest.raises(UsageError, match=r"65 parts for each of 100 vertices need 1600 bytes"):
        vertex_cut(edges(100, [(0, 1)]), 65)


@pytest.mark.parametrize(
    ("edge_part", "owner", "message"),
    [([0, 1, 2, 0], [0, 0, 0], r"edge_part: entry 2 has part 2, expected 0\.\.1"),
     ([0, -1, 1, 0], [0, 0, 0], "edge_part: entry 1 has part -1"),
     ([0, 0, 0], [0, 0, 0], r"shape \(3,\), expected integers \(4,\)"),
     ([0.0] * 4, [0, 0, 0], "float64"), ([0] * 4, [0, 2, 0], "part vector: vertex 1 has part 2")])
def test_parts_that_do_not_fit_are_refused(edge_part, owner, message):
    graph = edges(3, [(0, 1), (1, 2)])
    with pytest.raises(DataError, match=message):
        statistics(graph, np.array(owner), 2, np.array(edge_part))
    with pytest.raises(DataError, match=r"edge_part: entry 3 has part 2, expected 0\.\.1"):
        Partition.from_parts(np.zeros(3, int), 2, edge_part=np.array([0, 0, 0, 2]))


def test_a_real_graph(enron):
    factors = []
    for k in (2, 16):
        edge_part, owner = vertex_cut(enron, k)
        counted = statistics(enron, owner, k, edge_part)
        assert counted["imbalance_nnz"] < 0.01 and counted["imbalance_rows"] < 0.01
        factor = counted["replication_factor"]
        assert factor == pytest.approx(1 + counted["volume"] / 2 / enron.num_rows)
        factors.append(factor)
    assert 1 < factors[0] < factors[1] < 3
