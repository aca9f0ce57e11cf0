"""Blocks of a sparse matrix, with all data that products need."""
from __future__ import annotations

import operator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn import kernels
from hpgcn.graphs.partition import positions_of
from hpgcn.graphs.validation import index_dtype
from hpgcn.kernels.host.record import ALL, derived, repeat
from hpgcn.runtime.device import HOST

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.runtime.device import Host

TILES = 8  # most tiles of a block that is multiplied while messages are under way
TILE_NONZEROS = 1 << 13  # nonzeros of a tile, at least


class Csr:
    """Sparse matrix (m, n) in compressed rows, columns increasing in each row.

    It owns the data that products need repeatedly: its rows that are not empty, its
    cuts into tiles, its transpose.

    indptr, (m + 1,) int64, indices, (nnz,) int32 or int64, and data, (nnz,) float, are
    in the memory of `device`. `edges`, (nnz,) int64, are the numbers of the entries in
    the original matrix, before a cut or a transpose.
    """

    def __init__(self, indptr: Array, indices: Array, data: Array | None, num_columns: int,
                 device: Host = HOST, edges: Array | None = None) -> None:
        self.indptr = indptr
        self.indices = indices
        self.data = data
        self.shape = (indptr.size - 1, num_columns)
        self.device = device
        self.edges = edges
        self._known = {}  # derived from the pattern only

    @classmethod
    def of(cls, matrix: Any, device: Host = HOST) -> Csr:
        """Return the Csr of a csr_array on a device.

        Its columns are sorted, and have the narrowest dtype.
        """
        matrix.sort_indices()
        indices = matrix.indices.astype(index_dtype(matrix.shape[1]), copy=False)
        indptr, indices, data = map(device.put, (matrix.indptr.astype(np.int64), indices,
                                                 matrix.data))
        return cls(indptr, indices, data, matrix.shape[1], device)

    def to_scipy(self) -> Any:
        """Return a csr_array on the host that shares its memory if possible."""
        indptr, indices, data = map(self.device.get, (self.indptr, self.indices, self.data))
        return sp.csr_array((data, indices, indptr), shape=self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of row pointers, columns and values."""
        return self.indptr.nbytes + self.indices.nbytes + self.data.nbytes

    def on(self, device: Host) -> Csr:
        """Return this matrix in the memory of a device; self if it is there already."""
        if device is self.device:
            return self
        arrays = self.indptr, self.indices, self.data
        arrays = (device.put(self.device.get(each)) for each in arrays)
        return Csr(*arrays, self.shape[1], device, device.put(self.edges))

    def with_data(self, data: Array) -> Csr:
        """Return a matrix of the same pattern with other values, (nnz,)."""
        other = type(self)(self.indptr, self.indices, data, self.shape[1], self.device, self.edges)
        other._known = self._known
        return other

    @property
    def nonempty_rows(self) -> np.ndarray:
        """Numbers of the rows with entries, (r,) int64, on the device."""
        if "rows" not in self._known:
            rows = np.flatnonzero(np.diff(self.device.get(self.indptr)))
            self._known["rows"] = self.device.put(rows)
        return self._known["rows"]

    def read_arrays(self, *, values: bool, numbers: bool) -> list[Array]:
        """Return the arrays that a product reads, with the values if it reads these.

        With `numbers` they are also `nonempty_rows`, if blocks were packed to be added.
        """
        rows = [self._known["rows"]] if numbers and "rows" in self._known else []
        return [self.indptr, self.indices, *[self.data] * values, *rows]

    def stored_arrays(self) -> list[Array]:
        """Return the arrays of the matrix, and of its transpose once that is cached."""
        flipped = self._known.get("transpose")
        return [self.indptr, self.indices, self.data, *(
            [] if flipped is None else [flipped.indptr, flipped.indices, flipped.edges])]

    def take_rows(self, numbers: Array) -> Csr:
        """Return the Csr of the rows `numbers`, (r,) increasing.

        `edges` of the result are the positions of its entries in this matrix.
        """
        device = self.device
        ends = device.take(self.indptr, numbers), device.take(self.indptr, numbers + 1)
        if device.xp is np:
            pointers, edges = positions_of(*ends)
        else:
            from hpgcn.kernels.cuda import submatrix

            pointers, edges = submatrix.positions_of(*ends)
        return BatchCsr(pointers, device.take(self.indices, edges), device.take(self.data, edges),
                        self.shape[1], device, edges)

    def select(self, rows: np.ndarray, columns: np.ndarray) -> Any:
        """Return the submatrix of marked rows and columns, a csr_array on the host.

        Marks are (m,) bool and (n,) bool.
        """
        indptr, indices, data = map(self.device.get, (self.indptr, self.indices, self.data))
        return select(indptr, indices, data, rows, columns)

    def transposed(self) -> Csr:
        """Return the transpose, (n, m), on the same device."""
        return Csr.of(self.to_scipy().T.tocsr(), self.device)

    def ordered_transpose(self) -> Csr:
        """Return the pattern of the transpose, which is cached.

        `edges` of the result are the positions of its entries in this matrix.
        """
        if "transpose" not in self._known:
            indptr, indices = map(self.device.get, (self.indptr, self.indices))
            narrow = index_dtype(max(*self.shape, indices.size))  # SciPy widens no columns then
            arrays = np.arange(indices.size), indices, indptr.astype(narrow)
            flipped = sp.csr_array(arrays, shape=self.shape).T.tocsr()
            arrays = flipped.indptr.astype(np.int64), flipped.indices, flipped.data
            indptr, indices, order = map(self.device.put, arrays)
            self._known["transpose"] = Csr(indptr, indices, None, self.shape[0], self.device, order)
        return self._known["transpose"]

    def transposed_times(self, G: Array) -> Array:
        """Return A^T G, (n, f), for G (m, f); the pattern of A^T is cached."""
        flipped = self.ordered_transpose()
        data = derived(operator.getitem, self.data, flipped.edges)
        return kernels.backend(G).spmm(flipped.indptr, flipped.indices, data, G)

    def tiles(self, under_way: bool, accumulate: bool, most: int = TILES) -> list[tuple]:
        """Cut the rows into tiles for a product.

        There are several tiles while messages are under way, else one. Messages
        progress only within MPI calls, which a rank makes between tiles. If the product
        is added to a result (`accumulate`), rows without entries can be left out.
        Return a list of (first row, row after the last, row pointers, rows to compute
        or None for all).
        """
        count = 1
        if under_way and self.device.in_tiles:
            count = min(most, 1 + self.indices.size // TILE_NONZEROS)
        key = count, accumulate
        if key not in self._known:
            self._known[key] = [self._tile(lo, hi, accumulate)
                                for lo, hi in cut_rows(self.indptr, count)]
        return self._known[key]

    def _tile(self, lo: int, hi: int, accumulate: bool) -> tuple:
        indptr = rows_of(self.indptr, lo, hi + 1)
        if not accumulate:
            return lo, hi, indptr, None
        rows = self.nonempty_rows
        if hi - lo < self.shape[0]:
            rows = rows[slice(*np.searchsorted(rows, (lo, hi)))] - lo
        return lo, hi, indptr, None if rows.size == hi - lo else rows


class BatchCsr(Csr):
    """A block of a batch, which finds its transpose on its device.

    On a GPU that needs work memory of several times the block. So other blocks, which
    are larger and find it only once, use the host.
    """

    @property
    def nonempty_rows(self) -> Array:
        if "rows" not in self._known:
            self._known["rows"] = np.flatnonzero(np.diff(self.indptr))
        return self._known["rows"]

    def transposed(self) -> Csr:
        if self.device.xp is np:
            return super().transposed()
        flipped = self.ordered_transpose()
        return flipped.with_data(self.data[flipped.edges])

    def ordered_transpose(self) -> Csr:
        if self.device.xp is np or "transpose" in self._known:
            return super().ordered_transpose()
        from hpgcn.kernels.cuda.submatrix import flipped

        indptr, rows, order = flipped(self.indptr, self.indices, self.shape[1])
        rows = rows.astype(index_dtype(self.shape[0]), copy=False)
        self._known["transpose"] = BatchCsr(indptr, rows, None, self.shape[0], self.device, order)
        return self._known["transpose"]


def pack(blocks: list[Csr], added: list[Csr]) -> None:
    """Store the arrays of blocks one after another, in one array of each kind.

    That is one allocation on a GPU, and so large that it can be in a file. Blocks in
    `added` are added to a result, which reads their `nonempty_rows`.
    """
    for name in ("indptr", "indices", "data"):
        for block, part in zip(blocks, _packed([getattr(block, name) for block in blocks], blocks)):
            setattr(block, name, part)
    for block, rows in zip(added, _packed([block.nonempty_rows for block in added], added)):
        block._known["rows"] = rows


def _packed(arrays: list[Array], blocks: list[Csr]) -> list[Array]:
    """Return views of one array with the contents of those of blocks, if they are not that yet."""
    first = arrays[0].base if arrays else None
    if len(arrays) < 2 or (first is not None and all(each.base is first for each in arrays)):
        return arrays
    ends = np.cumsum([each.size for each in arrays]).tolist()
    kind = np.result_type(*(each.dtype for each in arrays))
    whole = blocks[0].device.empty((ends[-1],), kind)
    parts = [whole[end - each.size:end] for end, each in zip(ends, arrays)]
    for part, each in zip(parts, arrays):
        repeat(operator.setitem, part, ALL, each)
    return parts


def cut_rows(indptr: np.ndarray, count: int) -> list[tuple]:
    """Cut rows into `count` runs of about equal nonzeros.

    Return pairs (first row, row after the last). Row pointers, (m + 1,), need not begin
    at 0, and are not read for one run.
    """
    if count == 1:
        return [(0, indptr.size - 1)]
    first = indptr[0]
    total = indptr[-1] - first
    inner = np.searchsorted(indptr, first + total * np.arange(1, count) // count)
    return list(pairwise([0, *inner.tolist(), indptr.size - 1]))


def rows_of(array: Array | None, first: int, last: int) -> Array | None:
    """Return rows [first, last) of an array, or None for None.

    For all rows the array itself is returned: kernels on a GPU recognize an array of
    row pointers, but not a new slice of it.
    """
    if array is None or (first, last) == (0, len(array)):
        return array
    return array[first:last]


def select(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, rows: np.ndarray,
           columns: np.ndarray) -> Any:
    """Return the submatrix of marked rows and columns, a csr_array.

    Marks are (m,) bool and (n,) bool.
    """
    kept = columns[indices]
    kept &= np.repeat(rows, np.diff(indptr))
    before = np.zeros(kept.size + 1, index_dtype(kept.size))
    np.cumsum(kept, out=before[1:])
    counts = np.diff(before[indptr - indptr[0]])[rows]
    pointers = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    del before  # as long as the matrix
    numbers = (np.cumsum(columns) - 1).astype(indices.dtype)
    pointers = pointers.astype(index_dtype(pointers[-1]))
    shape = int(np.count_nonzero(rows)), int(np.count_nonzero(columns))
    return sp.csr_array((data[kept], numbers[indices[kept]], pointers), shape=shape)


def in_order(matrix: Any, rows: np.ndarray, columns: np.ndarray) -> Any:
    """Move row i of a csr_array to row rows[i], and column j to column columns[j].

    Columns of the result are not sorted.
    """
    moved = matrix[inverse(rows)]
    columns = columns.astype(matrix.indices.dtype)
    return sp.csr_array((moved.data, columns[moved.indices], moved.indptr), shape=matrix.shape)


def inverse(order: np.ndarray) -> np.ndarray:
    """Return the position of each number in a permutation, (n,)."""
    places = np.empty_like(order)
    places[order] = np.arange(order.size)
    return places


def bool_matrix(indptr: np.ndarray, indices: np.ndarray) -> Any:
    """Return the square csr_array of a pattern, bool."""
    indptr = indptr.astype(index_dtype(indptr[-1]), copy=False)  # keeps SciPy from widening columns
    n = indptr.size - 1
    return sp.csr_array((np.ones(indices.size, bool), indices, indptr), shape=(n, n))
