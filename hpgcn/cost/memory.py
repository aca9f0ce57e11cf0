"""Bytes that each rank holds in a training run, by what they are for (pure).

Arrays alone are counted. The interpreter, its libraries and MPI come on top: about 0.2 GB a rank.
"""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpgcn.cost.step import num_parameters
from hpgcn.cost.work import dense_arrays, fewer, kept_arrays
from hpgcn.layout import split
from hpgcn.operator import CHUNK, PORTIONS

INDEX = 4  # bytes of a column number, below 2^31 rows and entries a rank
POINTER = 8
VERTEX = 8 + 8 + 3 + 2 * 8  # bytes of a row: its original number, label, three masks, its place in one of them, twice
LEVEL_ROW = 4 * 8  # of a row of a level: its number, original number, label, its place in the level below
SLAB_ROW = 3 * 8 + 8  # more while it is read: three degrees, a row pointer
P2P_ENTRY, P2P_TRANSPOSE, P2P_ROW = 34, 4, 100  # bytes of an entry while p2p cuts blocks; of a row beside ghosts
CUT, CUT_P2P = 12, 25  # bytes of an entry of a block, and of p2p's matrix, while fewer rows are cut from it
CHUNK_READ, CHUNK_KEPT = 5, 35  # bytes of an entry that the others read, CHUNK at a time; more of one that they keep
CHUNK_LOOPS = 21  # bytes of an entry that is read, while loops are put in
WEIGHT = 4  # bytes of a weight as it is stored
COPIES = 6  # of the parameters: themselves, their gradient, Adam's two moments, the best, the best on their way out

PARTS = ("matrix", "features", "vertices", "activations", "buffers", "plan", "parameters")


def footprint(step, share):
    """Bytes that each rank holds from the first epoch on, by what they are for.

    Parameters
    ----------
    step : hpgcn.cost.Step
    share : hpgcn.cost.shares.Share

    Returns
    -------
    dict of (P,) int64
        Under PARTS: matrix, with its transpose where A is not symmetric and the maps of layers that leave rows out;
        features, of training and of evaluation, with the copy that dropout makes; vertices (labels, masks, numbers);
        activations that the backward needs, and work arrays; buffers of messages and partial results; plan (row
        numbers); parameters, with gradient and Adam's moments.
    """
    b, operands = step.itemsize, share.operands
    width = owned(share)
    levels = [rows for each in (share.train, share.evaluated)
              for rows, every in zip(each.rows, each.every) if not every]
    return {
        "matrix": sum(one.entries * (INDEX + b) + one.pointers * POINTER for one in operands),
        "features": feature_bytes(step, share.train, share.evaluated, width),
        "vertices": share.rows * VERTEX + sum(levels, np.zeros_like(share.rows)) * LEVEL_ROW,
        "activations": sum(kept_arrays(step, share.train, share.evaluated, width).values())
        + sum(dense_arrays(step, share.train, share.evaluated, width, share.columns).values()),
        "buffers": _buffers(step, share.buffers, share.slices),
        "plan": sum(one.listed for one in operands) * POINTER,
        "parameters": np.full(share.rows.size, COPIES * num_parameters(step.widths, step.model, step.layer_norm) * b),
    }


def owned(share):
    """How many columns of a matrix of some width each rank owns: a function of the width to (P,) int64."""
    column = np.arange(share.rows.size) % share.columns
    return lambda width: np.diff(split(width, share.columns))[column]


def widest(step):
    """Columns that buffers of messages are made for: those of the widest product, X among them, 0 if there is none."""
    step = replace(step, constant=False, rows=())
    return max(product.width for product in step.forward + step.backward)


