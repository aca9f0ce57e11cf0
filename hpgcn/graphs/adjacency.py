"""Entries in any order into a valid CSR adjacency; its sums, and whether it is symmetric."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs import validation


@dataclass
class Counts:
    """What building an adjacency met and did, for the reader's report."""

    duplicates: int = 0
    zeros: int = 0
    loops: int = 0
    asymmetric: int = 0


def build_adjacency(rows, columns, values, n, *, symmetrize=False, name="graph"):
    """Make a valid CSR adjacency from entries in any order.

    `rows`, `columns` (e,) lie in [0, n); `values` (e,), or None for all ones. `symmetrize` takes
    max(A, A^T), after duplicates are merged. Return indptr (n + 1,) int64, indices (nnz,), data
    (nnz,) float32 or None if all are 1, Counts. DataError for a weight not finite in it.
    """
    counts = Counts()
    dtype = validation.index_dtype(n)
    if values is not None:
        values = np.asarray(values, np.float64)
        validation.check_finite(values, f"{name}: weight")
        if np.all(values == 1):
            values = None
    data = np.ones(len(rows), np.uint8) if values is None else values
    coords = (np.asarray(rows, dtype), np.asarray(columns, dtype))
    matrix = sp.csr_array((data, coords), shape=(n, n))
    matrix.sum_duplicates()
    counts.duplicates = len(rows) - matrix.nnz
    if values is None:
        matrix.data = np.ones(matrix.nnz, np.uint8)  # 0/1 input: a duplicate is the same edge
    stored = matrix.nnz
    matrix.eliminate_zeros()
    counts.zeros = stored - matrix.nnz
    if symmetrize:
        before = matrix.nnz
        matrix = sp.csr_array(matrix.maximum(matrix.T.tocsr()))
        matrix.eliminate_zeros()  # max(0, negative) leaves none, but be sure of the pattern
        matrix.sort_indices()
        counts.asymmetric = matrix.nnz - before
    counts.loops = int(np.count_nonzero(matrix.diagonal()))

    data = None
    if values is not None:
        with np.errstate(over="ignore"):
            data = matrix.data.astype(np.float32)
        validation.check_finite(data, f"{name}: weight (as float32)")
        if np.all(data == 1):
            data = None
    return matrix.indptr.astype(np.int64), matrix.indices.astype(dtype, copy=False), data, counts


def row_and_column_sums(indptr, indices, data):
    """Sum a CSR (n, n), data None for ones, in the order of the entries: two (n,) float64."""
    n = indptr.size - 1
    weights = np.ones(indices.size) if data is None else data.astype(np.float64)
    row_of = np.repeat(np.arange(n), np.diff(indptr))
    # without entries bincount forgets the dtype of its weights
    return tuple(np.bincount(numbers, weights, n).astype(np.float64, copy=False)
                 for numbers in (row_of, indices))


def is_symmetric(matrix):
    """Return whether pattern and values of a CSR matrix with sorted columns are symmetric."""
    transposed = matrix.T.tocsr()
    transposed.sort_indices()
    return all(np.array_equal(getattr(matrix, name), getattr(transposed, name))
               for name in ("indptr", "indices", "data"))
