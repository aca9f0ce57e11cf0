"""Convert text labels to arrays, and warn of unusual label numbers."""
import numbers

import numpy as np

from hpgcn.errors import DataError, warn
from hpgcn.graphs.classes import (
    FEW,
    LARGEST,
    parse_classes,
    refuse_fractions,
    refuse_targets,
    renumber_classes,
)


def read_text_labels(y, name, classes=False):
    """Convert labels that are text to class numbers; return labels and the names of
    classes or None.

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


def classes_of(texts, where, place, *, classes=False):
    """Return the classes of texts and their names, as `parse_classes`; warn of its notes."""
    found = parse_classes(texts, where, place, classes=classes)
    for note in found.notes:
        if not note.endswith("have vertices"):  # see `warn_of_labels`
            warn(f"{where}: {note}")
    return found.numbers, found.names


def check_classes(y, class_names, name):
    """Raise DataError for whole numbers y, (n,) or (n, 1), that look like values to
    predict, not classes.
    """
    labels = _whole(y)
    if labels is None:
        return  # refused as no classes
    if np.asarray(y).dtype.kind == "f" and class_names is None:
        refuse_fractions(np.unique(labels).tolist(), f"{name}: labels")
    refuse_targets(labels, class_names, name)


def number_classes(y, name):
    """Renumber whole numbers y that have large gaps, as `renumber_classes` does; return
    the labels and the names of classes or None.
    """
    labels = _whole(y)
    if labels is None:
        return y, None
    labels, names, notes = renumber_classes(labels)
    for note in notes:
        warn(f"{name}: {note}")
    return (y, None) if names is None else (labels, names)


def _whole(y):
    """Return numbers (n,) or (n, 1) as int64, -1 for NaN; None unless all are whole."""
    array = _as_array(y)
    if array is None or array.dtype.kind not in "iuf" or not np.isin(array.shape[1:], 1).all():
        return None
    labels = np.where(np.isnan(array), -1, array) if array.dtype.kind == "f" else array
    labels = labels.ravel()
    if (np.abs(labels) >= LARGEST).any() or (labels != np.floor(labels)).any():
        return None
    return labels.astype(np.int64)


def _as_array(y):
    """Return labels as an array; None if they are refused as one."""
    if y is None or np.ma.is_masked(y):
        return None
    try:
        array = np.asarray(y)
    except (ValueError, TypeError, RuntimeError):
        return None
    return array if array.ndim in (1, 2) else None


def warn_of_labels(labels, num_classes, name):
    """Warn of classes without vertices, of -1 that may mean a class, and of one-hot
    labels.
    """
    if labels is None:
        return
    if labels.ndim == 2:
        if labels.sum(axis=1).max(initial=0) == 1:
            warn(f"{name}: labels {labels.shape} are one-hot, and are used as multi-label: for one "
                 "class per vertex pass y.argmax(1), with -1 for unlabeled")
        return

    # one label per vertex: -1 may be meant as a class, and gaps may be an error
    present = np.unique(labels)
    if present.tolist() == [-1, 1]:
        warn(f"{name}: labels are -1 and 1, but -1 means unlabeled: for two classes pass (y > "
             "0).astype(int)")
    present = present[present >= 0]
    if present.size > FEW and present[0] > 1:
        warn(f"{name}: labels {present[0]}..{present[-1]} are read as classes; values to predict "
             "are not supported yet")
    if present.size and num_classes > 2 * present.size and present[-1] > 1:
        warn(f"{name}: {num_classes} classes, 0..{num_classes - 1}, but only {present.size} of "
             "them have vertices: np.unique(y, return_inverse=True)[1] renumbers them from 0")
