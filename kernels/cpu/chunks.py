"""Divide rows into chunks for threads, and sum a row, in an order that threads do not change.

Chunks and orders of sums depend on the data only.
"""

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.host.jit import jit

CHUNKS = 64


def by_nonzeros(indptr: Array, chunks: int = CHUNKS) -> Array:
    """Return bounds of chunks of rows with about equal cost, (chunks + 1,) int64.

    A row costs its nonzeros + 4.
    """
    m = indptr.size - 1
    if m <= chunks:
        return np.arange(m + 1, dtype=np.int64)
    bounds = np.zeros(chunks + 1, np.int64)
    _by_cost(indptr, bounds)
    return bounds


@jit()
def _by_cost(indptr, bounds):
    """Find each bound of `by_nonzeros` by binary search, without a table of all costs."""
    m = indptr.size - 1
    start = np.int64(indptr[0])
    total = np.int64(indptr[m]) - start + 4 * m
    chunks = bounds.size - 1
    for chunk in range(1, chunks):
        target = chunk * (total / chunks)
        low, high = np.int64(0), np.int64(m)
        while low < high:
            middle = (low + high) // 2
            if np.int64(indptr[middle]) - start + 4 * middle < target:
                low = middle + 1
            else:
                high = middle
        bounds[chunk] = low
    bounds[chunks] = m


def evenly(m: int, chunks: int = CHUNKS) -> Array:
    """Return bounds of at most `chunks` about equal chunks of m rows, (chunks + 1,) int64."""
    chunks = max(1, min(chunks, m))
    return np.arange(chunks + 1, dtype=np.int64) * m // chunks


@jit(forceinline=True)
def row_total(values):
    """Return the sum of a float64 array by four partial sums, which do not wait for each other."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for q in range(0, values.size - 3, 4):
        a += values[q]
        b += values[q + 1]
        c += values[q + 2]
        d += values[q + 3]
    for q in range(values.size // 4 * 4, values.size):
        a += values[q]
    return (a + b) + (c + d)


@jit(forceinline=True)
def write_row(rows, i, row):
    """Copy `row` to rows[i] in a loop, because Numba compiles `rows[i] = row` in 3 seconds."""
    for q in range(row.size):
        rows[i, q] = row[q]
