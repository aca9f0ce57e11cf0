"""Losses over dense rows on a GPU: softmax, its columns on one device or spread over several, and sigmoids.

Losses and counts are arrays without axes, float64: to read one is to wait for the GPU.
"""
import numpy as np

from hpgcn.kernels.cuda.device import current
from hpgcn.kernels.cuda.total import column_sum


def softmax_cross_entropy(logits, labels, rows, *, scale=1.0, grad=None):
    """Loss, right answers and gradient: see `hpgcn.kernels.reference.softmax_cross_entropy`."""
    device, rows = _start(rows, grad)
    terms = device.xp.empty((rows.size, 2))
    device.launch("loss", "softmax_cross_entropy", rows.size * device.team, device.ordered(logits), logits.shape[1],
                  device.ordered(labels, np.int64), rows, rows.size, float(scale), grad, terms, REAL=logits.dtype)
    return tuple(column_sum(terms))


def sigmoid_cross_entropy(logits, labels, rows, *, scale=1.0, grad=None):
    """Loss, gradient and counts: see `hpgcn.kernels.reference.sigmoid_cross_entropy`."""
    device, rows = _start(rows, grad)
    terms = device.xp.empty((rows.size, 4))
    device.launch("loss", "sigmoid_cross_entropy", rows.size * device.team, device.ordered(logits), logits.shape[1],
                  device.ordered(labels, logits.dtype), rows, rows.size, float(scale), grad, terms, REAL=logits.dtype)
    return tuple(column_sum(terms))


def spread_max(logits):
    """Maximum of each row of a block of columns: see `hpgcn.kernels.reference.spread_max`."""
    device, (m, width) = current(), logits.shape
    out = device.xp.empty(m, logits.dtype)
    device.launch("loss", "spread_max", m * device.team, device.ordered(logits), m, width, out, REAL=logits.dtype)
    return out


def spread_sum(logits, top):
    """Sum of exp(logits - top) over a block's columns: see `hpgcn.kernels.reference.spread_sum`."""
    device, (m, width) = current(), logits.shape
    out = device.xp.empty(m)
    device.launch("loss", "spread_sum", m * device.team, device.ordered(logits), m, width,
                  device.ordered(top, np.float64), out, REAL=logits.dtype)
    return out


def spread_gradient(logits, labels, first, rows, top, total, scale=1.0, grad=None):
    """Return a block's part of loss and gradient: see `hpgcn.kernels.reference.spread_gradient`."""
    device, rows = _start(rows, grad)
    terms = device.xp.empty((rows.size, 1))
    device.launch("loss", "spread_gradient", rows.size * device.team, device.ordered(logits), logits.shape[1],
                  device.ordered(labels, np.int64), first, rows, rows.size, device.ordered(top, np.float64),
                  device.ordered(total, np.float64), float(scale), grad, terms, REAL=logits.dtype)
    return column_sum(terms)[0]


def spread_argmax(logits, first, top):
    """Lowest column of a block that attains the row's maximum: see `hpgcn.kernels.reference.spread_argmax`."""
    device, (m, width) = current(), logits.shape
    out = device.xp.empty(m, np.int64)
    device.launch("loss", "spread_argmax", m * device.team, device.ordered(logits), m, width, first,
                  device.ordered(top, np.float64), out, REAL=logits.dtype)
    return out


def _start(rows, grad):
    """Device, and rows as int64; the gradient of rows that do not count is 0."""
    if grad is not None:
        grad[:] = 0
    return current(), current().ordered(rows, np.int64)
