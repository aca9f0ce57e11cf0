"""Names of classes in graphs, models and predictions: a dataset of text, (c,)."""
import numpy as np

from hpgcn.graphs.contents import check_class_names
from hpgcn.graphs.validation import MAX_NAME

CLASS_NAMES = "class_names"


def read_class_names(reader, num_classes=None):
    """Return the names of the classes in an open file, a tuple of str (c,), or None.

    DataError unless they are distinct text, as many as there are classes; None: any number.
    """
    entry = reader.entries.get(CLASS_NAMES)
    if entry is None:
        return None
    if entry.dtype.kind != "S" or entry.dtype.itemsize > MAX_NAME:
        raise reader.error(f"{CLASS_NAMES} has dtype {entry.dtype.name}, expected text of at most "
                           f"{MAX_NAME} bytes")
    reader.expect(CLASS_NAMES, (num_classes,), entry.dtype)
    names = reader.read(CLASS_NAMES).tolist()
    return check_class_names(names, len(names), len(names), reader.path)


def write_class_names(writer, names):
    """Write names of classes, or nothing for None."""
    if names is not None:
        writer.dataset(CLASS_NAMES, np.array(names))
