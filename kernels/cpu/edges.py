"""Kernels on stored entries on CPU threads: dot products, and softmax over rows."""
import math

import numpy as np

from hpgcn.kernels.cpu.chunks import by_nonzeros
from hpgcn.kernels.cpu.emit.emitter import FIRST
from hpgcn.kernels.cpu.emit.vector_intrinsics import prefetch
from hpgcn.kernels.jit import jit
from hpgcn.kernels.threads import Threaded, chunks

AHEAD = 16  # entries between asking for a row of y and reading it
SUMS = 16  # partial sums of a dot product, side by side: these become vectors


@jit(forceinline=True)
def _dot(x, i, y, j, begin, end, sums):
    whole = begin + (end - begin) // SUMS * SUMS
    for s in range(SUMS):
        sums[s] = 0
    for q in range(begin, whole, SUMS):
        for s in range(SUMS):
            sums[s] += x[i, q + s] * y[j, q + s]
    for q in range(whole, end):
        sums[q - whole] += x[i, q] * y[j, q]
    half = SUMS // 2
    while half:
        for s in range(half):
            sums[s] += sums[s + half]
        half //= 2
    return sums[0]


@Threaded
def _edge_dot(next_chunk, indptr, indices, x, y, out, bounds):
    heads = out.shape[1]
    width = x.shape[1] // heads
    row_bytes = y.shape[1] * y.itemsize
    for chunk in chunks(next_chunk, bounds.size - 1):
        sums = np.empty(SUMS, x.dtype)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for k in range(indptr[i], indptr[i + 1]):
                if k + AHEAD < indices.size:
                    for byte in range(0, row_bytes, 64):
                        prefetch(y.ctypes.data + indices[k + AHEAD] * row_bytes + byte, FIRST)
                for h in range(heads):
                    out[k, h] = _dot(x, i, y, indices[k], h * width, (h + 1) * width, sums)


def edge_dot(indptr, indices, x, y, out=None, *, heads=1):
    out = np.zeros((indices.size, heads), x.dtype) if out is None else out
    work = (int(indptr[-1]) - int(indptr[0])) * x.shape[1]
    _edge_dot(work, indptr, indices, x, y, out, by_nonzeros(indptr))
    return out


@Threaded
def _softmax(next_chunk, indptr, values, out, bounds):
    heads = values.shape[1]
    for chunk in chunks(next_chunk, bounds.size - 1):
        top, total = np.empty(heads, values.dtype), np.empty(heads, np.float64)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            start, stop = indptr[i], indptr[i + 1]
            top[:] = -np.inf
            total[:] = 0
            for k in range(start, stop):
                for h in range(heads):
                    top[h] = max(top[h], values[k, h])
            for k in range(start, stop):
                for h in range(heads):
                    power = math.exp(values[k, h] - top[h])
                    total[h] += power
                    out[k, h] = power
            for k in range(start, stop):
                for h in range(heads):
                    out[k, h] /= total[h]


def edge_softmax(indptr, values, out=None):
    """Compute the softmax after subtracting the maximum; sums are float64, in the order
    of the entries.
    """
    out = np.empty_like(values) if out is None else out
    _softmax(16 * values.size, indptr, values, out, by_nonzeros(indptr))
    return out


@Threaded
def _softmax_backward(next_chunk, indptr, alpha, grad, out, bounds):
    heads = alpha.shape[1]
    for chunk in chunks(next_chunk, bounds.size - 1):
        total = np.empty(heads, np.float64)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            total[:] = 0
            for k in range(indptr[i], indptr[i + 1]):
                for h in range(heads):
                    total[h] += np.float64(alpha[k, h]) * grad[k, h]
            for k in range(indptr[i], indptr[i + 1]):
                for h in range(heads):
                    out[k, h] = alpha[k, h] * (grad[k, h] - total[h])


def edge_softmax_backward(indptr, alpha, grad, out=None):
    out = np.empty_like(alpha) if out is None else out
    _softmax_backward(4 * alpha.size, indptr, alpha, grad, out, by_nonzeros(indptr))
    return out
