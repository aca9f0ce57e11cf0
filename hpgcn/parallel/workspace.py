"""Work arrays that are made once, and grow when more is asked of them."""
from __future__ import annotations

import numpy as np

from hpgcn.runtime.device import HOST


class Workspace:
    """Dense arrays by name, made once and used in every step: fresh memory costs page faults.

    They begin at multiples of 64 bytes, so that rows take as few cache lines as they can.
    """

    def __init__(self, dtype, device=HOST):
        self.dtype = np.dtype(dtype)
        self.device = device
        self.arrays = {}

    def take(self, name, rows, width, dtype=None):
        """Return the (rows, width) array called `name`, which holds what was last left there."""
        return self.flat(name, rows * width, dtype).reshape(rows, width)

    def flat(self, name, size, dtype=None):
        """Return the first `size` elements of the array called `name`, (size,)."""
        if name not in self.arrays or self.arrays[name].size < size:
            self.arrays.pop(name, None)  # the smaller one is let go of first
            self.arrays[name] = self.device.empty(size, dtype or self.dtype)
        return self.arrays[name][:size]

    @property
    def nbytes(self):
        """Bytes of all of them."""
        return sum(array.nbytes for array in self.arrays.values())
