"""Large text tables: the compiled parser reads the same cells and numbers as Python does."""
import csv
import io

import numpy as np
import pytest
from arrays import assert_all
from inputs import put, refused
from test_tables_by_id import FEATURES, LABELS

from hpgcn.datasets import convert
from hpgcn.datasets.convert import read
from hpgcn.datasets.source import Source
from hpgcn.datasets.text import text_cells
from hpgcn.datasets.text.delimited import read_delimited
from hpgcn.datasets.text.text_cells import TextCells


@pytest.fixture
def compiled(monkeypatch):
    monkeypatch.setattr(text_cells, "LARGE", 0)


NUMBERS = ["0", "-0.0", "1", "+1.5", ".5", "-7.", "1e3", "1E-3", "007", "123456789012345678",
           "1234567890123456789", "9007199254740993", "0.1", "2.2250738585072014e-300", "1e269",
           "1.7976931348623157e308", "4.9e-324", "1e-400", "0.30000000000000004", "1e0000",
           "3.4e38", "18446744073709551616", "0.018446744073709551616",
           "12345678901234567890123", "0.000000000000000000000000000001234567890123456789",
           "true", "False", " 5 ", "1e22", "1e23", "8.5e-23", "99999999999999999999e-10"]


def values(rows, delimiter=b","):
    """Return the numbers in rows of cells, bytes."""
    cells = TextCells(delimiter.decode(), len(rows[0]))
    lines = cells.append(b"".join(delimiter.join(row) + b"\n" for row in rows))
    assert lines.tolist() == [*range(len(rows))]
    return cells.numbers([*range(cells.width)], np.float64)


def expected(text):
    return {"true": 1.0, "false": 0.0}.get(text.lower()) if text.isalpha() else float(text)


@pytest.mark.parametrize("delimiter", [b",", b"\t", b" ", b";"])
def test_numbers(delimiter):
    texts = [text for text in NUMBERS if delimiter != b" " or text.strip() == text]
    found = values([[text.encode()] * 2 for text in texts], delimiter)
    np.testing.assert_array_equal(found[:, 1], [expected(text) for text in texts])


def test_random_numbers_are_rounded_once():
    rng = np.random.default_rng(4)
    numbers = rng.normal(size=(400, 7)) * 10.0 ** rng.integers(-60, 60, (400, 7))
    for spell in ("%.17g", "%.18e", "%.6f", "%.3g", "%r"):
        texts = [[(spell % value).encode() for value in row] for row in numbers.tolist()]
        np.testing.assert_array_equal(
            values(texts), [[float(text) for text in row] for row in texts])


def test_more_cells_than_expected_are_no_simple_numbers(monkeypatch):
    monkeypatch.setattr(text_cells, "MOST", 3)
    found = values([[b"", b"1", b"NA"]] * 9)
    assert_all(np.isnan(found[:, [0, 2]]))
    assert_all(found[:, 1] == 1)


TEXTS = [
    "id,a,b\n0,1,x\n1,2,y\n", "id;a\n0; 1 \n\n1;2\n;\n2;3\n", "a b\n1   2\n3\t4 \n 5 6\n",
    '"id","a b"\n"0","x, y"\n"1", "z"\n', 'id,a\n0,"x\ny"\n1,z\n', 'id,a\n0,"say ""x"""\n1,z\n',
    'id,a\r\n0,é\r\n1,\r\n', "a,b,\n1,2,\n3,4,\n", 'id,a\n0,x"y"z\n1,"a"b\n', "a|b\n1|\n|2\n",
    "# c\nid\tname\n0\tNew York\n1\tBonn\t\n".replace("\t\n", "\n"), "x y\na 1\nb 2\n"]


