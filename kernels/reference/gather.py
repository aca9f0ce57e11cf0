"""Copies of rows into exchange buffers, and sums of received rows."""
import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import BF16, numbers, store


def gather(x: Array, index: Array, out: Array | None = None) -> Array:
    """Copy rows: out[i] = x[index[i]]; return out (copy semiring, demirci-2022, Algorithm 1).

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> x = np.array([[1.0, 10.0], [2.0, 20.0]])
    >>> reference.gather(x, np.array([1, 1, 0]))
    array([[ 2., 20.],
           [ 2., 20.],
           [ 1., 10.]])
    """
    out = np.empty((index.size, x.shape[1]), x.dtype) if out is None else out
    out[:] = x[index]
    return out


def scatter_add(x: Array, index: Array, out: Array) -> Array:
    """Add rows: out[index[i]] += x[i], in increasing i; return out.

    This is the transpose of `gather`. x and out may both have 16 bits. Then each
    addition is rounded when the row is stored.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> x = np.array([[1.0, 10.0], [2.0, 20.0]])
    >>> reference.scatter_add(x, np.array([1, 1]), np.zeros((2, 2)))
    array([[ 0.,  0.],
           [ 3., 30.]])
    """
    if out.dtype == BF16:
        for i, row in enumerate(index):
            store(numbers(out[row]) + numbers(x[i]), out[row])
        return out
    np.add.at(out, index, x)
    return out
