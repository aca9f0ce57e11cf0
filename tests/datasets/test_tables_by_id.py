"""Tables of labels, features and splits, matched by vertex ids; results by hand."""
import gzip

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import put, refused

from hpgcn import store
from hpgcn.datasets.convert import convert, read
from hpgcn.errors import DataError, InputNotFoundError, UsageError

PATH = "0 1\n1 2\n2 3\n"  # ids 0..3
KONECT = "% sym unweighted\n1 2\n2 3\n"  # ids 1..3
NAMES = "ann bob\nbob cleo\n"
FAR = "700000 5\n5 90000\n90000 31\n"  # vertices 5, 31, 90000, 700000

LABELS = [  # edges, name of the table, its text, labels
    (KONECT, "y.csv", "id,label\n1,5\n2,6\n", [5, 6, -1]),
    (PATH, "y.csv", "id,label\n3,2\n0,1\n", [1, -1, -1, 2]),
    (PATH, "y.csv", "author,field\n2,b\n0,a\n3,b\n1,a\n", [0, 0, 1, 1]),
    (PATH, "y.csv", ",class\n2,7\n0,6\n3,7\n1,6\n", [6, 6, 7, 7]),
    (PATH, "y.csv", "3;1\n1;0\n0;0\n2;1\n", [0, 0, 1, 1]),
    (PATH, "y.dat", "3 1\n1   0\n0\t0\n 2 1\n", [0, 0, 1, 1]),
    (PATH, "y.txt", "3|1\n1|0\n", [-1, 0, -1, 1]),
    (PATH, "y.tsv", "node\tclass\n3\tNew York\n1\tBonn\n0\t?\n", [-1, 0, -1, 1]),
    (PATH, "y.csv", "id,label\n3.0,1.0\n1.0,nan\n0.0,-1.0\n2.0,0.0\n", [-1, -1, 0, 1]),
    (PATH, "y.csv", '"id" "label"\n"1" 3 x\n'.replace(" 3 x", " 3 \"x\""), [-1, -1, -1, 0]),
    (PATH, "y.csv", "0\n1\n1\n0\n", [0, 1, 1, 0]),
    (PATH, "y.csv", "0\n0\n1\n1\n0\n", [0, 1, 1, 0]),
    (PATH, "y.txt", "b\na\na\nb\n", [1, 0, 0, 1]),
    (PATH, "y.txt", "club\nb\na\na\nb\n", [1, 0, 0, 1]),
    (PATH, "y.csv", "# id label\n3 1\n1 0\n", [-1, 0, -1, 1]),
    (PATH, "y.csv", "id,days,label,new_id\n93,5,1,3\n94,5,0,0\n95,7,0,2\n99,8,1,1\n", [0, 1, 0, 1]),
    (PATH, "y.json", '{"2": "a", "0": "b", "1": "a"}', [1, 0, 0, -1]),
    (PATH, "y.json", '[{"node": 3, "label": 1}, {"node": 1, "label": 0}]', [-1, 0, -1, 1]),
    (PATH, "y.json", '{"id": [3, 1], "label": [1, 0]}', [-1, 0, -1, 1]),
    (PATH, "y.json", '{"id": {"0": 3, "1": 1}, "label": {"0": 1, "1": 0}}', [-1, 0, -1, 1]),
    (PATH, "y.json", '{"3": {"label": 1}, "1": {"label": 0}}', [-1, 0, -1, 1]),
    (PATH, "y.jsonl", '{"id": 3, "y": 1}\n{"id": 1, "y": 0}\n', [-1, 0, -1, 1]),
    (NAMES, "y.csv", "cleo,1\nann,0\nbob,1\n", [0, 1, 1]),
    (NAMES, "y.csv", "person,club\ncleo,b\nann,a\nbob,b\n", [0, 1, 1]),
    (NAMES, "y.csv", ",who,club\n0,cleo,b\n1,ann,a\n2,bob,b\n", [0, 1, 1]),
    (FAR, "y.csv", "txId,class\n700000,unknown\n31,2\n5,1\n90000,2\n", [1, 2, 2, -1]),
    (FAR, "y.csv", ",txId,class\n0,700000,?\n1,31,2\n2,5,1\n3,90000,2\n", [1, 2, 2, -1]),
    (PATH, "y.csv", "id,label\n0,-1\n1,1\n2,1\n3,-1\n", [0, 1, 1, 0]),
    (PATH, "y.csv", 'id, label\r\n3, "x, y"\r\n1, b\r\n', [-1, 0, -1, 1]),
    (PATH, "y.csv", "\ufeffsep=;\nid;label;\n3;b;\n1;a;\n", [-1, 0, -1, 1]),
    (PATH, "y.csv", ",paper,topic,use\n0,2,b,train\n1,0,a,val\n2,3,b,test\n3,1,a,\n",
     [0, 0, 1, 1]),
    (PATH, "y.csv", "3,y\n1,x\n0,x\n", [0, 0, -1, 1]),
    (PATH, "y.csv", "id,label\n0,1,\n3,0,\n1,1,\n", [1, 1, -1, 0]),
    (PATH, "y.txt", "0 1\n1 1\n2 1\n3 0\n4 2\n", [1, 1, 1, 0, 2]),
    (NAMES, "y.csv", "who,club\nbob,b\ncleo,a\n", [-1, 1, 0]),
    (NAMES, "y.csv", "zed,b\ncleo,a\nbob,b\nann,a\n", [0, 1, 0, 1]),
    ("source,target\n#a,%b\n%b,c d\n", "y.csv", "%b,x\n#a,y\nc d,x\n", [1, 0, 0]),
    (PATH, "y.svm", "-1 1:1\n+1 1:1\n+1 2:1\n-1 1:1\n", [0, 1, 1, 0]),
]


