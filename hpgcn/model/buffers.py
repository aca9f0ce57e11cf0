"""Work arrays that are made once."""
from __future__ import annotations

import numpy as np


class Buffers:
    """Dense arrays of this rank's rows, made once and used in every step: fresh memory costs page faults each time.

    They begin at multiples of 64 bytes, so that rows take as few cache lines as they can.

    Parameters
    ----------
    num_rows : int
        m.
    dtype : numpy dtype
    """

    def __init__(self, num_rows, dtype):
        self.num_rows, self.dtype, self.flat = num_rows, dtype, {}

    def take(self, name, width, dtype=None):
        """Return the (m, width) array called `name`; its contents are what was last left there."""
        size = self.num_rows * width
        if name not in self.flat or self.flat[name].size < size:
            self.flat.pop(name, None)  # first let go of the smaller one
            dtype = np.dtype(dtype or self.dtype)
            memory = np.empty(size * dtype.itemsize + 64, np.uint8)
            self.flat[name] = memory[-memory.ctypes.data % 64:][:size * dtype.itemsize].view(dtype)
        return self.flat[name][:size].reshape(self.num_rows, width)
