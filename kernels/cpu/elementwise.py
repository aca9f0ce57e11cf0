"""Fused passes over dense rows on CPU threads: activation, column sums, optimiser steps."""
import math

import numba
import numpy as np

from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.pieces import activate_eight, mask_eight
from hpgcn.kernels.cpu.random import draw, key_words
from hpgcn.kernels.jit import Threaded
from hpgcn.kernels.reference.random import dropout_scale

NO_MASK, NO_VERTEX = np.empty((0, 0), np.uint8), np.empty(0, np.int64)


@Threaded
def _activate(z, bias, vertex, first, relu, epoch, layer, k0, k1, threshold, scale, mask, bounds):
    width, itemsize, start, addend = z.shape[1], z.itemsize, z.ctypes.data, bias.ctypes.data
    zero = z.dtype.type(0)
    for chunk in numba.prange(bounds.size - 1):
        bits = np.full((1, (width + 7) // 8), 0xFF, np.uint8)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            if threshold:
                draw(vertex[i], first, epoch, layer, k0, k1, threshold, bits, 0)
            for b in range(width // 8):
                kept = activate_eight(start + (i * width + 8 * b) * itemsize, addend + 8 * b * itemsize, bits[0, b],
                                      relu, scale)
                if mask.size:
                    mask[i, b] = kept
            if width % 8:
                kept = np.uint8(0)
                for q in range(width // 8 * 8, width):
                    value = z[i, q] + bias[q]
                    bit = bits[0, q >> 3] >> (q & 7) & 1
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


def activate(z, bias, vertex=None, *, relu=True, seed=0, epoch=0, layer=0, p=0.0, first=0, mask=None):
    """Bias, ReLU and keyed dropout in one pass: see `hpgcn.kernels.reference.activate`."""
    if z.size:
        _activate(4 * z.size, z, bias, NO_VERTEX if vertex is None else vertex, first, relu, epoch, layer,
                  *key_words(seed, p), z.dtype.type(dropout_scale(p)), NO_MASK if mask is None else mask,
                  evenly(z.shape[0]))
    return z


def apply_mask(x, mask, scale=1.0):
    """Keep the masked entries, scaled: see `hpgcn.kernels.reference.apply_mask`."""
    if x.size:
        _apply_mask(2 * x.size, x, mask, x.dtype.type(scale), evenly(x.shape[0]))
    return x


def column_sum(x):
    """Sum over rows, in float64: see `hpgcn.kernels.reference.column_sum`."""
    bounds = evenly(x.shape[0])
    sums = np.empty((bounds.size - 1, x.shape[1]))
    _column_sum(x.size, x, sums, bounds)
    return sums.sum(0)


def inner(x, y):
    """Sum of all products of elements, in float64: see `hpgcn.kernels.reference.inner`."""
    return np.einsum("ij,ij->", x, y, dtype=np.float64).reshape(1)  # in pieces, no m x f array


def adam(w, g, mean, variance, *, step, lr, decay=0.0, decayed=0, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """One Adam step in one pass: see `hpgcn.kernels.reference.adam`."""
    rate, correction = lr / (1 - beta1**step), (1 - beta2**step) ** -0.5
    _adam(8 * w.size, w, g, mean, variance, decay, decayed, beta1, beta2, rate, correction, epsilon, evenly(w.size))


def sgd(w, g, *, lr, decay=0.0, decayed=0):
    """One step of gradient descent: see `hpgcn.kernels.reference.sgd`."""
    w[decayed:] -= w.dtype.type(lr) * g[decayed:]
    w[:decayed] -= w.dtype.type(lr) * (g[:decayed] + w.dtype.type(decay) * w[:decayed])