@pytest.mark.parametrize("edges, name, text, labels", LABELS)
def test_labels(tmp_path, edges, name, text, labels):
    graph, _ = read(put(tmp_path / "g.txt", edges), labels=put(tmp_path / name, text))
    assert graph.labels.tolist() == labels
    packed = put(tmp_path / f"{name}.gz", gzip.compress(text.encode()))
    assert read(tmp_path / "g.txt", labels=packed)[0].labels.tolist() == labels


@pytest.mark.parametrize("edges, text, message", [
    (PATH, "author,field\n10,b\n11,a\n12,b\n13,a\n", "author has a different value.*--id-column"),
    (PATH, "author,place\n2,3\n0,0\n3,2\n1,1\n",
     "author, place: which column has the ids.*--id-column"),
    (PATH, "id,a,b\n2,3,1\n0,0,1\n", "which column is the label.*--label-column"),
    (PATH, "id,label\n2,3\n0,0\n2,1\n", "id 2 occurs twice, in line 2 and line 4"),
    (PATH, "id,label\n2,3\n,0\n", "line 3: id '', expected a whole number"),
    (PATH, "id,label\n2,3\nx,0\n", "line 3: id 'x', expected a whole number"),
    (PATH, "id,label\n1,0\n2,0\n3,1\n4,1\n", r"ids 1\.\.4, but .* 0\.\.3.*--num-nodes 5"),
    ("1 2\n2 3\n", "id,label\n0,0\n1,0\n2,1\n", r"ids 0\.\.2, but .* 1\.\.3"),
    (KONECT, "id,label\n0,0\n1,0\n2,1\n", r"ids 0\.\.2, but .* 1\.\.3"),
    (PATH, "id,author_id,label\n0,2,1\n1,0,0\n2,1,1\n3,3,0\n",
     "id, author_id: which column has the ids"),
    (PATH, "id,label\n0,\n1,NA\n", "column label: no row of 2 has a label"),
    (PATH, "id,label\n0,1\nid,label\n2,1\n", "line 3: repeats the header"),
    (PATH, ",who,y\n0,3,1\n1,9,1\n2,2,0\n3,1,0\n",
     "one without a name, who: which column has the ids"),
    (PATH, "1,a,3\n1,b,9\n0,a,2\n0,b,1\n", "column 3 has a different value.*--id-column NAME"),
    (NAMES, "id,club\nann,a\nbob,b\nid,club\n", "line 4: repeats the header"),
    (PATH, "1,1\n0,1\n2,0\n2,1\n3,0\n", "column 1 has vertex ids, but some occur twice"),
    (FAR, "label\n1\n0\n0\n1\n", "4 rows without ids.*--ids FILE"),
    (NAMES, "label\n1\n0\n0\n", "3 rows without ids.*--ids FILE"),
])
def test_labels_refused(tmp_path, edges, text, message):
    refused(rf"y\.csv: .*{message}", put(tmp_path / "g.txt", edges),
            labels=put(tmp_path / "y.csv", text))


