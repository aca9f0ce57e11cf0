"""Rows into exchange buffers and back, on CPU threads."""
import numba
import numpy as np

from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.jit import Threaded


@Threaded
def _gather(x, index, out, bounds):
    for chunk in numba.prange(bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            j = index[i]
            for q in range(x.shape[1]):
                out[i, q] = x[j, q]


@Threaded
def _scatter_add(x, index, out, bounds):
    # each thread owns a range of columns, so rows that occur twice are added in order, without atomics
    for chunk in numba.prange(bounds.size - 1):
        lo, hi = bounds[chunk], bounds[chunk + 1]
        for i in range(index.size):
            j = index[i]
            for q in range(lo, hi):
                out[j, q] += x[i, q]


def gather(x, index, out=None):
    """Copy rows: see `hpgcn.kernels.reference.gather`."""
    if out is None:
        out = np.empty((index.size, x.shape[1]), x.dtype)
    if out.size:
        _gather(out.size, x, index, out, evenly(index.size))
    return out


def scatter_add(x, index, out):
    """Add rows in increasing order of x's rows: see `hpgcn.kernels.reference.scatter_add`."""
    if x.size:
        # 16 columns are a cache line of float32: a narrower slice per thread would share lines
        _scatter_add(x.size, x, index, out, evenly(x.shape[1], max(1, x.shape[1] // 16)))
    return out
