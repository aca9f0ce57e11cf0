"""Losses over dense rows on a GPU: softmax of rows or blocks of columns, sigmoids.

Losses and counts are returned as float64 arrays without axes; reading one waits for the
GPU.
"""
import operator

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cuda.gpu_device import current, rows_of
from hpgcn.kernels.cuda.reductions import by_row, column_sum
from hpgcn.kernels.host.record import ALL, repeat


def softmax_cross_entropy(logits: Array, labels: Array, rows: Array, *, scale: float = 1.0,
                          grad: Array | None = None, target: Array | None = None) -> tuple[float,
                          int]:
    labels = current().ordered(labels, np.int64)
    target = current().ordered(target, np.float64)
    return tuple(_loss("softmax_cross_entropy", 2, logits, (labels,), rows, (target,), scale, grad))


def sigmoid_cross_entropy(logits: Array, labels: Array, rows: Array, *, scale: float = 1.0,
                          grad: Array | None = None, smoothing: float = 0.0) -> tuple[float, int,
                          int, int]:
    labels = current().ordered(labels, logits.dtype)
    smoothing = float(smoothing)
    return tuple(_loss("sigmoid_cross_entropy", 4, logits, (labels,), rows, (smoothing,), scale,
                       grad))


def spread_gradient(logits: Array, labels: Array, first: int, rows: Array, top: Array, total: Array,
                    scale: float = 1.0, grad: Array | None = None,
                    target: Array | None = None) -> float:
    ordered = current().ordered
    labels = ordered(labels, np.int64)
    others = (ordered(top, np.float64), ordered(total, np.float64), ordered(target, np.float64),
              0 if target is None else target.shape[1])
    return _loss("spread_gradient", 1, logits, (labels, first), rows, others, scale, grad)[0]


def spread_max(logits: Array) -> Array:
    return by_row("cross_entropy", "spread_max", logits, logits.dtype)


def spread_sum(logits: Array, top: Array) -> Array:
    top = current().ordered(top, np.float64)
    return by_row("cross_entropy", "spread_sum", logits, np.float64, top)


def spread_argmax(logits: Array, first: int, top: Array) -> Array:
    top = current().ordered(top, np.float64)
    return by_row("cross_entropy", "spread_argmax", logits, np.int64, first, top)


def _loss(name: str, terms: int, logits: Array, labels: Array, rows: Array, others: tuple,
          scale: float, grad: Array) -> Array:
    """Run a loss kernel over the counted rows; return the sums of its terms, (terms,) float64."""
    device = current()
    if grad is not None:
        repeat(operator.setitem, grad, ALL, 0)  # including rows that do not count
    rows = device.ordered(rows, np.int64)
    out = device.xp.empty((rows.size, terms))
    device.launch("cross_entropy", name, rows.size * device.team, device.ordered(logits),
                  logits.shape[1], *labels, rows, rows.size, *others, float(scale), grad, out,
                  **rows_of(logits.dtype if grad is None else grad.dtype))
    return column_sum(out)