FEATURES = [  # edges, name of the table, its text, options, features
    (PATH, "x.csv", "id,a,b\n3,6,7\n0,0,1\n2,4,5\n1,2,3\n", {}, None),
    (PATH, "x.csv", ",0,1\n3,6,7\n0,0,1\n2,4,5\n1,2,3\n", {}, None),
    (PATH, "x.txt", "0 1.0\n2 3\n4 5\n6 7\n", {"id_column": "none"}, None),
    (PATH, "x.csv", "0.0;1\n2;3\n4;5\n6;7.0\n", {"id_column": "none", "header": False}, None),
    (PATH, "x.csv", "id;name;a;b\n3;p;6;7\n0;q;0;1\n2;r;4;5\n1;s;2;3\n",
     {"feature_columns": ("a", "b*")}, None),
    (PATH, "x.csv", "id,b,a\n3,7,6\n0,1,0\n2,5,4\n1,3,2\n", {"feature_columns": ("a", "b")}, None),
    (PATH, "x.csv", "id,a,label,b,split\n3,6,1,7,test\n0,0,0,1,\n2,4,1,5,val\n1,2,0,3,\n", {},
     None),
    (PATH, "x.json", '[{"id": 3, "x": [6, 7]}, {"id": 0, "x": [0, 1]}, {"id": 2, "x": [4, 5]}, '
     '{"id": 1, "x": [2, 3]}]', {}, None),
    ("1 2\n2 3\n3 4\n", "x.csv", "id,a,b\n4,6,7\n1,0,1\n3,4,5\n2,2,3\n", {"base": 1}, None),
    ("1 2\n2 3\n3 4\n", "x.csv", "id,a,b\n4,6,7\n1,0,1\n3,4,5\n2,2,3\n", {}, [1, 2, 3, 4]),
    ("1 4\n4 9\n9 20\n", "x.csv", "key,a,b\n20,6,7\n1,0,1\n9,4,5\n4,2,3\n", {}, [1, 4, 9, 20]),
    ("p q\nq r\nr s\n", "x.csv", "s,6,7\np,0,1\nr,4,5\nq,2,3\n", {"header": False},
     ["p", "q", "r", "s"]),
    ("p q\nq r\n", "x.csv", "who,a,b\ns,6,7\np,0,1\nr,4,5\nq,2,3\n", {"header": False},
     ["p", "q", "r", "s"]),
    ("5 90000\n90000 700000\n", "x.csv", "id,a,b\n800000,6,7\n5,0,1\n90000,2,3\n700000,4,5\n", {},
     [5, 90000, 700000, 800000]),
]


@pytest.mark.parametrize("edges, name, text, options, ids", FEATURES)
@pytest.mark.parametrize("edge_bytes", [1, 1 << 40], ids=["memory", "disk"])
def test_features(tmp_path, monkeypatch, edges, name, text, options, ids, edge_bytes):
    monkeypatch.setattr("hpgcn.datasets.convert.EDGE_BYTES", edge_bytes)
    convert(put(tmp_path / "g.txt", edges), tmp_path / "g.h5", **options,
            features=put(tmp_path / name, text))
    graph = store.load(tmp_path / "g.h5").read()
    path = [(k, k + 1) for k in range(edges.count("\n"))]  # each list of edges is a path
    assert list(zip(*map(np.ndarray.tolist, graph.adjacency.nonzero()))) == path
    assert graph.features.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert (graph.original_ids if ids is None else graph.original_ids.tolist()) == ids


@pytest.mark.parametrize("text, message", [
    ("id,a\n3,6\n0,0\n1,\n2,2\n", "line 4: column a is empty, expected a finite number"),
    ("id,a\n3,6\n0,inf\n1,1\n2,2\n", "line 3: column a is inf"),
    ("id,a\n3,6\n0,x\n1,1\n2,2\n", "line 3: column a is 'x'.*--feature-columns"),
    ("id,a\n3,6\n0,0\n1,1\n", "1 vertices have no row of features, the first is id 2"),
    ("id,a\n3,6\n0\n1,1\n2,2\n", r"line 3: 1 field\(s\), expected 2"),
    ("author,a\n30,6\n0,0\n10,1\n20,2\n", "author has a different value in each row.*--id-column"),
])
def test_features_refused(tmp_path, text, message):
    refused(rf"x\.csv: .*{message}", put(tmp_path / "g.txt", PATH),
            features=put(tmp_path / "x.csv", text))


def test_one_table_of_labels_features_and_split(tmp_path):
    """One table gives labels, features and the split; label and split columns are not features."""
    text = "id,venue,f0,f1,use\n3,1,.5,2,train\n1,0,.25,1,test\n0,1,1,2,valid\n2,,3,1,train\n"
    table = put(tmp_path / "n.csv", text)
    graph, notes = read(put(tmp_path / "g.txt", PATH), labels=table, features=table,
                        split=str(table), label_column="venue")
    assert graph.labels.tolist() == [1, 0, -1, 1] and graph.header.split == "file"
    assert graph.features.tolist() == [[1, 2], [.25, 1], [3, 1], [.5, 2]]
    assert [np.flatnonzero(graph.masks[key]).tolist() for key in ("train", "val", "test")] == [
        [3], [0], [1]]
    said = " ".join(notes)
    for part in ("4 rows of labels matched by column id, 1 vertex without a label",
                 "columns not read as features: venue, use",
                 "1 vertex without a label left out of the split", "split read from column use"):
        assert part in said
    assert read(tmp_path / "g.txt", labels=table, split=f"{table}:use",
                label_column="venue")[0].masks["val"].tolist() == [True, False, False, False]


