"""Work arrays that are made once."""
from __future__ import annotations

import numpy as np


class Buffers:
    """Dense arrays that are made once and used in every step: fresh memory costs page faults each time.

    They begin at multiples of 64 bytes, so that rows take as few cache lines as they can.

    Parameters
    ----------
    dtype : numpy dtype
    """

    def __init__(self, dtype):
        self.dtype, self.flat = np.dtype(dtype), {}

    def take(self, name, rows, width, dtype=None):
        """Return the (rows, width) array called `name`; its contents are what was last left there."""
        size = rows * width
        if name not in self.flat or self.flat[name].size < size:
            self.flat.pop(name, None)  # first let go of the smaller one
            dtype = np.dtype(dtype or self.dtype)
            memory = np.empty(size * dtype.itemsize + 64, np.uint8)
            self.flat[name] = memory[-memory.ctypes.data % 64:][:size * dtype.itemsize].view(dtype)
        return self.flat[name][:size].reshape(rows, width)

    @property
    def nbytes(self):
        """Bytes of all of them."""
        return sum(array.nbytes for array in self.flat.values())
