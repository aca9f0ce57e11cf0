"""Convert labels to class numbers, and warn of unusual ones.

Labels may be whole numbers, booleans, or names of classes, also written as text.
"""
from __future__ import annotations

import numbers
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpgcn.errors import COMMAND_LINE, DataError, printable, setting, warn

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

UNLABELED = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "none", "null", "nil", "?", "-", ".",
                       "unknown", "unlabeled", "unlabelled", "missing"))  # in lower case
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,4})?", re.ASCII)
BOOLEANS = {"false": 0, "true": 1}
LARGEST = 10**18
FEW = 8  # at most this many labels or classes are never taken for values to predict
MOST_NAMED = 8  # classes or labels that a note names


class Classes(NamedTuple):
    """The class numbers of labels, the names of classes and notes for the user.

    Attributes
    ----------
    numbers : (n,) int64
        Class of each row, -1 if it is unlabeled.
    names : tuple of str, or None
        Name of each class; None if class k is called k.
    notes : tuple of str
        Notes for the user.
    """

    numbers: np.ndarray
    names: tuple[str, ...] | None
    notes: tuple[str, ...]


def parse_classes(texts: Sequence[str], where: str, place: Callable = "row {}".format,
                  hint: str = "", *, classes: bool = False) -> Classes:
    """Convert texts, one per vertex, to class numbers.

    Numbers written as text are numbers: 1, 01, +1, 1.0 and 1e0 are class 1. -1 is
    unlabeled, unless -1 and 1 are the only labels, which are then two classes. true and
    false in any case are classes 1 and 0. Other texts are names of classes, numbered in
    sorted order. Empty text and the words of UNLABELED are unlabeled. Class numbers
    with large gaps between them are numbered anew in increasing order; their names are
    then the numbers in the input.

    Parameters
    ----------
    texts : sequence of str, (n,)
    where : str
        The file and the column, for errors.
    place : callable
        Returns the name of row i in errors, such as "line 7".
    hint : str
        End of the error for labels that are all different, with advice.
    classes : bool
        Numbers are classes even if all have a decimal point, or all are different.

    Returns
    -------
    Classes

    Raises
    ------
    DataError
        A mixture of numbers and names; a number that is not whole, below -1 or of more
        than 18 digits; more than 3 labels that are all different; numbers that all have
        a decimal point, other than 0 and 1, if no label is missing.

    Examples
    --------
    >>> read = parse_classes(["dog", "cat", "?", "dog"], "labels.csv")
    >>> read.numbers.tolist(), read.names
    ([1, 0, -1, 1], ('cat', 'dog'))
    """
    # set unlabeled texts apart
    texts = [text.strip() for text in texts]
    counts = Counter(texts)
    unlabeled = {text: count for text, count in counts.items() if text.lower() in UNLABELED}
    known = [text for text in counts if text not in unlabeled]  # in the order of the input
    notes = []
    if marks := {text: count for text, count in unlabeled.items() if text}:
        notes.append(f"{_count(marks)} {_join_texts(marks)} "
                     f"{'are' if sum(marks.values()) > 1 else 'is'} unlabeled")

    def refuse(text: str, expected: str) -> None:
        raise DataError(f"{where}: {place(texts.index(text))}: label {_quote(text)}, "
                        f"expected {expected}")

    # read numbers, truth values or names, but no mixture
    numeric = [text for text in known if NUMBER.fullmatch(text)]
    if numeric and len(numeric) < len(known):
        others = [text for text in known if not NUMBER.fullmatch(text)]
        odd = min((numeric, others), key=lambda kind: sum(counts[text] for text in kind))
        refuse(odd[0], f"numbers alone or names alone: {len(numeric)} different labels are "
                       f"numbers, {len(others)} are not")
    if numeric:
        number_of = _whole_numbers(numeric, refuse)
        if not classes and not unlabeled and all(re.search("[.eE]", text) for text in numeric):
            refuse_fractions(set(number_of.values()), where)
        class_of, names = _number_classes(number_of, counts, notes)
    elif known and all(text.lower() in BOOLEANS for text in known):
        class_of = {text: BOOLEANS[text.lower()] for text in known}
        names = ("false", "true")
    else:
        names = tuple(sorted(known)) or None
        class_of = {name: k for k, name in enumerate(names or ())}
        _note_case(known, notes)

    # refuse a column in which each label occurs once
    num_labels = sum(counts[text] for text in class_of if class_of[text] >= 0)
    num_classes = len(set(class_of.values()) - {-1})
    if num_labels > 3 and num_classes == num_labels and not (classes and numeric):
        doubt = "is this a column of ids, names or measurements?"
        if numeric:
            doubt = _targets() + ";" * bool(hint)
        raise DataError(f"{where}: {num_labels} labels, all different, expected classes that "
                        f"several vertices share: {doubt}{hint}")

    numbers = np.array([class_of.get(text, -1) for text in texts], np.int64)
    return Classes(numbers, names, tuple(notes))