SPLITS = [
    ("s.csv", "id,split\n3,train\n2,val\n1,test\n0,\n"), ("s.csv", "node,train,val,test\n"
     "3,1,0,0\n2,0,1,0\n1,0,0,1\n0,0,0,0\n"),
    ("s.txt", "\n".join(["split", "none", "test", "dev", "training"])),
    ("s.json", '{"train": [3], "valid": [2], "test": [1]}'),
    ("s.json", '[{"id": 3, "set": "train"}, {"id": 2, "set": "val"}, {"id": 1, "set": "test"}]'),
    ("s.npz", {"train_mask": [0, 0, 0, 1], "val_mask": [0, 0, 1, 0], "test_mask": [0, 1, 0, 0]}),
    ("s.npz", {"train_idx": [3], "valid_idx": [2], "test_idx": [1]}),
    ("s.npz", {"train": np.array([False, False, False, True]), "test": [[0], [1], [0], [0]],
               "val": [[0], [0], [1], [0]]}),
    ("s.npy", ["none", "test", "val", "train"]), ("s.npy", [-1, 2, 1, 0]), ("s.npy", [-1, 3, 2, 1]),
    ("s.npy", [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]), ("s.npz", {"split": [-1, 2, 1, 0]}),
    ("s.mtx", "%%MatrixMarket matrix array integer general\n4 1\n-1\n2\n1\n0\n"),
    ("s.csv", "id,set\n3,0\n2,1\n1,2\n"), ("s.csv", "id,split\n3,1\n2,2\n1,3\n0,\n"),
    ("s.csv", "set\n-1\n2\n1\n0\n"), ("s.json", '{"3": 0, "2": 1, "1": 2}'),
    ("s.txt", "train: 3\nval: 2\ntest: 1\n"), ("s.txt", "train 3\n\nvalid 2\ntest 1"),
    ("s.json", "[[3], [2], [1]]"), ("s.csv", "train,valid,test\n3,2,1\n"),
]


def save(path, content):
    """Write text, one array as .npy, or a dict of arrays as .npz."""
    if isinstance(content, str):
        return put(path, content)
    write = np.savez if isinstance(content, dict) else np.save
    with open(path, "wb") as file:
        write(file, **content) if isinstance(content, dict) else write(file, content)
    return path


@pytest.mark.parametrize("name, content", SPLITS)
def test_split(tmp_path, name, content):
    graph, _ = read(put(tmp_path / "g.txt", PATH), split=str(save(tmp_path / name, content)))
    assert [np.flatnonzero(graph.masks[key]).tolist() for key in ("train", "val", "test")] == [
        [3], [2], [1]]


@pytest.mark.parametrize("name, content", [
    ("s.txt", "train: 3, 4\nval: 2\ntest: 1, 0\n"), ("s.json", "[[3, 4], [2], [1, 0]]"),
    ("s.csv", "train,val,test\n3,2,1\n4,,0\n"), ("s.csv", "train_idx\ttest_idx\tval_idx\n4\t0\t2\n"
     "3\t1\t\n"), ("s.csv", "node,fold\n0,2\n1,2\n2,1\n3,0\n4,0\n")])
def test_splits_as_lists_of_ids(tmp_path, name, content):
    edges = put(tmp_path / "g.txt", "0 1\n1 2\n2 3\n3 4\n")
    graph, notes = read(edges, split=str(put(tmp_path / name, content)))
    assert [np.flatnonzero(graph.masks[key]).tolist() for key in ("train", "val", "test")] == [
        [3, 4], [2], [0, 1]]
    assert any("0 is train, 1 is val, 2 is test" in note for note in notes) == ("fold" in content)


def test_a_folder_of_lists_of_ids(tmp_path):
    edges = put(tmp_path / "g.txt", "0 1\n1 2\n2 3\n3 4\n")
    folder = tmp_path / "time"
    folder.mkdir()
    put(folder / "readme.txt", "none")
    refused("no file of this folder is called train", edges, split=str(folder))
    for name, text in (("train", "3\n4\n"), ("valid", "2\n"), ("test", "1\n0\n")):
        put(folder / f"{name}.csv.gz", gzip.compress(text.encode()))
    graph, _ = read(edges, split=str(folder))
    assert [np.flatnonzero(graph.masks[key]).tolist() for key in ("train", "val", "test")] == [
        [3, 4], [2], [0, 1]]
    put(folder / "train.txt", "3\n")
    refused("there are two files for train", edges, split=str(folder))


@pytest.mark.long
def test_a_split_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    edges = put(tmp_path / "g.txt", PATH)
    ids = {"train": torch.tensor([3]), "valid": torch.tensor([2]), "test": torch.tensor([1])}
    for parts in (ids,
                  {"train_mask": torch.arange(4) == 3, "val_mask": torch.arange(4) == 2,
                   "test_mask": torch.arange(4) == 1}):
        torch.save(parts, tmp_path / "s.pt")
        graph, _ = read(edges, split=str(tmp_path / "s.pt"))
        assert [np.flatnonzero(graph.masks[key]).tolist() for key in ("train", "val", "test")] == [
            [3], [2], [1]]


