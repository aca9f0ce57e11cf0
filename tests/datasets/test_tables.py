"""Features and labels as text: JSON lists, LibSVM, CSV, and MatrixMarket without a header."""
import gzip
import io
import json

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from inputs import put, refused, rows

from hpgcn.datasets.convert import read

EDGES = "0 1\n1 2\n2 3\n"


@pytest.fixture
def graph(tmp_path):
    return put(tmp_path / "g.txt", EDGES)


@pytest.mark.parametrize("packed", [False, True])
def test_lists_of_musae(tmp_path, graph, packed):
    lists = {"0": [3, 1], "2": [], "1": [0, 0, 4], "3": [2]}
    text = json.dumps(lists).encode()
    path = put(tmp_path / "f.json", gzip.compress(text) if packed else text)
    found = read(graph, features=path)[0].features
    expected = np.zeros((4, 5))
    for row, columns in lists.items():
        expected[int(row), columns] = 1
    assert sp.issparse(found)
    np.testing.assert_array_equal(found.toarray(), expected)
    path.write_text(json.dumps([lists[str(k)] for k in range(4)]))
    np.testing.assert_array_equal(read(graph, features=path)[0].features.toarray(), expected)


@pytest.mark.parametrize("rows, dense", [
    ([[0, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]], True),
    ([[3, 1], [2, 7], [5, 5], [0, 1]], True), ([[3, 1], [2, 1 << 30], [5, 5], [0, 1]], True),
    ([[0, 1], [1, 0], [1, 2], [0, 3]], False),
    ([[3], [1], [0], [0]], False), ([[1, 1], [0, 2, 3], [], [4]], False)])
@pytest.mark.parametrize("by_id", [False, True])
def test_lists_of_values_and_lists_of_numbers(tmp_path, graph, rows, dense, by_id):
    content = {str(k): row for k, row in enumerate(rows)} if by_id else rows
    path = put(tmp_path / "f.json", json.dumps(content))
    found, notes = read(graph, features=path)
    assert sp.issparse(found.features) != dense
    even = len({len(row) for row in rows}) == 1
    assert any("use --feature-columns '*' if they" in note for note in notes) == (even > dense)
    if not even:
        refused("expected a list of 2 finite", graph, features=path, feature_columns=("*",))
        return
    found = read(graph, features=path, feature_columns=("*",))[0].features
    np.testing.assert_array_equal(found, np.array(rows, np.float32))
    found = read(graph, features=path, feature_columns=("0",))[0].features
    np.testing.assert_array_equal(found, np.array(rows, np.float32)[:, :1])


def test_lists_that_may_be_filled_with_minus_one(tmp_path, graph):
    rows = [[3, -1, -1], [2, 7, -1], [5, 5, 5], [0, 1, 2]]
    path = put(tmp_path / "f.json", json.dumps(rows))
    refused("row 0: expected a list of feature numbers.*--feature-columns", graph, features=path)
    assert read(graph, features=path, feature_columns=("*",))[0].features.tolist() == rows


def test_rows_that_json_leaves_out(tmp_path, graph):
    found, notes = read(graph, features=put(tmp_path / "f.json", '{"0": [1], "3": [0]}'))
    assert found.features.toarray().tolist() == [[0, 1], [0, 0], [0, 0], [1, 0]]
    assert any("2 vertices without features" in note for note in notes)


@pytest.mark.parametrize("zero_based", [False, True])
def test_libsvm_as_another_library_reads_it(tmp_path, graph, zero_based):
    datasets = pytest.importorskip("sklearn.datasets")
    rng = np.random.default_rng(2)
    X = rng.normal(size=(4, 6)) * (rng.random((4, 6)) < 0.7)
    X[0, 0] = 1
    y = [2, 0, 1, 1]
    datasets.dump_svmlight_file(X, y, str(tmp_path / "f.svm"), zero_based=zero_based)
    expected, labels = datasets.load_svmlight_file(str(tmp_path / "f.svm"))
    found, notes = read(graph, features=tmp_path / "f.svm", labels=tmp_path / "f.svm")
    np.testing.assert_array_equal(found.features.toarray(), expected.toarray().astype(np.float32))
    assert found.labels.tolist() == labels.tolist() == y
    assert any(f"numbered from {int(not zero_based)}" in note for note in notes)


