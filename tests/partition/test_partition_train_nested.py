"""Partitions with balanced training vertices, and nested parts that merge: bounds and cost."""
import numpy as np
import pytest
import scipy.sparse as sp
from small_graphs import edges, grid

from hpgcn import store
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.partition import METHODS, Partition, make_partition, statistics
from hpgcn.partition.rows.nested import nested_numbers


def labeled(graph, train):
    """Return the graph with the vertices `train` for training and the others for testing."""
    n = graph.num_rows
    rest = np.setdiff1d(np.arange(n), train)
    masks = np.asarray(train), rest[:0], rest
    return Graph.from_scipy(graph.adjacency, y=np.zeros(n, int), masks=masks)


@pytest.fixture(scope="module")
def cornered():
    """Return a grid whose training vertices are all in one corner."""
    corner = (np.arange(6)[:, None] * 16 + np.arange(8)).ravel()
    return labeled(grid(16), corner)


@pytest.mark.long
@pytest.mark.parametrize("method", [
    pytest.param(name, marks=[pytest.mark.long] * (name not in ("hypergraph", "cover", "block")))
    for name in METHODS])
def test_vertices_to_train_on_are_balanced(cornered, method):
    for engine in ("mtkahypar", "pymetis"):
        pytest.importorskip(engine)
    train = cornered.masks["train"]
    plain, made, again = (make_partition(cornered, 4, method=method, balance_train=balanced)
                          for balanced in (False, True, True))
    np.testing.assert_array_equal(made.part, again.part)
    owned = np.bincount(made.part[train], minlength=4)
    assert owned.max() <= 13.2
    assert made.statistics["imbalance_train"] == pytest.approx(owned.max() / 12 - 1)
    before = np.bincount(plain.part[train], minlength=4)
    assert plain.statistics["imbalance_train"] == pytest.approx(before.max() / 12 - 1)
    alone = made.edge_part is not None  # then the diagonal alone goes along with an owner
    for key, allowed in (("imbalance_nnz", 0.06 + 0.02 * alone), ("imbalance_rows", 0.11)):
        assert made.statistics[key] <= max(allowed, plain.statistics[key])
    found = statistics(cornered, made.part, 4, made.edge_part)
    assert found["volume"] == made.statistics["volume"]
    assert found["volume"] <= plain.statistics["volume"] + 2 * 4 * 36  # as if separate
    if made.edge_part is not None:
        rows = np.repeat(np.arange(256), np.diff(cornered.indptr))
        loops = rows == cornered.indices
        np.testing.assert_array_equal(made.edge_part[loops], made.part[rows[loops]])


def test_one_more_is_allowed_where_few_are_labeled():
    made = make_partition(labeled(grid(10), [0, 1, 2, 10, 11]), 4, method="block",
                          balance_train=True)
    assert np.bincount(made.part[[0, 1, 2, 10, 11]], minlength=4).max() <= 2


def test_balance_needs_a_split():
    with pytest.raises(DataError, match="no split, so there are no training vertices to balance"):
        make_partition(grid(4), 2, method="block", balance_train=True)


def test_numbers_literal():
    # parts 0 and 3 share two nets, 1 and 2 one; 4 and 5 three, 6 and 7 none; then 6, 7 with 4, 5
    T = np.zeros((8, 8), int)
    for net, parts in enumerate([(0, 3), (0, 3), (1, 2), (4, 5), (4, 5), (4, 5), (6, 4), (0, 1)]):
        T[list(parts), net] = 1
    numbers = nested_numbers(sp.csr_array(T))
    assert sorted(numbers) == list(range(8))
    half, quarter = numbers // 2, numbers // 4
    assert half[0] == half[3] and half[1] == half[2] and half[4] == half[5] and half[6] == half[7]
    assert quarter[0] == quarter[1] and quarter[4] == quarter[6]


@pytest.mark.long
@pytest.mark.parametrize("method", [
    "hypergraph", pytest.param("graph", marks=pytest.mark.long), "vertex-cut"])
def test_nested_parts_merge(tmp_path, method):
    for engine in ("mtkahypar", "pymetis"):
        pytest.importorskip(engine)
    graph = grid(24)
    made = make_partition(graph, 8, method=method, nested=True)
    plain = make_partition(graph, 8, method=method)
    assert made.nested and not plain.nested
    assert made.statistics["volume"] <= 1.2 * plain.statistics["volume"]
    if method == "vertex-cut":  # whose parts are numbered anew, no more
        for key in ("volume", "volume_max", "messages", "imbalance_nnz", "imbalance_rows"):
            assert made.statistics[key] == plain.statistics[key]
    assert made.merges == (4, 2)
    for k in (4, 2):
        merged = made.merged(k)
        np.testing.assert_array_equal(merged.part, made.part // (8 // k))
        np.testing.assert_array_equal(merged.perm, made.perm)
        assert merged.offsets.tolist() == made.offsets[::8 // k].tolist() and merged.k == k
        np.testing.assert_array_equal(np.diff(merged.offsets), np.bincount(merged.part))
        found = statistics(graph, merged.part, k, merged.edge_part)
        random = make_partition(graph, k, method="random").statistics["volume"]
        assert found["volume"] < 0.5 * random
        assert found["imbalance_rows"] <= made.statistics["imbalance_rows"] + 1e-9
    store.write_partitioned(tmp_path / "nested.h5", graph, made)
    with store.load(tmp_path / "nested.h5") as stored:
        kept = stored.partition
    assert kept.nested is True and kept.merges == (4, 2) and "nested" not in kept.statistics


def test_merges():
    def merges(k):
        return Partition.from_parts(np.arange(k), k, nested=True).merges

    assert [merges(k) for k in (2, 6, 12, 64)] == [(), (3,), (6, 3), (32, 16, 8, 4, 2)]
    flat = Partition.from_parts(np.arange(8), 8)
    assert flat.merges == () and flat.merged(8) is flat
    with pytest.raises(UsageError, match="k = 4: 8 parts can be merged only to themselves"):
        flat.merged(4)
    twelve = Partition.from_parts(np.arange(12), 12, nested=True)
    assert twelve.merged(3).offsets.tolist() == [0, 4, 8, 12]
    with pytest.raises(UsageError, match="k = 4: 12 nested parts can be merged only to 6, 3"):
        twelve.merged(4)


def test_odd_numbers_are_refused():
    with pytest.raises(UsageError, match="k = 3: nested parts are merged in pairs"):
        make_partition(edges(9, []), 3, method="block", nested=True)


@pytest.mark.release
def test_merged_parts_are_nearly_as_good_as_parts_made_for_their_number(enron):
    pytest.importorskip("mtkahypar")
    made = make_partition(enron, 64, nested=True, rcm=False)
    for k in (64, 8, 4, 2):
        found = statistics(enron, made.merged(k).part, k)
        alone = make_partition(enron, k, rcm=False).statistics
        assert found["volume"] <= 1.1 * alone["volume"]
        assert found["imbalance_nnz"] <= made.statistics["imbalance_nnz"] + 1e-9
