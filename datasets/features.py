"""Features of graphs that have none, made of the adjacency alone: `--features identity` and `--features degree`."""
import numpy as np
import scipy.sparse as sp

from hpgcn.check import MAX_WIDTH, index_dtype
from hpgcn.datasets.source import need
from hpgcn.errors import DataError

VERTEX_BYTES = 48  # of memory that making either takes


def identity(row_sums, column_sums):
    """Return the sparse identity (n, n): each vertex has a column, and in the model a weight vector, of its own."""
    n = row_sums.size
    indices = np.arange(n, dtype=index_dtype(n))
    return sp.csr_array((np.ones(n, np.float32), indices, np.arange(n + 1)), shape=(n, n))


def degree(row_sums, column_sums):
    """Return (n, 2): sign(d) log(1 + |d|) of the row sum and of the column sum d of each vertex.

    The row sum is the weight of the edges that a vertex reads, the column sum of those by which others read it.
    """
    sums = np.stack([row_sums, column_sums], axis=1)
    return (np.sign(sums) * np.log1p(np.abs(sums))).astype(np.float32)


MADE = {"identity": identity, "degree": degree}


def make_features(name, row_sums, column_sums, memory, where):
    """Make features by name, a key of MADE.

    Parameters
    ----------
    row_sums, column_sums : (n,) float64
        Of the adjacency as stored.
    memory : int
        Bytes that may be allocated.

    Returns
    -------
    (n, f) ndarray or scipy.sparse.csr_array, float32

    Raises
    ------
    DataError
        More vertices than a model may have features, or than fit into the memory.
    """
    n = row_sums.size
    need(VERTEX_BYTES * n, memory, f"{where}: features {name} of {n} vertices")
    if name == "identity" and n > MAX_WIDTH:
        raise DataError(f"{where}: features identity of {n} vertices are as many columns, at most {MAX_WIDTH} are "
                        "possible: take --features degree")
    return MADE[name](row_sums, column_sums)