@pytest.mark.parametrize("content, labels", [
    ("id,label\n0,2\n2,1\n1,0\n3,-1\n", [2, 0, 1, -1]),
    ("id,page_name,page_type\n0,\"a, b\",tv\n2,c,company\n3,d,\n1,e,tv\n", [1, 1, 0, -1]),
    ("label\nb\na\n\nb\nc\n", [1, 0, 1, 2]),
    ("node\tclass\n0\t5\n1\t5\n2\t5\n3\t0\n", [5, 5, 5, 0]),
    ("id,ml_target\n0,0\n1,1\n2,1\n3,0\n", [0, 1, 1, 0]),
])
def test_labels_of_a_table(tmp_path, graph, content, labels):
    name = "y.tsv" if "\t" in content else "y.csv"
    found, notes = read(graph, labels=put(tmp_path / name, content))
    assert found.labels.tolist() == labels
    assert any("column" in note for note in notes) == ("label\nb" not in content)


@pytest.mark.parametrize("name, content, said", [
    ("f.emb", "4 2\n3 6 7\n0 0 1\n2 4 5\n1 2 3.0\n", "line 1 is read as the numbers of rows"),
    ("f.json", '{"3": [6, 7], "0": [0, 1.0], "2": [4, 5], "1": [2, 3]}', "lists of 2 features"),
    ("f.json", "[[0, 1.0], [2, 3], [4, 5], [6, 7]]", "lists of 2 features")])
def test_embeddings(tmp_path, graph, name, content, said):
    found, notes = read(graph, features=put(tmp_path / name, content))
    assert found.features.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert any(said in note for note in notes)


def test_names_of_vertices_taken_for_classes(tmp_path):
    graph = put(tmp_path / "g.csv", "source,target\n" + "".join(f"n{k},n0\n" for k in range(20)))
    for names, said in ((15, True), (20, True), (3, False)):
        content = "".join(f"n{k},a{k % names},{k % 2}\n" for k in range(20))
        path = put(tmp_path / "y.csv", "Id,Label,modularity_class\n" + content)
        if names == 20:
            refused("names or measurements. use --label-column NAME to name", graph, labels=path)
            continue
        notes = read(graph, labels=path)[1]
        assert any("are these vertex names? Use --label-column" in note for note in notes) == said


@pytest.mark.parametrize("field, name, content, message", [
    ("features", "f.json", '{"0": [1]', "broken JSON"), ("features", "f.json", "[" * 9999, "JSON"),
    ("features", "f.json", '{"0": [1], "0": [2]}', "id 0 occurs twice"),
    ("features", "f.json", '{"a": [1]}', "id 'a', expected a whole number"),
    ("features", "f.json", '{"-1": [1]}', "id -1 is in no edge, like all ids"),
    ("features", "f.json", '{"9999999": [1]}', "id 9999999 is in no edge, like all ids"),
    ("features", "f.json", '{"0": [-1]}', "row 0: expected a list of feature numbers"),
    ("features", "f.json", '{"0": [0.5], "1": [1, 2]}', "row 1: expected a list of 1 finite"),
    ("features", "f.json", '{"0": [0.5], "1": [NaN]}', "row 1: expected a list of 1 finite"),
    ("features", "f.emb", "5 2\n0 1 .5\n1 2 .5\n2 3 .5\n3 4 .5\n",
     "line 1 declares 5 rows, but the file has"),
    ("features", "f.json", '{"0": {"a": 1}}', "3 vertices have no row of features, .* id 1"),
    ("features", "f.json", '{"0": [true]}', "row 0: expected"),
    ("features", "f.json", '{"0": [99999999999]}', "row 0: expected"),
    ("features", "f.json", b'{"0": [1], "\xff": []}', "line 1: not UTF-8"),
    ("features", "f.json", "[1, 2]", r"shape \(2, 1\), expected 4 rows"),
    ("features", "f.json", "[[1], 2]", "row 1: expected"),
    ("features", "f.svm", "1 1:2\n1 1:x\n", "line 2: 'x', expected a finite number"),
    ("features", "f.svm", "1 1:2\n1 -1:2\n", "line 2: '-1:2', expected NUMBER:VALUE"),
    ("features", "f.svm", "1 1:2\n1 qid:2\n", "line 2: 'qid:2'"),
    ("features", "f.svm", "1 1:2\n1 99999999999:2\n", "line 2: '99999999999:2'"),
    ("features", "f.svm", "1 1:2 1:3\n", "a row has a feature twice"),
    ("features", "f.svm", "1 1:2\n2 1:nan\n", "line 2: 'nan'"),
    ("features", "f.svm", "1 1:2\n", r"shape \(1, 1\), expected 4 rows"),
    ("features", "f.json", "% one line", "no rows"),
    ("labels", "y.csv", "id,label\n0," + "x" * 200000, "line 2: broken CSV"),
    ("labels", "y.csv", "id,label\n0,1\n0,2\n", "id 0 occurs twice"),
    ("labels", "y.csv", "id,label\n0,1\nx,2\n", "id 'x'"),
    ("labels", "y.csv", "id,label\n0\n", r"line 2: 1 field\(s\), expected 2"),
    ("labels", "y.csv", "id,b,c\n1,2,3\n", "which column is the label.*--label-column"),
    ("labels", "y.csv", "a,b,c\n1,2,3\n", "which column has the ids.*--id-column"),
    ("labels", "y.csv", "", "no rows"),
    ("labels", "y.csv", "label\n1\n2\n", r"shape \(2,\), expected 4 rows"),
    ("labels", "y.csv", b"label\n\xff\n", "line 2: not UTF-8"),
    ("labels", "y.csv", "label\n1\n".encode("utf-16"), "UTF-16 .*iconv -f UTF-16 -t UTF-8 FILE >"),
    ("features", "x.csv", "id;a\n0;1,5\n", "column a is '1,5', expected a number with a decimal"),
])
def test_refusals(tmp_path, graph, field, name, content, message):
    refused(rf"{name}: .*{message}", graph, **{field: put(tmp_path / name, content)})


