"""Bytes that each rank holds in a training run, by what they are for (pure).

Arrays alone are counted. The interpreter, its libraries and MPI come on top: about 0.2 GB a rank.
"""
from __future__ import annotations

import numpy as np

from hpgcn.cost.step import aggregate_first, num_parameters

INDEX = 4  # bytes of a column number, below 2^31 rows and entries a rank
POINTER = 8
SETUP_ENTRY = 36  # bytes per entry of A while a rank cuts its blocks: column numbers as read and local, weights, copies
SETUP_GHOST, SETUP_TRANSPOSE, SETUP_WEIGHT = 12, 24, 4  # more where there are ghost blocks, transposes, weights
VERTEX = 8 + 8 + 3 + 8  # bytes of a row: its original number, its label, three masks, its place in one of them
SLAB_ROW = 3 * 8 + 8  # more while it is read: three degrees, a row pointer
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
        Under PARTS: matrix, with its transpose if A is directed; features, with the copy that dropout makes; vertices
        (labels, masks, numbers); activations that the backward needs, work arrays and partial results; buffers of
        messages; plan (row numbers); parameters, with gradient and Adam's moments.
    """
    b, rows = step.itemsize, share.rows
    kept, masks, work, product = dense_widths(step)

    def owned(width):
        return -(-width // share.columns)

    def sliced(width):
        return -(-width // share.slices)

    columns = sum(map(owned, kept)) + sum(map(owned, work))
    activations = rows * (columns * b + sum(-(-owned(width) // 8) for width in masks))
    activations += share.partial * sliced(product) * b
    if share.columns > 1:  # Z before its sum over column blocks, and G gathered from them
        activations += 2 * rows * max(step.widths[1:]) * b
    matrix = share.entries * (INDEX + b) + share.pointers * POINTER
    return {
        "matrix": matrix * (2 if step.directed else 1),
        "features": _features(step, share, b, dropped=not step.constant),
        "vertices": rows * VERTEX,
        "activations": activations,
        "buffers": share.moved_rows * sliced(product) * b + share.moved_entries * (INDEX + b),
        "plan": share.listed * 8,
        "parameters": np.full(rows.size, COPIES * num_parameters(step.widths) * b, np.int64),
    }


def setup(step, share):
    """Bytes that each rank holds at most before the first epoch: its rows as read and what is made of them; (P,) int64.

    An upper bound: every entry counts as weighted, and as a ghost's where a rank has ghosts.
    """
    entry = SETUP_ENTRY + SETUP_WEIGHT + SETUP_GHOST * (share.listed > 0) + SETUP_TRANSPOSE * step.directed
    read = share.rows * (VERTEX + SLAB_ROW) + share.entries * entry + share.pointers * POINTER
    features = _features(step, share, 4, dropped=False)
    return read + features * (1 if step.itemsize == 4 and not step.constant else 2)


def peak(step, share):
    """The larger of `setup` and the sum of `footprint`, (P,) int64."""
    return np.maximum(setup(step, share), sum(footprint(step, share).values()))


def dense_widths(step):
    """Widths of the arrays of a rank's rows that hpgcn.model keeps.

    Returns
    -------
    kept : list of int
        Results of layers, and products with A that the gradients of W need.
    masks : list of int
        Hidden widths: one bit an element.
    work : list of int
        Two work arrays.
    product : int
        The widest product with A or A^T; 0 if there is none.
    """
    widths, last = step.widths, len(step.widths) - 1
    first = [aggregate_first(*layer, step.sparse_features and not number) for number, layer in enumerate(step.layers)]
    kept, odd = list(widths[1:]), [0]
    for layer in range(last):
        if layer == 0 and step.constant:
            continue  # A X stands in for X
        if first[layer]:
            kept.append(widths[layer])
        odd.append(widths[layer] if first[layer] else widths[layer + 1])
    product = max((one.width for one in step.forward + step.backward), default=0)
    return kept, list(widths[1:-1]), [max(odd), max(widths[1:])], product


def _features(step, share, item, *, dropped):
    if not step.sparse_features:
        return share.rows * -(-step.widths[0] // share.columns) * item * (1 + dropped)
    # CSR (its column numbers are widened with the values) and its transpose, which knows the place of each entry;
    # values dropped, and in the order of the transpose
    entry = (4 if item == 4 else INDEX) + INDEX + POINTER + item * (1 + 2 * dropped)
    return share.feature_entries * entry + (share.rows + step.widths[0] + 2) * POINTER
