"""The printer of all tables: alignment, marks, labels, and no control characters."""
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


def test_labels_are_shown_once_and_names_are_escaped():
    text = label_list([("kind", "graph"), ("note", "a\nb"), ("note", "\x1b[31m"), ("empty", "")], 6)
    assert text.splitlines() == ["kind    graph", "note    a\\nb", "        \\x1b[31m", "empty"]
