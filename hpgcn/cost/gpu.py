"""Bytes that each rank holds in the memory of its GPU, by what they are for (pure)."""
from __future__ import annotations

import numpy as np

from hpgcn.cost.memory import COPIES, PARTS, POINTER, feature_bytes, footprint, owned, widest
from hpgcn.cost.step import num_parameters
from hpgcn.cost.work import dense_arrays, fewer, kept_arrays

ON_GPU = (*PARTS, "kernels", "staging")
NUMBER = 8  # bytes of a row number, a label, a float64
PIECE_BYTES, PIECE = 40, 512  # bytes of a piece of a row that a product is cut in, nonzeros of one
CHUNKS = 1024  # partial sums of a sum over rows, as hpgcn.kernels.cuda takes them
LOAD = 16  # bytes that a thread loads at a time: rows that are no multiple of it are copied to longer ones


def gpu_footprint(step, share, aggregated_on_host=False):
    """Bytes of each rank on a GPU from the first epoch on; a dict of (P,) int64 under ON_GPU.

    As hpgcn.cost.memory.footprint, but for masks, which stay on the host, and with two more: what kernels take besides
    (pieces that rows are cut in, where degrees are skewed; copies of operands whose rows are no multiple of 16 bytes),
    and "staging", pinned memory of the HOST that messages pass through, which is not in the sum. An upper bound: how
    skewed degrees are is not known before.

    Parameters
    ----------
    step : hpgcn.cost.Step
    share : hpgcn.cost.shares.Share
    aggregated_on_host : bool
        Of mop: A and the columns that a rank gets are in host memory.
    """
    width, found = owned(share), footprint(step, share)
    found["vertices"] = vertex_bytes(step, share.train, share.evaluated, share.rows)
    cuts = sum(_cut_bytes(share.strategy, one) for one in share.operands)
    found["kernels"] = cuts + work_bytes(step, share.train, share.evaluated, width)
    found["staging"] = np.zeros_like(share.rows) if share.rows.size == 1 else found["buffers"]
    if aggregated_on_host:  # but rows on their way
        packed = share.buffers.rows * widest(step) * step.itemsize
        found |= {"matrix": 0 * packed, "plan": 0 * packed, "buffers": packed, "staging": packed,
                  "kernels": found["kernels"] - cuts}
    return found


def _cut_bytes(strategy, operand):
    """Of the rows of a matrix in pieces; and row pointers of blocks that come from others (2d, 3d)."""
    rows, entries = operand.pointers, operand.entries
    if strategy in ("2d", "3d"):
        rows, entries = operand.blocks * (operand.results + 1), operand.multiplied
    return PIECE_BYTES * (rows + entries // PIECE) + np.maximum(rows - operand.pointers, 0) * POINTER


def gpu_total(found):
    """Sum of what `gpu_footprint` told, the host's memory aside; (P,) int64."""
    return sum(size for name, size in found.items() if name != "staging")


def placed_last(step, train, evaluated, width, columns, rows):
    """Bytes of all that a rank puts on its GPU once the matrix is there; (P,) int64.

    Parameters
    ----------
    step : hpgcn.cost.Step
    train, evaluated : hpgcn.cost.shares.Levels
    width : callable
        Columns that each rank owns, (P,), of a width.
    columns : int
        Column blocks.
    rows : (P,) int64
        All rows of each rank.
    """
    arrays = [*kept_arrays(step, train, evaluated, width).values(),
              *dense_arrays(step, train, evaluated, width, columns).values()]
    parameters = COPIES * num_parameters(step.widths, step.model, step.layer_norm) * step.itemsize
    return (sum(arrays) + parameters + feature_bytes(step, train, evaluated, width)
            + vertex_bytes(step, train, evaluated, rows) + work_bytes(step, train, evaluated, width))


def vertex_bytes(step, train, evaluated, rows):
    """Numbers of the vertices; of a level that leaves rows out those of its own; labels, and places in masks."""
    total = rows * NUMBER
    for levels in (train, evaluated):
        total = total + sum(size for size, every in zip(levels.rows, levels.every) if not every) * NUMBER
        total = total + levels.rows[-1] * 2 * NUMBER
        for layer in range(len(step.layers)):  # places of rows in the level below, and their order
            total = total + fewer(levels, layer) * levels.rows[layer + 1] * 2 * NUMBER
    return total


def work_bytes(step, train, evaluated, width):
    """At once: the longest copy of an operand to rows of a multiple of LOAD bytes, or sums in float64."""
    most = np.zeros_like(train.rows[0])
    for levels in (train, evaluated):
        for layer, (fan_in, fan_out) in enumerate(step.layers):
            for own in (width(fan_in), width(fan_out), width(step.inner(layer))):
                most = np.maximum(most, levels.rows[layer] * -(-own * step.itemsize // LOAD) * LOAD)
    return most + 4 * NUMBER * train.rows[-1] + 2 * CHUNKS * max(step.widths[1:]) * NUMBER
