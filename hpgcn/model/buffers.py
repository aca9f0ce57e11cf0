"""Work arrays that are made once."""
from __future__ import annotations

import numpy as np

from hpgcn.device import HOST


class Buffers:
    """Dense arrays that are made once and used in every step: fresh memory costs page faults each time.

    They begin at multiples of 64 bytes, so that rows take as few cache lines as they can.

    Parameters
    ----------
    dtype : numpy dtype
    device : hpgcn.device.Host or Cuda
        Where they lie.
    """

    def __init__(self, dtype, device=HOST):
        self.dtype, self.device, self.flat = np.dtype(dtype), device, {}

    def take(self, name, rows, width, dtype=None):
        """Return the (rows, width) array called `name`; its contents are what was last left there."""
        size = rows * width
        if name not in self.flat or self.flat[name].size < size:
            self.flat.pop(name, None)  # first let go of the smaller one
            self.flat[name] = self.device.empty(size, dtype or self.dtype)
        return self.flat[name][:size].reshape(rows, width)

    @property
    def nbytes(self):
        """Bytes of all of them."""
        return sum(array.nbytes for array in self.flat.values())
