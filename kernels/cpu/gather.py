"""Rows into exchange buffers and back, on CPU threads."""
import numba
import numpy as np

from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.simd import prefetch
from hpgcn.kernels.jit import Threaded, jit

CHUNKS = 256
AHEAD = 8  # rows between a prefetch and its use


@jit(inline="always")
def _prefetch_row(start, row, row_bytes):
    for offset in range(0, row_bytes, 64):
        prefetch(start + row * row_bytes + offset)


@Threaded
def _gather(x, index, out, bounds):
    row_bytes, start = x.shape[1] * x.itemsize, x.ctypes.data
    for chunk in numba.prange(bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            _prefetch_row(start, index[min(i + AHEAD, index.size - 1)], row_bytes)
            j = index[i]
            for q in range(x.shape[1]):
                out[i, q] = x[j, q]


@Threaded
def _scatter_add_rows(x, index, out, bounds):
    # index does not decrease: chunks that begin where it rises own the rows of out that they add to
    row_bytes, start = out.shape[1] * out.itemsize, out.ctypes.data
    for chunk in numba.prange(bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            _prefetch_row(start, index[min(i + AHEAD, index.size - 1)], row_bytes)
            j = index[i]
            for q in range(x.shape[1]):
                out[j, q] += x[i, q]


@Threaded
def _scatter_add_columns(x, index, out, bounds):
    # each chunk owns a range of columns, so rows that occur twice are added in order, without atomics
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
        with numba.parallel_chunksize(1):
            _gather(out.size, x, index, out, evenly(index.size, CHUNKS))
    return out


def scatter_add(x, index, out):
    """Add rows in increasing order of x's rows: see `hpgcn.kernels.reference.scatter_add`.

    An index that does not decrease, as those of a plan, is cut by rows; any other by columns, a slice for each thread.
    Either way each sum is taken in the order of x's rows, so the bits do not depend on the number of threads.
    """
    if not x.size:
        return out
    if (index[1:] >= index[:-1]).all():
        bounds = np.searchsorted(index, index[evenly(index.size, CHUNKS)[:-1]])
        with numba.parallel_chunksize(1):
            _scatter_add_rows(x.size, x, index, out, np.append(bounds, index.size))
    else:
        # 16 columns are a cache line of float32: a narrower slice would share lines
        slices = min(numba.get_num_threads(), max(1, x.shape[1] // 16))
        _scatter_add_columns(x.size, x, index, out, evenly(x.shape[1], slices))
    return out