def test_several_splits_and_splits_by_the_ids_of_the_edges(tmp_path):
    masks = {f"{key}_masks": np.eye(4, dtype=bool)[[k, 3 - k]].T
             for k, key in enumerate(("train", "val", "test"))}
    path = save(tmp_path / "s.npz", masks)
    graph, _ = read(put(tmp_path / "g.txt", PATH), split=str(path))
    assert graph.masks["val"].tolist() == [[0, 0], [1, 0], [0, 1], [0, 0]]
    path = put(tmp_path / "s.txt", "train\ntrain\nval\ntest\n")  # no header
    assert read(tmp_path / "g.txt", split=str(path))[0].masks["train"].tolist() == [1, 1, 0, 0]
    path = put(tmp_path / "s.json", '{"train": [3], "val": [2], "test": [1]}')
    graph, _ = read(put(tmp_path / "k.txt", KONECT), split=str(path))
    assert graph.masks["train"].tolist() == [False, False, True]
    path = put(tmp_path / "s.json", '{"train": ["cleo"], "val": ["ann"], "test": ["bob"]}')
    graph, _ = read(put(tmp_path / "n.txt", NAMES), split=str(path), header=False)
    assert graph.masks["train"].tolist() == [False, False, True]


@pytest.mark.parametrize("name, content, message", [
    ("s.csv", "id,split\n3,train\n2,left\n",
     "which column has the words train, val and test.*:COLUMN"),
    ("s.json", '{"train": [3], "val": [2.5]}', "val: entry 0 is 2.5, expected an id"),
    ("s.json", '{"train": [3], "val": ["x"]}', "val: entry 0: id 'x', expected a whole number"),
    ("s.json", '{"train": [3, 3]}', "id 3 occurs twice"),
    ("s.npz", {"train_idx": [9], "val_idx": [1]}, "id 9 is not a vertex"),
    ("s.npz", {"a": [1]}, "arrays a, expected train_mask"),
    ("s.npy", [0, 1, 1, 0], "or of the numbers 0, 1, 2 for each vertex"),
    ("s.csv", "id,fold\n0,0\n1,1\n2,2\n3,3\n", "which column has the words train, val and test"),
    ("s.csv", "train,val\n3,2\n4,\n", "train: id 4 is not a vertex|4 is not a vertex"),
    ("s.npz", {"train_mask": [0, 1]}, "split has 2 rows, expected 4 rows"),
])
def test_split_refused(tmp_path, name, content, message):
    edges = "# hpgcn x: vertices 4, edges 3\n" + PATH
    refused(message, put(tmp_path / "g.txt", edges), split=str(save(tmp_path / name, content)))


def test_missing_files_and_flags_that_say_nothing(tmp_path):
    edges, table = put(tmp_path / "g.txt", PATH), put(tmp_path / "y.csv", "id,label\n0,1\n")
    for options in ({"split": "none.csv"}, {"ids": tmp_path / "none"}):
        with pytest.raises(InputNotFoundError, match="none"):
            read(edges, **options)
    with pytest.raises(UsageError, match=r"--ids .*: all files"):
        read(edges, labels=table, ids=put(tmp_path / "o.txt", "0\n1\n2\n3\n"))
    refused("no column is called 'field'", edges, labels=table, label_column="field")
    refused("no column is called 'key'", edges, labels=table, id_column="key")
    refused("is an HDF5 file, expected a table", edges,
            labels=put(tmp_path / "y.h5", b"\x89HDF\r\n\x1a\n" + bytes(99)))


ORDERS = {"o.txt": "cleo\nann\nbob\n", "o.csv": "n,who\n0,cleo\n1,ann\n2,bob\n",
          "o.npy": ["cleo", "ann", "bob"], "o.json": '["cleo", "ann", "bob"]'}


@pytest.mark.parametrize("name", ORDERS)
def test_order_of_rows_without_ids(tmp_path, name):
    edges = put(tmp_path / "g.txt", NAMES)
    files = {"features": save(tmp_path / "x.npy", [[2.0], [0.0], [1.0]]),
             "labels": save(tmp_path / "y.npy", [1, 0, 0]),
             "split": str(save(tmp_path / "s.npz", {"train_mask": [0, 1, 0]}))}
    graph, notes = read(edges, ids=save(tmp_path / name, ORDERS[name]), header=False, **files)
    assert graph.features.tolist() == [[0], [1], [2]] and graph.labels.tolist() == [0, 0, 1]
    assert graph.masks["train"].tolist() == [True, False, False]
    assert sum(f"matched by the ids in {tmp_path / name}" in note for note in notes) == 3
    for kind, path in files.items():
        if kind != "split":
            refused("3 rows without ids.*--ids FILE", edges, header=False, **{kind: path})


