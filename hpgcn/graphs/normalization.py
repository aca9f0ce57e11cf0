"""Read the matrix by which layers multiply, in blocks: A with loops, scaled by degrees."""
from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.adjacency import row_blocks
from hpgcn.graphs.validation import index_dtype

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.graphs.graph import Graph
    from hpgcn.graphs.graph_source import AdjacencySource

CHUNK = 1 << 21  # entries read at a time
PORTIONS = 8  # pieces in which rows are read if columns are cut into blocks
NORMS = ("sym", "in", "row", "none")


class NormalizedAdjacency:
    """The adjacency A with self loops, normalized by degrees and read in blocks.

    The value of `norm` selects A + I ("none"), or D_row^-1/2 (A + I) D_col^-1/2
    ("sym"), D_row^-1 (A + I) ("row"), or D_row^-1/2 (A + I) D_row^-1/2 ("in").

    It reads blocks of `source`, an AdjacencySource of all rows, when they are needed. It
    then holds the degrees of all vertices, 16 bytes each. A degree that is not positive
    gives the factor 0. `self_loops` adds loops of weight 1 where none are. `slab`: this
    rank's rows, if read already. `dtype` is that of its values, and of rows that it
    multiplies unless `row_dtype` is another.

    With `numbered` its values are the numbers of its entries in the source, int64, by
    which features of edges are found. Those of (i, j) and (j, i) may differ, so the
    matrix counts as not symmetric.
    """

    def __init__(self, source: AdjacencySource, *, norm: str = "sym", self_loops: bool = True,
                 dtype: DTypeLike = np.float32, slab: Graph | None = None,
                 row_dtype: DTypeLike = None, numbered: bool = False) -> None:
        self.source = source
        self.norm = norm
        self.self_loops = self_loops
        self.dtype = np.dtype(dtype)
        self.row_dtype = np.dtype(row_dtype or dtype)
        self.slab = slab
        self.num_rows = source.header.num_nodes
        self.numbered = numbered
        self.entry_dtype = np.dtype(np.int64) if numbered else self.dtype
        self.symmetric = not source.header.directed and norm != "row" and not numbered

    @cached_property
    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Factors that scale the rows and the columns of A; two (n,) float64."""
        degrees = self.source.degrees()
        added = (degrees["loop"] == 0) & self.self_loops
        return scales(degrees["row"] + added, degrees["column"] + added, self.norm)

    def blocks(self, row_bounds: list[int], intervals: list[tuple]) -> list[sp.csr_array]:
        """Return a csr_array for each column interval, of rows row_bounds[0] to row_bounds[-1].

        Intervals ascend. Rows are read once, portion by portion as `row_bounds` divide
        them. At most one portion, or one block, is in memory twice.
        """
        if not intervals:
            return []
        first = intervals[0][0]
        last = intervals[-1][1]

        # read each interval of rows once, and divide it by columns
        parts = [[] for _ in intervals]
        for start, stop in pairwise(row_bounds):
            whole = self.block(start, stop, first, last)
            for part, (lo, hi) in zip(parts, intervals):
                part.append(whole if (lo, hi) == (first, last) else whole[:, lo - first:hi - first])
            del whole

        blocks = []
        while parts:
            part = parts.pop(0)
            blocks.append(part.pop() if len(part) == 1 else sp.vstack(part, format="csr"))
        return blocks

    def block(self, start: int, stop: int, first: int = 0, last: int | None = None) -> sp.csr_array:
        """Return the rows [start, stop) and columns [first, last) as a sorted csr_array.

        Both are numbered from 0 in the result.
        """
        last = self.num_rows if last is None else last

        # arrays for all entries, including loops
        pointers = self.source.pointers(start, stop)
        most = int(pointers[-1] - pointers[0]) + (stop - start) * self.self_loops
        indices = np.empty(most, index_dtype(last - first))  # unwritten pages cost nothing
        data = np.empty(most, self.entry_dtype)
        indptr = np.zeros(stop - start + 1, index_dtype(most))

        # normalize a chunk of rows at a time
        for low, high in row_blocks(pointers, CHUNK):
            counts, columns, values = self._rows(start + low, start + high, first, last,
                                                 pointers[low])
            held = int(indptr[low])
            indptr[low + 1:high + 1] = held + np.cumsum(counts)
            indices[held:held + columns.size] = columns
            data[held:held + columns.size] = values
            del columns, values  # free them before the next chunk

        # release the unused part of the arrays
        for array in (indices, data):
            array.resize(int(indptr[-1]), refcheck=False)
        return sp.csr_array((data, indices, indptr), shape=(stop - start, last - first))

    def _rows(self, start: int, stop: int, first: int, last: int,
              before: int) -> tuple[np.ndarray, ...]:
        indptr, indices, data = self.source.adjacency_rows(start, stop)
        if self.self_loops:
            indptr, indices, data, _ = insert_loops(indptr, indices, data, start)
        rows = np.repeat(np.arange(stop - start), np.diff(indptr))
        inside = (indices >= first) & (indices < last)
        rows = rows[inside]
        columns = indices[inside]
        if self.numbered:
            values = before + np.flatnonzero(inside)
            return np.bincount(rows, minlength=stop - start), columns - first, values
        values = np.ones(columns.size) if data is None else data[inside].astype(np.float64)
        row_scale, column_scale = self.scales
        values *= row_scale[start:stop][rows] * column_scale[columns]
        return np.bincount(rows, minlength=stop - start), columns - first, values


def scales(row: np.ndarray, column: np.ndarray, norm: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of rows and of columns for the degrees `row` and `column`.

    A degree of at most 0 has the factor 0.
    """
    if norm == "sym":
        return inverse_sqrt(row), inverse_sqrt(column)
    if norm == "in":
        return inverse_sqrt(row), inverse_sqrt(row)
    if norm == "row":
        return inverse_sqrt(row) ** 2, np.ones_like(column)
    return np.ones_like(row), np.ones_like(column)


def with_self_loops(slab: Graph) -> tuple:
    """Add a self loop of weight 1 to each row without one.

    Return (indptr, indices, data, added), the last with the number of loops that each
    row gets.
    """
    return insert_loops(slab.indptr, slab.indices, slab.data, slab.start)


def insert_loops(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray | None,
                 start: int) -> tuple:
    """Add missing self loops to the CSR arrays of the rows from `start` on.

    The result is that of `with_self_loops`.
    """
    m = indptr.size - 1
    own = start + np.arange(m)
    row_of = np.repeat(np.arange(m), np.diff(indptr))
    added = np.ones(m, bool)
    added[row_of[indices == own[row_of]]] = False
    before = np.bincount(row_of[indices < own[row_of]], minlength=m)  # left of the diagonal
    where = (indptr[:-1] + before)[added]
    indices = np.insert(indices, where, own[added].astype(indices.dtype))
    data = None if data is None else np.insert(data, where, np.float32(1))
    return indptr + np.concatenate([[0], np.cumsum(added)]), indices, data, added


def inverse_sqrt(degree: np.ndarray) -> np.ndarray:
    """Return degree^-1/2 in float64, 0 if the degree is not positive."""
    positive = degree > 0
    return np.where(positive, 1 / np.sqrt(np.where(positive, degree, 1)), 0.0)
