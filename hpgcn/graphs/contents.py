"""Check the data of vertices together: features, labels, names of classes and masks."""
import scipy.sparse as sp

from hpgcn.errors import DataError
from hpgcn.graphs.labels import read_text_labels, warn_of_labels
from hpgcn.graphs.validation import (
    CONTROL,
    MAX_NAME,
    check_features,
    check_labels,
    check_masks,
    most_classes,
    num_splits,
)


def check_contents(X, y, masks, class_names, n, name, split):
    """Check X, y, masks and class_names; return the arrays of a Graph and the Header
    fields about them.

    Parameters
    ----------
    X, y, masks, class_names
        As `Graph.from_scipy` takes them.
    n : int
        Number of vertices.
    name : str
        Of the graph, for errors.
    split : str
        How the masks were made.

    Returns
    -------
    (dict, dict)
        Keyword arguments of Graph and of Header.

    Raises
    ------
    DataError
        What `Graph.from_scipy` refuses of them.
    """
    # the features, the labels and the number of classes
    features = check_features(X, n, name)
    y, names = read_text_labels(y, name)
    labels, num_classes = check_labels(y, n, name)
    class_names = names if class_names is None else class_names
    multilabel = labels is not None and labels.ndim == 2

    # names of classes may say that there are more of them
    if class_names is not None:
        if labels is None:
            raise DataError(f"{name}: has class_names, but no labels")
        most = num_classes if multilabel else most_classes(n)
        class_names = check_class_names(class_names, num_classes, most, name)
        num_classes = len(class_names or ())
    else:
        warn_of_labels(labels, num_classes, name)

    # the splits, and the facts for the header
    masks = check_masks(masks, n, labels, name, split)
    arrays = {"features": features, "labels": labels, "masks": masks, "class_names": class_names}
    return arrays, {
        "num_features": 0 if features is None else features.shape[1], "num_classes": num_classes,
        "multilabel": multilabel, "sparse_features": sp.issparse(features),
        "num_splits": num_splits(masks), "split": "" if masks is None else split}


def check_class_names(names, least, most, where):
    """Check names of classes; return them as a tuple of str, or None without names.

    Parameters
    ----------
    names : sequence of str, (c,)
        Each of 1 to MAX_NAME bytes in UTF-8, without control characters, none twice.
    least, most : int
        How many classes there may be.
    where : str
        The graph or its file, for errors.

    Raises
    ------
    DataError
        Another number of them, or a name that cannot be kept.

    Examples
    --------
    >>> check_class_names(["cat", "dog"], 2, 2, "pets")
    ('cat', 'dog')
    """
    where = f"{where}: class_names"
    if isinstance(names, str | bytes) or not hasattr(names, "__len__"):
        raise DataError(f"{where} are a {type(names).__name__}, expected a list of text")

    # one name for each class
    names = tuple(names)
    if not least <= len(names) <= most:
        bounds = f"{least}" if least == most else f"{least} to {most}"
        raise DataError(f"{where}: {len(names)} names, but the labels have {bounds} classes")

    # each name is short text, and none occurs twice
    number = {}
    for k, name in enumerate(names):
        if not isinstance(name, str):
            raise DataError(f"{where}[{k}] is {name!r:.80}, expected text")
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise DataError(f"{where}[{k}]: {name!r:.80} is not valid text "
                            f"({error.reason})") from error
        if not 1 <= size <= MAX_NAME or CONTROL.search(name):
            raise DataError(f"{where}[{k}] is {name!r:.80} of {size} bytes, expected 1 to "
                            f"{MAX_NAME} without control characters")
        if name in number:
            raise DataError(f"{where}[{k}] is {name!r:.80}, the same as "
                            f"class_names[{number[name]}]")
        number[name] = k

    return tuple(map(str, names)) or None
