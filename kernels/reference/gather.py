"""Rows into exchange buffers and back."""
import numpy as np

from hpgcn.kernels.bits16 import BF16, numbers, store


def gather(x, index, out=None):
    """Copy rows: out[i] = x[index[i]] (the copy semiring of demirci-2022, Algorithm 1)."""
    out = np.empty((index.size, x.shape[1]), x.dtype) if out is None else out
    out[:] = x[index]
    return out


def scatter_add(x, index, out):
    """Add rows: out[index[i]] += x[i], in increasing i; the transpose of `gather`. Returns out.

    Both may be of 16 bits: each addition is rounded then, as the row is stored again.
    """
    if out.dtype == BF16:
        for i, row in enumerate(index):
            store(numbers(out[row]) + numbers(x[i]), out[row])
        return out
    np.add.at(out, index, x)
    return out
