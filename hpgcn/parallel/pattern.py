"""Positions of the entries of a sparse matrix: all that planning reads of a graph."""
from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.reordering import bandwidth
from hpgcn.parallel.csr import in_order, inverse

CHUNK = 1 << 22  # entries counted at a time


class Pattern:
    """Positions of the entries of the matrix that is multiplied (pure).

    matrix: csr_array (n, n), columns increasing in each row; rows and columns that are
    left out are empty. Its values are the part that holds each entry, int32, if a
    partition of entries or a strategy sets them.

    symmetric: with its values. weighted: its entries are stored with weights. rows_out,
    rows_in: rows of the result and of the multiplied matrix; (n,) bool, or None for
    all.
    """

    def __init__(self, matrix, symmetric, weighted=False, rows_out=None, rows_in=None):
        self.matrix = matrix
        self.symmetric = symmetric
        self.weighted = weighted
        self.rows_out = rows_out
        self.rows_in = rows_in
        self._restricted = {}

    @property
    def num_rows(self):
        """Number of rows (n), including rows that are left out."""
        return self.matrix.shape[0]

    @property
    def indptr(self):
        """Row pointers, (n + 1,)."""
        return self.matrix.indptr

    @property
    def indices(self):
        """Column numbers, (nnz,)."""
        return self.matrix.indices

    @cached_property
    def rows(self):
        """Row of each entry, (nnz,) int64."""
        return np.repeat(np.arange(self.num_rows), np.diff(self.indptr))

    @property
    def holders(self):
        """Part that holds each entry, (nnz,), or None."""
        return self.matrix.data if self.matrix.dtype == np.int32 else None

    def with_holders(self, graph, parts):
        """Return the pattern with `parts`, (nnz,), the part of each stored entry of
        `graph`, as holders.

        Entries on the diagonal get part 0: strategies leave them to the owner of the
        vertex.
        """
        stored_rows = np.repeat(np.arange(self.num_rows), np.diff(graph.indptr))
        holders = np.zeros(self.indices.size, np.int32)
        holders[self.rows != self.indices] = parts[stored_rows != graph.indices]
        return self.assign_holders(holders)

    def assign_holders(self, holders):
        """Return the pattern with `holders`, (nnz,), as the part of each entry."""
        arrays = holders.astype(np.int32, copy=False), self.indices, self.indptr
        return Pattern(sp.csr_array(arrays, shape=self.matrix.shape), self.symmetric, self.weighted,
                       self.rows_out, self.rows_in)

    @cached_property
    def square(self):
        """Whether the result has the same rows as the multiplied matrix."""
        if self.rows_out is None or self.rows_in is None:
            return self.rows_out is self.rows_in
        return np.array_equal(self.rows_out, self.rows_in)

    @cached_property
    def bandwidth(self):
        """Largest distance of an entry from the diagonal."""
        return bandwidth(self.matrix)

    @cached_property
    def transposed(self):
        """The pattern of the transpose."""
        flipped = self.matrix.T.tocsr()
        flipped.sort_indices()
        return Pattern(flipped, self.symmetric, self.weighted, self.rows_in, self.rows_out)

    def restrict(self, rows_out, rows_in):
        """Return the pattern of the marked rows and columns, (n,) bool or None for all;
        repeated calls return the same.
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

    def select(self, kept, rows_out=None, rows_in=None, symmetric=None):
        """Return the pattern of the entries marked in `kept`, (nnz,) bool.

        `rows_out`, `rows_in`: as in the class. `symmetric`: by default that of this
        pattern.
        """
        whole = self.matrix
        before = run_offsets(kept).astype(whole.indptr.dtype)
        arrays = whole.data[kept], whole.indices[kept], before[whole.indptr]
        return Pattern(sp.csr_array(arrays, shape=whole.shape),
                       self.symmetric if symmetric is None else symmetric, self.weighted, rows_out,
                       rows_in)

    def layouts(self, layout):
        """Return the BlockLayouts of the result and of the multiplied matrix; `layout`
        is that of all rows.
        """
        return tuple(layout if rows is None else layout.restricted(rows)
                     for rows in (self.rows_out, self.rows_in))

    def nonzeros(self, row_offsets, column_offsets):
        """Count the entries of the blocks between row and column offsets; (R, C) int64."""
        width = len(column_offsets) - 1
        block_of = np.repeat(np.arange(width), np.diff(column_offsets))
        counts = np.zeros((len(row_offsets) - 1, width), np.int64)
        for row, (first, last) in enumerate(pairwise(self.indptr[row_offsets].tolist())):
            for start in range(first, last, CHUNK):
                columns = self.indices[start:min(start + CHUNK, last)]
                counts[row] += np.bincount(block_of[columns], minlength=width)
        return counts

    def touched_rows(self, row_offsets, column_offsets):
        """Count the rows with entries in each of these blocks; arguments and shape as
        in `nonzeros`.
        """
        width = len(column_offsets) - 1
        block_of = np.repeat(np.arange(width, dtype=np.int32), np.diff(column_offsets))
        counts = np.zeros((len(row_offsets) - 1, width), np.int64)
        for row, (start, stop) in enumerate(pairwise(row_offsets)):
            first = int(self.indptr[start])
            blocks = block_of[self.indices[first:int(self.indptr[stop])]]
            begins = np.ones(blocks.size, bool)
            begins[1:] = blocks[1:] != blocks[:-1]
            full = np.diff(self.indptr[start:stop + 1]) > 0
            begins[self.indptr[start:stop][full] - first] = True
            counts[row] = np.bincount(blocks[begins], minlength=width)
        return counts


def permuted(pattern, order):
    """Return the pattern with row and column order[i] moved to i."""
    place = inverse(order)
    moved = in_order(pattern.matrix, place, place)
    moved.sort_indices()
    return Pattern(moved, pattern.symmetric, pattern.weighted)


