"""Graphs in memory: building, checking, restricting and normalizing them."""
import warnings

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from graphs import make

import hpgcn
from hpgcn.datasets import convert
from hpgcn.errors import DataError, DataWarning, UsageError
from hpgcn.graphs import adjacency
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.normalization import inverse_sqrt, with_self_loops
from hpgcn.graphs.validation import check_csr

pytestmark = pytest.mark.filterwarnings("ignore::hpgcn.errors.DataWarning")


def test_duplicates_are_one_edge_of_a_0_1_input_and_summed_of_a_valued_one():
    graph = Graph.from_scipy(sp.coo_array((np.ones(4), ([0, 0, 1, 2], [1, 1, 2, 0])), (3, 3)))
    assert graph.data is None and graph.header.all_ones
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    graph = Graph.from_scipy(sp.coo_array(([1.5, 2.0, 1.0], ([0, 0, 1], [1, 1, 0])), (2, 2)))
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 3.5], [1, 0]])
    assert graph.degree_row.tolist() == [3.5, 1]
    assert graph.degree_column.tolist() == [1, 3.5]


EDGES = np.array([[0, 1, 2, 2, 1], [1, 2, 0, 0, 1]])
WEIGHTS = np.array([1.5, 2, 3, 4, 0])


class Tensor:
    """An array-like object such as a CPU tensor of PyTorch."""

    def __init__(self, array):
        self.array = array
        self.shape = array.shape

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype)


class ElsewhereTensor(Tensor):
    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


@pytest.mark.parametrize("weights", [None, WEIGHTS, WEIGHTS[:, None]])
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8, Tensor])
def test_targets_of_an_edge_index_aggregate_sources(kind, weights):
    options = {"features": np.eye(4), "labels": [0, 1, -1, 0], "masks": ([0], [1], []),
               "name": "mine", "symmetrize": False, "split": "random"}
    graph = Graph.from_edge_index(kind(EDGES), weights, **options)
    values = np.ones(5) if weights is None else WEIGHTS
    A = sp.coo_array((values, (EDGES[1], EDGES[0])), shape=(4, 4))
    X, y = options.pop("features"), options.pop("labels")
    expected = Graph.from_scipy(A, X, y, **options)
    assert graph.header == expected.header and graph.checksum() == expected.checksum()
    assert graph.adjacency[0, 2] == (1 if weights is None else 7)  # merged, or summed


def test_an_edge_index_is_read_as_from_a_file(tmp_path):
    np.savez(tmp_path / "g.npz", edge_index=EDGES, edge_weight=WEIGHTS, x=np.eye(4), y=np.arange(4))
    stored, _ = convert.read(tmp_path / "g.npz", "auto", symmetrize=False)
    graph = Graph.from_edge_index(EDGES, WEIGHTS, np.eye(4), np.arange(4))
    assert graph.checksum() == stored.checksum()


@pytest.mark.parametrize(("arguments", "expected"), [
    ({}, 3), ({"num_nodes": 7}, 7), ({"features": sp.eye_array(5)}, 5), ({"labels": [0] * 4}, 4),
    ({"features": np.eye(5), "labels": [0] * 5}, 5),
    ({"edge_index": np.zeros((2, 0), int), "num_nodes": 2}, 2)])
def test_number_of_vertices_of_an_edge_index(arguments, expected):
    assert Graph.from_edge_index(**{"edge_index": EDGES, **arguments}).num_rows == expected


@pytest.mark.parametrize("arguments", [{"features": np.eye(6)}, {"labels": [0, 1] * 3}])
def test_rows_past_the_highest_vertex_number_are_reported(arguments):
    edges = [[0, 1, 2], [1, 2, 3]]
    said = "have 6 rows, but the highest vertex number is 3: the last vertices have no edges"
    with pytest.warns(DataWarning, match=said):
        assert Graph.from_edge_index(edges, **arguments).num_rows == 6
    with warnings.catch_warnings(action="error"):
        assert Graph.from_edge_index(edges, num_nodes=6, **arguments).num_rows == 6


