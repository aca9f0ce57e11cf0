"""Build a CSR adjacency from unordered entries, sum its rows, test its symmetry."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import UsageError, setting, warn
from hpgcn.graphs import validation
from hpgcn.graphs.edge_weights import count_rounded, rounded_note, stored_as_zero
from hpgcn.graphs.partition import positions_of, run_offsets

LOST = "edges of negative weight dropped: max(A, A^T), which symmetrizes, is 0 for them"
UNEQUAL = "edges have different weights in their two directions: max(A, A^T) keeps the larger"
LARGE = 1 << 20  # with fewer entries the compiler takes longer than it saves
DUPLICATES = ("merge", "sum", "sum-edges")  # options for an edge that is listed several times


@dataclass
class Counts:
    """Numbers of duplicates, zeros and other changes while an adjacency was built."""

    duplicates: int = 0
    zeros: int = 0
    loops: int = 0
    asymmetric: int = 0
    repeated_loops: int = 0  # loops of vertices that have another loop after them
    ones: bool = True  # all weights of the input are 1
    symmetric: bool = False  # the adjacency was made symmetric
    lost: int = 0  # edges of one direction and negative weight: max(A, A^T) is 0
    unequal: int = 0  # edges with two different weights: max(A, A^T) takes the larger


def build_adjacency(rows: np.ndarray, columns: np.ndarray, values: np.ndarray | None, n: int, *,
                    symmetrize: bool = False, count: bool = False, name: str = "graph") -> tuple:
    """Build a valid CSR adjacency from entries in any order.

    `rows`, `columns` (e,) lie in [0, n); `values` (e,), or None for all ones.
    `symmetrize` takes max(A, A^T), after duplicates are merged. Weights of duplicates
    are summed. But if all weights are 1, a duplicate is the same edge, unless `count`
    is true. Return indptr (n + 1,) int64, indices (nnz,), data (nnz,) float32 or None
    if all are 1, and Counts. DataError for a weight that is not finite in float32.
    """
    counts = Counts()
    dtype = validation.index_dtype(n)

    # weights that are all 1 need no values
    if values is not None:
        values = np.asarray(values, np.float64)
        validation.check_finite(values, f"{name}: weight")
        if np.all(values == 1):
            values = None
    if values is None and count:
        values = np.ones(len(rows))
    data = np.ones(len(rows), np.uint8) if values is None else values

    # merge duplicates, and count what is dropped
    coords = (np.asarray(rows, dtype), np.asarray(columns, dtype))
    matrix = sp.csr_array((data, coords), shape=(n, n))
    matrix.sum_duplicates()
    counts.duplicates = len(rows) - matrix.nnz
    if values is None:
        matrix.data = np.ones(matrix.nnz, np.uint8)  # 0/1 input: a duplicate is the same edge
    stored = matrix.nnz
    matrix.eliminate_zeros()
    counts.zeros = stored - matrix.nnz

    # keep the larger weight of both directions
    counts.symmetric = symmetrize
    if symmetrize:
        given, transposed = matrix, matrix.T.tocsr()
        matrix = sp.csr_array(given.maximum(transposed))
        if values is not None:
            # entries in one direction only differ as well: subtract them
            places = (given.astype(bool) + transposed.astype(bool)).nnz
            counts.unequal = ((given != transposed).nnz - 2 * (places - given.nnz)) // 2
        matrix.eliminate_zeros()  # max(0, negative) leaves no entry; remove zeros to be safe
        matrix.sort_indices()
        if values is not None and values.min(initial=0) < 0:
            counts.lost = given.nnz - given.astype(bool).multiply(matrix.astype(bool)).nnz
        counts.asymmetric = matrix.nnz - given.nnz + counts.lost
    counts.loops = int(np.count_nonzero(matrix.diagonal()))

    # store weights as float32, none if all are 1
    data = None
    if values is not None:
        with np.errstate(over="ignore"):
            data = matrix.data.astype(np.float32)
        validation.check_finite(data, f"{name}: weight (as float32)")
        if np.all(data == 1):
            data = None
    return matrix.indptr.astype(np.int64), matrix.indices.astype(dtype, copy=False), data, counts


def check_duplicates(duplicates: str | None) -> str:
    """Return `duplicates`, "merge" for None; UsageError unless it is one of DUPLICATES."""
    duplicates = DUPLICATES[0] if duplicates is None else duplicates
    if duplicates not in DUPLICATES:
        raise UsageError(f"{setting('duplicates', duplicates)}: expected {', '.join(DUPLICATES)}")
    return duplicates


def repeated_loops(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the positions of self loops that another loop of the vertex follows, (k,) int64."""
    loops = np.flatnonzero(rows == columns)[::-1]
    last = np.unique(rows[loops], return_index=True)[1]
    return np.delete(loops, last)


