"""Losses over dense rows on CPU threads: softmax of rows or blocks of columns, sigmoids."""
import math

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cpu.chunks import evenly, row_total
from hpgcn.kernels.cpu.emit.bfloat16 import narrow
from hpgcn.kernels.cpu.emit.exponential import exp, log1p
from hpgcn.kernels.cpu.emit.softmax_intrinsics import LANES, row_max, row_powers
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.record import derived
from hpgcn.kernels.host.threads import Threaded, chunks
from hpgcn.kernels.reference.cross_entropy import ABSENT

ONE_HOT = np.empty((3, 0))  # stands for no target


@jit(forceinline=True)
def _is_argmax(logits, i, column, top):
    """Return whether `column` is the first one with the largest number of row i."""
    earlier = 0
    if logits[i, column] == top:
        for q in range(column):
            earlier += logits[i, q] == top
    return logits[i, column] == top and earlier == 0


@Threaded
def _softmax_cross_entropy(counters, logits, labels, rows, scale, target, grad, losses, corrects,
                           bounds):
    width = logits.shape[1]
    zero = grad.dtype.type(0)
    start, lowest = logits.ctypes.data, logits.dtype.type(-np.inf)
    for chunk in chunks(counters, bounds.size - 1):
        loss = 0.0
        correct = 0
        power = np.empty(-(-width // LANES) * LANES)
        for r in range(bounds[chunk], bounds[chunk + 1]):
            # softmax of the row
            i = rows[r]
            row = np.int64(start + i * logits.strides[0])
            top = np.float64(row_max(row, width, lowest))
            total = row_powers(row, width, top, power.ctypes.data, lowest)
            label = labels[i]
            correct += _is_argmax(logits, i, label, top)

            # smoothed or weighted labels
            if target.size:
                own, whole = target[0, label], target[2, label]
                loss += whole * math.log(total) + own * (top - np.float64(logits[i, label]))
                for q in range(width):
                    loss += target[1, q] * (top - np.float64(logits[i, q]))
                if grad.size:
                    for q in range(width):
                        grad[i, q] = narrow((power[q] / total * whole - target[1, q]) * scale, zero)
                    share = own + target[1, label]
                    grad[i, label] = narrow((power[label] / total * whole - share) * scale, zero)
                continue

            # plain labels
            loss += math.log(total) + top - np.float64(logits[i, label])
            if grad.size:
                factor = scale / total
                for q in range(width):
                    grad[i, q] = narrow(power[q] * factor, zero)
                grad[i, label] = narrow((power[label] / total - 1.0) * scale, zero)
        losses[chunk] = loss
        corrects[chunk] = correct


@Threaded
def _sigmoid_cross_entropy(counters, logits, labels, rows, scale, smoothing, grad, losses, counts,
                           bounds):
    width = logits.shape[1]
    zero = grad.dtype.type(0)
    for chunk in chunks(counters, bounds.size - 1):
        loss = 0.0
        hits, calls, truths = 0, 0, 0
        small, term = np.empty(width), np.empty(width)
        for r in range(bounds[chunk], bounds[chunk + 1]):
            # loss of each label
            i = rows[r]
            for q in range(width):
                z = np.float64(logits[i, q])
                small[q] = exp(-abs(z))
                y = np.float64(labels[i, q]) * (1.0 - smoothing) + 0.5 * smoothing
                term[q] = max(z, 0.0) - z * y + log1p(small[q])  # not finite if z is not
            loss += row_total(term)

            # hits, false calls and misses
            for q in range(width):
                predicted = logits[i, q] > 0
                true = labels[i, q] > 0
                hits += predicted & true
                calls += predicted
                truths += true

            # gradient
            if grad.size:
                for q in range(width):
                    sigmoid = (1.0 if logits[i, q] >= 0 else small[q]) / (1.0 + small[q])
                    y = np.float64(labels[i, q]) * (1.0 - smoothing) + 0.5 * smoothing
                    grad[i, q] = narrow((sigmoid - y) * scale, zero)
        losses[chunk] = loss
        counts[chunk, 0] = hits
        counts[chunk, 1] = calls - hits
        counts[chunk, 2] = truths - hits


@Threaded
def _spread_max(counters, logits, out, bounds):
    start, lowest = logits.ctypes.data, logits.dtype.type(-np.inf)
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            out[i] = row_max(start + i * logits.strides[0], logits.shape[1], lowest)


@Threaded
def _spread_sum(counters, logits, top, out, bounds):
    start, zero = logits.ctypes.data, logits.dtype.type(0)
    for chunk in chunks(counters, bounds.size - 1):
        power = np.empty(-(-logits.shape[1] // LANES) * LANES)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            out[i] = row_powers(start + i * logits.strides[0], logits.shape[1], np.float64(top[i]),
                                power.ctypes.data, zero)


@Threaded
def _spread_gradient(counters, logits, labels, first, rows, top, total, scale, target, grad,
                     losses, bounds):
    width = logits.shape[1]
    zero = grad.dtype.type(0)
    start, like = logits.ctypes.data, logits.dtype.type(0)
    for chunk in chunks(counters, bounds.size - 1):
        loss = 0.0
        power = np.empty(-(-width // LANES) * LANES)
        for r in range(bounds[chunk], bounds[chunk + 1]):
            # powers of the columns of this block
            i = rows[r]
            column = labels[i] - first
            highest = np.float64(top[i])
            here = 0 <= column < width
            if grad.size:
                row_powers(start + i * logits.strides[0], width, highest, power.ctypes.data, like)

            # smoothed or weighted labels
            if target.size:
                own, whole = target[0, labels[i]], target[2, labels[i]]
                for q in range(width):
                    z, every = np.float64(logits[i, q]), target[1, first + q]
                    loss += every * (highest - z)
                    if grad.size:
                        soft = power[q] / total[i] * whole
                        grad[i, q] = narrow((soft - every) * scale, zero)
                if here:
                    z = np.float64(logits[i, column])
                    loss += whole * math.log(total[i]) + own * (highest - z)
                    if grad.size:
                        share = own + target[1, labels[i]]
                        soft = power[column] / total[i] * whole
                        grad[i, column] = narrow((soft - share) * scale, zero)
                continue

            # plain labels; the label of the row lies in one block
            if here:
                loss += math.log(total[i]) + highest - np.float64(logits[i, column])
            if grad.size:
                factor = scale / total[i]
                for q in range(width):
                    grad[i, q] = narrow(power[q] * factor, zero)
                if here:
                    soft = power[column] / total[i]
                    grad[i, column] = narrow((soft - 1.0) * scale, zero)
        losses[chunk] = loss


@Threaded
def _spread_argmax(counters, logits, first, top, out, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            out[i] = ABSENT
            for q in range(logits.shape[1]):
                if logits[i, q] == top[i]:
                    out[i] = first + q
                    break


@Threaded
def _clear(counters, grad, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        grad[bounds[chunk]:bounds[chunk + 1]] = 0


def softmax_cross_entropy(logits: Array, labels: Array, rows: Array, *, scale: float = 1.0,
                          grad: Array | None = None, target: Array | None = None) -> tuple[float,
                          int]:
    if _leaves_rows(rows, grad):
        _clear(grad.size // 4, grad, evenly(grad.shape[0]))
    bounds = evenly(rows.size)
    losses = np.empty(bounds.size - 1)
    corrects = np.empty(bounds.size - 1, np.int64)
    work = 20 * rows.size * logits.shape[1]
    target = ONE_HOT if target is None else target
    _softmax_cross_entropy(work, logits, labels, rows, scale, target, _gradient(grad, logits),
                           losses, corrects, bounds)
    return derived(_total, losses), derived(_total, corrects)


def sigmoid_cross_entropy(logits: Array, labels: Array, rows: Array, *, scale: float = 1.0,
                          grad: Array | None = None, smoothing: float = 0.0) -> tuple[float, int,
                          int, int]:
    if _leaves_rows(rows, grad):
        _clear(grad.size // 4, grad, evenly(grad.shape[0]))
    bounds = evenly(rows.size)
    losses = np.empty(bounds.size - 1)
    counts = np.empty((bounds.size - 1, 3), np.int64)
    work = 60 * rows.size * logits.shape[1]
    _sigmoid_cross_entropy(work, logits, labels, rows, scale, float(smoothing),
                           _gradient(grad, logits), losses, counts, bounds)
    return derived(_total, losses), *counts.sum(0).tolist()


def spread_max(logits: Array) -> Array:
    out = np.empty(logits.shape[0], logits.dtype)
    _spread_max(logits.size, logits, out, evenly(out.size))
    return out


def spread_sum(logits: Array, top: Array) -> Array:
    out = np.empty(logits.shape[0])
    _spread_sum(20 * logits.size, logits, top, out, evenly(out.size))
    return out


def spread_gradient(logits: Array, labels: Array, first: int, rows: Array, top: Array, total: Array,
                    scale: float = 1.0, grad: Array | None = None,
                    target: Array | None = None) -> float:
    if _leaves_rows(rows, grad):
        _clear(grad.size // 4, grad, evenly(grad.shape[0]))
    bounds = evenly(rows.size)
    losses = np.empty(bounds.size - 1)
    work = rows.size * (20 if grad is None else 20 * logits.shape[1])
    target = ONE_HOT if target is None else target
    _spread_gradient(work, logits, labels, first, rows, top, total, scale, target,
                     _gradient(grad, logits), losses, bounds)
    return derived(_total, losses)


def spread_argmax(logits: Array, first: int, top: Array) -> Array:
    out = np.empty(logits.shape[0], np.int64)
    _spread_argmax(logits.size, logits, first, top, out, evenly(out.size))
    return out


def _total(numbers: Array) -> float:
    return numbers.sum().item()


def _gradient(grad: Array | None, logits: Array) -> Array:
    return np.empty((0, 0), logits.dtype) if grad is None else grad


def _leaves_rows(rows: Array, grad: Array) -> bool:
    """Return whether there is a gradient with other rows than `rows`."""
    return grad is not None and (
        rows.size != grad.shape[0] or not np.array_equal(rows, np.arange(rows.size)))
