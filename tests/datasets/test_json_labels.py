"""Several labels per vertex, as JSON lists or table columns, become a matrix of 0 and 1."""
import json

import numpy as np
import pytest
from inputs import put, refused

from hpgcn.datasets.convert import read

TAGS = {"a": ["x", "y"], "c": ["y"], "b": [], "d": ["z", "z"]}


def by_hand(rows):
    names = sorted({name for row in rows for name in row})
    return [[float(name in row) for name in names] for row in rows], tuple(names)


@pytest.mark.parametrize("edges, order", [("source,target\na,b\nb,c\nc,d\n", "abcd"),
                                          ("0,1\n1,2\n2,3\n", None)])
def test_lists_of_names(tmp_path, edges, order):
    tags = TAGS if order else list(TAGS.values())
    path = put(tmp_path / "y.json", json.dumps(tags))
    graph, notes = read(put(tmp_path / "g.csv", edges), labels=path)
    rows, names = by_hand([TAGS[name] for name in order or TAGS])
    assert graph.labels.tolist() == rows and graph.class_names == names
    assert graph.header.multilabel and f"{path}: 3 labels: x, y, z" in notes


@pytest.mark.parametrize("tags, message", [
    ({**TAGS, "c": ["y", 3]}, r"row c: \['y', 3\], expected a list of label names"),
    ({**TAGS, "c": "y"}, "row c: y, expected a list of label names"),
    ({key: TAGS[key] for key in "abc"}, "1 vertices have no row of labels, the first is id d"),
    ({name: [] for name in TAGS}, "row a: expected a list of names"),
    ([["x"]], "labels have 1 rows without ids")])
def test_refused(tmp_path, tags, message):
    put(tmp_path / "g.csv", "source,target\na,b\nb,c\nc,d\n")
    refused(rf"y\.json: .*({message})", tmp_path / "g.csv",
            labels=put(tmp_path / "y.json", json.dumps(tags)))


@pytest.mark.parametrize("text, names", [
    ("0 x y\n2 y\n1 x z\n3 z x\n", "xyz"), ("0\tx\ty\n2\ty\n1\tx\tz\n3\tz\tx\n", "xyz"),
    ("id,labels\n0,x,y\n2,y\n1,x,z\n3,z,x\n", "xyz"),
    ("# labels\n0 9 10\n2 10\n1 9 12\n3 12 9\n", ["9", "10", "12"])])
def test_several_labels_in_a_line(tmp_path, text, names):
    edges, path = put(tmp_path / "g.csv", "0,1\n1,2\n2,3\n"), put(tmp_path / "y.txt", text)
    graph, notes = read(edges, labels=path)
    assert graph.labels.tolist() == [[1, 1, 0], [1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert graph.class_names == tuple(names)
    assert any(f"3 labels: {', '.join(names)}" in note for note in notes)
    for cut in ("0,x\n1,y\n2\n3,x\n", "id,label\n0,x\n1,New York, y\n2,y\n3,x\n"):
        refused(r"[23] field\(s\), expected 2|1 field", edges, labels=put(path, cut))


def test_two_labels_in_each_line(tmp_path):
    edges = put(tmp_path / "g.csv", "".join(f"{k},{(k + 1) % 6}\n" for k in range(6)))
    rows = {0: "ab", 3: "ba", 1: "bc", 2: "ca", 4: "ac", 5: "cb"}
    path = put(tmp_path / "y.txt", "".join(f"{k} {a} {b}\n" for k, (a, b) in rows.items()))
    graph, _ = read(edges, labels=path)
    assert graph.class_names == ("a", "b", "c")
    assert graph.labels.tolist() == [[name in rows[k] for name in "abc"] for k in range(6)]
    for text in ("0 p a\n1 q b\n2 r a\n3 s b\n4 t a\n5 u b\n", "0 1 2\n1 2 1\n2 1 2\n3 1 1\n"):
        refused("which column is the label", edges, labels=put(path, text))


def test_ids_of_one_side_of_a_bipartite_list(tmp_path):
    edges = put(tmp_path / "g.csv", "u1,i1\nu1,i2\nu2,i2\n")
    options = {"bipartite": True, "header": False}
    for ids in (("u1", "i2", "u2", "i1"), ("u:u1", "v:i2", "u:u2", "v:i1")):
        path = put(tmp_path / "y.csv", "".join(f"{name},{k % 2}\n" for k, name in enumerate(ids)))
        graph, _ = read(edges, labels=path, **options)
        assert graph.original_ids.tolist() == ["u:u1", "u:u2", "v:i1", "v:i2"]
        assert graph.labels.tolist() == [0, 0, 1, 1]
    put(tmp_path / "g.csv", "1,1\n1,20\n2,20\n")
    path = put(tmp_path / "y.csv", "20,0\n2,1\n")
    graph, _ = read(edges, labels=path, **options)
    assert dict(zip(graph.original_ids.tolist(), graph.labels.tolist())) == {
        "u:1": -1, "u:2": 1, "v:1": -1, "v:20": 0}
    refused("u:1 and v:1 are two vertices", edges, labels=put(path, "1,0\n2,1\n"), **options)


def test_the_advice_for_text_called_npy(tmp_path):
    edges = put(tmp_path / "g.txt", "0 1\n1 2\n")
    path = put(tmp_path / "y.npy", "0.5 2.5\n2.5 1\n0 0\n")
    assert "rename it to end in .csv" in refused("y.npy: not an array", edges, features=path)
    path = path.rename(tmp_path / "y.csv")
    assert read(edges, features=path)[0].features.tolist() == [[0.5, 2.5], [2.5, 1], [0, 0]]
    np.save(tmp_path / "y.npy", np.eye(3))
    assert read(edges, features=tmp_path / "y.npy")[0].header.num_features == 3


@pytest.mark.parametrize("text, columns", [
    ("id,cat,dog,age\n2,1,1,5\n0,1,0,6\n1,0,0,7\n", "cat,dog"),
    ("id,is_cat,is_dog\n2,True,1.0\n0,true,0\n1,False,0\n", "is_*"),
    ("2,1,1\n0,1,0\n1,0,0\n", "2,3")])
def test_columns_of_a_table(tmp_path, text, columns):
    edges, path = put(tmp_path / "g.csv", "0,1\n1,2\n"), put(tmp_path / "y.csv", text)
    graph, _ = read(edges, labels=path, label_column=columns)
    assert graph.labels.tolist() == [[1, 0], [0, 0], [1, 1]]
    assert read(edges, labels=f"{path}:{columns}")[0].class_names == graph.class_names
    refused("which column is the label.*for multi-label columns of 0 and 1", edges, labels=path)
    put(path, text.replace("2,1,1", "2,1,7").replace("2,True,1", "2,True,7"))
    refused("line [12]: column .* is '7(.0)?', expected 0 or 1", edges, labels=path,
            label_column=columns)
    refused(r"no column is called x \(--label-column\)", edges, labels=path, label_column="x,y")
