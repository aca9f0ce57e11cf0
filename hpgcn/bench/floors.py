"""Bytes that an operation must move, from its sizes alone (pure). Time cannot be less than bytes over bandwidth.

Stores are counted once: a machine that reads a cache line before it writes it moves more, as it does in the copy and
triad that the bandwidth was measured with.
"""
import numpy as np

LINE = 64  # bytes of a cache line


def spmm_bytes(m, n, nnz, width, *, cache_bytes, pointer=8, index=4, value=4, item=4, extra=0):
    """Bytes of A x for A of (m, n) and x of (n, width): the least, and without any reuse.

    least   = (m + 1) pointer + nnz (index + value) + min(n, nnz) width item + m width item + extra
    traffic = the same where x fits the cache; else nnz rows of x, each in whole cache lines, in place of min(n, nnz)

    The least counts every array once, `out` written, and no row of x that has no nonzero to ask for it. The traffic is
    what moves if no row of x is found in the cache again: rows in an order of locality, or a few columns that hold many
    of the nonzeros, need less. It is never below the least.

    Parameters
    ----------
    cache_bytes : int
        Last-level cache.
    pointer, index, value, item : int
        Bytes of a row pointer, a column number, a weight (0: there are none) and a number of x.
    extra : int
        Bytes of what else is read: scales, a mask.

    Returns
    -------
    least, traffic : int
    """
    row = width * item
    rest = (m + 1) * pointer + nnz * (index + value) + m * row + extra
    least = rest + min(n, nnz) * row
    if n * row <= cache_bytes:
        return least, least
    return least, max(least, rest + nnz * -(-row // LINE) * LINE)


def mask_bytes(m, width):
    """Bytes of a bit mask of (m, width): rows padded to a byte."""
    return m * -(-width // 8)


def gather_bytes(count, width, *, index=8, item=4):
    """Bytes of out[i] = x[index[i]]: `count` numbers and rows read, as many rows written."""
    return count * (index + 2 * width * item)


def scatter_add_bytes(count, width, *, index=8, item=4):
    """Bytes of out[index[i]] += x[i], no row twice: rows of x and out read, rows of out written."""
    return count * (index + 3 * width * item)


def cache_misses(counts, lines, passing, cache_lines):
    """Share of reads of rows of x that miss an LRU cache which is empty at first.

    Reads are taken as independent draws, row j with probability p_j = counts_j / sum(counts). Then a row is found
    again if fewer than T reads lie between, where T, the characteristic time of the cache, solves (Che, Tung and Wang,
    Hierarchical web caching systems, 2002, section III)

        lines sum_j (1 - exp(-p_j T)) + passing T = cache_lines

    Parameters
    ----------
    counts : (n,) integers
        Reads of each row.
    lines : float
        Cache lines of a row.
    passing : float
        Cache lines that pass through the cache per read and are not read again (indices, values, results).
    cache_lines : int

    Returns
    -------
    float
        In [0, 1]; the first read of each row misses.
    """
    counts = counts[counts > 0].astype(np.float64)
    if not counts.size:
        return 0.0
    total = counts.sum()
    if lines * counts.size + passing * total <= cache_lines:
        return counts.size / total
    p = counts / total
    low, high = 1e-3, total
    for _ in range(60):
        time = np.sqrt(low * high)
        held = -lines * np.expm1(-p * time).sum() + passing * time
        low, high = (time, high) if held < cache_lines else (low, time)
    return float((1 + (counts - 1) * np.exp(-p * low)).sum() / total)
