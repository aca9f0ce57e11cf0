"""Matrices in .mat files are read as scipy.io wrote them, with labels of known sets, or refused."""
import io

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from inputs import put, refused

from hpgcn.datasets.convert import read
from hpgcn.errors import DataError

A = sp.csc_array(np.array([[0, 1.5, 0], [2, 0, 0], [0, 3, 4]]))


def written(**arrays):
    made = io.BytesIO()
    options = {key: arrays.pop(key) for key in ("format", "do_compression") if key in arrays}
    scipy.io.savemat(made, arrays, **options)
    data = made.getvalue()
    title = b"MATLAB 5.0 MAT-file"  # then the time, which would vary between processes
    return title.ljust(116) + data[116:] if data.startswith(title) else data


@pytest.mark.parametrize("options", [{}, {"do_compression": True}], ids=str)
@pytest.mark.parametrize("make", [sp.csc_matrix, lambda M: M.toarray()], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", ["A", "network", "something"])
def test_the_matrix(tmp_path, options, make, name):
    path = put(tmp_path / "g.mat", written(**{name: make(A), "other": np.ones((2, 5))}, **options))
    graph, notes = read(path)
    np.testing.assert_array_equal(graph.adjacency.toarray(), A.toarray())
    assert "not read: other" in notes and "row u aggregates v" in notes


def test_a_problem_of_suitesparse(tmp_path):
    path = put(tmp_path / "g.mat", written(Problem={"A": sp.csc_matrix(A), "name": "a/b"}))
    np.testing.assert_array_equal(read(path)[0].adjacency.toarray(), A.toarray())


def test_groups_are_labels(tmp_path):
    groups = np.array([[1, 0], [1, 1], [0, 0]])
    path = put(tmp_path / "b.mat", written(network=sp.csc_matrix(A), group=sp.csc_matrix(groups)))
    assert read(path)[0].labels.tolist() == groups.tolist()


def test_facebook(tmp_path):
    facts = np.array([[1, 1, 19, 0, 5, 2007, 3], [2, 0, 7, 0, 5, 2006, 3], [1, 2, 7, 0, 6, 0, 9]])
    path = put(tmp_path / "Reed98.mat", written(A=sp.csc_matrix(A != 0), local_info=facts))
    graph, notes = read(path)
    assert graph.labels.tolist() == [0, -1, 1] and graph.header.all_ones
    X = np.concatenate([(facts[:, [k]] == np.unique(facts[:, k])) for k in (0, 2, 3, 4, 5, 6)], 1)
    np.testing.assert_array_equal(graph.features.toarray(), X)
    assert any("labels: gender" in note for note in notes)


NAMES = [  # in attributed networks and sets with anomalies
    ("Network", "Attributes", "Label"), ("A", "X", "Y"), ("W", "fea", "gnd"),
    ("network", "attrb", "labels"), ("ADJ", "FEATURES", "Class")]


@pytest.mark.parametrize("network, attributes, label", NAMES)
@pytest.mark.parametrize("make", [np.atleast_2d, lambda y: np.atleast_2d(y).T], ids=["row", "col"])
@pytest.mark.parametrize("first", [0, 1])
def test_attributes_and_labels(tmp_path, network, attributes, label, make, first):
    X = np.array([[0.5, 0], [0, 2], [0, 0]])
    y = np.array([2, 0, 1]) + first
    path = put(tmp_path / "g.mat", written(**{
        network: sp.csc_matrix(A), attributes: sp.csc_matrix(X), label: make(y),
        "str_anomaly_label": make(y)}))
    graph, notes = read(path)
    loaded = scipy.io.loadmat(path)
    np.testing.assert_array_equal(graph.adjacency.toarray(), loaded[network].toarray())
    np.testing.assert_array_equal(graph.features.toarray(), loaded[attributes].toarray())
    assert graph.labels.tolist() == (loaded[label].ravel().astype(int) - first).tolist()
    assert "not read: str_anomaly_label" in notes
    assert ("classes 1..3 are numbered 0..2" in notes) == bool(first)
    assert graph.class_names == (("1", "2", "3") if first else None)


def test_edges_of_lim_et_al(tmp_path):
    arrays = {"edge_index": np.array([[0, 1, 2], [1, 2, 2]]), "node_feat": np.eye(4),
              "label": np.array([[1, 0, 1, 0]])}
    graph, notes = read(put(tmp_path / "g.mat", written(**arrays)))
    expected = np.zeros((4, 4))
    expected[arrays["edge_index"][1], arrays["edge_index"][0]] = 1
    assert graph.adjacency.toarray().tolist() == expected.tolist()
    assert graph.labels.tolist() == [1, 0, 1, 0] and "row target aggregates source" in notes


def test_a_flag_names_one_of_several_matrices(tmp_path):
    arrays = {"PAP": np.eye(3), "PLP": A.toarray(), "feature": np.eye(3), "label": [[0, 1, 0]]}
    path = put(tmp_path / "g.mat", written(**arrays))
    graph, notes = read(path, matrix="PLP")
    assert graph.adjacency.toarray().tolist() == A.toarray().tolist()
    assert "not read: PAP (--matrix PAP reads it as the adjacency)" in notes
    refused("2 square matrices, PAP, PLP: name the adjacency, as in --matrix PAP", path)
    put(path, written(edges=np.eye(2)))
    refused("holds edges .2, 2., expected a square", path)


WHOLE = written(A=sp.csc_matrix(A))


@pytest.mark.parametrize("content, message", [
    (written(A=np.ones((2, 3))), r"A has shape \(2, 3\), expected a square"),
    (written(x=np.ones((2, 3)), y=np.ones((2, 4))),
     r"holds x \(2, 3\), y \(2, 4\), expected a square"),
    (written(x=np.eye(2), y=np.eye(3)),
     "2 square matrices, x, y: name the adjacency, as in --matrix x"),
    (written(A="text"), "expected a matrix of numbers|square"),
    (written(A=np.eye(2) * 1j), "A: complex numbers"), (written(A={"b": 1}), "A: class 2"),
    (written(A=np.eye(2), format="4"), "no header of MATLAB 5 to 7"),
    (written(A=np.array([["a", 1]], object)), "A"),
    (written(Problem={"b": 1}), "field A is missing"),
    (written(Problem=np.eye(2)), "expected a struct"),
    (written(A=np.full((2, 2), np.nan)), "is nan"),
    (written(A=np.eye(3), group=np.ones((2, 2))), "labels have shape"),
    (written(A=np.eye(3), group=np.full((3, 2), 0.5)), "multi-label entry"),
    (written(A=np.eye(3), local_info=np.ones((3, 6))), r"local_info has shape \(3, 6\)"),
    (written(A=np.eye(3), local_info=np.full((3, 7), 3)), "gender of vertex 0 is 3"),
    (written(A=np.eye(3), Label=[[0.5], [1], [2]]), "Label: vertex 0: label '0.5', expected whole"),
    (written(A=np.eye(3), Label=[[1], [2]]), "labels have shape|multi-label"),
    (written(A=np.eye(3), X=np.ones((2, 3))), "features have shape"),
    (written(edge_index=np.array([[0, 5], [1, 1]]), label=[[1, 0]]), r"edge_index.* is 5"),
    (WHOLE[:200], "broken MATLAB data"), (WHOLE[:150], "broken MATLAB data|holds nothing"),
    (WHOLE[:128], "holds nothing"), (b"MATLAB 5.0 MAT-file", "no header"),
    (written(), "holds nothing"),
])
def test_refusals(tmp_path, content, message):
    refused(rf"g\.mat: .*({message})", put(tmp_path / "g.mat", content))


def test_memory_is_asked_for_before_it_is_taken(tmp_path):
    content = written(A=np.zeros((2000, 2000)), do_compression=True)
    assert len(content) < 100_000
    refused("needs .* bytes of memory", put(tmp_path / "g.mat", content), memory=1 << 20)


@pytest.mark.long
def test_one_byte_changed_is_read_or_refused_in_one_line(tmp_path):
    rng = np.random.default_rng(3)
    for whole in (WHOLE, written(A=sp.csc_matrix(A), do_compression=True)):
        for _ in range(150):
            flipped = bytearray(whole)
            flipped[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
            try:
                read(put(tmp_path / "g.mat", bytes(flipped)), memory=1 << 28)
            except DataError as error:
                assert str(error).isprintable()