def _buffers(step, buffers, slices):
    b, width = step.itemsize, widest(step)
    part = -(-width // slices)
    return ((buffers.rows * width + buffers.sliced * part) * b + buffers.bits * -(-part // 8)
            + buffers.entries * (INDEX + b) + buffers.pointers * POINTER)


def _cutting(step, share):
    """While maps to fewer rows are cut, a block of the whole one at a time (p2p: all of it)."""
    forward, whole = share.whole.forward, len(share.whole.held)
    if len(share.operands) == whole:
        return np.zeros_like(share.rows)
    sizes = footprint(step, share)
    held = sum(sizes[name] for name in PARTS if name not in ("activations", "parameters"))
    if share.strategy == "p2p":
        return held + forward.entries * CUT_P2P + (forward.blocks > 1) * (share.rows + share.buffers.rows) * P2P_ROW
    return held + forward.entries // np.maximum(forward.blocks // share.columns, 1) * CUT


def _read_features(step, share):
    """Features as they are read, and as they are held."""
    if step.sparse_features:
        return share.train.feature_entries[0] * 2 * (2 * INDEX + POINTER + step.itemsize)
    read, held = share.rows * step.widths[0] * 4, owned(share)(step.widths[0]) * share.rows * step.itemsize
    return read + held * (share.columns > 1 or step.itemsize == 8 or step.constant)


def feature_bytes(step, train, evaluated, width):
    """X of training and of evaluation, one array where both have all rows, with what dropout makes of the former."""
    views, b = [train, evaluated], step.itemsize
    if train.every[0] and evaluated.every[0]:
        views.pop()
    if not step.sparse_features:
        copies = 2 if step.constant and step.model in ("sage-mean", "gin") else 1
        return width(step.widths[0]) * b * (sum(each.rows[0] for each in views) * copies
                                            + train.rows[0] * (not step.constant))
    # CSR and its transpose, which knows the place of each entry; of the rows that read themselves, a part with
    # the place of each entry; values dropped, and in the order of the transpose
    pattern = 2 * INDEX + POINTER
    held = sum(each.feature_entries[0] * (pattern + b) + (each.rows[0] + width(step.widths[0]) + 2) * POINTER
               for each in views)
    if step.model == "sage-mean":
        held += sum(fewer(each, 0) * (each.feature_entries[1] * (pattern + POINTER)
                                      + (each.rows[1] + width(step.widths[0]) + 2) * POINTER)
                    for each in (train, evaluated))
    return held + 2 * train.feature_entries[0] * b


def setup(step, share):
    """Bytes that each rank holds at most before the first epoch; (P,) int64.

    The larger of two moments: its rows as read and what is made of them; the maps of layers that leave rows out, being
    cut from the whole one.
    """
    return np.maximum(_reading(step, share), _cutting(step, share)).astype(np.int64)


def _reading(step, share):
    """While the matrix is made of rows as they are read.

    p2p holds column numbers as read and local, weights in float64, and copies. The others read A in pieces of CHUNK
    entries, into arrays whose pages cost nothing before they are filled; blocks that are cut, or put in another order,
    are held twice for a while.
    """
    b, whole = step.itemsize, share.whole
    features = _read_features(step, share)
    slab = share.rows * (VERTEX + SLAB_ROW) + share.entries * (INDEX + WEIGHT * share.weighted) + features
    forward, back = whole.forward, whole.held[1:]

    def size(operand):
        return operand.entries * (INDEX + b) + operand.pointers * POINTER

    if share.strategy == "p2p":
        alone = forward.blocks == 1
        entry = P2P_ENTRY + P2P_TRANSPOSE * len(back) * alone + WEIGHT * share.weighted + 2 * (b - 4)
        return (slab + forward.entries * entry + forward.pointers * POINTER
                + (share.rows + share.buffers.rows) * P2P_ROW * ~alone)
    slab = slab + share.num_rows * 2 * POINTER  # factors of all rows and columns
    held, transposes = size(forward), sum(size(operand) for operand in back)
    if share.strategy == "mop":
        ordered = held * (2.5 if share.batches > 1 else 1)
        return slab + np.maximum.reduce([_filling(share, held, forward.entries), ordered, held + transposes])

    rows = _of_big_rows(share, forward.entries)
    if share.strategy in ("2d", "3d"):  # blocks as read, as they are cut or packed, and as the transposes are read
        twice = held * (2.7 if share.strategy == "3d" and share.pieces > 1 else 2)
        again = held + transposes + _chunk(share, rows // np.maximum(forward.blocks, 1), forward.entries / rows)
        return slab + np.maximum.reduce([_filling(share, held, rows), twice, again * (len(back) > 0)])
    several = forward.blocks > 1
    cut = held + transposes + held // np.maximum(forward.blocks, 1) * several
    return slab + np.maximum(_filling(share, held, rows, np.where(several, PORTIONS, 1)), cut)


def _of_big_rows(share, entries):
    """Entries, one at least, that all ranks of a big row block hold together: what each of them reads, (P,) int64."""
    together = share.pieces * share.columns
    return np.repeat(np.maximum(entries.reshape(-1, together).sum(1), 1), together)


def _filling(share, held, rows, portions=1):
    """While the last chunk is read: what is filled of the arrays of the matrix by then, and the chunk.

    Parameters
    ----------
    held : (P,) int64
        Bytes of the matrix.
    rows : (P,) int64
        Entries in the rows that are read, of which those in some columns are kept.
    portions : int or (P,) int
        In which they are read.
    """
    read = np.minimum(rows // portions, CHUNK)
    return held * (1 - read / np.maximum(rows, 1)) + _chunk(share, read, share.whole.forward.entries / rows)


def _chunk(share, entries, kept):
    """Some entries as they are read at once, of which a part is kept."""
    entries = np.minimum(entries, CHUNK)
    weight = WEIGHT * share.weighted
    return entries * np.maximum(CHUNK_LOOPS + weight, CHUNK_READ + weight + CHUNK_KEPT * kept)


def peak(step, share):
    """The larger of `setup` and the sum of `footprint`, (P,) int64."""
    return np.maximum(setup(step, share), sum(footprint(step, share).values()))
