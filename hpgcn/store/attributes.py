"""HDF5 attributes read with care: numbers and text only, of a bounded size."""
from __future__ import annotations

import math

import h5py
import numpy as np

from hpgcn.errors import DataError

MAX_BYTES = 1 << 20
MAX_COUNT = 4096


def raw_attributes(item):
    """Read all attributes of an h5py group or dataset.

    Returns
    -------
    dict of str -> bytes (text, UTF-8) or ndarray of numbers (at most one dimension)

    Raises
    ------
    DataError
        An attribute is neither number nor text, or unreasonably large.
    """
    names = list(item.attrs)
    if len(names) > MAX_COUNT:
        raise DataError(f"{len(names)} attributes, expected at most {MAX_COUNT}")
    return {name: _read(name, item.attrs.get_id(name)) for name in names}


def _read(name, attribute):
    kind, shape, where = attribute.get_type(), attribute.shape, f"attribute {name}"
    if shape is None or len(shape) > 1 or kind.get_size() * math.prod(shape) > MAX_BYTES:
        raise DataError(f"{where} has shape {shape} of {kind.get_size()} bytes each, expected one dimension and "
                        f"{MAX_BYTES} bytes at most")
    if kind.get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT):
        array = np.empty(shape, attribute.dtype)
        if array.size:
            attribute.read(array)
        return array
    if kind.get_class() != h5py.h5t.STRING or shape != ():
        raise DataError(f"{where} is neither a number nor text")
    array = np.empty((), attribute.dtype)
    attribute.read(array)
    value = array[()]
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def plain(value):
    """A raw attribute as int, float, str, or list of numbers.

    Raises
    ------
    DataError
        Text is not UTF-8.
    """
    if not isinstance(value, bytes):
        return value.tolist()
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"text is not UTF-8 ({error.reason} at byte {error.start})") from error
