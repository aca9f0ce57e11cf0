"""What each rank holds and multiplies under every strategy: the sizes that memory and time follow from (pure)."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpgcn.cost.blocks import block_nonzeros, cube, stage_nonzeros
from hpgcn.layout import split, stages


@dataclass(frozen=True, eq=False)
class Share:
    """Sizes by rank, each (P,) int64 in rank order.

    Attributes
    ----------
    columns : int
        Column blocks C of the owners' grid: a rank owns ceil(width / C) columns of its rows.
    slices : int
        A product with A is of ceil(width / slices) columns on each rank: 1, C, or P (mop).
    rows
        Rows of H, G and Z that the rank owns.
    entries, pointers
        Entries of A that it keeps, and row pointers that go with them.
    multiplied
        Entries of A that it multiplies by in one product.
    partial
        Rows of partial results besides those it owns, at the width of a product.
    moved_rows, moved_entries
        Rows (at the width of a product) and entries of A in buffers for messages.
    listed
        Row numbers kept: rows to send, to receive, or touched by a block.
    blocks
        Blocks of A that are multiplied one by one: calls of a product.
    feature_entries
        Stored entries of sparse features; 0 if they are dense.
    """

    columns: int
    slices: int
    rows: np.ndarray
    entries: np.ndarray
    pointers: np.ndarray
    multiplied: np.ndarray
    partial: np.ndarray
    moved_rows: np.ndarray
    moved_entries: np.ndarray
    listed: np.ndarray
    blocks: np.ndarray
    feature_entries: np.ndarray


def point_to_point(rows, entries, sent, feature_entries=None):
    """Shares of strategy p2p.

    Parameters
    ----------
    rows, entries : (P,) int64
        Rows and entries of A + I in each part.
    sent : hpgcn.cost.RankVolumes
        Where it does not tell the sources, every other rank that could be one counts.
    feature_entries : (P,) int64, optional
    """
    sources = np.minimum(rows.size - 1, sent.received) if sent.sources is None else sent.sources
    touched = np.minimum(entries, sources * rows)  # rows with entries in a ghost block, by block
    return _share(1, 1, rows, entries, (1 + sources) * (rows + 1), blocks=1 + sources,
                  moved_rows=sent.rows + sent.received, listed=sent.rows + sent.received + touched,
                  feature_entries=feature_entries)


def stored_order(strategy, grid, offsets, indptr, indices, *, blocks=None, feature_pointers=None):
    """Shares of a strategy that cuts the stored order of rows: all but p2p.

    Parameters
    ----------
    strategy : str
    grid : tuple of int
        As `hpgcn.cost.default_grid`.
    offsets : (B + 1,) int64
        As `hpgcn.cost.row_blocks`.
    indptr, indices
        CSR pattern of A + I.
    blocks : (R, S) int64, optional
        For 2d and 3d: `stage_nonzeros`, where it is at hand already.
    feature_pointers : (n + 1,) int64, optional
        Row pointers of sparse features.
    """
    R, L, C = cube(strategy, grid)
    shape, P = (R, L, C), R * L * C
    rows = np.diff(offsets).reshape(R, L, 1)
    big = rows.sum(1, keepdims=True)
    nonzeros = np.diff(indptr[offsets]).astype(np.int64).reshape(R, L, 1)
    features = None
    if feature_pointers is not None:
        features = -(-np.diff(feature_pointers[offsets]).reshape(R, L, 1) // C)
    if strategy == "mop":
        total, n = int(indptr[-1]), int(offsets[-1])
        return _share(1, P, rows, total, n + 1, shape=shape, partial=2 * n, moved_rows=P * rows,
                      feature_entries=features)
    if strategy == "1d":
        return _share(1, 1, rows, nonzeros, P * (rows + 1), shape=shape, moved_rows=2 * int(rows.max()), blocks=P,
                      listed=np.minimum(nonzeros, P * rows), feature_entries=features)
    if strategy == "1.5d":
        found = block_nonzeros(indptr, indices, offsets[::L], offsets[::L])
        replica = np.repeat(np.arange(L), np.diff(split(R, L)))  # that multiplies by the columns of big block k
        held = (found @ (replica[:, None] == np.arange(L)))[:, :, None]
        stage = np.bincount(replica, minlength=L).reshape(1, L, 1)
        split_up = L > 1
        return _share(1, 1, rows, held, stage * (big + 1), shape=shape, partial=2 * big if split_up else 0,
                      moved_rows=2 * int(big.max()), blocks=stage, listed=np.minimum(held, stage * big),
                      feature_entries=features)
    if blocks is None:
        blocks = stage_nonzeros(strategy, grid, offsets, indptr, indices)
    cuts = stages(offsets, R, L, C)
    holder = cuts.piece * C + cuts.column
    held = (blocks @ (holder[:, None] == np.arange(L * C))).reshape(shape)
    owned = np.bincount(holder, minlength=L * C).reshape(1, L, C)
    return _share(C, C, rows, held, owned * (big + 1), shape=shape, multiplied=held.sum(2, keepdims=True),
                  partial=big + (L - 1) * rows if L > 1 else 0, moved_rows=2 * int(np.diff(cuts.offsets).max()),
                  moved_entries=2 * blocks.max(1).reshape(R, 1, 1), blocks=owned.sum(2, keepdims=True),
                  feature_entries=features)


def _share(columns, slices, rows, entries, pointers, *, shape=None, multiplied=None, partial=0, moved_rows=0,
           moved_entries=0, listed=0, blocks=1, feature_entries=None):
    shape = rows.shape if shape is None else shape
    sizes = (rows, entries, pointers, entries if multiplied is None else multiplied, partial, moved_rows, moved_entries,
             listed, blocks, 0 if feature_entries is None else feature_entries)
    return Share(columns, slices, *(np.broadcast_to(size, shape).astype(np.int64).ravel() for size in sizes))