@pytest.mark.parametrize(("arguments", "message"), [
    ({"edge_index": EDGES.T}, r"shape \(5, 2\), expected integers \(2, e\)"),
    ({"edge_index": EDGES / 1}, "mine: edge_index has dtype float64"),
    ({"edge_index": [[0], [0, 1]]}, "mine: edge_index: not an array"),
    ({"edge_index": ElsewhereTensor(EDGES)}, "mine: edge_index: not an array: can't convert cuda"),
    ({"edge_index": EDGES - 1}, r"edge_index row 0: entry 0 is -1, expected 0\.\.1"),
    ({"edge_index": np.uint64([[0], [2**64 - 1]])}, "row 1: entry 0 is 18446744073709551615"),
    ({"num_nodes": 2}, r"edge_index row 0: entry 2 is 2, expected 0\.\.1"),
    ({"num_nodes": -1}, "num_nodes is -1, expected an integer from 0"),
    ({"num_nodes": 2.5}, "num_nodes is 2.5"),
    ({"features": np.eye(2)}, "row 0: entry 2 is 2"),
    ({"features": np.eye(3), "labels": [0]}, r"labels have shape \(1,\), expected \(3,\)"),
    ({"edge_weight": [1, 2]}, r"edge_weight has dtype int64 and shape \(2,\), expected numbers"),
    ({"edge_weight": ["a"] * 5}, "edge_weight has dtype <U1"),
    ({"edge_weight": [np.inf] * 5}, "edge_weight at 0 is inf"),
    ({"edge_index": [[0, 2**40], [1, 0]]}, "1099511627777 vertices: needs 52,777 GB"),
    ({"num_nodes": 2**62}, "4611686018427387904 vertices: needs"),
    *(({"num_nodes": n}, f"num_nodes is {n}, expected an integer") for n in (2**70, True)),
    ({"edge_index": np.zeros((2, 0), int)}, "mine: no vertices"),
    ({"original_ids": [7, 5, 7]}, "vertices 0 and 2 are both 7, expected distinct ids"),
    ({"original_ids": ["b", "a", "a"]}, "vertices 1 and 2 are both a"),
    *(({"original_ids": ["a", "b", name]}, "name 2 is .*, expected no control characters")
      for name in ("c\n", "c\x1b[0m")),
])
def test_what_is_no_edge_index(arguments, message):
    with pytest.raises(DataError, match=message):
        Graph.from_edge_index(**{"edge_index": EDGES, "name": "mine", **arguments})


@pytest.mark.parametrize("thing, maker", [
    (np.eye(3), "hpgcn.Graph.from_scipy"), (sp.eye_array(3), "hpgcn.Graph.from_scipy"),
    (type("Data", (), {"__module__": "torch_geometric.data.data"})(), "hpgcn.from_pyg"),
    (type("Mine", (type("G", (), {"__module__": "networkx.classes"}),), {})(),
     "hpgcn.from_networkx"), ([1], "or a path$")])
def test_what_makes_a_graph_of_another_library_is_named(thing, maker):
    with pytest.raises(UsageError, match=f"expected hpgcn.Graph, .*{maker}"):
        hpgcn.train(thing)


def test_one_of_several_ranks_warns(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "1")
    with warnings.catch_warnings(action="error"):
        Graph.from_scipy(np.array([[0, 1e-50], [1, 0]]))


def test_weights_that_float32_stores_as_0_are_dropped():
    """`hpgcn convert` drops them too; otherwise they would be edges for some models."""
    with pytest.warns(match=r"removed 1 edges of weight 0 \(as float32\)"):
        assert Graph.from_scipy(np.array([[0, 1e-50], [1, 0]])).header.num_edges == 1


def test_more_than_255_duplicates_of_an_edge_stay_an_edge():
    assert Graph.from_edge_index(np.repeat([[0], [1]], 256, axis=1)).header.num_edges == 1


def test_symmetrize_takes_the_maximum():
    graph = Graph.from_scipy(np.array([[0, 2, 0], [5, 0, 0], [3, 0, 0]]), symmetrize=True)
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 5, 3], [5, 0, 0], [3, 0, 0]])
    assert not graph.header.directed


@pytest.mark.parametrize("A, directed", [([[0, 1], [1, 0]], False), ([[0, 1], [0, 0]], True),
                                         ([[0, 1], [2, 0]], True), ([[0, 0], [0, 0]], False)])
