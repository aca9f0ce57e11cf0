"""Dot products, softmax and sums of messages of stored entries on CPU threads.

Each pass computes the linear map of an edge again, so no array has the size of the
nonzeros times the width. A row of x and the weights stay in the first caches.
"""
import math

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cpu.chunks import by_nonzeros
from hpgcn.kernels.cpu.emit.emitter import FIRST
from hpgcn.kernels.cpu.emit.vector_intrinsics import prefetch
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.record import derived
from hpgcn.kernels.host.threads import Threaded, chunks

AHEAD = 16  # entries between the prefetch of a row of y and its use
NEAR = 8  # the same for the rows that a message reads
FLUSH = 512  # entries whose gradients of the weights are summed before float64 takes them
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
def _edge_dot(counters, indptr, indices, x, y, out, bounds):
    heads = out.shape[1]
    width = x.shape[1] // heads
    row_bytes = y.shape[1] * y.itemsize
    for chunk in chunks(counters, bounds.size - 1):
        sums = np.empty(SUMS, x.dtype)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for k in range(indptr[i], indptr[i + 1]):
                if k + AHEAD < indices.size:
                    for byte in range(0, row_bytes, 64):
                        prefetch(y.ctypes.data + indices[k + AHEAD] * row_bytes + byte, FIRST)
                for h in range(heads):
                    out[k, h] = _dot(x, i, y, indices[k], h * width, (h + 1) * width, sums)


def edge_dot(indptr: Array, indices: Array, x: Array, y: Array, out: Array | None = None, *,
             heads: int = 1) -> Array:
    out = np.zeros((indices.size, heads), x.dtype) if out is None else out
    work = (int(indptr[-1]) - int(indptr[0])) * x.shape[1]
    _edge_dot(work, indptr, indices, x, y, out, by_nonzeros(indptr))
    return out


@Threaded
def _softmax(counters, indptr, values, out, bounds):
    heads = values.shape[1]
    for chunk in chunks(counters, bounds.size - 1):
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


def edge_softmax(indptr: Array, values: Array, out: Array | None = None) -> Array:
    """Compute the softmax after subtracting the maximum of a row; sums are float64, in order."""
    out = np.empty_like(values) if out is None else out
    _softmax(16 * values.size, indptr, values, out, by_nonzeros(indptr))
    return out


@Threaded
def _softmax_backward(counters, indptr, alpha, grad, out, bounds):
    heads = alpha.shape[1]
    for chunk in chunks(counters, bounds.size - 1):
        total = np.empty(heads, np.float64)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            total[:] = 0
            for k in range(indptr[i], indptr[i + 1]):
                for h in range(heads):
                    total[h] += np.float64(alpha[k, h]) * grad[k, h]
            for k in range(indptr[i], indptr[i + 1]):
                for h in range(heads):
                    out[k, h] = alpha[k, h] * (grad[k, h] - total[h])


def edge_softmax_backward(indptr: Array, alpha: Array, grad: Array,
                          out: Array | None = None) -> Array:
    out = np.empty_like(alpha) if out is None else out
    _softmax_backward(4 * alpha.size, indptr, alpha, grad, out, by_nonzeros(indptr))
    return out


@jit(forceinline=True)
def _fetch(indices, edge, k, x, features):
    """Prefetch the rows of x and of features of the entry NEAR positions after entry k."""
    if k + NEAR < indices.size:
        first = x.ctypes.data + indices[k + NEAR] * (x.shape[1] * x.itemsize)
        for byte in range(0, x.shape[1] * x.itemsize, 64):
            prefetch(first + byte, FIRST)
        prefetch(features.ctypes.data
                 + edge[k + NEAR] * (features.shape[1] * features.itemsize), FIRST)


@jit(forceinline=True)
def _project(row, x, j, features, t, weight, bias):
    """Write x_j + b + e_t W to `row`, four rows of W at a time."""
    d, width = weight.shape
    for q in range(width):
        row[q] = x[j, q] + bias[q]
    whole = d // 4 * 4
    for k in range(0, whole, 4):
        e0, e1 = features[t, k], features[t, k + 1]
        e2, e3 = features[t, k + 2], features[t, k + 3]
        for q in range(width):
            row[q] = (((row[q] + e0 * weight[k, q]) + e1 * weight[k + 1, q])
                      + e2 * weight[k + 2, q]) + e3 * weight[k + 3, q]
    for k in range(whole, d):
        e0 = features[t, k]
        for q in range(width):
            row[q] += e0 * weight[k, q]


