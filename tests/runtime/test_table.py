"""The table printer: alignment, marks, labels, and no control characters."""
import io
import sys

import pytest

from hpgcn.runtime.text_table import label_list, table


@pytest.mark.parametrize(("options", "expected"), [
    ({}, ["name     s", "a     1.50", "b        -"]),
    ({"left": (0, 1)}, ["name  s", "a     1.50", "b     -"]),
    ({"left": (), "widths": (5,)}, [" name     s", "    a  1.50", "    b     -"]),
    ({"rule": True}, ["name     s", "----------", "a     1.50", "b        -"]),
    ({"marks": {1: "<- choice"}}, ["name     s", "a     1.50  <- choice", "b        -"])])
def test_columns_are_aligned(options, expected):
    rows = [("name", "s"), ("a", "1.50"), ("b", "-")]
    assert table(rows, **options).splitlines() == expected


WIDE = [("name", "a", "bb", "ccc"), ("row", "1", "22", "333"), ("x", "4", "55", "666")]
MARKS = {1: "<- it"}


@pytest.mark.parametrize("room, options, expected", [
    (17, {}, ["name  a  bb  ccc", "row   1  22  333", "x     4  55  666"]),
    (15, {}, ["name  a  bb", "row   1  22", "x     4  55", "",
              "name  ccc", "row   333", "x     666"]),
    (1, {"rule": True}, ["name  a", "-------", "row   1", "x     4", "",
                         "name  bb", "--------", "row   22", "x     55", "",
                         "name  ccc", "---------", "row   333", "x     666"]),
    (18, {"marks": MARKS}, ["name  a  bb", "row   1  22  <- it", "x     4  55", "",
                            "name  ccc", "row   333", "x     666"]),
    (15, {"keys": 2}, ["name  a  bb", "row   1  22", "x     4  55", "",
                       "name  a  ccc", "row   1  333", "x     4  666"]),
    (5, {"keys": 0}, ["name  a  bb  ccc", "row   1  22  333", "x     4  55  666"])])
def test_a_wide_table_is_divided(monkeypatch, room, options, expected):
    monkeypatch.setenv("COLUMNS", str(room))
    assert table(WIDE, **{"keys": 1, **options}).splitlines() == expected


def test_a_pipe_has_eighty_columns(monkeypatch):
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr(sys, "__stdout__", io.StringIO())
    rows = [(f"a long heading {number}" for number in range(20))]
    assert max(map(len, table(rows, keys=1).splitlines())) <= 80


def test_labels_are_shown_once_and_names_are_escaped():
    text = label_list([("kind", "graph"), ("note", "a\nb"), ("note", "\x1b[31m"), ("empty", "")], 6)
    assert text.splitlines() == ["kind    graph", "note    a\\nb", "        \\x1b[31m", "empty"]
