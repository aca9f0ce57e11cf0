"""Check that data stored beside an adjacency, such as degrees, agree with its entries.

These are degrees, self loops, symmetry and permutations. Each rank checks the rows that
it has read anyway, and ranks add up a few numbers. Only if the sums reveal an error
does one rank read the whole graph, to name the error in a DataError. Keys are fixed, so
the same file gives the same sums. `where` is the file or the name of the graph, for
errors.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError
from hpgcn.graphs.validation import first_true

if TYPE_CHECKING:
    from hpgcn.graphs.graph import Graph
    from hpgcn.graphs.graph_source import GraphSource

KEYS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
# Columns are summed in buckets, because rounding in one sum of all columns could hide an error.
BUCKETS = 1024
ENTRY_BYTES = 64  # memory per entry to find the first error
# tolerance of a sum of float32 weights in float64, relative to their absolute values
TOLERANCE = 1e-9


def add_up(slab: Graph, where: str) -> np.ndarray:
    """Check the degrees and loops of a slab; return its sums for `refuse`.

    The sums are (4 + 2 * BUCKETS,) float64.
    """
    from hpgcn.kernels import entries  # imported here, because this import starts the compiler

    hashes = np.zeros(2, np.uint64)
    columns = np.zeros((BUCKETS, 2))
    row, column, loop = (np.ascontiguousarray(degree, np.float64) for degree in
                         (slab.degree_row, slab.degree_column, slab.degree_loop))
    data = np.empty(0, np.float32) if slab.data is None else slab.data
    wrong = entries.add_up(slab.indptr, slab.indices, data, slab.start, row, column, loop,
                           not slab.header.directed, TOLERANCE, KEYS, hashes, columns)
    for name, place, degree in zip(("row", "loop"), wrong.tolist(), (row, loop)):
        if place < slab.num_rows:
            _refuse_degree(slab, name, place, degree[place], where)
    return np.concatenate([halves(hashes), columns.ravel()])


def check_whole(source: GraphSource, slabs: Iterable[Graph]) -> None:
    """Refuse a graph whose stored degrees, loops or symmetry differ from its entries."""
    refuse(sum(add_up(slab, source.where) for slab in slabs), source)


def refuse(total: Any, source: GraphSource) -> None:
    """Refuse a graph whose entries contradict its header.

    `total` is the sum of `add_up` over all rows. The whole graph `source` is read, if
    memory allows, to name the first invalid entry.
    """
    if not doubtful(total):
        return

    # name the entry at fault, if the matrix fits into memory
    where = source.where
    n = source.header.num_nodes
    asymmetric = nonzero(total[:4])
    try:
        source.reserve(ENTRY_BYTES * source.header.num_edges, "naming an entry")
        indptr, indices, data = source.adjacency_rows(0, n)
    except DataError:
        indptr = None

    if indptr is not None:
        values = np.ones(indices.size, np.float32) if data is None else data
        matrix = sp.csr_array((values, indices, indptr), shape=(n, n))
        if asymmetric:
            _refuse_asymmetry(matrix, where)
        else:
            _refuse_column(matrix, source.degrees()["column"], where)

    if asymmetric:
        raise DataError(f"{where}: /: attribute directed is 0, but the adjacency is not symmetric")
    raise DataError(f"{where}: degree/column differs from the column sums of the adjacency")


def doubtful(total: np.ndarray) -> bool:
    """Return whether `total`, the sum of `add_up` over all rows, reveals a contradiction."""
    difference, size = total[4:].reshape(BUCKETS, 2).T
    return bool(nonzero(total[:4]) or (np.abs(difference) > TOLERANCE * size).any())


def permutation_sums(start: int, perm: np.ndarray, iperm: np.ndarray, part: np.ndarray,
                     parts: np.ndarray) -> np.ndarray:
    """Return sums that show whether a permutation, its inverse and the parts agree.

    The m vertices begin at number `start`. `perm` and `iperm`, in [0, n), are the old
    and the new number of each. `part` is its part in the old order; `parts` is the part
    that the offsets give in the new order. Return (4,) float64. If the total over all
    vertices is `nonzero`, the arrays do not agree.
    """
    from hpgcn.kernels.entries import pair_sum

    own = np.arange(start, start + perm.size)
    inverse = pair_sum(own, perm, KEYS[0]) - pair_sum(iperm, own, KEYS[0])
    placed = pair_sum(perm, parts, KEYS[1]) - pair_sum(own, part, KEYS[1])
    return halves(np.array([inverse % 2**64, placed % 2**64], np.uint64))


def order_sums(start: int, order: np.ndarray) -> np.ndarray:
    """Return sums that show whether an order contains each vertex once.

    `order`, (m,) in [0, n), has the vertex of each row from `start` on. The sums are
    those of `permutation_sums`.
    """
    from hpgcn.kernels.entries import pair_sum

    own = np.arange(start, start + order.size)
    sums = [(pair_sum(order, order, key) - pair_sum(own, own, key)) % 2**64 for key in KEYS]
    return halves(np.array(sums, np.uint64))


def halves(numbers: np.ndarray) -> np.ndarray:
    """Split numbers, (k,) uint64, into high and low 32 bits, (2 k,) float64.

    Sums of these over ranks are exact.
    """
    low = np.uint64(0xFFFFFFFF)
    return np.concatenate([numbers >> np.uint64(32), numbers & low]).astype(np.float64)


def nonzero(sums: np.ndarray) -> bool:
    """Return whether a number is not 0 modulo 2^64, from sums of `halves` over ranks."""
    high, low = sums.reshape(2, -1).tolist()
    return any(((int(a) << 32) + int(b)) % 2**64 for a, b in zip(high, low))


def _refuse_degree(slab: Graph, name: str, row: int, stored: float, where: str) -> None:
    entries = slice(slab.indptr[row], slab.indptr[row + 1])
    weights = np.ones(entries.stop - entries.start)
    if slab.data is not None:
        weights = slab.data[entries].astype(np.float64)
    vertex = slab.start + row
    expected = f"the weights of row {vertex} sum to {weights.sum():.12g}"
    if name == "loop":
        loop = weights[slab.indices[entries] == vertex].sum()
        expected = f"the weight at ({vertex}, {vertex}) is {loop:.12g}"
    raise DataError(f"{where}: degree/{name}[{vertex}] is {stored:.12g}, but {expected}")


def _refuse_asymmetry(matrix: sp.csr_array, where: str) -> None:
    def entry(u: int, v: int) -> str:
        stored = v in matrix.indices[matrix.indptr[u]:matrix.indptr[u + 1]]
        return f"{matrix[u, v]:.12g}" if stored else "missing"

    transposed = matrix.T.tocsr()
    transposed.sort_indices()
    rows, mirrored = (np.repeat(np.arange(matrix.shape[0]), np.diff(csr.indptr))
                      for csr in (matrix, transposed))
    wrong = ((rows != mirrored) | (matrix.indices != transposed.indices)
             | (matrix.data != transposed.data))
    if not wrong.any():
        return
    k = int(np.argmax(wrong))
    u, v = min((int(rows[k]), int(matrix.indices[k])),
               (int(mirrored[k]), int(transposed.indices[k])))
    raise DataError(f"{where}: /: attribute directed is 0, but the adjacency is not symmetric: the "
                    f"entry at ({u}, {v}) is {entry(u, v)}, at ({v}, {u}) {entry(v, u)}")


def _refuse_column(matrix: sp.csr_array, stored: np.ndarray, where: str) -> None:
    weights = matrix.data.astype(np.float64)
    sums, sizes = (np.bincount(matrix.indices, summed, matrix.shape[0])
                   for summed in (weights, np.abs(weights)))
    if (k := first_true(~(np.abs(sums - stored) <= TOLERANCE * sizes))) is not None:
        raise DataError(f"{where}: degree/column[{k}] is {stored[k]:.12g}, but the weights of "
                        f"column {k} sum to {sums[k]:.12g}")
