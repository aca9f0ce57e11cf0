"""Check the data of vertices together: features, labels or targets, their names, and masks."""
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError
from hpgcn.graphs.classes import (
    check_classes,
    number_classes,
    read_text_labels,
    warn_of_labels,
)
from hpgcn.graphs.edge_weights import join_names
from hpgcn.graphs.validation import (
    MAX_NAME,
    check_features,
    check_labels,
    check_masks,
    check_targets,
    most_classes,
    num_splits,
)

ROWS = 4096  # rows whose columns are reordered at a time
NAMED = {"class_names": "the labels have {} classes", "feature_names": "there are {} features",
         "target_names": "there are {} targets"}


def check_contents(X: Any, y: Any, masks: Any, n: int, name: str, split: str, *,
                   class_names: Sequence[str] | None = None,
                   feature_names: Sequence[str] | None = None,
                   classes: bool = False, targets: Any = None,
                   target_names: Sequence[str] | None = None) -> tuple[dict, dict]:
    """Check X, y, masks and names; return arrays of a Graph and fields of its Header.

    Parameters
    ----------
    X, y, masks, class_names, feature_names, targets, target_names
        As `Graph.from_scipy` takes them.
    n : int
        Number of vertices.
    name : str
        Name of the graph, for errors.
    split : str
        How the masks were made.
    classes : bool
        Numbers are classes even if they look like values to predict.

    Returns
    -------
    (dict, dict)
        Keyword arguments of Graph and of Header.

    Raises
    ------
    DataError
        For all that `Graph.from_scipy` refuses.
    """
    # check the features and the labels; count the classes
    X, feature_names = split_frame(X, feature_names)
    features = check_features(X, n, name)
    num_features = 0 if features is None else features.shape[1]
    if feature_names is not None:
        feature_names = check_names("feature_names", feature_names, num_features, num_features,
                                    name)
    targets, target_names = split_frame(targets, target_names, "targets")
    targets = check_targets(targets, n, name)
    num_targets = 0 if targets is None else targets.shape[1]
    if target_names is not None:
        target_names = check_names("target_names", target_names, num_targets, num_targets, name)
    if targets is not None and y is not None:
        raise DataError(f"{name}: has labels and targets, expected one of them")
    y, names = read_text_labels(y, name, classes)
    class_names = names if class_names is None else class_names
    if not classes:
        check_classes(y, class_names, name)
    elif class_names is None:
        y, class_names = number_classes(y, name)
    labels, num_classes = check_labels(y, n, name)
    multilabel = labels is not None and labels.ndim == 2

    # names may include classes without a vertex
    if class_names is not None:
        if labels is None:
            raise DataError(f"{name}: has class_names, but no labels")
        most = num_classes if multilabel else most_classes(n)
        class_names = check_names("class_names", class_names, num_classes, most, name)
        num_classes = len(class_names or ())
    else:
        warn_of_labels(labels, num_classes, name)

    # check the splits; collect the fields of the header
    masks = check_masks(masks, n, labels, name, split)
    arrays = {"features": features, "labels": labels, "masks": masks, "class_names": class_names,
              "feature_names": feature_names, "targets": targets, "target_names": target_names}
    return arrays, {
        "num_features": num_features, "num_classes": num_classes, "num_targets": num_targets,
        "multilabel": multilabel, "sparse_features": sp.issparse(features),
        "num_splits": num_splits(masks), "split": "" if masks is None else split}