def test_tables_in_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({
        "paper": ["r", "p", "q"], "emb": [[4.0, 5], [0, 1], [2, 3]], "label": [1, None, 0],
        "tags": [["a"], [], ["b", "c"]], "score": np.float32([2, 0, 1])}), tmp_path / "n.parquet")
    options = {"labels": tmp_path / "n.parquet", "features": tmp_path / "n.parquet",
               "feature_columns": ("emb", "score"), "header": False}
    graph, _ = read(put(tmp_path / "g.txt", "p q\nq r\n"), **options)
    assert graph.labels.tolist() == [-1, 0, 1]
    assert graph.features.tolist() == [[0, 1, 0], [2, 3, 1], [4, 5, 2]]
    parquet.write_table(arrow.table({"__index_level_0__": [90, 7, 5000], "y": [1.0, np.nan, 0.0]}),
                        tmp_path / "i.parquet")
    graph, _ = read(put(tmp_path / "g.txt", "7 90\n90 5000\n"), labels=tmp_path / "i.parquet")
    assert graph.labels.tolist() == [-1, 1, 0]


VERTICES = [  # edges, table, ids of the vertices, labels
    (PATH, "id,label\n3,1\n5,1\n0,0\n4,0\n", None, [0, -1, -1, 1, 0, 1]),
    (PATH, "id,label\n3,1\n50000,1\n0,0\n", [0, 1, 2, 3, 50000], [0, -1, -1, 1, 1]),
    ("5 90000\n90000 7\n", "id,label\n5,1\n50000,0\n99999,1\n", [5, 7, 50000, 90000, 99999],
     [1, -1, 0, -1, 1]),
    (KONECT, "id,label\n5,1\n3,0\n1,0\n", None, [0, -1, 0, -1, 1]),
    ("b a\na c\n", "name,label\nz,1\na,0\ny,0\nb,1\n", ["b", "a", "c", "z", "y"], [1, 0, -1, 1, 0]),
]


@pytest.mark.parametrize("edges, table, ids, labels", VERTICES)
@pytest.mark.parametrize("edge_bytes", [1, 1 << 40], ids=["memory", "disk"])
def test_ids_that_are_in_no_edge(tmp_path, monkeypatch, edges, table, ids, labels, edge_bytes):
    monkeypatch.setattr("hpgcn.datasets.convert.EDGE_BYTES", edge_bytes)
    notes = convert(put(tmp_path / "g.txt", edges), tmp_path / "g.h5", header=False,
                    labels=put(tmp_path / "y.csv", table))
    assert any("without edges added" in note for note in notes)
    graph = store.load(tmp_path / "g.h5").read()
    assert graph.labels.tolist() == labels
    assert (graph.original_ids if ids is None else graph.original_ids.tolist()) == ids
    names = list(range(len(labels))) if ids is None else ids
    shift = 1 if edges == KONECT else 0
    pairs = {(str(names[u] + shift if ids is None else names[u]),
              str(names[v] + shift if ids is None else names[v]))
             for u, v in zip(*graph.adjacency.nonzero())}
    listed = {tuple(line.split()) for line in edges.splitlines() if line[0] != "%"}
    assert pairs == listed | ({(v, u) for u, v in listed} if edges == KONECT else set())


@pytest.mark.parametrize("rows, message", [
    ("id,label\n9,1\n8,0\n", "id 9 is in no edge, like all ids"),
    ("id,label\n0,1\n-8,0\n", r"id -8, but ids begin at 0 \(--base\)"),
])
def test_ids_of_another_kind(tmp_path, rows, message):
    refused(message, put(tmp_path / "g.txt", PATH), labels=put(tmp_path / "y.csv", rows))


@pytest.mark.parametrize("name, edges, ids", [
    ("g.graph", "3 2\n2\n1 3\n2\n", "3,1\n1,0\n"),
    ("g.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n",
     "3,1\n1,0\n"),
    ("g.net", "*Vertices 3\n*Edges\n1 2\n2 3\n", "3,1\n1,0\n"),
    ("g.net", '*Vertices 3\n1 "a"\n2 "b"\n3 "c"\n*Edges\n1 2\n2 3\n', "c,1\na,0\n"),
])
def test_ids_of_formats_that_list_their_vertices(tmp_path, name, edges, ids):
    path = put(tmp_path / name, edges)
    graph, _ = read(path, labels=put(tmp_path / "y.csv", "id,label\n" + ids))
    assert graph.labels.tolist() == [0, -1, 1]
    other = "id,label\n7,1\n1,0\n" if "c" not in ids else "id,label\nd,1\na,0\n"
    refused("is not a vertex, expected", path, labels=put(tmp_path / "y.csv", other))


