"""The bytes that an operation must move.

Divided by the bandwidth, they bound its time from below.

The least number of bytes counts stores once. Most processors read a cache line before
they write it (write-allocate), unless a store goes past the cache. The traffic includes
that read.
"""
import numpy as np

from hpgcn.kernels.cpu.spmm import Pass, product

LINE = 64  # bytes of a cache line


def spmm_bytes(m, n, nnz, width, *, cache_bytes, pointer=8, index=4, value=4, item=4, extra=0,
               allocate=False):
    """Count the bytes of A x, for A (m, n) and x (n, width).

    The least possible, and without reuse of rows of x.

        least   = (m + 1) pointer + nnz (index + value) + (min(n, nnz) + m) width item + extra
        traffic = the same where x fits the cache; else nnz rows of x, in whole cache lines;
                  and m width item more to `allocate` lines of the result before it is stored

    The least counts every array once, without rows of x that no nonzero reads. The traffic, never
    below the least, is the bytes moved if no row of x is found in the cache again. Rows in an order
    of locality, or few columns with many of the nonzeros, need less. `value` is 0 where there are
    no weights, `extra` what else is read: scales, a mask.
    """
    row = width * item
    rest = (m + 1) * pointer + nnz * (index + value) + m * row + extra
    pulled = min(n, nnz) * row
    allocated = m * row if allocate else 0
    return rest + pulled, rest + allocated + pulled_bytes(pulled, n * row, nnz, row, cache_bytes)


def pulled_bytes(least, held, reads, row, cache_bytes):
    """Count the bytes of `reads` reads of rows of `row` bytes each.

    The array has `held` bytes.

    If the array does not fit the cache, whole cache lines are counted. The result is at
    least `least`.
    """
    if held <= cache_bytes:
        return least
    return max(least, reads * -(-row // LINE) * LINE)


def cache_misses(counts, lines, passing, cache_lines):
    """Estimate the share of reads of rows of x that miss an initially empty LRU cache.

    Row j is read counts_j times, in `lines` cache lines. `passing` lines pass through the cache per
    read and are not read again (indices, values, results). Reads are taken as independent draws,
    row j with probability p_j = counts_j / sum(counts). A row is found again if fewer than T reads
    lie between. The characteristic time T of the cache solves (Che, Tung and Wang, Hierarchical web
    caching systems, 2002, section III)

        lines sum_j (1 - exp(-p_j T)) + passing T = cache_lines

    The first read of each row misses.
    """
    counts = counts[counts > 0].astype(np.float64)
    if not counts.size:
        return 0.0
    reads = counts.sum()
    if lines * counts.size + passing * reads <= cache_lines:
        return counts.size / reads

    p = counts / reads
    low = 1e-3
    high = reads
    for _ in range(60):
        time = np.sqrt(low * high)
        if -lines * np.expm1(-p * time).sum() + passing * time < cache_lines:
            low = time
        else:
            high = time
    return float((1 + (counts - 1) * np.exp(-p * low)).sum() / reads)


def stores_past(indptr, indices, values, x, out):
    """Return whether hpgcn's product stores its result past the cache.

    Its lines are then not read first.
    """
    _, launches = product(indptr, indices, values, x, out)
    passes = [launch for launch in launches if isinstance(launch, Pass)]
    return bool(passes) and all(each.shape.streamed for each in passes)
