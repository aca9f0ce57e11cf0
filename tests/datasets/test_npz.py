"""Graphs and arrays in .npz and .npy files."""
import io
import struct
import zipfile
import zlib
from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp
from inputs import put, refused, rows

import hpgcn
from hpgcn.datasets.convert import read
from hpgcn.errors import UsageError
from hpgcn.store import load

A = np.array([[0, 2, 0], [0, 1, 0], [3, 0, 0]])
CSR = {"adj_data": np.array([2, 1, 3.0]), "adj_indices": np.array([1, 1, 0]),
       "adj_indptr": np.array([0, 1, 2, 3]), "adj_shape": np.array([3, 3])}


def convert(tmp_path, arrays, **options):
    path = tmp_path / "g.npz"
    np.savez(path, **arrays)
    return read(path, **options)


@pytest.mark.parametrize("without, expected", [((), A), (("adj_data",), A != 0)])
def test_csr(tmp_path, without, expected):
    graph, _ = convert(tmp_path, {key: CSR[key] for key in CSR.keys() - set(without)})
    assert rows(graph) == expected.astype(float).tolist()
    assert graph.features is None and graph.labels is None and graph.masks is None


class Bomb:
    """An object that fails the test when it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("unpickled",)


def parts(prefix, matrix):
    """Return the arrays of a CSR matrix in a dict, with names that begin with `prefix`."""
    return {f"{prefix}{key}": np.asarray(getattr(matrix, key))
            for key in ("data", "indices", "indptr", "shape")}


@pytest.mark.parametrize("adjacency, attributes", [
    ("adj_matrix.", "attr_matrix."), ("adj_matrix_", "attr_matrix_"), ("adj.", "attr."),
    ("adj_", "attr_")])
def test_graph2gauss_and_ppnp(tmp_path, adjacency, attributes):
    X = sp.csr_array(np.array([[0, 1.5], [0, 0], [2, 0]]))
    objects = np.array([Bomb(), None, "a"], object)
    graph, notes = convert(tmp_path, {
        **parts(adjacency, sp.csr_array(A)), **parts(attributes, X), "labels": [1, 0, 1],
        "node_names": objects, "attr_names": objects[:2], "idx_to_class": np.array({0: Bomb()})})
    assert rows(graph) == A.tolist() and graph.labels.tolist() == [1, 0, 1]
    assert graph.features.toarray().tolist() == X.toarray().tolist()
    said, = (note for note in notes if "Python objects" in note)
    assert said.endswith("neither read nor executed: node_names, attr_names, idx_to_class")


@pytest.mark.parametrize("x, y", [("features", "label"), ("feat", "labels"), ("X", "y")])
def test_names_of_features_and_labels(tmp_path, x, y):
    graph, notes = convert(tmp_path, {"edge_index": [[0, 1], [2, 2]], x: np.eye(3), y: [0, 1, 0]})
    assert graph.features.tolist() == np.eye(3).tolist() and graph.labels.tolist() == [0, 1, 0]
    assert not any("not read" in note for note in notes)


def test_labels_that_are_a_csr_matrix_or_objects(tmp_path):
    Y = np.array([[1, 0], [1, 1], [0, 0]])
    graph, _ = convert(tmp_path, {**CSR, **parts("labels.", sp.csr_array(Y))})
    assert graph.labels.tolist() == Y.tolist()
    np.savez(tmp_path / "g.npz", **CSR, labels=np.array(["a", "b", Bomb()], object))
    refused("labels: dtype object .a pickle, which is never executed", tmp_path / "g.npz")


def test_csr_unsorted_with_duplicates(tmp_path):
    graph, notes = convert(tmp_path, {"adj_indices": np.array([2, 0, 2], np.int32),
                                      "adj_indptr": [0, 3, 3, 3], "adj_shape": [3, 3]})
    assert rows(graph) == [[1, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert "1 duplicates" in " ".join(notes)


def test_edge_index_points_from_source_to_target(tmp_path):
    graph, _ = convert(tmp_path, {"edge_index": [[0, 1], [2, 2]], "num_nodes": 4})
    assert np.argwhere(graph.adjacency.toarray()).tolist() == [[2, 0], [2, 1]]
    assert graph.header.num_nodes == 4


def test_edge_index_takes_vertices_from_features(tmp_path):
    graph, _ = convert(tmp_path, {"edge_index": [[0], [1]], "x": np.ones((5, 2))})
    assert graph.header.num_nodes == 5
    graph, _ = convert(tmp_path, {"edge_index": [[0, 10**12], [1, 0]]})
    assert graph.original_ids.tolist() == [0, 1, 10**12]


@pytest.mark.parametrize("key, label", [
    ("attr_matrix", "labels"), ("x", "y"), ("node_feat", "node_label")])
def test_attributes(tmp_path, key, label):
    X = np.arange(6.0).reshape(3, 2)
    graph, _ = convert(tmp_path, {**CSR, key: X, label: np.array([[1], [0], [-1]])})
    assert graph.features.tolist() == X.tolist() and graph.features.dtype == np.float32
    assert graph.labels.tolist() == [1, 0, -1] and graph.header.num_classes == 2


def test_sparse_attributes_and_split(tmp_path):
    masks = {"train_mask": [True, False, False], "val_idx": [2], "test_mask": [0, 1, 0]}
    graph, _ = convert(tmp_path, {
        **CSR, **masks, "attr_data": [1.0, 2], "attr_indices": [3, 0], "attr_indptr": [0, 1, 1, 2],
        "attr_shape": [3, 4], "labels": [0, 1, 1]})
    assert graph.header.sparse_features
    assert graph.features.toarray().tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [2, 0, 0, 0]]
    assert {key: mask.tolist() for key, mask in graph.masks.items()} == {
        "train": [True, False, False], "val": [False, False, True], "test": [False, True, False]}
    assert graph.header.split == "file"


def heterophilous(splits=10, n=40):
    """Return arrays in the form of Platonov et al. (2023): each edge once, masks (splits, n)."""
    rng = np.random.default_rng(0)
    edges = np.array([[u, v] for u in range(n) for v in range(u) if rng.random() < 0.1])
    order = np.array([rng.permutation(n) for _ in range(splits)])
    masks = {"train_masks": order < 20, "val_masks": (order >= 20) & (order < 30),
             "test_masks": order >= 30}
    return {"node_features": rng.standard_normal((n, 3)), "node_labels": rng.integers(0, 2, n),
            "edges": edges, **masks}


@pytest.mark.parametrize("turned", [False, True])
def test_heterophilous_sets_are_read_whole(tmp_path, turned):
    arrays = heterophilous()
    given = {key: each.T if turned and key.endswith("masks") else each
             for key, each in arrays.items()}
    graph, notes = convert(tmp_path, given)
    dense = np.zeros((40, 40))
    dense[tuple(arrays["edges"].T)] = 1
    np.testing.assert_array_equal(graph.adjacency.toarray(), np.maximum(dense, dense.T))
    assert not graph.header.directed and "edges read in both directions" in notes
    assert not any("not read" in note for note in notes)
    assert (graph.header.num_splits, graph.header.num_features, graph.header.num_classes) == (
        10, 3, 2)
    for key, mask in graph.masks.items():
        np.testing.assert_array_equal(mask, arrays[f"{key}_masks"].T)

    hpgcn.save(graph, tmp_path / "g.h5")
    with load(tmp_path / "g.h5") as stored:
        for split in range(10):
            masks = stored.slab(0, 40, split).masks
            for key, mask in masks.items():
                np.testing.assert_array_equal(mask, arrays[f"{key}_masks"][split])


def test_a_set_that_is_directed_by_its_name(tmp_path):
    arrays = heterophilous()
    directed, undirected = (tmp_path / f"{kind}.npz" for kind in ("a_directed", "undirected"))
    np.savez(directed, **arrays)
    np.savez(undirected, **arrays)
    graph, notes = read(directed)
    assert graph.header.directed and "row target aggregates source" in notes
    assert {(v, u) for u, v in zip(*graph.adjacency.nonzero())} == {*map(tuple, arrays["edges"])}
    assert not read(undirected)[0].header.directed


def test_pyg_masks_of_several_splits(tmp_path):
    """Train and validation masks have several splits, as in WikiCS.

    One test mask is used in all.
    """
    train = np.eye(5, 3, dtype=bool)
    test = np.arange(5) == 4
    graph, _ = convert(tmp_path, {
        "edge_index": [[0, 1], [1, 2]], "x": np.eye(5), "y": np.arange(5), "train_mask": train,
        "val_mask": np.roll(train, 1, axis=1), "test_mask": test})
    np.testing.assert_array_equal(graph.masks["train"], train)
    np.testing.assert_array_equal(graph.masks["test"], np.stack([test] * 3, axis=1))


def test_multilabel(tmp_path):
    graph, _ = convert(tmp_path, {**CSR, "y": np.array([[1, 0], [1, 1], [0, 0]])})
    assert graph.header.multilabel and graph.labels.tolist() == [[1, 0], [1, 1], [0, 0]]


@pytest.mark.parametrize("X, word", [
    (np.arange(6, dtype=np.float16).reshape(3, 2), "float16"),
    (np.arange(6, dtype=">f8").reshape(3, 2), "swapped"),
    (np.asfortranarray(np.arange(6.0).reshape(3, 2)), "Fortran"),
    (np.asfortranarray(np.arange(6, dtype=">i4").reshape(3, 2)), "swapped")])
def test_odd_layouts_are_read_with_a_note(tmp_path, X, word):
    graph, notes = convert(tmp_path, {**CSR, "x": X})
    assert graph.features.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert graph.features.flags.c_contiguous and graph.features.dtype == np.float32
    assert word in " ".join(notes)
    np.save(tmp_path / "x.npy", X)
    again, notes = convert(tmp_path, CSR, features=tmp_path / "x.npy")
    assert again.features.tolist() == graph.features.tolist() and word in " ".join(notes)


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_features_of_their_own_file(tmp_path, kind):
    X = np.array([[0, 1.5, 0, 0], [0, 0, 0, 0], [2, 0, 0, -1]])
    sp.save_npz(tmp_path / "F.npz", kind(X))
    graph, _ = convert(tmp_path, CSR, features=tmp_path / "F.npz")
    assert graph.header.sparse_features and graph.features.toarray().tolist() == X.tolist()
    np.savez_compressed(tmp_path / "D.npz", any_name=X)
    graph, _ = convert(tmp_path, CSR, features=tmp_path / "D.npz")
    assert not graph.header.sparse_features and graph.features.tolist() == X.tolist()


EDGES = {"edge_index": [[0, 1, 1], [2, 2, 0]], "num_nodes": 3}


@pytest.mark.parametrize("key, weights", [
    ("edge_weight", [0.5, 2, -3]), ("edge_weight", np.array([[1], [2], [4]])),
    ("weight", np.array([7, 8, 9], np.uint8)), ("Edge_Weights", [0.5, 2, 3]), ("W", [1.0, 2, 3])])
def test_edge_weights(tmp_path, key, weights):
    graph, notes = convert(tmp_path, {**EDGES, key: weights})
    expected = np.zeros((3, 3))
    expected[[2, 2, 0], [0, 1, 1]] = np.ravel(weights)
    assert rows(graph) == expected.tolist()
    assert f"weights read from {key} (--unweighted sets them to 1)" in notes
    assert convert(tmp_path, {**EDGES, key: weights}, unweighted=True)[0].header.all_ones


@pytest.mark.parametrize("key, attribute", [
    ("edge_attr", np.array([[0.5], [2], [3]], np.float16)), ("edge_attr", [3, 0, 1]),
    ("edge_feat", [[4.0], [2], [3]]), ("distance", [4.0, 2, 3])])
def test_attributes_are_weights_if_asked(tmp_path, key, attribute):
    arrays = {**EDGES, "num_nodes": 4, key: attribute}
    graph, notes = convert(tmp_path, arrays)
    assert graph.header.all_ones and graph.header.num_edges == 3
    assert f"{key} is not read as weights: --weights {key} reads it" in notes
    for name in (key, key.upper()):
        graph, notes = convert(tmp_path, arrays, weights=name)
        expected = np.zeros((4, 4))
        expected[[2, 2, 0], [0, 1, 1]] = np.ravel(attribute)
        assert rows(graph) == expected.tolist()
        assert f"weights read from {key} (--unweighted sets them to 1)" in notes


def test_edge_weights_that_are_text(tmp_path):
    graph, notes = convert(tmp_path, {**EDGES, "edge_weight": np.array(["1e1", "2", "3"])})
    assert graph.data.tolist() == [3, 10, 2]
    assert "edge_weight is text: read as numbers" in notes


def test_edge_weights_are_taken_before_attributes(tmp_path):
    graph, notes = convert(tmp_path,
                           {**EDGES, "edge_attr": [5.0, 5, 5], "edge_weight": [1.0, 2, 3]})
    assert graph.data.tolist() == [3, 1, 2]
    assert "edge_attr is not read as weights: --weights edge_attr reads it" in notes


def test_wide_edge_attributes_are_not_used_and_cost_no_memory(tmp_path):
    graph, notes = convert(tmp_path, {**EDGES, "edge_attr": np.ones((3, 10_000))}, memory=100_000)
    assert graph.header.all_ones
    assert ("edge_attr of shape (3, 10000) is not read: an edge has one weight "
            "(edge_features='edge_attr' reads it as features)") in notes


@pytest.mark.parametrize("arrays, message", [
    ({"edge_weight": [1.0, 2]},
     r"edge_weight: shape \(2,\), expected \(3,\): one weight for each edge"),
    ({"edge_weight": np.ones((3, 2))}, r"edge_weight: shape \(3, 2\), expected \(3,\)"),
    ({"edge_weight": [1.0, 2, 3], "w": [3, 2, 1]},
     "edge_weight, w all look like edge weights, expected one: --weights edge_weight selects"),
    ({"edge_weight": np.array(["1", "b", "c"])}, r"edge_weight at 1 is 'b', expected a number"),
    ({"edge_weight": np.ones(3, complex)}, r"edge_weight: dtype complex128, expected numbers"),
    ({"edge_weight": [1, np.nan, 1]}, r"edge_weight at 1 is nan, expected a finite number")])
def test_edge_weights_that_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "g.npz", **EDGES, **arrays)
    refused(message, tmp_path / "g.npz")


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_matrix_that_scipy_saved(tmp_path, kind):
    sp.save_npz(tmp_path / "A.npz", kind(A))
    assert read(tmp_path / "A.npz")[0].adjacency.toarray().tolist() == A.tolist()
    sp.save_npz(tmp_path / "A.npz", kind(A[:2]))
    refused(r"A\.npz has shape \(2, 3\), expected a square matrix", tmp_path / "A.npz")


@pytest.mark.parametrize("again", ["x.npy", "x", "edge_index"])
def test_two_members_of_one_name_are_refused(tmp_path, again):
    path = tmp_path / "g.npz"
    np.savez(path, **EDGES, x=np.eye(3))
    with pytest.warns(UserWarning, match="Duplicate") if again == "x.npy" else nullcontext(), \
            zipfile.ZipFile(path, "a") as archive:
        archive.writestr(again, b"another")
    name = again.removesuffix(".npy")
    for options in ({"source": path}, {"source": "karate", "features": path}):
        refused(rf"g\.npz: two members are called '{name}', expected one", **options)


def test_inflating_member_with_a_matching_crc(tmp_path):
    small = io.BytesIO()
    np.save(small, np.zeros((3, 1)))
    honest = small.getvalue()
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(honest + bytes(10_000_000)) + packer.flush()
    name = b"x.npy"
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, zlib.crc32(honest), len(packed),
                         len(honest), len(name), 0)
    local = b"PK\3\4" + fields + name + packed
    central = b"PK\1\2" + struct.pack("<H", 20) + fields + bytes(14) + name
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
    put(tmp_path / "F.npz", local + central + end)
    refused(r"F\.npz x: .*(Bad CRC|more than the declared)", "karate", features=tmp_path / "F.npz")


@pytest.mark.parametrize("name, sizes", [
    ("coauthor_cs", (18333, 163788, 6805, 15)), ("amazon_computers", (13752, 491722, 767, 10))])
def test_real_files(data_dir, name, sizes):
    path = data_dir / "npz" / f"{name}.npz"
    graph, _ = read(path)
    with np.load(path) as z:
        adjacency = sp.csr_array((z["adj_data"], z["adj_indices"], z["adj_indptr"]),
                                 shape=z["adj_shape"])
        features = sp.csr_array((z["attr_data"], z["attr_indices"], z["attr_indptr"]),
                                shape=z["attr_shape"])
        np.testing.assert_array_equal(graph.labels, z["labels"])
    assert abs(graph.adjacency - adjacency).nnz == 0
    assert abs(graph.features - features).nnz == 0
    header = graph.header
    assert sizes == (header.num_nodes, header.num_edges, header.num_features, header.num_classes)


PAIRS = [  # arrays, entries (row, column) of the adjacency
    ({"src": [0, 1], "dst": [2, 2]}, [(2, 0), (2, 1)]),
    ({"source": [0, 1], "target": [2, 2], "n": [3]}, [(2, 0), (2, 1)]),
    ({"row": [0, 1], "col": [2, 2]}, [(0, 2), (1, 2)]),
    ({"u": [0, 1], "v": [2, 2], "x": np.eye(3)}, [(0, 2), (1, 2)]),
    ({"edge_src": [0.0, 1], "edge_dst": [2, 2]}, [(2, 0), (2, 1)])]


@pytest.mark.parametrize("arrays, entries", PAIRS)
def test_an_array_for_each_end(tmp_path, arrays, entries):
    graph, notes = convert(tmp_path, arrays)
    assert np.argwhere(graph.adjacency.toarray()).tolist() == sorted(map(list, entries))
    assert any(note.startswith("edges: ") for note in notes)
    weighted, _ = convert(tmp_path, {**arrays, "weight": [0.5, 4]})
    assert sorted(weighted.data.tolist()) == [0.5, 4]


def test_the_arrays_of_a_coo_matrix(tmp_path):
    matrix = sp.coo_array(A)
    arrays = {"row": matrix.row, "col": matrix.col, "data": matrix.data}
    for more in ({}, {"shape": (3, 3)}):
        assert rows(convert(tmp_path, arrays | more)[0]) == A.tolist()
    np.savez(tmp_path / "g.npz", src=[0, 1.5], dst=[2, 0])
    refused("src: entry 1 is 1.5, expected ids", tmp_path / "g.npz")
    np.savez(tmp_path / "g.npz", src=[0, 1], dst=[2])
    refused(r"dst: shape \(1,\), expected \(2,\) as of src", tmp_path / "g.npz")


@pytest.mark.parametrize("name", ["adj", "A", "adjacency", "something"])
def test_a_dense_matrix(tmp_path, name):
    graph, notes = convert(tmp_path, {name: A, "x": np.eye(3), "y": [0, 1, 0]})
    assert rows(graph) == A.tolist() and graph.features.tolist() == np.eye(3).tolist()
    assert f"adjacency read from {name}" in notes


def test_matrices_among_which_a_flag_chooses(tmp_path):
    arrays = {"PAP": A, "PLP": A.T, "label": [0, 1, 0]}
    assert rows(convert(tmp_path, arrays, matrix="plp")[0]) == A.T.tolist()
    refused("2 square matrices, PAP, PLP: name the adjacency, as in --matrix PAP",
            tmp_path / "g.npz")
    refused("no matrix is called 'x' .--matrix., expected one of: PAP", tmp_path / "g.npz",
            matrix="x")
    graph, _ = convert(tmp_path, {**CSR, **parts("B_", sp.csr_array(A.T))}, matrix="B")
    assert rows(graph) == A.T.tolist()
    with pytest.raises(UsageError, match="--matrix: only for edges in npz, pt, mat, not for ka"):
        read("karate", matrix="A")
    with pytest.raises(UsageError, match=r"--base: only for lists of edges; .* has a matrix"):
        convert(tmp_path, CSR, base=1)


def test_a_matrix_in_a_pickle_is_not_executed(tmp_path):
    np.savez(tmp_path / "g.npz", A=np.array(Bomb(), object))
    refused(r"g\.npz: A: Python objects \(a pickle\), which hpgcn never executes; if you trust",
            tmp_path / "g.npz")