def test_features_with_more_rows_than_ids(tmp_path):
    X, y = save(tmp_path / "x.npy", np.arange(6.0)[:, None]), save(tmp_path / "y.npy", [0, 1] * 3)
    split = str(put(tmp_path / "s.txt", "train\n" * 3 + "val\n" * 3))
    edges = put(tmp_path / "g.txt", PATH)
    for files in ({"features": X}, {"labels": y}, {"split": split}, {"features": X, "labels": y}):
        graph, notes = read(edges, add_vertices=True, **files)
        assert graph.header.num_nodes == 6
        assert any("2 vertices without edges added after the largest id" in note for note in notes)
        refused("use --num-nodes 6 to add .* or --add-vertices", edges, **files)
        assert read(edges, num_nodes=6, **files)[0].header.num_nodes == 6
    assert graph.labels.tolist() == [0, 1] * 3
    refused("--base 0 or --base 1", put(tmp_path / "one.txt", "1 2\n2 3\n"), features=X,
            add_vertices=True)
    with pytest.raises(UsageError, match="--add-vertices: only with"):
        read(edges, add_vertices=True)


ROWS = [  # name, content: one row for each of four vertices
    ("x.csv", "4 2\n0,1\n2,3\n4,5\n6,7\n"), ("x.txt", "4 2\n0 1\n2 3\n4 5\n6 7\n"),
    ("x.tsv", "4\t2\n0\t1\n2\t3\n4\t5\n6\t7\n"), ("x.txt", "4\n0 1\n2 3\n4 5\n6 7\n"),
    ("x.csv", "4,2\n0,1\n2,3\n4,5\n6,7\n"), ("x.csv", "a,b\n0,1\n2,3\n4,5\n6,7\n"),
    ("x.mtx", "%%MatrixMarket matrix array real general\n4 2\n0\n2\n4\n6\n1\n3\n5\n7\n"),
    ("x.mtx", "%%MatrixMarket matrix coordinate integer general\n% by hand\n4 2 7\n1 2 1\n2 1 2\n"
              "2 2 3\n3 1 4\n3 2 5\n4 1 6\n4 2 7\n"),
    ("x.mtx", "4 2 7\n1 2 1\n2 1 2\n2 2 3\n3 1 4\n3 2 5\n4 1 6\n4 2 7\n"),
    ("x.json", "[[0, 1.0], [2, 3], [4, 5], [6, 7]]"), ("x.npy", np.arange(8).reshape(4, 2)),
    ("x.npz", {"x": np.arange(8).reshape(4, 2)}),
    ("x.svm", "1 1:0 2:1\n1 1:2 2:3\n1 1:4 2:5\n1 1:6 2:7\n"),
]


@pytest.mark.parametrize("name, content", ROWS)
@pytest.mark.parametrize("n", [3, 4, 5])
def test_rows_by_position_are_told_and_add_no_vertices(tmp_path, name, content, n):
    edges = put(tmp_path / "e.txt", "".join(f"{k} {(k + 1) % n}\n" for k in range(n)))
    files = {"features": save(tmp_path / name, content), "id_column": "none"}
    if n == 4:
        graph, notes = read(edges, **files)
        X = graph.features.toarray() if sp.issparse(graph.features) else graph.features
        assert X.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert f"{tmp_path / name}: rows of features are those of vertices 0..3, in order" in notes
    elif not (n == 5 and str(content)[:4] in ("4 2\n", "4,2\n", "4\t2\n")):
        refused(f"expected {n} rows|line 1: 4, 2 may be a row", edges, **files)


@pytest.mark.parametrize("n, labels", [(4, [0, 1, 1, 0]), (5, [4, 0, 1, 1, 0])])
def test_first_line_that_may_count_the_rows(tmp_path, n, labels):
    edges = put(tmp_path / "e.txt", "".join(f"{k} {(k + 1) % n}\n" for k in range(n)))
    path = put(tmp_path / "y.txt", "4\n0\n1\n1\n0\n")
    graph, notes = read(edges, labels=path)
    assert graph.labels.tolist() == labels
    said = any("line 1 is read as the number of rows below it" in note for note in notes)
    assert said == (n == 4)
    path = put(tmp_path / "x.txt", "4 2\n0 1\n2 1\n1 0\n3 0\n")  # ids 0 to 3, or 0 to 4
    assert read(edges, labels=path)[0].labels.tolist() == [1, 0, 1, 0, 2][:n]
    edges = put(tmp_path / "e.txt", PATH + "3 4\n4 5\n")
    refused("line 1: 4, 2 may be a row, or the numbers of rows", edges, labels=path)
    assert read(edges, labels=path, header=False)[0].labels.tolist() == [1, 0, 1, 0, 2, -1]