def check_names(field: str, names: Sequence[str], least: int, most: int,
                where: object) -> tuple[str, ...] | None:
    """Check names of classes or features; return a tuple of str, or None without names.

    Parameters
    ----------
    field : str
        One of NAMED.
    names : sequence of str, (c,)
        Each of 1 to MAX_NAME bytes in UTF-8, without NUL, none twice.
    least, most : int
        Bounds on the number of names.
    where : str
        The graph or its file, for errors.

    Raises
    ------
    DataError
        For a wrong number of names, or an invalid name.

    Examples
    --------
    >>> check_names("class_names", ["cat", "dog"], 2, 2, "pets")
    ('cat', 'dog')
    """
    where = f"{where}: {field}"
    if isinstance(names, str | bytes) or not hasattr(names, "__len__"):
        raise DataError(f"{where} are a {type(names).__name__}, expected a list of text")

    # refuse another number of names
    names = tuple(names)
    if not least <= len(names) <= most:
        bounds = f"{least}" if least == most else f"{least} to {most}"
        raise DataError(f"{where}: {len(names)} names, but {NAMED[field].format(bounds)}")

    # refuse long names, other types and repetitions
    number = {}
    for k, name in enumerate(names):
        if not isinstance(name, str):
            raise DataError(f"{where}[{k}] is {name!r:.80}, expected text")
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise DataError(f"{where}[{k}]: {name!r:.80} is not valid text "
                            f"({error.reason})") from error
        if not 1 <= size <= MAX_NAME or "\0" in name:
            raise DataError(f"{where}[{k}] is {name!r:.80} of {size} bytes, expected 1 to "
                            f"{MAX_NAME} without NUL")
        if name in number:
            raise DataError(f"{where}[{k}] is {name!r:.80}, the same as "
                            f"{field}[{number[name]}]")
        number[name] = k

    return tuple(map(str, names)) or None


def split_frame(X: Any, names: Sequence[str] | None, field: str = "features") -> tuple:
    """Return an array of columns, and their names; a DataFrame brings its own.

    Parameters
    ----------
    X : array-like, or a DataFrame of pandas or Polars
    names : sequence of str, or None
        Names that the user gives.
    field : str
        What the columns are, for errors.

    Returns
    -------
    (array-like, sequence of str or None)
        Names of a DataFrame are None unless all are text.
    """
    columns = getattr(X, "columns", None)
    if columns is None or not hasattr(X, "to_numpy"):
        return X, names
    array = X.to_numpy()
    if array.dtype == object:  # columns of several types, such as bool beside float
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{field}: columns of the DataFrame are not all numbers "
                            f"({error})") from error
    columns = tuple(columns)
    if names is None and all(isinstance(name, str) for name in columns):
        names = columns
    return array, names


def title_targets(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """Return the names of targets; without names target, or target_0, target_1, ..

    Examples
    --------
    >>> title_targets(None, 2)
    ('target_0', 'target_1')
    """
    if names:
        return tuple(names)
    return ("target",) if count == 1 else tuple(f"target_{k}" for k in range(count))


def match_names(trained: tuple[str, ...] | None, found: tuple[str, ...] | None, where: str,
                model: Path | str) -> tuple[np.ndarray | None, str | None]:
    """Return the order that puts the columns `found` like those `trained`, and a note.

    Both are tuples of str, or None. The order, (f,), is None if it stays, and the note
    is None without a change. DataError for missing and unexpected names.

    Examples
    --------
    >>> match_names(("age", "size"), ("size", "age"), "g.h5", "run")[0]
    array([1, 0])
    """
    if trained == found:
        return None, None
    if trained is None or found is None:
        named, bare = (where, model) if trained is None else (model, where)
        return None, (f"{bare}: features have no names, but those of {named} have: columns are "
                      "taken in their order")

    # the same names, in another order
    place = {name: k for k, name in enumerate(found)}
    missing = [name for name in trained if name not in place]
    unexpected = sorted(set(found) - set(trained), key=place.get)
    if not missing and not unexpected:
        note = f"{where}: features are put into the order of {model}, by their names"
        return np.array([place[name] for name in trained]), note
    parts = [f"{len(names)} {kind}: {join_names(names)}" for kind, names in (
        ("missing", missing), ("unexpected", unexpected)) if names]
    raise DataError(f"{where}: features are not those that {model} was trained on: "
                    f"{'; '.join(parts)}")


def in_order(X: Any, order: np.ndarray | None, *, in_place: bool = False) -> Any:
    """Return features (m, f) with their columns in another order; None keeps it."""
    if order is None:
        return X
    if sp.issparse(X):
        X = sp.csr_array(X[:, order])
        X.sort_indices()
        return X
    out = X if in_place else np.empty_like(X)
    for start in range(0, len(X), ROWS):
        rows = slice(start, start + ROWS)
        out[rows] = X[rows][:, order]
    return out