def test_directed_unless_pattern_and_values_are_symmetric(A, directed):
    assert Graph.from_scipy(np.array(A, float)).header.directed == directed


BAD = [
    ({"A": np.ones((2, 3))}, "square"),
    ({"A": np.array([[0, np.nan], [1, 0]])}, "weight at 0 is nan"),
    ({"A": np.array([[0, 1e39], [1, 0]])}, "float32"),
    ({"A": np.zeros((0, 0))}, "no vertices"),
    ({"A": sp.coo_array((2**40, 2**40))}, "1099511627776 vertices: needs 52,777 GB"),
    ({"X": np.ones((3, 2))}, r"features have shape \(3, 2\), expected \(2, f\)"),
    ({"X": np.array([[1, 2], [3, np.inf]])}, r"feature at \(1, 1\) is inf"),
    ({"X": sp.csr_array(np.array([[0, 2], [np.nan, 0]]))}, r"feature at \(1, 0\) is nan"),
    ({"X": np.array([["a"], ["b"]])}, "features have dtype"),
    ({"y": [0, 1, 2]}, "labels have shape"),
    ({"y": [0, -2]}, "label of vertex 1 is -2"),
    ({"y": [0, 1.5]}, "label of vertex 1 is 1.5"),
    ({"y": [[0, 1], [2, 0]]}, r"multi-label entry at \(1, 0\)"),
    ({"y": [0, 1], "masks": ([0], [0], [1])}, "vertex 0 is in both the train and the val mask"),
    ({"y": [0, 1], "masks": ([], [0], [1])}, "train mask is empty"),
    ({"y": [0, -1], "masks": ([1], [], [])}, "vertex 1 is in the train mask but has no label"),
    ({"y": [0, 1], "masks": ([0, 2], [], [])}, "entry 1 is vertex 2, expected 0..1"),
    ({"y": [0, 1], "masks": (np.ones(3, bool), [], [])}, "train mask has shape"),
    ({"masks": ([0, 1], [], [])}, r"train mask is \[0, 1\], which may be a mask or vertex numbers"),
    ({"masks": (np.int8([1, 1]), [], [])}, "expected bool, or numbers of another length"),
    ({"masks": (np.uint8([1, 1]), np.uint8([0, 1]), [])}, "vertex 1 is in both"),
]


@pytest.mark.parametrize("change, message", BAD)
def test_bad_input_is_named(change, message):
    given = {"A": np.array([[0, 1], [1, 0]]), **change}
    with pytest.raises(DataError, match=message):
        Graph.from_scipy(**given)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_uint8_of_0_and_1_is_a_mask_whatever_the_number_of_vertices(n):
    mask = np.arange(n) == n - 1
    for kind in (bool, np.uint8) if n < 3 else (bool, np.uint8, np.int64):
        graph = Graph.from_scipy(np.zeros((n, n)), masks=(mask.astype(kind), [], []))
        assert graph.masks["train"].tolist() == mask.tolist()
    assert Graph.from_scipy(np.zeros((2, 2)), masks=([1], np.uint8([0]), [])).masks["val"][0]


CSR = [([1, 2], [0, 1], 2, "start at 1"), ([0, 2, 1], [0], 1, "decrease from 2 to 1 at row 1"),
       ([0, 1, 3], [0, 1], 2, "end at 3, but there are 2"),
       ([0, 1, 2], [0, 5], 2, "entry 1 has column 5, expected 0..1"),
       ([0, 1, 2], [-1, 0], 2, "entry 0 has column -1"),
       ([0, 2], [1, 0], 2, "row 0 has column 0 after 1"),
       ([0, 0, 2], [1, 1], 2, "row 1 has column 1 after 1")]


@pytest.mark.parametrize("indptr, indices, nnz, message", CSR)
def test_invalid_csr(indptr, indices, nnz, message):
    with pytest.raises(DataError, match=f"here: .*{message}"):
        check_csr(np.array(indptr), np.array(indices), nnz, 2, "here")


def test_valid_csr_with_empty_rows():
    check_csr(np.array([0, 0, 2, 2, 3, 3]), np.array([0, 1, 0]), 3, 2, "here")
    check_csr(np.array([0]), np.array([], int), 0, 0, "here")


