"""Chunks of rows for threads, and sums of a row: both go by the data, never by the threads.

So every sum is taken in the same order for any number of threads.
"""
import numpy as np

from hpgcn.kernels.jit import jit

CHUNKS = 64


def by_nonzeros(indptr, chunks=CHUNKS):
    """Return (chunks + 1,) int64 row bounds whose cost, nonzeros + 4 per row, is about equal."""
    m = indptr.size - 1
    if m <= chunks:
        return np.arange(m + 1, dtype=np.int64)
    # binary search for all bounds at once: costs of all rows would take as much memory as indptr
    total = int(indptr[-1]) - int(indptr[0]) + 4 * m
    targets = np.arange(1, chunks) * (total / chunks)
    low, high = np.zeros(chunks - 1, np.int64), np.full(chunks - 1, m, np.int64)
    while (low < high).any():
        middle = (low + high) // 2
        below = indptr[middle] - indptr[0] + 4 * middle < targets
        low = np.where(below & (low < high), middle + 1, low)
        high = np.where(below, high, middle)
        low = np.minimum(low, high)
    return np.concatenate([[0], low, [m]]).astype(np.int64)


def evenly(m, chunks=CHUNKS):
    """Return row bounds of at most `chunks` equal chunks, (chunks + 1,) int64."""
    chunks = max(1, min(chunks, m))
    return np.arange(chunks + 1, dtype=np.int64) * m // chunks


@jit(inline="always")
def row_total(values):
    """Sum of a float64 array, in four sums: one would wait for each addition."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for q in range(0, values.size - 3, 4):
        a += values[q]
        b += values[q + 1]
        c += values[q + 2]
        d += values[q + 3]
    for q in range(values.size // 4 * 4, values.size):
        a += values[q]
    return (a + b) + (c + d)
