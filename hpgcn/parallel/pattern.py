"""Positions of the entries of a sparse matrix: all that planning reads of a graph."""
from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.reordering import bandwidth
from hpgcn.parallel import pattern_counts
from hpgcn.parallel.csr import in_order, inverse

if TYPE_CHECKING:
    from hpgcn.graphs.graph import Graph
    from hpgcn.parallel.layout import BlockLayout


class Pattern:
    """Positions of the entries of the matrix that is multiplied (pure).

    matrix: csr_array (n, n); rows and columns that are left out are empty. Its values
    are the part that holds each entry, int32, if a partition of entries or a strategy
    sets them.

    symmetric: with its values. weighted: its entries are stored with weights. rows_out,
    rows_in: rows of the result and of the multiplied matrix; (n,) bool, or None for
    all.
    """

    def __init__(self, matrix: Any, symmetric: bool, weighted: bool = False,
                 rows_out: np.ndarray | None = None, rows_in: np.ndarray | None = None) -> None:
        self._matrix = matrix
        self.symmetric = symmetric
        self.weighted = weighted
        self.rows_out = rows_out
        self.rows_in = rows_in
        self._restricted = {}
        self._counted = {}

    @property
    def matrix(self) -> Any:
        """csr_array (n, n)."""
        return self._matrix

    @property
    def num_rows(self) -> int:
        """Number of rows (n), including rows that are left out."""
        return self.matrix.shape[0]

    @property
    def indptr(self) -> np.ndarray:
        """Row pointers, (n + 1,)."""
        return self.matrix.indptr

    @property
    def indices(self) -> np.ndarray:
        """Column numbers, (nnz,)."""
        return self.matrix.indices

    @cached_property
    def rows(self) -> np.ndarray:
        """Row of each entry, (nnz,) int64."""
        return np.repeat(np.arange(self.num_rows), np.diff(self.indptr))

    @property
    def on_diagonal(self) -> np.ndarray:
        """Whether each entry is on the diagonal, (nnz,) bool."""
        numbers = np.arange(self.num_rows, dtype=self.indices.dtype)
        return np.repeat(numbers, np.diff(self.indptr)) == self.indices

    @property
    def holders(self) -> np.ndarray | None:
        """Part that holds each entry, (nnz,), or None."""
        return self.matrix.data if self.matrix.dtype == np.int32 else None

    def with_holders(self, graph: Graph, parts: np.ndarray) -> Pattern:
        """Return the pattern with a part for each entry as its holder.

        `parts`, (nnz,), are the parts of the stored entries of `graph`. Entries on the
        diagonal get part 0: strategies leave them to the owner of the vertex.
        """
        stored_rows = np.repeat(np.arange(self.num_rows, dtype=graph.indices.dtype),
                                np.diff(graph.indptr))
        holders = np.zeros(self.indices.size, np.int32)
        holders[~self.on_diagonal] = parts[stored_rows != graph.indices]
        return self.assign_holders(holders)

    def assign_holders(self, holders: np.ndarray) -> Pattern:
        """Return the pattern with `holders`, (nnz,), as the part of each entry."""
        arrays = holders.astype(np.int32, copy=False), self.indices, self.indptr
        return Pattern(sp.csr_array(arrays, shape=self.matrix.shape), self.symmetric, self.weighted,
                       self.rows_out, self.rows_in)

    @cached_property
    def square(self) -> bool:
        """Whether the result has the same rows as the multiplied matrix."""
        if self.rows_out is None or self.rows_in is None:
            return self.rows_out is self.rows_in
        return np.array_equal(self.rows_out, self.rows_in)

    def restricted_numbers(self, rows: np.ndarray | None) -> np.ndarray:
        """Return the number of each row among those marked in `rows`, (n,) int64.

        `rows` is (n,) bool. None marks all rows.
        """
        return np.arange(self.num_rows) if rows is None else np.cumsum(rows) - 1

    @cached_property
    def bandwidth(self) -> int:
        """Largest distance of an entry from the diagonal."""
        return bandwidth(self.matrix)

    @cached_property
    def transposed(self) -> Pattern:
        """The pattern of the transpose."""
        flipped = self.matrix.T.tocsr()
        flipped.sort_indices()
        return Pattern(flipped, self.symmetric, self.weighted, self.rows_in, self.rows_out)

    def restrict(self, rows_out: np.ndarray | None, rows_in: np.ndarray | None) -> Pattern:
        """Return the pattern of the marked rows and columns.

        Marks are (n,) bool, or None for all. Repeated calls return the same object.
        """
        if rows_out is None and rows_in is None:
            return self
        key = id(rows_out), id(rows_in)
        if key not in self._restricted:
            n = self.num_rows
            out, into = (np.ones(n, bool) if rows is None else rows for rows in (rows_out, rows_in))
            kept = np.repeat(out, np.diff(self.indptr)) & into[self.indices]
            self._restricted[key] = self.select(kept, rows_out, rows_in)
        return self._restricted[key]

    def select(self, kept: np.ndarray, rows_out: np.ndarray | None = None,
               rows_in: np.ndarray | None = None, symmetric: bool | None = None) -> Pattern:
        """Return the pattern of the entries marked in `kept`, (nnz,) bool.

        `rows_out`, `rows_in`: as in the class. `symmetric`: by default that of this
        pattern.
        """
        whole = self.matrix
        before = np.zeros(kept.size + 1, whole.indptr.dtype)
        np.cumsum(kept, dtype=before.dtype, out=before[1:])
        arrays = whole.data[kept], whole.indices[kept], before[whole.indptr]
        return Pattern(sp.csr_array(arrays, shape=whole.shape),
                       self.symmetric if symmetric is None else symmetric, self.weighted, rows_out,
                       rows_in)

    def layouts(self, layout: BlockLayout) -> tuple[BlockLayout, ...]:
        """Return the BlockLayouts of the result and of the multiplied matrix.

        `layout` is that of all rows.
        """
        return tuple(layout if rows is None else layout.restricted(rows)
                     for rows in (self.rows_out, self.rows_in))

    def nonzeros(self, row_offsets: np.ndarray, column_offsets: np.ndarray) -> np.ndarray:
        """Count the entries of the blocks between row and column offsets; (R, C) int64."""
        return self._blocks(row_offsets, column_offsets)[0]

    def touched_rows(self, row_offsets: np.ndarray, column_offsets: np.ndarray) -> np.ndarray:
        """Count the rows with entries in each block of rows and columns.

        Arguments and shape are those of `nonzeros`.
        """
        return self._blocks(row_offsets, column_offsets)[1]

    def _blocks(self, *offsets: np.ndarray) -> np.ndarray:
        rows, columns = (np.asarray(each, np.int64) for each in offsets)
        return self.keep((rows.tobytes(), columns.tobytes()), lambda: pattern_counts.count_blocks(
            self.indptr, self.indices, rows, pattern_counts.block_numbers(columns),
            columns.size - 1))

    def ghosts(self, offsets: np.ndarray) -> np.ndarray:
        """Count the columns that blocks of rows read, and a greedy matching.

        Block p of rows and block q of columns; two (P, P) int64.

        Entries of a matching have different rows and columns. No cover by rows and
        columns is smaller. The counts are 0 for p = q.
        """
        return self.keep(
            ("ghosts", np.asarray(offsets, np.int64).tobytes()), lambda: pattern_counts.count_parts(
                self.indptr, self.indices, pattern_counts.block_numbers(offsets),
                np.arange(self.num_rows), offsets)[2:])

    def held(self, offsets: np.ndarray) -> np.ndarray:
        """Return the counts of `count_held` for the holders of this pattern."""
        def count() -> np.ndarray:
            owner = pattern_counts.block_numbers(offsets)
            pushed = self.holders != np.repeat(owner, np.diff(self.indptr))
            return pattern_counts.count_held(self.indptr, self.indices, pushed, owner,
                                             np.arange(self.num_rows), offsets)

        return self.keep(("held", np.asarray(offsets, np.int64).tobytes()), count)

    def keep(self, key: tuple, make: Callable) -> Any:
        """Return the result of `make`, a function, which is called once for each key."""
        if key not in self._counted:
            self._counted[key] = make()
        return self._counted[key]


