"""Rows into exchange buffers and back."""
import numpy as np


def gather(x, index, out=None):
    """Copy rows: out[i] = x[index[i]] (the copy semiring of demirci-2022, Algorithm 1)."""
    out = np.empty((index.size, x.shape[1]), x.dtype) if out is None else out
    out[:] = x[index]
    return out


def scatter_add(x, index, out):
    """Add rows: out[index[i]] += x[i], in increasing i; the transpose of `gather`. Returns out."""
    np.add.at(out, index, x)
    return out
