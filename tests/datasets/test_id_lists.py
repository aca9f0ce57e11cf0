"""Files of ids that a request names: delimiters, headers, columns, places, and refusals."""
import re

import numpy as np
import pytest

from hpgcn.datasets.tables.id_lists import read_list, read_pairs
from hpgcn.errors import DataError

IDS = np.array(["Ana 0", "Zoë, 1", "#3", "p/1", "source"])
NUMBERS = np.array([5, 7, 12])


@pytest.mark.parametrize("ids, text, pairs, places", [
    (IDS, "Kunde Nr;Datum;Artikel\nAna 0;1.2.2023;p/1\n", [["Ana 0", "1.2.2023"]], ["line 2"]),
    (IDS, "\ufeffdate;target;source\r\n1;p/1;Ana 0\r\n\r\n2;p/1;#3\r\n",
     [["Ana 0", "p/1"], ["#3", "p/1"]], ["line 2", "line 4"]),
    (IDS, '"Zoë, 1",p/1\nAna 0,x\n', [["Zoë, 1", "p/1"], ["Ana 0", "x"]], ["line 1", "line 2"]),
    (IDS, "#3\tAna 0\n", [["#3", "Ana 0"]], ["line 1"]),
    (IDS, "source,#3\nAna 0,p/1\n", [["source", "#3"], ["Ana 0", "p/1"]], ["line 1", "line 2"]),
    (NUMBERS, "5 7\n7 12\n", [["5", "7"], ["7", "12"]], ["line 1", "line 2"]),
    (NUMBERS, "3 2\n5 7\n", [["3", "2"], ["5", "7"]], ["line 1", "line 2"])])
def test_pairs(ids, text, pairs, places, tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text(text, newline="")
    assert read_pairs(str(path), ids) == (pairs, places)


def test_a_header_of_unknown_words_is_logged(tmp_path, caplog):
    path = tmp_path / "pairs.csv"
    for head, logged in (("source,target", False), ("Kunde,Artikel", True)):
        path.write_text(f"{head}\nAna 0,p/1\n")
        assert read_pairs(str(path), IDS)[0] == [["Ana 0", "p/1"]]
        assert ("line 1 has no id of the graph, and is read as a header" in caplog.text) == logged


def test_pairs_of_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq
    path = str(tmp_path / "pairs.parquet")
    pq.write_table(pa.table({"when": [1, 2], "target": [7, 5], "source": [5, 12]}), path)
    assert read_pairs(path, NUMBERS) == ([["5", "7"], ["12", "5"]], ["row 0", "row 1"])


def test_a_column_has_each_id_once(tmp_path):
    path = tmp_path / "kunden.csv"
    path.write_text("Stadt;Kunde Nr\nŁódź;Ana 0\nŁódź;#3\n;Ana 0\n")
    assert read_list(f"{path}:Kunde Nr", IDS) == (["Ana 0", "#3"], ["line 2", "line 3"])
    path.write_text("Ana 0\n\n#3\nAna 0\n")
    assert read_list(str(path), IDS) == (["Ana 0", "#3", "Ana 0"], ["line 1", "line 3", "line 4"])


@pytest.mark.parametrize("text, message", [
    ("", "no rows"), ("source,target\n", "no pairs"), ("Ana 0,p/1\n#3\n", "line 2: 1 field"),
    ("p/1\n#3\n", "line 1: expected two ids, source,target")])
def test_refused_pairs(text, message, tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=f"{re.escape(str(path))}.*{message}"):
        read_pairs(str(path), IDS)


def test_refused_columns(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n")
    for column, message in (("c", "no column is called 'c'"), ("a", "no ids below the header")):
        with pytest.raises(DataError, match=message):
            read_list(f"{path}:{column}", IDS)
