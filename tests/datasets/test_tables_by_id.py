"""Tables of labels, features and splits joined by the ids of vertices: expectations by hand."""
import gzip

import pytest
from inputs import put, refused

from hpgcn.datasets.convert import read

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
    (PATH, "y.svm", "-1 1:1\n+1 1:1\n+1 2:1\n-1 1:1\n", [0, 1, 1, 0]),
]


@pytest.mark.parametrize("edges, name, text, labels", LABELS)
def test_labels(tmp_path, edges, name, text, labels):
    graph, _ = read(put(tmp_path / "g.txt", edges), labels=put(tmp_path / name, text))
    assert graph.labels.tolist() == labels
    packed = put(tmp_path / f"{name}.gz", gzip.compress(text.encode()))
    assert read(tmp_path / "g.txt", labels=packed)[0].labels.tolist() == labels


@pytest.mark.parametrize("edges, text, message", [
    (PATH, "author,field\n10,b\n11,a\n12,b\n13,a\n", "author has another value.*--id-column"),
    (PATH, "author,place\n2,3\n0,0\n3,2\n1,1\n", "author, place: which has the ids.*--id-column"),
    (PATH, "id,a,b\n2,3,1\n0,0,1\n", "which is the label.*--label-column"),
    (PATH, "id,label\n2,3\n0,0\n2,1\n", "id 2 is there twice, in line 2 and line 4"),
    (PATH, "id,label\n2,3\n,0\n", "line 3: id '', expected a whole number"),
    (PATH, "id,label\n2,3\nx,0\n", "line 3: id 'x', expected a whole number"),
    (PATH, "id,label\n1,0\n2,0\n3,1\n4,1\n", r"ids 1\.\.4, but .* 0\.\.3.*--num-nodes 5"),
    ("1 2\n2 3\n", "id,label\n0,0\n1,0\n2,1\n", r"ids 0\.\.2, but .* 1\.\.3"),
    (KONECT, "id,label\n0,0\n1,0\n2,1\n", r"ids 0\.\.2, but .* 1\.\.3"),
    (FAR, "label\n1\n0\n0\n1\n", "4 rows without ids.*--ids FILE"),
    (NAMES, "label\n1\n0\n0\n", "3 rows without ids.*--ids FILE"),
])
def test_labels_refused(tmp_path, edges, text, message):
    refused(rf"y\.csv: .*{message}", put(tmp_path / "g.txt", edges),
            labels=put(tmp_path / "y.csv", text))
