"""Labels given as text: numbers, names, booleans, or missing ones."""
import doctest

import pytest

from hpgcn.errors import DataError
from hpgcn.graphs import classes
from hpgcn.graphs.classes import parse_classes

READ = [  # texts, class numbers, names, a word of the notes
    ("0.0 1.0 10.0 2.0 2.0 nan", [0, 1, 10, 2, 2, -1], None, ""),
    ("0.0 1.0 1.0 0.0 1e0", [0, 1, 1, 0, 1], None, ""),
    ("2 10 1 10", [2, 10, 1, 10], None, "11 classes"),
    ("+1 01 007 1e0 .7e1 1", [1, 1, 7, 1, 7, 1], None, ""),
    ("-1.0 0 nan 1", [-1, 0, -1, 1], None, "1 label -1 is unlabeled"),
    ("-1 +1 -1 1", [0, 1, 0, 1], ("-1", "1"), "two classes"),
    ("-1 1.0 1", [0, 1, 1], ("-1", "1"), "two classes"),
    ("-1 -1", [-1, -1], None, "2 labels -1 are unlabeled"),
    ("a NA None null ? unknown b a", [0, -1, -1, -1, -1, -1, 1, 0], ("a", "b"), "5 labels"),
    ("1 NA 0 <NA>", [1, -1, 0, -1], None, "2 labels <NA>, NA are unlabeled"),
    ("True false TRUE ?", [1, 0, 1, -1], ("false", "true"), ""),
    ("true true", [1, 1], ("false", "true"), ""),
    ("5 60000 7 1 5", [1, 3, 2, 0, 1], ("1", "5", "7", "60000"), "numbered 0..3"),
    ("5 60000 -1 5", [0, 1, -1, 0], ("5", "60000"), "numbered 0..1"),
    ("dog Cat cat dog", [2, 0, 1, 2], ("Cat", "cat", "dog"), "case: Cat, cat"),
    ("10b 2b 10b 2b", [0, 1, 0, 1], ("10b", "2b"), ""),
    ("", [], None, ""),
    ("? NA", [-1, -1], None, ""),
]
REFUSED = [  # texts, line of the offender, message
    ("0 1 cat 1", 2, "label 'cat', expected numbers alone or names alone"),
    ("a b 3 b", 2, "label '3', expected numbers"),
    ("true 1 1", 0, "label 'true', expected numbers"),
    ("0 -2 1", 1, "label '-2', expected class numbers from 0"),
    ("0 1.5", 1, "label '1.5', expected whole numbers"),
    ("0 1234567890123456789012 1", 1, "label '1234567890123456789012', expected a class number"),
    ("0 1e9999", 1, "at most 18 digits"),
    ("0 1e-9999", 1, "expected whole numbers"),
    ("a b c d", None, "4 labels, all different"),
    ("7 3 4 9 -1", None, "4 labels, all different"),
]


@pytest.mark.parametrize("texts, numbers, names, note", READ)
def test_classes_of_texts(texts, numbers, names, note):
    read = parse_classes(texts.split(" ") if texts else [], "labels.csv")
    assert read.numbers.tolist() == numbers
    assert read.names == names
    assert note in "; ".join(read.notes)


@pytest.mark.parametrize("texts, row, message", REFUSED)
def test_refused_labels(texts, row, message):
    with pytest.raises(DataError) as refused:
        parse_classes(texts.split(), "labels.csv", place="line {}".format)
    where = "labels.csv: " if row is None else f"labels.csv: line {row}: "
    assert str(refused.value).startswith(where)
    assert message in str(refused.value)


@pytest.mark.parametrize("texts", ["34.0 51.0 34.0", "0.0 1.0 2.0 1.0", "1e1 2e1 1e1"])
def test_numbers_with_a_decimal_point(texts):
    with pytest.raises(DataError, match=r"labels.csv: numbers with a decimal point .*classes=True"):
        parse_classes(texts.split(), "labels.csv")
    whole = [int(float(text)) for text in texts.split()]
    assert parse_classes(texts.split(), "labels.csv", classes=True).numbers.tolist() == whole


def test_example():
    assert doctest.testmod(classes).failed == 0
