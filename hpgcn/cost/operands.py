"""Blocks of A as each rank keeps them under every strategy: entries, row pointers, row numbers (pure).

Sizes by rank are (P,) int64 in rank order.
"""
from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hpgcn.cost.blocks import block_nonzeros, cube, stage_nonzeros
from hpgcn.layout import split, stages


@dataclass(frozen=True, eq=False)
class Operand:
    """A matrix as ranks keep it, in blocks; sizes by rank.

    Attributes
    ----------
    entries, pointers
        Entries that are kept, and row pointers that go with them.
    listed
        Row numbers kept: rows to send, to receive, or touched by a block.
    multiplied
        Entries that a product reads.
    results
        Rows of the result, partial ones included.
    blocks
        Blocks that are multiplied one by one: calls of a product.
    """

    entries: np.ndarray
    pointers: np.ndarray
    listed: np.ndarray
    multiplied: np.ndarray
    results: np.ndarray
    blocks: np.ndarray

    @staticmethod
    def of(shape, entries, pointers, *, listed=0, multiplied=None, results=0, blocks=1):
        """Sizes that broadcast to the shape of the grid."""
        sizes = entries, pointers, listed, entries if multiplied is None else multiplied, results, blocks
        return Operand(*(np.broadcast_to(size, shape).astype(np.int64).ravel() for size in sizes))


@dataclass(frozen=True, eq=False)
class Pair:
    """What a map multiplies by, forward and backward; the same object where one serves both."""

    forward: Operand
    backward: Operand

    @property
    def held(self):
        """The operands that are kept, each once."""
        return [self.forward] if self.backward is self.forward else [self.forward, self.backward]


def touched_rows(indptr, indices, row_offsets, column_offsets):
    """Count the rows with entries in every block of a sparse matrix whose columns rise in each row.

    Parameters
    ----------
    indptr, indices
        CSR.
    row_offsets, column_offsets : (R + 1,), (C + 1,) integers, rising from 0

    Returns
    -------
    (R, C) int64
    """
    width = len(column_offsets) - 1
    block_of = np.repeat(np.arange(width, dtype=np.int32), np.diff(column_offsets))
    found = np.zeros((len(row_offsets) - 1, width), np.int64)
    for row, (start, stop) in enumerate(pairwise(row_offsets)):
        first, last = int(indptr[start]), int(indptr[stop])
        blocks = block_of[indices[first:last]]
        begins = np.ones(blocks.size, bool)
        begins[1:] = blocks[1:] != blocks[:-1]
        full = np.diff(indptr[start:stop + 1]) > 0
        begins[indptr[start:stop][full] - first] = True
        found[row] = np.bincount(blocks[begins], minlength=width)
    return found


def touched_by_part(indptr, indices, part, k):
    """Pairs of a row of each part and another part that it reads, for parts in any order; (k,) int64."""
    n = part.size
    if np.all(part[1:] >= part[:-1]):
        offsets = np.searchsorted(part, np.arange(k + 1))
        found = touched_rows(indptr, indices, offsets, offsets)
        return found.sum(1) - np.diagonal(found)
    matrix = sp.csr_array((np.ones(indices.size, bool), indices, indptr), shape=(n, n))
    reached = matrix @ sp.csr_array((np.ones(n, bool), part, np.arange(n + 1)), shape=(n, k))
    reader = part[np.repeat(np.arange(n), np.diff(reached.indptr))]
    return np.bincount(reader[reader != reached.indices], minlength=k)


def point_to_point(entries, touched, rows_out, rows_in, sent, *, adjoint=False):
    """Operands of strategy p2p, forward and its transpose: a Pair whose backward is forward unless `adjoint`.

    Parameters
    ----------
    entries, touched : (P,) int64
        Entries in the rows of each part; pairs of a row and another part that it reads.
    rows_out, rows_in : (P,) int64
        Rows of the result, of what is multiplied.
    sent : hpgcn.cost.RankVolumes
        Its sources are told.
    adjoint : bool
        Transposed blocks are kept, too: those of ghosts as one.
    """
    listed = sent.rows + sent.received + touched
    forward = Operand.of(entries.shape, entries, (1 + sent.sources) * (rows_out + 1), listed=listed, results=rows_out,
                         blocks=1 + sent.sources)
    if not adjoint:
        return Pair(forward, forward)
    backward = Operand.of(entries.shape, entries, rows_in + sent.received + 2, results=rows_in + sent.received,
                          blocks=1 + sent.pairs)
    return Pair(forward, backward)


