"""Dense arrays of a model on each rank's rows: what hpgcn.model asks of its buffers, array by array (pure)."""
from __future__ import annotations

from dataclasses import replace

import numpy as np


def kept_arrays(step, train, evaluated, width):
    """Arrays that a model takes from its hpgcn.model.Buffers, a dropped copy of X aside.

    Parameters
    ----------
    step : hpgcn.cost.Step
    train, evaluated : hpgcn.cost.shares.Levels
        The model of a training step, and that of an evaluation, which share the buffers.
    width : callable
        Columns that each rank owns, (P,), of a width.

    Returns
    -------
    dict of str -> (P,) int64
        Bytes under the name of the array.
    """
    found = {}

    def take(name, rows, columns, itemsize=step.itemsize):
        found[name] = np.maximum(found.get(name, 0), rows * columns * itemsize)

    for layer in range(len(step.layers)):
        for levels, keep in ((train, True), (evaluated, False)):
            LAYERS[step.model](replace(step, rows=levels.totals), layer, levels, width, take, keep=keep)
        own = width(step.widths[layer + 1])
        take(f"H{layer + 1}", train.rows[layer + 1], own)
        take("even", evaluated.rows[layer + 1], own)
        if layer + 1 < len(step.layers):
            take(f"mask{layer + 1}", train.rows[layer + 1], -(-own // 8), 1)
            if step.layer_norm:
                take(f"normal{layer}", train.rows[layer + 1], own)
        else:
            take("even", train.rows[layer + 1], own)  # the gradient of the logits
    return found


def dense_arrays(step, train, evaluated, width, columns):
    """Arrays that products with W take where ranks share rows: packed columns, and a gradient with all its columns."""
    if columns == 1:
        return {}
    linear = [levels.rows[level] * each for levels in (train, evaluated)
              for level, each in replace(step, rows=levels.totals).linear]
    gathered = [train.rows[level] * each for level, each in replace(step, rows=train.totals).gathered]
    return {"packed": np.maximum.reduce(linear + gathered) * step.itemsize,
            "whole": np.maximum.reduce(gathered) * step.itemsize}


def _convolution(step, layer, levels, width, take, *, keep):
    """GraphConvolution: "T" kept or in "odd"; the way back through "odd" and "even"."""
    rows_in, rows_out = levels.rows[layer:layer + 2]
    fan_in, fan_out = map(width, step.layers[layer])
    keeps_T = step.keeps_T(layer)
    if not step.aggregates_early(layer):
        take("odd", rows_in, fan_out)
    elif layer or not step.constant:
        take(f"T{layer}" if keep and keeps_T else "odd", rows_out, fan_in)
    if not keep:
        return
    if not keeps_T:
        take("odd", rows_in, fan_out)
    elif layer:
        take("odd", rows_out, fan_in)
    if layer:
        take("even", rows_in, fan_in)


def _mean(step, layer, levels, width, take, *, keep):
    """SageMean: as GraphConvolution, with a part of H and what becomes of it in "part" and "own"."""
    rows_out = levels.rows[layer + 1]
    fan_in, fan_out = map(width, step.layers[layer])
    _take_part(step, layer, levels, "part", fan_in, take)
    take("own", rows_out, fan_out)
    if keep and layer:
        take("own", rows_out, fan_in)
    _convolution(step, layer, levels, width, take, keep=keep)


def _isomorphism(step, layer, levels, width, take, *, keep):
    """GraphIsomorphism: the sum S kept, or H W_a; the inner activation and its bits."""
    rows_in, rows_out = levels.rows[layer:layer + 2]
    fan_in, inner = width(step.layers[layer][0]), width(step.inner(layer))
    early, keeps_T = step.aggregates_early(layer), step.keeps_T(layer)
    take(f"inner{layer}" if keep else "inner", rows_out, inner)
    if early:
        take(f"T{layer}" if keep and keeps_T else "odd", rows_out, fan_in)
    else:
        take(f"T{layer}" if keep else "odd", rows_in, inner)
    added = fan_in if early else inner
    _take_part(step, layer, levels, "own", added, take, read=not early)
    take("own", rows_out, added)
    if not keep:
        return
    take(f"bits{layer}", rows_out, -(-inner // 8), 1)
    take("own", rows_out, inner)
    if early:
        take("odd", rows_out, fan_in)
    _take_part(step, layer, levels, "part", added, take, read=not early)
    if not keeps_T:
        take("odd", rows_in, inner)
    if layer:
        take("even", rows_in, fan_in)


def _take_part(step, layer, levels, name, columns, take, *, read=False):
    """Rows that a layer computes, out of those that it reads: taken where they are fewer, and dense.

    `read`: they are no longer X itself, but a product with it.
    """
    if not (step.sparse_features and layer == 0 and not read):
        take(name, np.where(fewer(levels, layer), levels.rows[layer + 1], 0), columns)


def fewer(levels, layer):
    """Whether a layer computes fewer rows than it reads, on each rank: (P,) bool."""
    rows_in, rows_out = levels.rows[layer:layer + 2]
    if levels.every[layer + 1]:
        return np.zeros(rows_in.shape, bool)
    return rows_in != rows_out if not levels.every[layer] else np.ones(rows_in.shape, bool)


LAYERS = {"gcn": _convolution, "sage-gcn": _convolution, "sage-mean": _mean, "gin": _isomorphism}
