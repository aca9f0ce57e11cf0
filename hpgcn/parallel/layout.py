"""Owners of the blocks of a distributed matrix (pure: no MPI, no files)."""
from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class RowPartition:
    """Rows cut into contiguous blocks, one a rank; every element has exactly one owner.

    Rank p owns rows [offsets[p], offsets[p + 1]); blocks may be empty.
    """

    offsets: np.ndarray  # (P + 1,) int64
    rank: int  # this rank

    @property
    def size(self) -> int:
        """Number of ranks (P)."""
        return self.offsets.size - 1

    @property
    def start(self) -> int:
        """First row owned by this rank."""
        return int(self.offsets[self.rank])

    @property
    def stop(self) -> int:
        """One past the last row owned by this rank."""
        return int(self.offsets[self.rank + 1])

    @property
    def num_rows(self) -> int:
        """Rows owned by this rank (m)."""
        return self.stop - self.start


@dataclass(frozen=True, eq=False)
class BlockLayout:
    """Owners in B row blocks x C column blocks; every element of H, G and Z has exactly one owner.

    Rank b C + j owns the columns of block j in the rows of block b. C = 1 for p2p, 1d,
    1.5d and mop; B = R L for 3d, where block i L + l is piece l of big block i.

    Attributes
    ----------
    offsets : (B + 1,) int64
        Block b holds rows [offsets[b], offsets[b + 1]); blocks may be empty.
    columns : int
        C.
    rank : int
        This rank.
    """

    offsets: np.ndarray
    columns: int
    rank: int

    @property
    def size(self) -> int:
        """Number of ranks (P = B C)."""
        return (self.offsets.size - 1) * self.columns

    @property
    def block(self) -> int:
        """Row block of this rank."""
        return self.rank // self.columns

    @property
    def column(self) -> int:
        """Column block of this rank."""
        return self.rank % self.columns

    @property
    def rows(self) -> RowPartition:
        """RowPartition of the rows only, as seen from this rank's block."""
        return RowPartition(self.offsets, self.block)

    def columns_of(self, width: int) -> slice:
        """Return which of `width` columns this rank owns, a slice.

        It is empty if `width` is too small.
        """
        return slice(*split(width, self.columns)[self.column:self.column + 2].tolist())

    def restricted(self, keep: np.ndarray) -> BlockLayout:
        """Return the layout of the rows marked in `keep`, (n,) bool.

        Owners are the same, and rows are renumbered without gaps.
        """
        return replace(self, offsets=compressed_offsets(self.offsets, keep))

    @property
    def row_blocks(self) -> np.ndarray:
        """Row block of each row; (n,) int64."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    @property
    def row_ranks(self) -> np.ndarray:
        """Ranks that share this rank's rows, increasing; (C,) int64."""
        return self.block * self.columns + np.arange(self.columns)

    @property
    def column_ranks(self) -> np.ndarray:
        """Ranks that share this rank's columns, increasing; (B,) int64."""
        return np.arange(self.column, self.size, self.columns)


@dataclass(frozen=True, eq=False)
class NodeLayout:
    """Nodes (machines) of the ranks, and whether exchanges are node-aware."""

    numbers: np.ndarray | None = None  # (P,) int32, node of each rank; None: all on one node
    aware: bool = False  # whether a row is sent to each node once


ONE_NODE = NodeLayout()


@dataclass(frozen=True, eq=False)
class BroadcastStages:
    """The broadcasts of a 2d or 3d product, one for each stage.

    Columns of A are rows of H. Stage s multiplies columns [offsets[s], offsets[s + 1])
    of A; empty stages send nothing. Big row block `row` holds the interval of H, column
    block `column` that of A, both in layer `piece`.
    """

    offsets: np.ndarray  # (S + 1,) int64
    row: np.ndarray  # (S,) int64, like `column` and `piece`
    column: np.ndarray
    piece: np.ndarray

    @property
    def pieces(self) -> int:
        """Number of layers (L)."""
        return int(self.piece.max()) + 1


def stages(offsets: np.ndarray, rows: int, pieces: int, columns: int) -> BroadcastStages:
    """Return the BroadcastStages of a product, in order.

    The columns of A are cut at the bounds of its C column blocks and of the R row
    blocks of H. Layer l multiplies the columns of A that are piece l of a big block: R
    runs of columns. Its C column blocks take R / C runs each, and cut a run evenly if
    that is no whole number. So a layer has R stages if C divides R, and R + C - gcd(R,
    C) in general. `offsets`, (R L + 1,) int64, are those of row blocks. Block i L + l
    is piece l of big block i.
    """
    unit = columns // math.gcd(rows, columns)  # cuts fall on multiples of 1 / unit of a run
    ticks = np.union1d(np.arange(rows) * unit, np.arange(columns) * rows * unit // columns)
    row, column = ticks // unit, ticks * columns // (rows * unit)
    block = (row[:, None] * pieces + np.arange(pieces)).ravel()
    piece = np.tile(np.arange(pieces), row.size)
    row, column, part = (np.repeat(each, pieces) for each in (row, column, ticks % unit))
    start = offsets[block] + (offsets[block + 1] - offsets[block]) * part // unit
    order = np.lexsort((part, block))
    return BroadcastStages(np.append(start[order], offsets[-1]), row[order], column[order],
                           piece[order])


def compressed_offsets(offsets: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Return `offsets` counted only over rows that are marked in `keep`.

    `keep` is (n,) bool. If it has integers, row i counts keep[i] times.
    """
    return np.concatenate([[0], np.cumsum(keep)])[offsets]


def split(length: int, parts: int) -> np.ndarray:
    """Return the bounds of `parts` nearly equal pieces, (parts + 1,) int64.

    Their sizes differ by at most one, and the longer ones come first.
    """
    quotient, remainder = divmod(length, parts)
    place = np.arange(parts + 1, dtype=np.int64)
    return place * quotient + np.minimum(place, remainder)


def cut_evenly(weights: np.ndarray, k: int) -> np.ndarray:
    """Cut positive weights, (n,), into k runs of nearly equal weight.

    Return the run of each weight, (n,) int32, increasing from 0. An entry belongs to
    the run in which the middle of its weight falls. So a run is off the mean by at most
    half an entry at either end, and may be empty beside a heavy entry.
    """
    middles = np.cumsum(weights) - weights / 2
    return np.minimum(middles * (k / weights.sum()), k - 1).astype(np.int32)


def balanced(indptr: np.ndarray, parts: int) -> np.ndarray:
    """Cut rows into blocks of nearly equal nonzeros.

    Return the bounds of blocks, (parts + 1,) int64. A block may be empty beside a heavy
    row. Without nonzeros the rows are cut evenly.
    """
    weights = np.diff(indptr)
    if not weights.any():
        return split(weights.size, parts)
    return np.searchsorted(cut_evenly(weights, parts), np.arange(parts + 1)).astype(np.int64)


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive number, increasing."""
    return [d for d in range(1, number + 1) if number % d == 0]