def stored_order(strategy, grid, offsets, indptr, indices, rows_out, *, blocks=None):
    """Operand of a strategy that cuts the stored order of rows: all but p2p.

    Parameters
    ----------
    strategy : str
    grid : tuple of int
        As `hpgcn.cost.default_grid`.
    offsets : (B + 1,) int64
        As `hpgcn.cost.row_blocks`.
    indptr, indices
        CSR pattern of the matrix, n x n: rows and columns that are left out are empty.
    rows_out : (B,) int64
        Rows of the result in each block.
    blocks : (R, S) int64, optional
        For 2d and 3d: `stage_nonzeros`, where it is at hand already.
    """
    R, L, C = shape = cube(strategy, grid)
    rows = rows_out.reshape(R, L, 1)
    big = rows.sum(1, keepdims=True)
    if strategy == "mop":
        return Operand.of(shape, int(indptr[-1]), int(rows.sum()) + 1, results=rows.sum())
    if strategy == "1d":
        nonzeros = np.diff(indptr[offsets]).reshape(shape)
        touched = touched_rows(indptr, indices, offsets, offsets).sum(1).reshape(shape)
        return Operand.of(shape, nonzeros, R * (rows + 1), listed=touched, results=rows, blocks=R)
    if strategy == "1.5d":
        deals = _dealt(R, L)
        held, touched = (count(indptr, indices, offsets[::L], offsets[::L]) @ deals
                         for count in (block_nonzeros, touched_rows))
        stage = deals.sum(0).reshape(1, L, 1)
        return Operand.of(shape, held.reshape(shape), stage * (big + 1), listed=touched.reshape(shape),
                          results=big + rows * (L > 1), blocks=stage)
    if blocks is None:
        blocks = stage_nonzeros(strategy, grid, offsets, indptr, indices)
    cuts = stages(offsets, R, L, C)
    holder = (cuts.piece * C + cuts.column)[:, None] == np.arange(L * C)
    held, full = (counts @ holder for counts in (blocks, (blocks > 0).astype(np.int64)))
    return Operand.of(shape, held.reshape(shape), full.reshape(shape) * (big + 1),
                      multiplied=held.reshape(shape).sum(2, keepdims=True), results=big + rows * (L > 1),
                      blocks=holder.sum(0).reshape(1, L, C).sum(2, keepdims=True))


def adjoint(strategy, grid, offsets, transposed, forward, rows_in):
    """Operand of the transposed blocks that 1d and 1.5d keep where A is not symmetric.

    Parameters
    ----------
    strategy, grid, offsets
        As `stored_order`.
    transposed : (indptr, indices)
        CSR pattern of the transpose.
    forward : Operand
        What is transposed.
    rows_in : (B,) int64
        Rows of H in each block.
    """
    R, L, _ = shape = cube(strategy, grid)
    deals = _dealt(R, L)  # block of columns k -> replica that holds it
    big = offsets[::L]
    touched = (touched_rows(*transposed, big, big).T @ deals).reshape(shape)
    heights = rows_in.reshape(R, L).sum(1) @ deals
    return Operand.of(shape, forward.entries.reshape(shape), (heights + deals.sum(0)).reshape(1, L, 1), listed=touched,
                      results=heights.reshape(1, L, 1), blocks=forward.blocks.reshape(shape))


def _dealt(groups, replicas):
    """1.5d: which replica multiplies by the columns of each big block; (groups, replicas) of 0 and 1."""
    replica = np.repeat(np.arange(replicas), np.diff(split(groups, replicas)))
    return (replica[:, None] == np.arange(replicas)).astype(np.int64)
