"""Features of edges follow their entries: in memory, in files, and in other orders of rows."""
import numpy as np
import pytest
import scipy.sparse as sp
from stored_graphs import assert_same, edit

import hpgcn
from hpgcn import store
from hpgcn.cli.inspect_files import describe_file
from hpgcn.errors import DataError
from hpgcn.graphs import edge_features
from hpgcn.graphs.graph import Graph
from hpgcn.partition import Partition

EDGES = np.array([[2, 0, 1, 3, 1], [0, 1, 2, 1, 3]])  # 1 - 3 in both directions
FEATURES = np.arange(10, dtype=np.float32).reshape(5, 2)


def by_entry(graph):
    """Return the features of each entry by (row, column), both ORIGINAL numbers."""
    rows = graph.vertex[np.repeat(np.arange(graph.num_rows), np.diff(graph.indptr))]
    return dict(zip(zip(rows.tolist(), graph.vertex[graph.indices].tolist()),
                    graph.edge_features.tolist()))


@pytest.mark.parametrize("symmetrize", [False, True])
def test_rows_belong_to_edges(symmetrize):
    graph = Graph.from_edge_index(EDGES, edge_features=FEATURES, symmetrize=symmetrize)
    expected = {(v, u): row for (u, v), row in zip(EDGES.T.tolist(), FEATURES.tolist())}
    if symmetrize:  # both directions of 1 - 3 keep their own
        expected = {(u, v): row for (v, u), row in expected.items()} | expected
    assert by_entry(graph) == expected
    assert graph.header.num_edge_features == 2 and "2 edge features" in str(graph)
    assert graph.edge_features.dtype == np.float32


def test_rows_belong_to_the_entries_of_a_matrix():
    A = sp.csr_array((np.ones(3), np.array([2, 0, 1]), np.array([0, 2, 3, 3])), shape=(3, 3))
    graph = Graph.from_scipy(A, edge_features=[5, 6, 7])  # columns of row 0 are not sorted
    assert by_entry(graph) == {(0, 2): [5], (0, 0): [6], (1, 1): [7]}
    dense = Graph.from_scipy([[0, 1], [1, 1]], edge_features=[1, 2, 3])
    assert by_entry(dense) == {(0, 1): [1], (1, 0): [2], (1, 1): [3]}
    with pytest.warns(match="removed 1 edges of weight 0"):
        weighted = Graph.from_edge_index([[0, 1], [1, 0]], [0.0, 2], edge_features=[1, 2])
    assert by_entry(weighted) == {(0, 1): [2]}  # without the edge of weight 0


@pytest.mark.parametrize("features, message", [
    (FEATURES[:4], r"edge_features have shape \(4, 2\), expected \(5, d\)"),
    (np.zeros((5, 0)), r"have shape \(5, 0\)"), (["a"] * 5, "have dtype <U1, expected numbers"),
    (np.where(FEATURES == 5, np.nan, FEATURES), r"edge_features at \(2, 1\) is nan"),
    (FEATURES.astype(np.float64) * 1e38, r"at \(2, 0\) is inf")])
def test_refusals(features, message):
    with pytest.raises(DataError, match=message):
        Graph.from_edge_index(EDGES, edge_features=features)


@pytest.mark.filterwarnings("ignore")
def test_an_edge_that_is_listed_twice():
    twice = np.concatenate([EDGES, EDGES[:, 2:3]], axis=1)
    with pytest.raises(DataError, match="the edge 1 -> 2 is listed twice"):
        Graph.from_edge_index(twice, edge_features=np.zeros((6, 1)))


def random_graph(n=40):
    rng = np.random.default_rng(0)
    A = sp.random_array((n, n), density=0.1, rng=rng, format="csr")
    return Graph.from_scipy(A, edge_features=rng.standard_normal((A.nnz, 3)))


def test_files_and_partitions(tmp_path, monkeypatch):
    graph = random_graph()
    made = Partition.from_parts(np.random.default_rng(1).integers(0, 3, 40), 3)
    hpgcn.save(graph, tmp_path / "graph.h5")
    store.write_graph(tmp_path / "ordered.h5", graph, order=np.arange(40)[::-1])
    with hpgcn.load(tmp_path / "graph.h5") as stored, hpgcn.load(tmp_path / "ordered.h5") as other:
        store.write_partitioned(tmp_path / "p3.h5", stored.read(), made, source=stored)
        for found in (stored, other):
            assert_same(found.read(), graph)
            assert by_entry(found.read()) == by_entry(graph)
        assert stored.header == graph.header

    # chosen entries of a partitioned graph, read piece by piece
    monkeypatch.setattr(edge_features, "CHUNK", 7)
    moved = graph.permuted(made.perm, made.offsets)
    with hpgcn.load(tmp_path / "p3.h5") as parts:
        assert by_entry(parts.read()) == by_entry(moved) == by_entry(graph)
        numbers = np.flatnonzero(np.random.default_rng(2).random(graph.indices.size) < 0.3)
        for source in (parts, moved):
            np.testing.assert_array_equal(edge_features.read_chosen(source, numbers),
                                          moved.edge_features[numbers])
            assert source.pointers(7, 9).tolist() == moved.indptr[7:10].tolist()
        assert parts.checksum() != 0
    assert "edge features  3 wide, dense float32" in describe_file(tmp_path / "p3.h5", verify=True)
    assert graph.checksum() != random_graph(39).checksum()


@pytest.mark.parametrize("change, message", [
    (lambda array: array[:-1], r"adjacency/edge_features has shape \(\d+, 3\), expected"),
    (lambda array: array.astype(np.float64), "has dtype float64, expected float32"),
    (lambda array: array[:, :0], "has 0 columns, expected 1 to"),
    (lambda array: np.where(array == array[4, 1], np.inf, array), r"at \(4, 1\) is inf")])
def test_damaged_files(tmp_path, change, message):
    path = tmp_path / "graph.h5"
    hpgcn.save(random_graph(), path)

    def replace(file):
        array = change(file["adjacency/edge_features"][:])
        del file["adjacency/edge_features"]
        file["adjacency/edge_features"] = array

    edit(path, replace)
    with pytest.raises(DataError, match=message), hpgcn.load(path) as stored:
        stored.read()
