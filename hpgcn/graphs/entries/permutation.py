"""The rows and entries of a whole graph in another order."""
import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.adjacency import LARGE


def permuted_entries(indptr, indices, perm, *, with_source):
    """Put the rows and columns of a square CSR matrix in the order `perm` (new -> old).

    Return indptr, indices, and with `with_source` the old number of each entry, (nnz,),
    else None.
    """
    inverse = np.empty(perm.size, indices.dtype)
    inverse[perm] = np.arange(perm.size, dtype=inverse.dtype)
    counts = np.diff(indptr)[perm]
    moved = np.concatenate([[0], np.cumsum(counts)])
    if indices.size >= LARGE and not with_source:
        from hpgcn.kernels import orders  # late, as it starts the compiler

        columns = np.empty_like(indices)
        orders.reordered(indptr, indices, perm, inverse, moved, columns)
        return moved, columns, None

    # entry k comes from entry source[k]: rows moved whole, then columns sorted within each
    source = np.repeat(indptr[perm] - moved[:-1], counts) + np.arange(moved[-1])
    columns = inverse[indices[source]].astype(indices.dtype)
    matrix = sp.csr_array((source, columns, moved), shape=(perm.size, perm.size))
    matrix.sort_indices()
    return moved, matrix.indices.astype(indices.dtype, copy=False), matrix.data