@pytest.mark.parametrize("name", ["label", "target", "class", "set", "role", "partition", "fold"])
def test_ids_in_a_column_with_the_name_of_another_role(tmp_path, name):
    edges = put(tmp_path / "e.csv", "0,1\n1,2\n2,3\n3,0\n")
    path = put(tmp_path / "l.csv", f"{name},dept\n3,7\n2,7\n1,8\n0,8\n")
    graph, notes = read(edges, labels=path, label_column="dept")
    assert graph.labels.tolist() == [8, 8, 7, 7]
    assert any(f"4 rows of labels matched by column {name}" in note for note in notes)
    path = put(tmp_path / "x.csv", f"{name},x\n3,6\n2,4\n1,2\n0,0\n")
    assert read(edges, features=path)[0].features.tolist() == [[0], [2], [4], [6]]
    path = put(tmp_path / "l.csv", f"{name},dept\n3,7\n2,7\n9,8\n0,8\n")
    refused(f"column {name} has a different value in each row, but not all of them are vertex ids",
            edges, labels=path, label_column="dept")
    graph, notes = read(edges, labels=path, label_column="dept", id_column="none")
    assert graph.labels.tolist() == [7, 7, 8, 8]
    assert any("rows of labels are those of vertices 0..3, in order" in note for note in notes)


@settings(max_examples=40, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_rows_in_any_order(tmp_path, data):
    """Labels and features matched by id do not depend on the order of the table's rows."""
    n = data.draw(st.integers(2, 9))
    kind = data.draw(st.sampled_from(["kept", "from one", "far", "names"]))
    ids = {"kept": list(range(n)), "from one": list(range(1, n + 1)),
           "far": [10**6 * k * k + 3 for k in range(n)], "names": [f"v{k}" for k in range(n)]}[kind]
    edges = "".join(f"{ids[k]} {ids[(k + 1) % n]}\n" for k in range(n))
    order = data.draw(st.permutations(range(n)))
    separator = data.draw(st.sampled_from([",", ";", "\t", "|", " "]))
    rows = [separator.join(["txId", "grade", "f"])] + [
        separator.join([str(ids[k]), str(k % 2), f"{k + .5}"]) for k in order]
    table = put(tmp_path / "n.csv", "\n".join(rows))
    graph, _ = read(put(tmp_path / "g.txt", edges), labels=table, features=table, header=None if
                    kind != "names" else False, label_column="grade", base=int(kind == "from one")
                    if kind != "names" else None)
    assert graph.labels.tolist() == [k % 2 for k in range(n)]
    assert graph.features[:, 0].tolist() == [k + .5 for k in range(n)]


@pytest.mark.long
@pytest.mark.parametrize("kind, name, text", [
    ("labels", "y.csv", "id,label\n3,1\n1,0\n0,1\n2,0\n"),
    ("labels", "y.json", '[{"id": 3, "label": 1}, {"id": 1, "label": 0}]'),
    ("features", "x.csv", "id;a;b\n3;1;2\n1;0;.5\n0;1;1e3\n2;0;0\n"),
    ("features", "x.json", '{"3": [0, 1], "1": [1, 4], "0": [], "2": [1]}'),
    ("split", "s.json", '{"train": [3], "val": [2], "test": [1]}'),
    ("split", "s.csv", "id\tsplit\n3\ttrain\n1\tval\n2\ttest\n")])
def test_broken_tables_are_read_or_refused_in_one_line(tmp_path, kind, name, text):
    edges, path = put(tmp_path / "g.txt", PATH), tmp_path / name
    rng = np.random.default_rng(3)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(60):
        letters = list(text)
        for _ in range(rng.integers(1, 3)):
            letters[rng.integers(len(letters))] = rng.choice([*'01a,;\n\t "[]{}:', ""])
        put(path, "".join(letters)[:None if rng.random() < .8 else rng.integers(len(text))])
        try:
            read(edges, **{kind: str(path)})
            outcomes["read"] += 1
        except DataError as error:
            assert str(error).isprintable() and str(path) in str(error)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 0


def test_numbers_of_classes_with_gaps(tmp_path):
    for labels, expected in (([5, 60000, 7, -1], [0, 2, 1, -1]), ([5, 2, 0, 2], [5, 2, 0, 2]),
                             ([5, 60000, np.nan, 7.0], [0, 2, -1, 1])):
        graph, notes = read(put(tmp_path / "g.txt", PATH), labels=save(tmp_path / "y.npy", labels))
        assert graph.labels.tolist() == expected
        assert any("have 3 different values" in note for note in notes) == (60000 in labels)
    assert read(tmp_path / "g.txt", labels=save(tmp_path / "y.npy", ["b", "?", "a", "b"])
                )[0].labels.tolist() == [1, -1, 0, 1]
