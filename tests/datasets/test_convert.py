"""`convert` with any input: format detection, row normalization, --strict, and notes."""
import gzip
import hashlib

import numpy as np
import pytest
import scipy.sparse as sp
from inputs import put, refused

from hpgcn import store
from hpgcn.datasets.convert import convert, normalize_rows, read
from hpgcn.datasets.formats import detect
from hpgcn.datasets.source import Source

MTX = b"%%MatrixMarket matrix coordinate pattern general\n"


@pytest.mark.parametrize("name, content, expected", [
    ("ind.cora.test.index", b"1\n", "planetoid"), ("ind.a.b.graph", b"", "planetoid"),
    ("g.npz", b"", "npz"), ("g", b"PK\x03\x04", "npz"),
    ("g.mtx", b"", "mtx"), ("g.MTX.gz", b"", "mtx"), ("g.txt", b"%%matrixmarket matrix", "mtx"),
    ("g.txt", gzip.compress(b"\xef\xbb\xbf%%MatrixMarket matrix"), "mtx"),
    ("g.csv", b"0 1\n", "csv"), ("g.txt", b"# a, b\n0,1\n", "csv"), ("g.txt", b"0;1\n", "csv"),
    ("g.txt", b"# a, b\n0 1\n", "snap"), ("g", b"", "snap")])
def test_detect(tmp_path, name, content, expected):
    assert detect(Source(put(tmp_path / name, content))) == expected


def test_name_and_hash(tmp_path):
    content = gzip.compress(b"0 1\n")
    for name, stem in (("p2p-Gnutella08.txt.gz", "p2p-Gnutella08"), ("a.b.csv", "a.b"),
                       ("plain", "plain")):
        header = read(put(tmp_path / name, content))[0].header
        assert header.name == stem and header.source_sha256 == hashlib.sha256(content).hexdigest()


def test_normalize_rows():
    X = np.array([[1.0, 3], [0, 0], [-1, 3], [2, -2]])
    expected = [[0.25, 0.75], [0, 0], [-0.5, 1.5], [2, -2]]
    assert normalize_rows(X).tolist() == expected
    assert normalize_rows(sp.csr_array(X)).toarray().tolist() == expected
    assert normalize_rows(np.array([[1, 3]])).tolist() == [[0.25, 0.75]]


def test_row_normalize_is_off_elsewhere(tmp_path):
    np.savez(tmp_path / "g.npz", edge_index=[[0], [1]], x=np.array([[1.0, 3], [0, 5]]))
    assert read(tmp_path / "g.npz")[0].features.tolist() == [[1, 3], [0, 5]]
    graph, _ = read(tmp_path / "g.npz", row_normalize=True)
    assert graph.features.tolist() == [[0.25, 0.75], [0, 1]]
    refused(r"g\.txt: no features", put(tmp_path / "g.txt", "0 1\n"), row_normalize=True)


@pytest.mark.parametrize("content, message", [
    (b"0 90000\n5 7\n0 90000\n", r"entry 2: 0 -> 90000"),
    (b"# Undirected graph\n0 1\n1 0\n1 2\n",
     r"not symmetric: 1 edges are listed in both directions and 1 in one"),
    (b"%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 2 1\n2 1 1\n",
     r"2 duplicate edges")])
def test_strict(tmp_path, content, message):
    path = put(tmp_path / "g.txt", content)
    read(path)
    refused(message, path, strict=True)


def test_strict_takes_what_is_regular(tmp_path):
    path = put(tmp_path / "g.txt", b"# Undirected graph\n0 1\n1 0\n1 2\n2 1\n")
    assert read(path, strict=True)[0].header.num_edges == 4
    path.write_bytes(b"0 1\n1 2\n")
    assert read(path, strict=True)[0].header.directed


@pytest.mark.parametrize("content, n, edges", [
    (MTX + b"1 1 0\n", 1, 0), (MTX + b"5 5 0\n", 5, 0), (MTX + b"1 1 1\n1 1\n", 1, 1),
    (b"0 0\n", 1, 1)])
def test_smallest_graphs(tmp_path, content, n, edges):
    graph, notes = read(put(tmp_path / "g.txt", content))
    assert (graph.header.num_nodes, graph.header.num_edges) == (n, edges)
    assert f"{n} isolated" in notes[1]


def test_replaced_features_and_labels(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(34) % 3)
    np.save(tmp_path / "x.npy", np.ones((34, 2), np.float64))
    graph, _ = read("karate", features=tmp_path / "x.npy", labels=tmp_path / "y.npy",
                    split="random:60/20/20")
    assert graph.header.num_features == 2 and graph.header.num_classes == 3
    assert graph.features.dtype == np.float32


@pytest.mark.parametrize("content", [b"0 1\n2 1\n4 1\n1 0\n2 2\n",
                                     b"0 1 0.5\n2 1 3\n4 1 -7\n1 0 1\n2 2 2\n0 1 1\n"])
@pytest.mark.parametrize("memory", [None, 300])
def test_made_features(tmp_path, monkeypatch, content, memory):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hpgcn.datasets.vertex_changes.VERTEX_BYTES", 0)
    put(tmp_path / "g.txt", content)
    for name in ("identity", "degree"):
        convert("g.txt", f"{name}.h5", features=name, memory=memory)
    graph = store.load("identity.h5").read()
    A = graph.adjacency.toarray().astype(float)
    assert graph.header.sparse_features and graph.features.toarray().tolist() == np.eye(5).tolist()
    graph = store.load("degree.h5").read()
    sums = np.stack([A.sum(1), A.sum(0)], 1)
    expected = (np.sign(sums) * np.log(1 + abs(sums))).astype(np.float32)
    assert graph.features.tolist() == expected.tolist()


def test_a_file_called_degree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("degree", "wb") as file:
        np.save(file, np.full((34, 3), 7.0))
    assert read("karate", features="./degree")[0].header.num_features == 3
    graph, notes = read("karate", features="degree")
    assert graph.header.num_features == 2
    assert "features: degree, 2 columns computed from the adjacency" in notes


def test_made_features_that_do_not_fit(tmp_path, monkeypatch):
    put(tmp_path / "g.txt", b"0 1\n")
    with monkeypatch.context() as patch:
        patch.setattr("hpgcn.datasets.vertex_changes.VERTEX_BYTES", 1000)
        refused(r"g\.txt: features identity of 2 vertices: needs 2000 bytes", tmp_path / "g.txt",
                features="identity", memory=1000)
    monkeypatch.setattr("hpgcn.datasets.vertex_changes.MAX_WIDTH", 1)
    refused(r"identity makes 2 columns, one per vertex, but at most 1 .*degree", tmp_path / "g.txt",
            features="identity")


@pytest.mark.parametrize("y, one_hot", [
    (np.eye(3)[np.arange(34) % 3], True), (np.eye(2, dtype=bool)[np.arange(34) % 2], True),
    (np.eye(3)[np.arange(34) % 3] * (np.arange(34) > 5)[:, None], True),
    (np.ones((34, 2)), False), (np.zeros((34, 2)), False), (np.arange(34)[:, None] % 2, False)])
def test_one_hot_labels_are_said_to_be_so(tmp_path, y, one_hot):
    np.save(tmp_path / "y.npy", y)
    graph, notes = read("karate", labels=tmp_path / "y.npy")
    assert graph.header.multilabel == (y.shape[1] > 1)
    said = [note for note in notes if "are one-hot, and are used as multi-label" in note]
    assert ["y.argmax(1)" in note for note in said] == [True] * one_hot