@pytest.mark.parametrize("text", TEXTS)
def test_cells_are_those_of_the_csv_module(tmp_path, monkeypatch, text):
    path = put(tmp_path / "x.csv", text)
    tables = []
    for large in (0, 1 << 60):
        monkeypatch.setattr(text_cells, "LARGE", large)
        table = read_delimited(Source(path), 1 << 30)
        tables.append(([column.texts() for column in table.columns], table.first, list(table.lines),
                       [column.head() for column in table.columns],
                       [column.whole_numbers() is None for column in table.columns]))
    assert tables[0] == tables[1]


def test_a_random_table_of_texts(tmp_path, compiled):
    rng = np.random.default_rng(5)
    letters = [*"ab1. é", '"', ",", "\n"]
    for _ in range(100):
        cells = [["".join(rng.choice(letters, rng.integers(0, 4))) for _ in range(3)]
                 for _ in range(20)]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([["u1", "v1", "w1"], *cells])
        table = read_delimited(Source(put(tmp_path / "x.csv", text.getvalue())), 1 << 30)
        kept = [row for row in cells if any(cell.lstrip(" ") for cell in row)]
        assert [column.texts() for column in table.columns] == [
            [row[k].strip() for row in kept] for k in range(3)]


@pytest.mark.parametrize("edges, name, text, labels", LABELS)
def test_labels(tmp_path, compiled, edges, name, text, labels):
    graph, _ = read(put(tmp_path / "g.txt", edges), labels=put(tmp_path / name, text))
    assert graph.labels.tolist() == labels


@pytest.mark.parametrize("edges, name, text, options, ids", FEATURES)
def test_features(tmp_path, compiled, edges, name, text, options, ids):
    graph, _ = convert.read(put(tmp_path / "g.txt", edges), features=put(tmp_path / name, text),
                            **options)
    assert graph.features.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("text, message", [
    ("id,a\n3,6\n0,0\n1,\n2,2\n", "line 4: column a is empty, expected a finite number"),
    ("id,a\n3,6\n0,inf\n1,1\n2,2\n", "line 3: column a is inf"),
    ("id,a\n3,6\n0,1e39\n1,1\n2,2\n", "line 3: column a is inf"),
    ("id,a\n3,6\n0,x\n1,1\n2,2\n", "line 3: column a is 'x'.*--feature-columns"),
    ("id,a\n3,6\n0\n1,1\n2,2\n", r"line 3: 1 field\(s\), expected 2"),
    ("id;a\n0;1,5\n", "column a is '1,5', expected a number with a decimal"),
    (b"id,a\n3,\xff\n", "line 2: not UTF-8")])
def test_refusals(tmp_path, compiled, text, message):
    refused(rf"x\.csv: .*{message}", put(tmp_path / "g.txt", "0 1\n1 2\n2 3\n"),
            features=put(tmp_path / "x.csv", text))


def test_a_wide_table_of_a_graph_of_names(tmp_path, compiled):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(600, 20)).astype(np.float32)
    order = rng.permutation(600)
    edges = put(tmp_path / "g.csv", "".join(f"v{k},v{(k + 1) % 600}\n" for k in range(600)))
    header = ",".join(f"f{k}" for k in range(20))
    for at in (0, 12):  # the column of the names
        rows = [[*map(repr, X[k].tolist())] for k in order]
        for k, row in zip(order, rows):
            row.insert(at, f"v{k}")
        names = header.split(",")
        names.insert(at, "who")
        text = "\n".join(map(",".join, [names, *rows]))
        graph, _ = read(edges, header=False, features=put(tmp_path / "x.csv", text))
        np.testing.assert_array_equal(graph.features, X)


def test_tables_of_ogb(compiled):
    lines = [b"1.5,-2\n", b"3,.25\n", b"1e3,0"]
    assert text_cells.simple_numbers(lines, 2).tolist() == [[1.5, -2], [3, .25], [1000, 0]]
    for wrong in (b"1,nan", b"1,x", b"1,", b'1,"2\n"'):
        assert text_cells.simple_numbers([*lines[:2], wrong], 2) is None
