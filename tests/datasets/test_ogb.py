"""Folders of the Open Graph Benchmark, written here in its layout."""
import gzip
import hashlib

import numpy as np
import pytest
from inputs import put, refused, rows

from hpgcn.datasets.convert import convert, read
from hpgcn.datasets.formats import detect
from hpgcn.datasets.source import Source
from hpgcn.errors import DataError, InputNotFoundError

TABLES = {
    "raw/edge": "0,1\n0,2\n3,0\n", "raw/num-node-list": "4\n", "raw/num-edge-list": "3\n",
    "raw/node-feat": "0.5,1\n-1e-3,2\n0,0\n7,8\n", "raw/node-label": "2\n0\nnan\n1\n",
    "raw/node_year": "1\n2\n3\n4\n",
    "split/time/train": "0\n", "split/time/valid": "3\n", "split/time/test": "1\n"}


def folder(tmp_path, **changes):
    """Write an OGB set of 4 vertices; `changes` replace tables, and None omits one."""
    root = tmp_path / "tiny"
    for name, text in TABLES.items():
        text = changes.get(name.split("/")[-1].replace("-", "_"), text)
        path = root / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_bytes(gzip.compress(text.encode()))
    return root / "raw"


@pytest.mark.parametrize("given", ["edge", "num-node-list", "node-feat", "node-label"])
def test_tables(tmp_path, given):
    raw = folder(tmp_path)
    graph, notes = read(raw / f"{given}.csv.gz")
    header = graph.header
    assert (header.name, header.num_nodes, header.num_classes) == ("tiny", 4, 3)
    assert header.split == "file"
    assert rows(graph) == [[0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    X = np.array([[0.5, 1], [-1e-3, 2], [0, 0], [7, 8]], np.float32)
    assert graph.features.tolist() == X.tolist()
    assert graph.labels.tolist() == [2, 0, -1, 1]
    assert {key: mask.nonzero()[0].tolist() for key, mask in graph.masks.items()} == {
        "train": [0], "val": [3], "test": [1]}
    files = [*(f"raw/{name}" for name in ("num-node-list", "edge", "node-feat", "node-label")),
             *(f"split/time/{name}" for name in ("train", "valid", "test"))]
    content = b"".join((raw.parent / f"{name}.csv.gz").read_bytes() for name in files)
    assert header.source_sha256 == hashlib.sha256(content).hexdigest()
    assert "4 vertices, 3 edges, directed" in notes[0]
    assert "not read: node_year.csv.gz" in notes
    said = [note for note in notes if note.startswith("tiny is directed, as OGB's own loader")]
    assert "use --symmetrize" in said[0]
    assert "is directed" not in " ".join(read(raw / f"{given}.csv.gz", symmetrize=True)[1])


def test_options_and_what_may_be_absent(tmp_path):
    raw = folder(tmp_path, node_feat=None, node_label=None, train=None, node_year=None)
    graph, _ = read(raw / "edge.csv.gz", symmetrize=True)
    assert graph.features is None and graph.labels is None and graph.masks is None
    assert not graph.header.directed
    graph, _ = read(raw / "edge.csv.gz", reverse=True)
    assert graph.adjacency.toarray()[0].tolist() == [0, 1, 1, 0]


def test_several_labels(tmp_path):
    graph, _ = read(folder(tmp_path, node_label="0,1\n1,1\n0,0\n1,0\n") / "edge.csv.gz")
    assert graph.header.multilabel and graph.labels.tolist() == [[0, 1], [1, 1], [0, 0], [1, 0]]


def test_archives(tmp_path):
    raw = folder(tmp_path)
    for path in raw.iterdir():
        path.unlink()
    features = np.arange(8, dtype=np.float16).reshape(4, 2)
    np.savez(raw / "data.npz", edge_index=[[0, 0, 3], [1, 2, 0]], num_nodes_list=[4],
             num_edges_list=[3], node_feat=features, edge_feat=np.ones((3, 8)))
    np.savez(raw / "node-label.npz", node_label=np.array([[2], [0], [np.nan], [1]], np.float32))
    for name in ("data.npz", "node-label.npz"):
        assert detect(Source(raw / name)) == "ogb"
        graph, notes = read(raw / name)
        assert graph.header.name == "tiny" and graph.adjacency.toarray()[0].tolist() == [0, 0, 0, 1]
        assert graph.features.tolist() == features.tolist()
        assert graph.labels.tolist() == [2, 0, -1, 1]
        assert graph.masks["train"].tolist() == [True, False, False, False]
        assert "cast from float16" in " ".join(notes) and "not read: edge_feat" in notes
    np.savez(raw / "data.npz", edge_index=[[0, 0, 3], [1, 2, 4]], num_nodes_list=[4])
    refused(r"data\.npz edge_index row 1: entry 2 is 4, expected 0\.\.3", raw / "data.npz")
    np.savez(raw / "data.npz", edge_index=[[0], [1]], num_nodes_list=[4, 4])
    refused("num_nodes_list: a set of 2 graphs", raw / "data.npz")
    np.savez(raw / "data.npz", edge_index=[[0], [1]])
    refused("no array num_nodes_list", raw / "data.npz")


@pytest.mark.parametrize("given", ["", "raw", "raw/data.npz", "raw/node-label.npz"])
def test_papers100m(tmp_path, given):
    """A set like ogbn-papers100M is read: .npz files, labels mostly NaN, and a split by time."""
    root = tmp_path / "ogbn_papers100M"
    for name in ("raw", "split/time", "mapping"):
        (root / name).mkdir(parents=True)
    X = np.arange(12, dtype=np.float32).reshape(6, 2)
    np.savez(root / "raw/data.npz", edge_index=np.int64([[0, 0, 3], [1, 2, 5]]), node_feat=X,
             node_year=np.full((6, 1), 2017), num_nodes_list=np.int64([6]),
             num_edges_list=np.int64([3]))
    labels = np.float32([[2], [0], [np.nan], [1], [np.nan], [np.nan]])
    np.savez(root / "raw/node-label.npz", node_label=labels)
    for name, text in (("train", "1\n4\n"), ("valid", "0\n"), ("test", "3\n")):
        put(root / f"split/time/{name}.csv.gz", gzip.compress(text.encode()))

    graph, notes = read(root / given)
    assert graph.header.name == "ogbn_papers100M" and graph.features.tolist() == X.tolist()
    assert graph.labels.tolist() == [2, 0, -1, 1, -1, -1]
    masks = {key: np.flatnonzero(mask).tolist() for key, mask in graph.masks.items()}
    assert masks == {"train": [1], "val": [0], "test": [3]}
    assert graph.adjacency.toarray().nonzero()[0].tolist() == [1, 2, 5]
    assert "not read: node_year" in notes


def test_names_alone_do_not_make_a_set(tmp_path):
    put(tmp_path / "edge.csv.gz", gzip.compress(b"0,1\n"))
    np.savez(tmp_path / "data.npz", edge_index=[[0], [1]])
    for name, fmt in (("edge.csv.gz", "csv"), ("data.npz", "npz")):
        assert detect(Source(tmp_path / name)) == fmt
    with pytest.raises(InputNotFoundError, match="num-node-list"):
        read(tmp_path / "edge.csv.gz", "ogb")


@pytest.mark.parametrize("changes, message", [
    ({"edge": "0,1\n0,4\n"}, r"edge\.csv\.gz: line 2: target is '4', expected 0\.\.3"),
    ({"edge": "0,1,5\n"}, r"edge\.csv\.gz: line 1: more than 2 fields"),
    ({"edge": "0 1\n"}, r"edge\.csv\.gz: line 1: 1 field\(s\), expected 2"),
    ({"num_node_list": "2\n" * 2000},
     r"num-node-list\.csv\.gz: a set of 2000 graphs .*a node property set with one graph"),
    ({"num_node_list": ""}, r"num-node-list\.csv\.gz: 0 numbers"),
    ({"num_node_list": "four\n"}, r"num-node-list\.csv\.gz: line 1: number is 'four'"),
    ({"num_node_list": "1000000000000\n"}, r"1000000000000 vertices: needs"),
    ({"num_node_list": "0\n"}, r"num-node-list\.csv\.gz: 1 numbers \[0\], expected"),
    ({"node_feat": "1,2\n3,4\n"}, r"node-feat\.csv\.gz: 2 lines, expected 4"),
    ({"node_feat": "1,2\n3,4\n" * 4}, r"node-feat\.csv\.gz: more than 4 lines"),
    ({"node_feat": "1,2\n3\n5,6\n7,8\n"}, r"node-feat\.csv\.gz: line 2: 1 field\(s\), expected 2"),
    ({"node_feat": "1,2\n3,x\n5,6\n7,8\n"}, r"node-feat\.csv\.gz: line 2: .*'x'"),
    ({"node_feat": ""}, r"node-feat\.csv\.gz: 0 lines"),
    ({"node_label": "1\n2\n"}, r"node-label\.csv\.gz: 2 lines"),
    ({"train": "0\n4\n"}, r"train\.csv\.gz: line 2: number is '4', expected 0\.\.3"),
    ({"test": "0\n1\n"}, r"vertex 0 is in both the train and the test mask"),
    ({"train": ""}, r"train mask is empty")])
def test_refused(tmp_path, changes, message):
    path = folder(tmp_path, **changes) / "edge.csv.gz"
    with pytest.raises(DataError, match=message) as error:
        convert(path, tmp_path / "g.h5")
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny"]


def test_two_splits_and_a_missing_part(tmp_path):
    raw = folder(tmp_path)
    (raw.parent / "split" / "time" / "test.csv.gz").unlink()
    with pytest.raises(InputNotFoundError, match=r"test\.csv\.gz"):
        read(raw / "edge.csv.gz")
    other = folder(tmp_path).parent / "split" / "random"
    other.mkdir()
    put(other / "train.csv.gz", gzip.compress(b"0\n"))
    refused("splits random, time, expected one", raw / "edge.csv.gz")


def test_broken_gzip(tmp_path):
    raw = folder(tmp_path)
    for path in [raw / f"{name}.csv.gz" for name in ("edge", "node-feat", "node-label")]:
        content = path.read_bytes()
        path.write_bytes(content[:-9])
        refused(f"{path.name}: broken gzip data", raw / "edge.csv.gz")
        path.write_bytes(content)