def without(places: np.ndarray, *arrays: Any) -> tuple[np.ndarray, ...]:
    """Return copies of arrays without the elements at these positions; None stays None."""
    return tuple(array if array is None else np.delete(array, places) for array in arrays)


def adjacency_of(A: Any, name: str, *, symmetrize: bool = False, unweighted: bool = False,
                 duplicates: str | None = None) -> tuple:
    """Build a valid CSR adjacency from a matrix, as for `Graph.from_scipy`.

    Changes to its entries are DataWarnings.

    Return indptr, indices, data as `build_adjacency`, and whether weights count
    parallel edges.
    """
    # refuse malformed matrices, and remove stored zeros
    choice = check_duplicates(duplicates)
    A = validation.check_adjacency(A, name)
    validation.check_finite(A.data, f"{name}: weight")
    kept = ~stored_as_zero(A.data)
    rows, columns, values = *(axis[kept] for axis in A.coords), A.data[kept]
    if zeros := A.data.size - values.size:
        warn(f"{name}: removed {zeros} edges of weight 0 (as float32)")
    values = None if unweighted or np.all(values == 1) else values
    if values is not None and (lost := count_rounded(values)):
        warn(f"{name}: {rounded_note(lost)}")

    # merge duplicates, and warn of changes
    *csr, counts = merged_adjacency(rows, columns, values, A.shape[0], choice, name=name,
                                    symmetrize=symmetrize)
    for note in duplicates_notes(counts, duplicates, "duplicates={!r}".format):
        warn(f"{name}: {note}")
    if counts.zeros:
        warn(f"{name}: {counts.zeros} edges removed whose weights sum to 0")
    if counts.lost:
        warn(f"{name}: {counts.lost} {LOST}")
    if counts.unequal:
        warn(f"{name}: {counts.unequal} {UNEQUAL}")
    return *csr, counts.ones and csr[2] is not None


def merged_adjacency(rows: np.ndarray, columns: np.ndarray, values: np.ndarray | None, n: int,
                     duplicates: str, **options: Any) -> tuple:
    """Call `build_adjacency` after removing or counting duplicates, as that mode requires."""
    total = len(rows)
    ones = values is None
    again = repeated_loops(rows, columns)
    if duplicates == "sum-edges":
        rows, columns, values = without(again, rows, columns, values)
    *csr, counts = build_adjacency(rows, columns, values, n, count=ones and duplicates != "merge",
                                   **options)
    counts.duplicates += total - len(rows)
    counts.repeated_loops = again.size
    counts.ones = ones
    return *csr, counts


def duplicates_notes(counts: Counts, choice: str | None, option: Callable) -> list[str]:
    """Return notes for the user on edges that the input lists several times.

    Parameters
    ----------
    counts : Counts
    choice : str or None
        One of DUPLICATES, None if the user has not chosen.
    option : callable
        Returns how a user chooses, such as "--duplicates sum".

    Examples
    --------
    >>> duplicates_notes(Counts(duplicates=3), None, "--duplicates {}".format)
    ['3 edges are listed before and count once: --duplicates sum counts each']
    """
    # duplicates that the user chose to merge, or edges without weights
    if not counts.duplicates or choice in ("merge", "sum-edges"):
        return []
    if choice is None and counts.ones:
        return [f"{counts.duplicates} edges are listed before and count once: {option('sum')} "
                "counts each"]

    # duplicates whose weights are summed
    notes = []
    if choice is None:
        notes.append(f"{counts.duplicates} edges are listed before: their weights are summed")
    if counts.repeated_loops:
        notes.append(f"{counts.repeated_loops} self loops are listed before and summed: "
                     f"{option('sum-edges')} takes the last, as PyG's GCNConv does")
    return notes