@jit(forceinline=True)
def _add_outer(part, features, t, row):
    """Add the outer product of e_t and `row` to the first rows of `part`."""
    for k in range(features.shape[1]):
        e = features[t, k]
        for q in range(row.size):
            part[k, q] += e * row[q]


@Threaded
def _message_sums(counters, indptr, indices, edge, x, features, weight, bias, out, accumulate,
                  bounds):
    width = x.shape[1]
    zero = x.dtype.type(0)
    for chunk in chunks(counters, bounds.size - 1):
        row = np.empty(width, x.dtype)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            if not accumulate:
                for q in range(width):
                    out[i, q] = zero
            for k in range(indptr[i], indptr[i + 1]):
                _fetch(indices, edge, k, x, features)
                _project(row, x, np.int64(indices[k]), features, edge[k], weight, bias)
                for q in range(width):
                    out[i, q] += zero if row[q] <= zero else row[q]


@Threaded
def _message_gradients(counters, indptr, indices, edge, x, features, weight, bias, grad, out,
                       accumulate, bounds, sums):
    d, width = weight.shape
    zero = x.dtype.type(0)
    for chunk in chunks(counters, bounds.size - 1):
        row, total = np.empty(width, x.dtype), np.empty(width, x.dtype)
        part = np.zeros((d + 1, width), x.dtype)
        count = 0
        for j in range(bounds[chunk], bounds[chunk + 1]):
            total[:] = zero
            for k in range(indptr[j], indptr[j + 1]):
                i, t = indices[k], edge[k]
                _fetch(indices, edge, k, grad, features)

                # the gradient that passes the relu
                _project(row, x, j, features, t, weight, bias)
                for q in range(width):
                    row[q] = zero if row[q] <= zero else grad[i, q]
                    total[q] += row[q]

                # the outer product of e_t and this gradient
                _add_outer(part, features, t, row)
                count += 1
                if count == FLUSH:
                    _flush(part, sums, chunk)
                    count = 0

            for q in range(width):
                part[d, q] += total[q]
                out[j, q] = out[j, q] + total[q] if accumulate else total[q]
        _flush(part, sums, chunk)


@jit(forceinline=True)
def _flush(part, sums, chunk):
    """Add `part` to the float64 sums of a chunk, and set it to 0."""
    for b in range(part.shape[0]):
        for q in range(part.shape[1]):
            sums[chunk, b, q] += part[b, q]
            part[b, q] = 0


def edge_relu(indptr: Array, indices: Array, edge: Array, x: Array, features: Array, weight: Array,
              bias: Array, out: Array | None = None, *, accumulate: bool = False) -> Array:
    """Sum each row on one thread, in the order of its entries."""
    m, (d, width) = indptr.size - 1, weight.shape
    out = np.empty((m, width), x.dtype) if out is None else out
    work = (int(indptr[-1]) - int(indptr[0])) * width * (d + 2)
    _message_sums(work, indptr, indices, edge, x, features, weight, bias, out, accumulate,
          by_nonzeros(indptr))
    return out


def edge_relu_backward(indptr: Array, indices: Array, edge: Array, x: Array, features: Array,
                       weight: Array, bias: Array, grad: Array, out: Array | None = None, *,
                       accumulate: bool = False) -> tuple[Array, ...]:
    """Sum each row on one thread, and the gradients of W and b by chunks of rows.

    The bits do not depend on the number of threads.
    """
    d, width = weight.shape
    out = np.empty(x.shape, x.dtype) if out is None else out
    bounds = by_nonzeros(indptr)
    sums = derived(np.zeros, (bounds.size - 1, d + 1, width))
    work = 2 * (int(indptr[-1]) - int(indptr[0])) * width * (d + 2)
    _message_gradients(work, indptr, indices, edge, x, features, weight, bias, grad, out,
                       accumulate, bounds, sums)
    sums = derived(np.sum, sums, 0)
    return out, sums[:d], sums[d]