def refuse_fractions(numbers: Collection[int], where: str) -> None:
    """Raise DataError for labels with a decimal point, such as 34.0, except -1, 0 and 1.

    Labels beside missing ones are exempt: there a decimal point means nothing.
    """
    if not set(numbers) <= {-1, 0, 1} and -1 not in numbers:
        shown = ", ".join(f"{number}.0" for number in sorted(numbers)[:4])
        raise DataError(f"{where}: numbers with a decimal point ({shown}, ...): {_targets()}")


def refuse_targets(labels: np.ndarray, class_names: Sequence[str] | None, where: str) -> None:
    """Raise DataError for class numbers that look like values to predict.

    They do if more than half of the classes have one or two vertices. A few classes are
    exempt, such as 0, 1, .. or any of at most FEW labels. `labels` are (n,) integers,
    -1 for unlabeled. `class_names` are None, or numbers that were replaced by 0, 1, ..
    """
    present, counts = np.unique(labels[labels >= 0], return_counts=True)
    if class_names is not None:
        if np.size(class_names) <= present.max(initial=0) or not all(
                str(name).isdecimal() for name in class_names):
            return
        present = np.array([int(name) for name in class_names])[present]
    few = present.size <= FEW and present.max(initial=0) < 2 * present.size
    if few or counts.sum() <= FEW or 2 * np.count_nonzero(counts <= 2) <= present.size:
        return
    raise DataError(f"{where}: labels {present[0]}..{present[-1]} have {present.size} different "
                    f"values, most of them once or twice: {_targets()}")


def read_text_labels(y: ArrayLike, name: str, classes: bool = False) -> tuple:
    """Convert labels that are text to class numbers.

    Labels without text stay unchanged.

    Parameters
    ----------
    y : array-like (n,) or (n, 1)
        If it holds text, as arrays of kind U, S or O may, None and NaN are unlabeled,
        and the rules are those of `parse_classes`. All other arrays are returned as
        they are.
    name : str
        The graph, for errors and warnings.
    classes : bool
        As of `parse_classes`.

    Returns
    -------
    (array, tuple of str or None)

    Raises
    ------
    DataError
        Objects that are no text, as `parse_classes`.

    Examples
    --------
    >>> read_text_labels(np.array(["b", "a", "b"]), "graph")
    (array([1, 0, 1]), ('a', 'b'))
    """
    # arrays without text are returned unchanged
    array = _as_array(y)
    if array is None or array.dtype.kind not in "USO" or array.shape[1:] not in ((), (1,)):
        return y, None

    # spell each label as text; only real numbers, text and None are allowed
    texts = []
    for row, value in enumerate(array.ravel().tolist()):
        known = isinstance(value, str | bytes | numbers.Real | np.bool_) or value is None
        # missing values of pandas
        if not known and type(value).__name__ not in ("NAType", "NaTType"):
            raise DataError(f"{name}: label of vertex {row} is a {type(value).__name__}, expected "
                            "a number or text")
        texts.append(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))

    # read classes from the texts
    return classes_of(texts, f"{name}: labels", "vertex {}".format, classes=classes)


