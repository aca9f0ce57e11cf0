"""Passes over dense rows: activation, column sums, optimiser steps."""
import numpy as np

from hpgcn.kernels.reference.random import dropout_bits, dropout_scale, pack, unpack


def activate(z, bias, vertex=None, *, relu=True, seed=0, epoch=0, layer=0, p=0.0, first=0,
             mask=None):
    """Return z = keep * scale * relu(z + bias), in place; bits are 1 where its slope is not 0.

    Parameters
    ----------
    z : (m, f), changed
    bias : (f,)
    vertex : (m,) int64; ORIGINAL vertex numbers; needed if p > 0
    p : float; probability of dropping; `layer` and `epoch` key the draw
    first : int
        Global number of column 0, for the draw; bit 0 of the mask is column 0 of z whatever it is.
    mask : (m, ceil(f / 8)) uint8, optional; receives the bits (keep and z + bias > 0)
    """
    z += bias
    keep = ~(z <= 0) if relu else np.ones(z.shape, bool)  # NaN passes on: the loss must see it
    if p:
        bits = dropout_bits(
            vertex, z.shape[1], seed=seed, epoch=epoch, layer=layer, p=p, first=first)
        keep = keep & unpack(bits, z.shape[1])
    z[:] = np.where(keep, z * z.dtype.type(dropout_scale(p)), 0)
    if mask is not None:
        mask[:] = pack(keep)
    return z


def apply_mask(x, mask, scale=1.0):
    """In place x = mask * scale * x. Returns x."""
    x[:] = np.where(unpack(mask, x.shape[1]), x * x.dtype.type(scale), 0)
    return x


def column_sum(x):
    """Sum over rows, in float64: (m, f) to (f,)."""
    return x.sum(0, dtype=np.float64)


def inner(x, y):
    """Sum of all x * y, in float64: (m, f) twice to (1,)."""
    return (x.astype(np.float64) * y).sum().reshape(1)


def adam(w, g, mean, variance, *, step, lr, decay=0.0, decayed=0, beta1=0.9, beta2=0.999,
         epsilon=1e-8):
    """One Adam step in place (Kingma and Ba 2015, Algorithm 1, with bias correction).

    step counts from 1. g += decay * w is taken for the first
    `decayed` elements. w, mean and variance change; g does not.
    """
    g = g.copy()
    g[:decayed] += w.dtype.type(decay) * w[:decayed]
    mean += (1 - beta1) * (g - mean)
    variance += (1 - beta2) * (g * g - variance)
    root = np.sqrt(variance / (1 - beta2**step)) + epsilon
    w -= lr * (mean / (1 - beta1**step)) / root


def sgd(w, g, *, lr, decay=0.0, decayed=0):
    """One step of gradient descent in place; decay as in `adam`."""
    g = g.copy()
    g[:decayed] += w.dtype.type(decay) * w[:decayed]
    w -= lr * g
