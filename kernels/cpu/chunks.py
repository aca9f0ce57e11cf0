"""How rows are cut into chunks for threads: by nonzeros or evenly, never by the number of threads.

Chunks that depend on the data alone keep every sum in the same order for any thread count.
"""
import numpy as np

CHUNKS = 64


def by_nonzeros(indptr, chunks=CHUNKS):
    """Return (chunks + 1,) int64 row bounds whose cost, nonzeros + 4 per row, is about equal."""
    m = indptr.size - 1
    if m <= chunks:
        return np.arange(m + 1, dtype=np.int64)
    # searching the pointers for the nonzero targets alone would pile empty rows into one chunk: probe the mixed cost
    total = int(indptr[-1]) - int(indptr[0]) + 4 * m
    targets = np.arange(1, chunks) * (total / chunks)
    lo, hi = np.zeros(chunks - 1, np.int64), np.full(chunks - 1, m, np.int64)
    while (lo < hi).any():
        middle = (lo + hi) // 2
        left = indptr[middle] - indptr[0] + 4 * middle < targets
        lo, hi = np.where(left & (lo < hi), middle + 1, lo), np.where(left, hi, middle)
        lo = np.minimum(lo, hi)
    return np.concatenate([[0], lo, [m]]).astype(np.int64)


def evenly(m, chunks=CHUNKS):
    """Return row bounds of at most `chunks` equal chunks, (chunks + 1,) int64."""
    chunks = max(1, min(chunks, m))
    return np.arange(chunks + 1, dtype=np.int64) * m // chunks
