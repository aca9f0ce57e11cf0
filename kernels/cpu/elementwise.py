"""Fused passes over dense rows on CPU threads: activation, loss, column sums, optimiser steps."""
import math

import numba
import numpy as np

from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.random import keep_byte, key_words
from hpgcn.kernels.jit import Threaded
from hpgcn.kernels.reference import dropout_scale

NO_MASK, NO_VERTEX = np.empty((0, 0), np.uint8), np.empty(0, np.int64)


@Threaded
def _activate(z, bias, vertex, relu, epoch, layer, k0, k1, threshold, scale, mask, bounds):
    width = z.shape[1]
    zero = z.dtype.type(0)
    for chunk in numba.prange(bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for b in range((width + 7) // 8):
                bits = np.uint64(0xFF)
                if threshold:
                    bits = keep_byte(vertex[i], b, epoch, layer, k0, k1, threshold)
                kept = np.uint64(0)
                for q in range(8 * b, min(8 * b + 8, width)):
                    value = z[i, q] + bias[q]
                    bit = bits >> np.uint64(q & 7) & np.uint64(1)
                    if relu and value <= zero:  # not for NaN: it passes on, and the loss shows it
                        bit = np.uint64(0)
                    kept |= bit << np.uint64(q & 7)
                    z[i, q] = value * scale if bit else zero
                if mask.size:
                    mask[i, b] = kept


@Threaded
def _apply_mask(x, mask, scale, bounds):
    width = x.shape[1]
    zero = x.dtype.type(0)
    for chunk in numba.prange(bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(width):
                x[i, q] = x[i, q] * scale if mask[i, q >> 3] >> (q & 7) & 1 else zero


@Threaded
def _softmax_cross_entropy(logits, labels, rows, scale, grad, losses, corrects, bounds):
    width = logits.shape[1]
    for chunk in numba.prange(bounds.size - 1):
        loss, correct = 0.0, 0
        for r in range(bounds[chunk], bounds[chunk + 1]):
            i = rows[r]
            best = 0
            for q in range(1, width):
                if logits[i, q] > logits[i, best]:
                    best = q
            top = np.float64(logits[i, best])
            total = 0.0
            for q in range(width):
                total += math.exp(np.float64(logits[i, q]) - top)
            loss += math.log(total) + top - np.float64(logits[i, labels[i]])
            correct += best == labels[i]
            if grad.size:
                for q in range(width):
                    soft = math.exp(np.float64(logits[i, q]) - top) / total
                    grad[i, q] = (soft - (1.0 if q == labels[i] else 0.0)) * scale
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
