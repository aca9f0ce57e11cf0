"""Buffers of each rank under every strategy, for messages and for partial results (pure)."""
from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpgcn.cost.blocks import cube
from hpgcn.layout import split, stages


@dataclass(frozen=True, eq=False)
class Buffers:
    """Buffers of a strategy, by rank.

    Attributes
    ----------
    rows
        At the full width of a product.
    sliced
        At the width of a slice of its columns.
    bits
        Bit rows: a bit for each column of a slice.
    entries, pointers
        Of A, on their way.
    """

    rows: np.ndarray
    sliced: np.ndarray
    bits: np.ndarray
    entries: np.ndarray
    pointers: np.ndarray

    @staticmethod
    def of(shape, rows=0, sliced=0, bits=0, entries=0, pointers=0):
        """Sizes that broadcast to the shape of the grid."""
        return Buffers(*(np.broadcast_to(size, shape).astype(np.int64).ravel()
                         for size in (rows, sliced, bits, entries, pointers)))


def buffers(strategy, grid, offsets, *, sent=None, blocks=(), batches=1):
    """Buffers of a strategy.

    Parameters
    ----------
    strategy, grid, offsets
        As `stored_order`; of p2p the offsets are not read.
    sent : hpgcn.cost.RankVolumes
        p2p.
    blocks : list of (R, S) int64
        2d and 3d: nonzeros of the matrices that travel.
    batches : int
        mop.
    """
    if strategy == "p2p":
        return Buffers.of(sent.rows.shape, sent.rows + sent.received)
    R, L, C = shape = cube(strategy, grid)
    P, rows = R * L * C, np.diff(offsets).reshape(R, L, 1)
    big = rows.sum(1)[:, 0]
    if strategy == "mop":
        n = int(rows.sum())
        return Buffers.of(shape, *((rows, 2 * n, (1 + (batches > 1)) * n + P * rows) if P > 1 else ()))
    if strategy in ("1d", "1.5d"):
        tallest = np.zeros((R, L), np.int64)  # two of the tallest block that arrives, one if one arrives
        for i in range(R):
            for j, (first, last) in enumerate(pairwise(split(R, L))):
                others = np.delete(big[first:last], i - first) if first <= i < last else big[first:last]
                tallest[i, j] = others.max(initial=0) * min(2, others.size)
        tall = tallest[..., None]
        if L > 1:
            whole = big.reshape(R, 1, 1)
            tall = tall + np.maximum(whole, (L - 1) * rows) + whole
        return Buffers.of(shape, tall)
    return _stage_buffers(stages(offsets, R, L, C), shape, rows, blocks)


def _stage_buffers(cuts, shape, rows, blocks):
    """Two buffers for blocks of A and for intervals of H, used in turn, and what layers add up in."""
    R, L, C = shape
    heights, big = np.diff(cuts.offsets), rows.sum(1)[:, 0]
    tall, entries, pointers = (np.zeros(shape, np.int64) for _ in range(3))
    for piece in range(L):
        mine = np.flatnonzero(cuts.piece == piece)
        for turn in (mine[::2], mine[1::2]):
            for i in range(R):
                tall[i, piece] += heights[turn[cuts.row[turn] != i]].max(initial=0)
            for j in range(C):
                moved = turn[cuts.column[turn] != j]
                most = np.max([each[:, moved].max(1, initial=0) for each in blocks], axis=0)
                entries[:, piece, j] += most
                pointers[:, piece, j] += np.where(most > 0, big + 1, 0)
    partial = big.reshape(R, 1, 1) + (L - 1) * rows if L > 1 else 0
    return Buffers.of(shape, sliced=tall + partial, entries=entries, pointers=pointers)
