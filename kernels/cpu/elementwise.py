"""Fused passes over dense rows on CPU threads: activation, loss, column sums, optimiser steps."""
import math

import numba
import numpy as np

from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.pieces import activate_eight, mask_eight, power_of_two
from hpgcn.kernels.cpu.random import keep_byte, key_words
from hpgcn.kernels.jit import Threaded, jit
from hpgcn.kernels.reference import dropout_scale

MAGIC = 1.5 * 2.0**52
NO_MASK, NO_VERTEX = np.empty((0, 0), np.uint8), np.empty(0, np.int64)


@Threaded
def _activate(z, bias, vertex, relu, epoch, layer, k0, k1, threshold, scale, mask, bounds):
    width, itemsize, start, addend = z.shape[1], z.itemsize, z.ctypes.data, bias.ctypes.data
    zero = z.dtype.type(0)
    for chunk in numba.prange(bounds.size - 1):
        bits = np.full((width + 7) // 8, 0xFF, np.uint8)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            if threshold:
                for b in range(bits.size):
                    bits[b] = keep_byte(vertex[i], b, epoch, layer, k0, k1, threshold)
            for b in range(width // 8):
                kept = activate_eight(start + (i * width + 8 * b) * itemsize, addend + 8 * b * itemsize, bits[b], relu,
                                      scale)
                if mask.size:
                    mask[i, b] = kept
            if width % 8:
                kept = np.uint8(0)
                for q in range(width // 8 * 8, width):
                    value = z[i, q] + bias[q]
                    bit = bits[q >> 3] >> (q & 7) & 1
                    if relu and value <= zero:  # not for NaN: it passes on, and the loss shows it
                        bit = 0
                    kept |= np.uint8(bit << (q & 7))
                    z[i, q] = value * scale if bit else zero
                if mask.size:
                    mask[i, width >> 3] = kept


@Threaded
def _apply_mask(x, mask, scale, bounds):
    width, itemsize, start = x.shape[1], x.itemsize, x.ctypes.data
    zero = x.dtype.type(0)
    for chunk in numba.prange(bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for b in range(width // 8):
                mask_eight(start + (i * width + 8 * b) * itemsize, mask[i, b], scale)
            for q in range(width // 8 * 8, width):
                x[i, q] = x[i, q] * scale if mask[i, q >> 3] >> (q & 7) & 1 else zero


@jit(inline="always")
def _exp(x):
    """Exponential of x <= 0, to 2e-16 relative, without branches or calls: a loop over it becomes vector code.

    x = k ln 2 + r with |r| <= ln 2 / 2; k is rounded by adding 1.5 * 2^52, whose low bits then hold it.
    """
    x = max(x, -700.0)
    rounded = x * 1.4426950408889634 + MAGIC
    k = rounded - MAGIC
    r = x - k * 6.93147180369123816490e-01 - k * 1.90821492927058770002e-10  # ln 2, in two parts
    # Taylor's series to r^13; a loop over the coefficients would keep the caller's loop from becoming vector code
    p = ((r / 6227020800.0 + 1 / 479001600.0) * r + 1 / 39916800.0) * r + 1 / 3628800.0
    p = (((p * r + 1 / 362880.0) * r + 1 / 40320.0) * r + 1 / 5040.0) * r + 1 / 720.0
    p = (((p * r + 1 / 120.0) * r + 1 / 24.0) * r + 1 / 6.0) * r + 0.5
    return ((p * r + 1.0) * r + 1.0) * power_of_two(rounded)


@Threaded
def _softmax_cross_entropy(logits, labels, rows, scale, grad, losses, corrects, bounds):
    width = logits.shape[1]
    for chunk in numba.prange(bounds.size - 1):
        loss, correct, power = 0.0, 0, np.empty(width)
        for r in range(bounds[chunk], bounds[chunk + 1]):
            i = rows[r]
            best, sick = 0, 0.0
            for q in range(width):
                sick += logits[i, q] - logits[i, q]  # NaN or Inf anywhere in the row shows in its loss
                if logits[i, q] > logits[i, best]:
                    best = q
            top = np.float64(logits[i, best])
            for q in range(width):
                power[q] = _exp(np.float64(logits[i, q]) - top)
            a, b, c, d = 0.0, 0.0, 0.0, 0.0  # four sums in a fixed order: one would wait for each addition
            for q in range(0, width - 3, 4):
                a += power[q]
                b += power[q + 1]
                c += power[q + 2]
                d += power[q + 3]
            for q in range(width // 4 * 4, width):
                a += power[q]
            total = (a + b) + (c + d)
            loss += math.log(total) + top - np.float64(logits[i, labels[i]]) + sick
            correct += best == labels[i]
            if grad.size:
                factor = scale / total
                for q in range(width):
                    grad[i, q] = power[q] * factor
                grad[i, labels[i]] = (power[labels[i]] / total - 1.0) * scale
        losses[chunk] = loss
        corrects[chunk] = correct


@Threaded
def _column_sum(x, sums, bounds):
    for chunk in numba.prange(bounds.size - 1):
        for q in range(x.shape[1]):
            sums[chunk, q] = 0.0
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(x.shape[1]):
                sums[chunk, q] += x[i, q]


@Threaded
def _adam(w, g, mean, variance, decay, decayed, beta1, beta2, lr, root_correction, epsilon, bounds):
    for chunk in numba.prange(bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            slope = g[i] + decay * w[i] if i < decayed else g[i]
            mean[i] += (1 - beta1) * (slope - mean[i])
            variance[i] += (1 - beta2) * (slope * slope - variance[i])
            w[i] -= lr * mean[i] / (math.sqrt(variance[i]) * root_correction + epsilon)


def activate(z, bias, vertex=None, *, relu=True, seed=0, epoch=0, layer=0, p=0.0, mask=None):
    """Bias, ReLU and keyed dropout in one pass: see `hpgcn.kernels.reference.activate`."""
    if z.size:
        _activate(4 * z.size, z, bias, NO_VERTEX if vertex is None else vertex, relu, epoch, layer, *key_words(seed, p),
                  z.dtype.type(dropout_scale(p)), NO_MASK if mask is None else mask, evenly(z.shape[0]))
    return z


def apply_mask(x, mask, scale=1.0):
    """Keep the masked entries, scaled: see `hpgcn.kernels.reference.apply_mask`."""
    if x.size:
        _apply_mask(2 * x.size, x, mask, x.dtype.type(scale), evenly(x.shape[0]))
    return x


def softmax_cross_entropy(logits, labels, rows, *, scale=1.0, grad=None):
    """Loss, right answers and gradient in one pass: see `hpgcn.kernels.reference.softmax_cross_entropy`."""
    if grad is not None:
        grad[:] = 0
    if rows.size == 0:
        return 0.0, 0
    bounds = evenly(rows.size)
    losses, corrects = np.empty(bounds.size - 1), np.empty(bounds.size - 1, np.int64)
    target = np.empty((0, 0), logits.dtype) if grad is None else grad
    work = 20 * rows.size * logits.shape[1]
    _softmax_cross_entropy(work, logits, labels, rows, scale, target, losses, corrects, bounds)
    return float(losses.sum()), int(corrects.sum())


def column_sum(x):
    """Sum over rows, in float64: see `hpgcn.kernels.reference.column_sum`."""
    bounds = evenly(x.shape[0])
    sums = np.empty((bounds.size - 1, x.shape[1]))
    _column_sum(x.size, x, sums, bounds)
    return sums.sum(0)


def adam(w, g, mean, variance, *, step, lr, decay=0.0, decayed=0, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """One Adam step in one pass: see `hpgcn.kernels.reference.adam`."""
    rate, correction = lr / (1 - beta1**step), (1 - beta2**step) ** -0.5
    _adam(8 * w.size, w, g, mean, variance, decay, decayed, beta1, beta2, rate, correction, epsilon, evenly(w.size))


def sgd(w, g, *, lr, decay=0.0, decayed=0):
    """One step of gradient descent: see `hpgcn.kernels.reference.sgd`."""
    w[decayed:] -= w.dtype.type(lr) * g[decayed:]
    w[:decayed] -= w.dtype.type(lr) * (g[:decayed] + w.dtype.type(decay) * w[:decayed])
