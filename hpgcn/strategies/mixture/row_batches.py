"""Batches of rows in strategy `mop`: their rows, their order, their packing.

A batch consists of a piece of every rank's rows. So all links are loaded alike at any
time, and all ranks update at once. Pieces are assigned in one of two ways:

    alternating    even ranks assign upwards, odd ranks downwards: rows on both sides of a
                   border between ranks are in one batch. With bandwidth b < m = n / P a
                   batch reads no further than b rows beyond its pieces
    in order       all ranks assign upwards. If rank p owns piece p of each of S contiguous
                   batches of a matrix (`hpgcn.partition.rows.pipeline`), batches follow
                   the order of this matrix. With bandwidth b < n the first one
                   reads no further than b rows beyond its end (mixgcn, Proposition 3.5)

The way is chosen in which the first batch waits for fewer other batches. If both are
equal, all batches are compared.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.graphs.adjacency import row_blocks
from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.reordering import pipeline_stages
from hpgcn.parallel.csr import TILES, Csr, in_order, inverse, rows_of
from hpgcn.parallel.layout import split

if TYPE_CHECKING:
    from hpgcn.parallel.layout import BlockLayout
    from hpgcn.runtime.device import Host

MAX_STAGES = 16
PIECE = 1 << 20  # entries whose batches are looked up at a time
BATCH_ROWS = 1024  # a rank's rows in a batch, at least: messages of fewer cost more than they hide


@dataclass(frozen=True, eq=False)
class RowBatches:
    """Assignment of rows to S batches: each batch has one piece of every row block.

    Batch i has piece i of a block; unless blocks are in order, piece S - 1 - i of odd
    blocks.
    """

    offsets: np.ndarray  # (P + 1,) int64: the row blocks
    starts: np.ndarray  # (S, P) int64: first row of rank p's piece in batch i
    counts: np.ndarray  # (S, P) int64: its rows
    in_order: bool = False  # all blocks deal upwards

    @staticmethod
    def of(offsets: np.ndarray, num_batches: int, in_order: bool = False) -> RowBatches:
        """Cut each row block into `num_batches` nearly equal pieces, and return the RowBatches."""
        cuts = [start + split(stop - start, num_batches)
                for start, stop in pairwise(offsets.tolist())]
        starts = np.transpose(cuts)[:-1]
        counts = np.diff(cuts).T
        odd = np.arange(offsets.size - 1) % 2 == 1
        down = odd & (not in_order)
        starts, counts = (np.where(down, each[::-1], each) for each in (starts, counts))
        return RowBatches(offsets, starts, counts, in_order)

    @staticmethod
    def best(offsets: np.ndarray, num_batches: int, indptr: np.ndarray,
             indices: np.ndarray) -> RowBatches:
        """Return the RowBatches that wait for fewer other batches.

        They are alternating or in order.
        """
        ways = [RowBatches.of(offsets, num_batches, in_order) for in_order in (False, True)]
        waits = [way.waits(indptr, indices) for way in ways]
        return min(zip(ways, waits), key=lambda each: (each[1][0], each[1].sum()))[0]

    def waits(self, indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Return how many batches each one waits for before its product, (S,).

        indptr, indices: CSR (n, n), rows and columns in the order of the blocks.
        """
        kind = np.min_scalar_type(self.num_batches)
        batch_of = np.empty(self.num_rows, kind)
        batch_of[self.order] = np.repeat(np.arange(self.num_batches), self.counts.sum(1))
        found = np.arange(self.num_batches)

        # the last batch that each row reads, some rows at a time
        for start, stop in row_blocks(indptr, PIECE):
            full = start + np.flatnonzero(np.diff(indptr[start:stop + 1]))
            if full.size:
                first = indptr[start]
                read = batch_of[indices[first:indptr[stop]]]
                np.maximum.at(found, batch_of[full],
                              np.maximum.reduceat(read, indptr[full] - first))
            if found[0] == self.num_batches - 1:  # all other batches wait as long
                break
        return np.maximum.accumulate(found) + 1

    def same(self, other: RowBatches) -> bool:
        """Return whether both assign the same rows to the same batches."""
        return self is other or (np.array_equal(self.starts, other.starts)
                                 and np.array_equal(self.counts, other.counts))

    @property
    def num_batches(self) -> int:
        """Number of batches (S)."""
        return len(self.counts)

    @property
    def num_rows(self) -> int:
        """Rows of all blocks (n)."""
        return int(self.offsets[-1])

    @cached_property
    def bounds(self) -> np.ndarray:
        """Bounds of the batches.

        Batch i has rows [bounds[i], bounds[i + 1]) of the new order; (S + 1,) int64.
        """
        return run_offsets(self.counts.sum(1))

    @cached_property
    def order(self) -> np.ndarray:
        """Old number of each row in the new order: by batch, then by rank; (n,) int64."""
        counts = self.counts.ravel()
        begins = np.cumsum(counts) - counts
        return np.repeat(self.starts.ravel() - begins, counts) + np.arange(counts.sum())

    def positions(self, rows: np.ndarray) -> np.ndarray:
        """Return the positions in the new order of `rows`, old numbers (n,)."""
        return rows if self.num_batches == 1 else inverse(self.order)[rows]

    def kept(self, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Translate `keep`, (n,) bool by old row numbers, to the new order.

        Return (n,) bool, and (k,) int64: the kept rows in the new order, numbered from
        0 to k - 1 in the old order.
        """
        if self.num_batches == 1:
            return keep, np.arange(np.count_nonzero(keep))
        found = keep[self.order]
        return found, (np.cumsum(keep) - 1)[self.order[found]]

    def read(self, indptr: np.ndarray, indices: np.ndarray, rows: RowBatches) -> np.ndarray:
        """Return how many of these batches each batch of `rows` waits for, (S,).

        The numbers do not decrease. Batch i always waits for batch i, because returning
        rows overwrite the packed ones (`PackedBatches`). `indptr` and `indices` are a
        CSR pattern with sorted columns, in the order of these batches; its rows are in
        the order of `rows`.
        """
        full = np.diff(indptr) > 0
        last = np.full(full.size + 1, -1)  # one more: reduceat takes no place past the end
        last[:-1][full] = indices[indptr[1:][full] - 1]
        furthest = np.maximum.reduceat(last, rows.bounds[:-1])
        needed = np.searchsorted(self.bounds, furthest, side="right")
        return np.maximum.accumulate(np.maximum(needed, np.arange(1, rows.num_batches + 1)))


@dataclass(frozen=True, eq=False)
class BatchedOperand:
    """A matrix (n_out, n_in) whose rows and columns are sorted by batch.

    Each rank stores all of it.
    """

    block: Csr
    batches: list  # S Csr: the rows of each batch, in the memory of `block`
    order: np.ndarray  # (n_out,) int64: that of `rows`, on its device
    rows: RowBatches  # batches of the result
    columns: RowBatches  # batches of the multiplied matrix
    needed: list  # S int: batches of columns that must be there before each batch of rows

    @staticmethod
    def of(device: Host, matrix: Any, rows: RowBatches, columns: RowBatches) -> BatchedOperand:
        """Return the BatchedOperand of a csr_array that is already in the order of batches."""
        host = Csr.of(matrix)
        needed = columns.read(host.indptr, host.indices, rows).tolist()
        block = host.on(device)
        batches = [Csr(rows_of(block.indptr, first, last + 1), block.indices, block.data,
                       block.shape[1], device) for first, last in pairwise(rows.bounds.tolist())]
        order = device.put(rows.order) if rows.num_batches > 1 else None
        return BatchedOperand(block, batches, order, rows, columns, needed)

    def restricted(self, rows: RowBatches, columns: RowBatches, kept_rows: np.ndarray,
                   kept_columns: np.ndarray) -> BatchedOperand:
        """Return the submatrix of the rows and columns marked in `kept_rows` and `kept_columns`.

        Both are (n,) bool in the distributed order. The result is in the order of the
        batches `rows` and `columns`.
        """
        kept_rows, row_numbers = self.rows.kept(kept_rows)
        kept_columns, column_numbers = self.columns.kept(kept_columns)
        matrix = self.block.select(kept_rows, kept_columns)
        if self.rows.num_batches > 1:
            matrix = in_order(matrix, rows.positions(row_numbers),
                              columns.positions(column_numbers))
        return BatchedOperand.of(self.block.device, matrix, rows, columns)


class PackedBatches:
    """The rows of a rank, packed for messages: by batch, then by receiver.

    Rank q gets columns [cuts[q], cuts[q + 1]) of the (m_p, f) matrix. `room` is an
    array (m_p * f,).

    Two matrices, the departing and the returning rows, may share one room. Departing
    rows lie at its end, returning rows at its beginning. Both matrices are cut in the
    same proportions. So a returning batch is no longer than the departed batches before
    it and with it, and overwrites nothing that must still be sent. With three batches of
    one row, a, b, c depart and A, B, C return:

        a b c  ->  A b c  ->  A B c  ->  A B C
    """

    def __init__(self, batches: RowBatches, rank: int, room: np.ndarray, cuts: np.ndarray) -> None:
        self.counts = batches.counts[:, rank]
        self.cuts = cuts
        self.starts = batches.starts[:, rank] - batches.offsets[rank]
        self.parts = pieces(room, self.counts * cuts[-1])

    def sizes(self, batch: int) -> np.ndarray:
        """Return the number of elements of a batch in each rank's columns; (P,) int64."""
        return self.counts[batch] * np.diff(self.cuts)

    def rows(self, batch: int) -> tuple[int, int]:
        """Return the first own row of a batch, and the row after the last."""
        first = int(self.starts[batch])
        return first, first + int(self.counts[batch])

    def pairs(self, batch: int, matrix: np.ndarray) -> list[tuple]:
        """Pair each non-empty part of a batch, (k, w_q), with its view of a matrix (m_p, f)."""
        part = matrix[self.starts[batch]:self.starts[batch] + self.counts[batch]]
        blocks = pieces(self.parts[batch], self.sizes(batch))
        return [(block.reshape(len(part), -1), part[:, lo:hi])
                for block, (lo, hi) in zip(blocks, pairwise(self.cuts.tolist())) if block.size]


def pieces(flat: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Return views of consecutive pieces of the array `flat` that have these sizes."""
    return [flat[first:last] for first, last in pairwise(run_offsets(sizes).tolist())]


def default_num_batches(offsets: np.ndarray, bandwidth: int) -> int:
    """Return the default number of batches for row blocks.

    `offsets`, (P + 1,), are those of the row blocks. If aggregation can begin before
    all rows are there, the number is that of Proposition 3.5 (mixgcn). It is TILES if
    the bandwidth of the matrix forbids that. There are at most MAX_STAGES batches, and
    at least BATCH_ROWS rows of a rank in each. A single rank has one batch.
    """
    if offsets.size == 2:
        return 1
    rows = int(np.diff(offsets).max())
    num_batches = pipeline_stages(rows, bandwidth) if bandwidth < rows else TILES
    return max(1, min(num_batches, MAX_STAGES, rows // BATCH_ROWS))


def count_batches(offsets: np.ndarray, pipeline_batches: int, bandwidth: Callable) -> int:
    """Return the number of batches of row blocks.

    It is `pipeline_batches`, or `default_num_batches` if that is 0. It is at most the
    number of rows in the longest row block, and 1 on a single rank. `bandwidth` is a
    function that returns the bandwidth, called only if needed.
    """
    if offsets.size == 2:
        return 1
    num_batches = pipeline_batches or default_num_batches(offsets, bandwidth())
    return max(1, min(num_batches, int(np.diff(offsets).max())))


def count_fewer(num_batches: int, pipeline_batches: int, layouts: tuple[BlockLayout, ...]) -> int:
    """Return the number of batches of a restricted map.

    It is `num_batches`, or fewer if all row blocks are too short.
    """
    longest = max(int(np.diff(layout.offsets).max()) for layout in layouts)
    return max(1, min(num_batches, longest // (1 if pipeline_batches else BATCH_ROWS)))