class BlockPattern(Pattern):
    """A pattern whose rows are assigned to parts, but not moved.

    Blocks of parts are counted in the order of `whole`. Rows are moved part by part
    only if the matrix itself is read.

    Parameters
    ----------
    whole : Pattern
        All rows, without holders.
    part : (n,) integers
        Part of each row.
    order : (n,) integers
        Rows part by part: row order[i] of `whole` is row i of this pattern.
    offsets : (P + 1,)
        Bounds of the parts.
    within : function
        Returns the rows part by part in the order of runs, (n,). It is called only if a
        count depends on the order within parts.
    """

    def __init__(self, whole: Pattern, part: np.ndarray, order: np.ndarray, offsets: np.ndarray,
                 within: Callable) -> None:
        super().__init__(None, whole.symmetric, whole.weighted)
        self.whole = whole
        self.part = part
        self.order = order
        self.offsets = np.asarray(offsets, np.int64)
        self.within = within

    @property
    def matrix(self) -> Any:
        """csr_array (n, n), rows part by part."""
        return self._moved.matrix

    @cached_property
    def _moved(self) -> Pattern:
        return permuted(self.whole, self.order)

    holders = None  # methods that assign nonzeros to parts have a Pattern

    @property
    def num_rows(self) -> int:
        return self.whole.num_rows

    @cached_property
    def indptr(self) -> np.ndarray:
        """Row pointers, (n + 1,)."""
        pointers = run_offsets(np.diff(self.whole.indptr)[self.order])
        return pointers.astype(self.whole.indptr.dtype, copy=False)

    @cached_property
    def transposed(self) -> Pattern:
        return BlockPattern(self.whole.transposed, self.part, self.order, self.offsets,
                            self.within)

    @cached_property
    def run_order(self) -> np.ndarray:
        """Rows of this pattern in the order of runs, (n,)."""
        return inverse(self.order)[self.within()]

    @cached_property
    def ordered(self) -> Pattern:
        """The Pattern with its rows in the order of runs."""
        return permuted(self.whole, self.order[self.run_order])

    @cached_property
    def _least_bandwidth(self) -> int:
        """Lower bound of the bandwidth in every order; 0 if unknown.

        The bound is the least distance of blocks, if that exceeds the length of all
        blocks.
        """
        offsets = self.offsets
        first, last = np.nonzero(self.nonzeros(offsets, offsets))
        between = np.maximum(offsets[last] - offsets[first + 1], offsets[first] - offsets[last + 1])
        least = 1 + int(between.max(initial=-1))
        return least if least >= np.diff(offsets).max() else 0

    @property
    def needs_order(self) -> bool:
        """Whether the bandwidth depends on the order."""
        return not self._least_bandwidth

    @property
    def bandwidth(self) -> int:
        """Largest distance of an entry from the diagonal, or a lower bound.

        The bound is used if it exceeds the length of all blocks.
        """
        return self._least_bandwidth or self.ordered.bandwidth

    def ghosts(self, offsets: np.ndarray) -> np.ndarray:
        counted = np.array_equal(offsets, self.offsets)
        return self._part_counts[2:] if counted else super().ghosts(offsets)

    def _blocks(self, *offsets: np.ndarray) -> np.ndarray:
        first, last = (np.asarray(each, np.int64) for each in offsets)
        if np.array_equal(first, last) and np.isin(first, self.offsets).all():
            if np.array_equal(first, self.offsets):
                return self._part_counts[:2]
            return self._union_counts(first)
        return super()._blocks(*offsets)

    @cached_property
    def _part_counts(self) -> np.ndarray:
        whole = self.whole
        return whole.keep(_key(self.part, self.offsets), lambda: pattern_counts.count_parts(
            whole.indptr, whole.indices, self.part, self.order, self.offsets, self.symmetric))

    def _union_counts(self, offsets: np.ndarray) -> np.ndarray:
        """Count the blocks of unions of parts.

        Counts of another pattern with these unions as parts are reused.
        """
        sizes = np.diff(np.searchsorted(self.offsets, offsets))
        part = np.repeat(np.arange(offsets.size - 1, dtype=self.part.dtype), sizes)[self.part]
        key, whole = _key(part, offsets), self.whole
        if key in whole._counted:
            return whole._counted[key][:2]
        return whole.keep((*key, "blocks"), lambda: pattern_counts.count_blocks(
            whole.indptr, whole.indices, offsets, part, offsets.size - 1, self.order))


def _key(part: Any, offsets: np.ndarray) -> tuple:
    """Return a key of the parts of all rows, for counts that a pattern keeps."""
    return "parts", offsets.tobytes(), hashlib.sha256(part).digest()


def elsewhere(lines: np.ndarray, owner: np.ndarray, holder: np.ndarray,
              k: int) -> tuple[np.ndarray, ...]:
    """Return owner, holder and line of pairs without the owner, by line.

    A pair is a line and a holder that does not own it; each occurs once.

    A line is a row or a column.
    """
    others = owner != holder
    pairs, first = np.unique(lines[others] * k + holder[others], return_index=True)
    return owner[others][first], pairs % k, pairs // k


def permuted(pattern: Pattern, order: np.ndarray) -> Pattern:
    """Return the pattern with row and column order[i] moved to i.

    Columns are not sorted.
    """
    place = inverse(order)
    return Pattern(in_order(pattern.matrix, place, place), pattern.symmetric, pattern.weighted)