def classes_of(texts: list[str], where: str, place: Callable, *,
               classes: bool = False) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Return the classes of texts and their names, as `parse_classes`; warn of its notes."""
    found = parse_classes(texts, where, place, classes=classes)
    for note in found.notes:
        if not note.endswith("have vertices"):  # see `warn_of_labels`
            warn(f"{where}: {note}")
    return found.numbers, found.names


def check_classes(y: ArrayLike, class_names: Sequence[str] | None, name: str) -> None:
    """Raise DataError for whole numbers y, (n,) or (n, 1), that look like values to predict."""
    labels = _as_integers(y)
    if labels is None:
        return  # refused as no classes
    if np.asarray(y).dtype.kind == "f" and class_names is None:
        refuse_fractions(np.unique(labels).tolist(), f"{name}: labels")
    refuse_targets(labels, class_names, name)


def number_classes(y: ArrayLike, name: str) -> tuple:
    """Renumber whole numbers y that have large gaps, as `renumber_classes` does.

    Return the labels, and the names of classes or None.
    """
    labels = _as_integers(y)
    if labels is None:
        return y, None
    labels, names, notes = renumber_classes(labels)
    for note in notes:
        warn(f"{name}: {note}")
    return (y, None) if names is None else (labels, names)


def _as_integers(y: ArrayLike) -> np.ndarray | None:
    """Return numbers (n,) or (n, 1) as int64, -1 for NaN; None unless all are whole."""
    array = _as_array(y)
    if array is None or array.dtype.kind not in "iuf" or not np.isin(array.shape[1:], 1).all():
        return None
    labels = np.where(np.isnan(array), -1, array) if array.dtype.kind == "f" else array
    labels = labels.ravel()
    if (np.abs(labels) >= LARGEST).any() or (labels != np.floor(labels)).any():
        return None
    return labels.astype(np.int64)


def _as_array(y: ArrayLike) -> np.ndarray | None:
    """Return labels as an array; None if they are refused as one."""
    if y is None or np.ma.is_masked(y):
        return None
    try:
        array = np.asarray(y)
    except (ValueError, TypeError, RuntimeError):
        return None
    return array if array.ndim in (1, 2) else None


def warn_of_labels(labels: np.ndarray | None, num_classes: int, name: str) -> None:
    """Warn of labels that may be meant otherwise.

    These are classes without vertices, -1 that may mean a class, and one-hot labels.
    """
    if labels is None:
        return
    if labels.ndim == 2:
        if labels.sum(axis=1).max(initial=0) == 1:
            warn(f"{name}: labels {labels.shape} are one-hot, and are used as multi-label: for one "
                 "class per vertex pass y.argmax(1), with -1 for unlabeled")
        return

    # one label per vertex: warn where -1 may be meant as a class, or gaps may be an error
    present = np.unique(labels)
    if present.tolist() == [-1, 1]:
        warn(f"{name}: labels are -1 and 1, but -1 means unlabeled: for two classes pass (y > "
             "0).astype(int)")
    present = present[present >= 0]
    if present.size > FEW and present[0] > 1:
        warn(f"{name}: labels {present[0]}..{present[-1]} are read as classes; if they are values "
             f"to predict, {targets_hint()}")
    if present.size and num_classes > 2 * present.size and present[-1] > 1:
        warn(f"{name}: {num_classes} classes, 0..{num_classes - 1}, but only {present.size} of "
             "them have vertices: np.unique(y, return_inverse=True)[1] renumbers them from 0")


def targets_hint() -> str:
    """Return how the user gives values to predict."""
    if COMMAND_LINE.get():
        return "give them with --targets FILE|COLUMNS"
    return "give them with targets= (in from_pyg: task='regression')"


def _targets() -> str:
    return (f"are they values to predict? Then {targets_hint()}. If the numbers are classes, "
            f"give {setting('classes', True)}")


def _whole_numbers(texts: list[str], refuse: Callable) -> dict[str, int]:
    """Return a dict from each text to its whole number; refuse any other text."""
    number_of = {}
    for text in texts:
        value = Decimal(text)
        if abs(value) >= LARGEST:
            refuse(text, "a class number of at most 18 digits")
        if value != int(value):
            refuse(text, "whole numbers, or names of classes; values to predict are targets: "
                         f"{targets_hint()}")
        if value < -1:
            refuse(text, "class numbers from 0, or -1 for unlabeled")
        number_of[text] = int(value)
    return number_of


def _number_classes(number_of: dict[str, int], counts: Counter,
                    notes: list) -> tuple[dict[str, int], tuple[str, ...] | None]:
    """Return the class number of each text, and the names of classes or None; add notes."""
    present = sorted(set(number_of.values()))
    if present == [-1, 1]:
        notes.append("labels -1 and 1 are two classes")
        return {text: int(number > 0) for text, number in number_of.items()}, ("-1", "1")

    unlabeled = sum(counts[text] for text, number in number_of.items() if number < 0)
    if unlabeled:
        notes.append(f"{unlabeled} label{'s' * (unlabeled > 1)} -1 "
                     f"{'are' if unlabeled > 1 else 'is'} unlabeled")

    # number anew if there are large gaps
    present = [number for number in present if number >= 0]
    count = present[-1] + 1 if present else 0
    if _has_large_gaps(present):
        notes.append(_gap_note(present))
        class_of = {number: k for k, number in enumerate(present)} | {-1: -1}
        names = tuple(map(str, present))
        return {text: class_of[number] for text, number in number_of.items()}, names

    if count > 2 * len(present):
        notes.append(f"{count} classes, 0..{count - 1}, but only {len(present)} of them have "
                     "vertices")
    return number_of, None


def renumber_classes(labels: np.ndarray) -> tuple[np.ndarray, tuple[str, ...] | None, list[str]]:
    """Renumber classes with large gaps; return labels, class names or None, and notes.

    `labels` are (n,) integers, negative for unlabeled; the rule is that of
    `parse_classes`.
    """
    present, places = np.unique(labels, return_inverse=True)
    unlabeled = int(np.count_nonzero(present < 0))
    present = present[unlabeled:].tolist()
    if not _has_large_gaps(present):
        return labels, None, []
    numbers = np.maximum(places.ravel() - unlabeled, -1)
    return numbers, tuple(map(str, present)), [_gap_note(present)]


def _has_large_gaps(present: list[int]) -> bool:
    return bool(present) and present[-1] + 1 > 4 * len(present) + 1000


def _gap_note(present: list[int]) -> str:
    return (f"labels {present[0]}..{present[-1]} have {len(present)} different values: they are "
            f"numbered 0..{len(present) - 1} in increasing order")


def _note_case(names: list[str], notes: list) -> None:
    """Append a note about class names that differ only in upper and lower case."""
    folded = Counter(name.casefold() for name in names)
    twice = sorted(name for name in names if folded[name.casefold()] > 1)
    if twice:
        notes.append(f"classes that differ only in case: {_join_texts(twice)}")


def _count(marks: dict[str, int]) -> str:
    total = sum(marks.values())
    return f"{total} label{'s' * (total > 1)}"


def _join_texts(texts: Collection[str]) -> str:
    texts = sorted(texts)
    return ", ".join(map(printable, texts[:MOST_NAMED])) + ", ..." * (len(texts) > MOST_NAMED)


def _quote(text: str) -> str:
    return f"'{printable(text[:40])}'" + "..." * (len(text) > 40)