def row_and_column_sums(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray | None, *,
                        symmetric: bool = False) -> tuple[np.ndarray, ...]:
    """Return the row sums and the column sums of a CSR matrix (n, n), two (n,) float64.

    Data None means ones. The sums of a `symmetric` matrix are equal.
    """
    n = indptr.size - 1
    if symmetric and data is None:
        counts = np.diff(indptr).astype(np.float64)
        return counts, counts.copy()

    if indices.size >= LARGE:
        from hpgcn.kernels import entries  # late, as it starts the compiler

        sums = np.zeros(n), np.zeros(n)
        entries.add_sums(indptr, indices, _kernel_data(data), *sums)
        return sums

    weights = np.ones(indices.size) if data is None else data.astype(np.float64)
    row_of = np.repeat(np.arange(n), np.diff(indptr))
    # without entries bincount forgets the dtype of its weights
    return tuple(np.bincount(numbers, weights, n).astype(np.float64, copy=False)
                 for numbers in (row_of, indices))


def is_symmetric(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray | None) -> bool:
    """Return whether a CSR matrix (n, n) has a symmetric pattern and symmetric values.

    Columns are sorted; data None means ones.
    """
    if indices.size >= LARGE:
        from hpgcn.kernels import entries

        return entries.is_symmetric(indptr, indices, _kernel_data(data), indptr[:-1].copy())

    n = indptr.size - 1
    values = np.ones(indices.size, np.uint8) if data is None else data
    matrix = sp.csr_array((values, indices, indptr), shape=(n, n))
    transposed = matrix.T.tocsr()
    transposed.sort_indices()
    return all(np.array_equal(getattr(matrix, name), getattr(transposed, name))
               for name in ("indptr", "indices", "data"))


def _kernel_data(data: np.ndarray | None) -> np.ndarray:
    """Return the data of a matrix for a kernel, empty for None."""
    return np.empty(0, np.float32) if data is None else data


def row_blocks(indptr: np.ndarray, entries: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds (start, stop) of blocks of whole rows with about `entries` entries."""
    start = 0
    while start < indptr.size - 1:
        stop = int(np.searchsorted(indptr, indptr[start] + entries, side="right")) - 1
        stop = max(stop, start + 1)
        yield start, stop
        start = stop


def permuted_entries(indptr: np.ndarray, indices: np.ndarray, perm: np.ndarray, *,
                     with_source: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Put the rows and columns of a square CSR matrix in the order `perm` (new -> old).

    Return indptr, indices, and the old number of each entry, (nnz,). The last is None
    without `with_source`.
    """
    inverse = np.empty(perm.size, indices.dtype)
    inverse[perm] = np.arange(perm.size, dtype=inverse.dtype)
    if indices.size >= LARGE and not with_source:
        from hpgcn.kernels import orders  # late, as it starts the compiler

        moved = run_offsets(np.diff(indptr)[perm])
        columns = np.empty_like(indices)
        orders.place_rows(indptr, indices, inverse, inverse, moved, columns)
        return moved, columns, None

    # entry k comes from entry source[k]: rows moved whole, then columns sorted within each
    moved, source = positions_of(indptr[perm], indptr[perm + 1])
    columns = inverse[indices[source]].astype(indices.dtype)
    matrix = sp.csr_array((source, columns, moved), shape=(perm.size, perm.size))
    matrix.sort_indices()
    return moved, matrix.indices.astype(indices.dtype, copy=False), matrix.data