@pytest.mark.parametrize("weighted", [False, True])
def test_permuted_equals_scipy(weighted):
    graph = make(directed=True, weighted=weighted)
    perm = np.random.default_rng(0).permutation(graph.num_rows)
    moved = graph.permuted(perm, np.array([0, 100, 203]))
    expected = graph.adjacency.toarray()[perm][:, perm]
    np.testing.assert_array_equal(moved.adjacency.toarray(), expected)
    check_csr(moved.indptr, moved.indices, moved.indices.size, 203, "moved")
    np.testing.assert_array_equal(moved.vertex, perm)
    np.testing.assert_array_equal(moved.labels, graph.labels[perm])
    np.testing.assert_array_equal(moved.masks["val"], graph.masks["val"][perm])
    np.testing.assert_array_equal(moved.degree_column, graph.degree_column[perm])
    assert moved.offsets.tolist() == [0, 100, 203]


@pytest.mark.parametrize("bounds", [(0, 203), (0, 0), (50, 120), (203, 203)])
def test_slab_equals_slices(bounds):
    graph = make(directed=True, weighted=True, sparse=True)
    lo, hi = bounds
    slab = graph.slab(lo, hi)
    assert slab.start == lo
    np.testing.assert_array_equal(slab.adjacency.toarray(), graph.adjacency.toarray()[lo:hi])
    np.testing.assert_array_equal(slab.features.toarray(), graph.features.toarray()[lo:hi])
    if hi - lo > 20:
        np.testing.assert_array_equal(slab.slab(lo + 5, hi - 5).adjacency.toarray(),
                                      graph.adjacency.toarray()[lo + 5:hi - 5])


@pytest.mark.parametrize("weighted", [False, True])
def test_self_loops_are_added_where_there_are_none(weighted):
    graph = make(directed=True, weighted=weighted)
    for lo, hi in ((0, 203), (60, 130)):
        indptr, indices, data, added = with_self_loops(graph.slab(lo, hi))
        check_csr(indptr, indices, indices.size, 203, "with loops")
        assert (data is None) == (not weighted)
        values = np.ones(indices.size) if data is None else data
        expected = graph.adjacency.toarray()
        diagonal = np.diag(expected).copy()
        np.fill_diagonal(expected, np.where(diagonal == 0, 1, diagonal))
        looped = sp.csr_array((values, indices, indptr), (hi - lo, 203)).toarray()
        np.testing.assert_array_equal(looped, expected[lo:hi])
        np.testing.assert_array_equal(added, (diagonal == 0)[lo:hi])


def test_degrees_that_are_not_positive_give_zero():
    assert inverse_sqrt(np.array([4.0, 0.0, -1.0, 0.25])).tolist() == [0.5, 0, 0, 2]


def test_oracle_agrees_with_the_formula():
    graph = Graph.from_scipy(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0.0]]))
    d = np.array([2, 3, 2]) ** -0.5
    expected = d[:, None] * (graph.adjacency.toarray() + np.eye(3)) * d
    np.testing.assert_allclose(oracle.normalized(graph), expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("changed", ["nothing", "an entry", "a weight", "a loop"])
def test_large_graphs_are_described_like_small_ones(monkeypatch, weighted, changed):
    """Compiled code finds the same symmetry and the same sums as SciPy."""
    A = sp.random_array((40, 40), density=0.1, rng=np.random.default_rng(0), format="lil")
    A = (A + A.T).tolil()
    if changed == "an entry":
        A[39, 3] = 0 if A[39, 3] else 1
    elif changed == "a weight":
        A[3, A[[3]].nonzero()[1][0]] = 1.5
    elif changed == "a loop":
        A[0, 0] = 1 - A[0, 0]
    A = A.tocsr()

    small = Graph.from_scipy(A, unweighted=not weighted)
    monkeypatch.setattr(adjacency, "LARGE", 0)
    large = Graph.from_scipy(A, unweighted=not weighted)
    assert small.header == large.header
    assert small.header.directed == (changed == "an entry" or (weighted and changed == "a weight"))
    for name in ("degree_row", "degree_column", "degree_loop"):
        np.testing.assert_array_equal(getattr(small, name), getattr(large, name))