@pytest.mark.parametrize("field, name, content", [
    ("features", "f.json", "[[0]," + " " * 5000 + "[1],[2],[3]]"),
    ("features", "f.svm", "1 1:2 2:2 3:3\n" * 1000), ("labels", "y.csv", "label\n" + "1\n" * 5000)])
def test_memory(tmp_path, graph, field, name, content):
    path = put(tmp_path / name, gzip.compress(content.encode()))
    refused("needs .* bytes of memory, but the limit", graph, memory=100_000, **{field: path})


@pytest.mark.parametrize("field", ["pattern", "real"])
def test_matrix_market_without_its_banner(tmp_path, field):
    A = sp.coo_array(([1.5, 2, 3], ([0, 2, 1], [1, 0, 1])), shape=(3, 3))
    made = io.BytesIO()
    scipy.io.mmwrite(made, A, field=field)
    lines = [line for line in made.getvalue().decode().split("\n") if not line.startswith("%")]
    graph, notes = read(put(tmp_path / "g.mtx", "\n".join(lines)))
    expected = A.toarray() if field == "real" else (A.toarray() != 0).astype(float)
    assert rows(graph) == expected.tolist()
    assert any("no banner" in note for note in notes)


@pytest.mark.parametrize("content, message", [
    ("3 3 2\n1 2\n", "ends after line 2 with 1 entries"), ("3 3 1\n1 2\n1 3\n", "line 3: more"),
    ("3 3 1\n0 2\n", r"line 2: row is '0', expected 1\.\.3"), ("3 3 1\n1 4\n", "column is '4'"),
    ("3 4 1\n1 2\n", "3 rows and 4 columns"), ("3 3 2\n1 2 1\n1 3\n", r"line 3: 2 field\(s\)"),
    ("3 3 1\n1 2 nan\n", "line 2: value is 'nan'"), ("3 3 1\n1 2 3 4\n", "line 2: more than 3"),
    ("9999999999 9999999999 0\n", "needs .* bytes"), ("3 3 99999\n1 2\n", "99999 entries declared"),
    ("0 1\n", "no %%MatrixMarket banner"), ("3 3 1\n1\n", r"line 2: 1 field\(s\)"),
])
def test_refusals_without_a_banner(tmp_path, content, message):
    refused(rf"g\.mtx: .*{message}", put(tmp_path / "g.mtx", content), memory=1 << 30)
