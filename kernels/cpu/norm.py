"""Normalization of rows and columns on CPU threads; see hpgcn.kernels.reference.norm.

Everything is computed in float64 and rounded when stored. Sums are taken in a fixed
order.
"""

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cpu.chunks import evenly, row_total, write_row
from hpgcn.kernels.host.record import derived
from hpgcn.kernels.host.threads import Threaded, chunks


@Threaded
def _row_sum(counters, x, out, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        term = np.empty(x.shape[1])
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(term.size):
                term[q] = x[i, q]
            out[i] = row_total(term)


@Threaded
def _row_squares(counters, x, mean, out, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        term = np.empty(x.shape[1])
        for i in range(bounds[chunk], bounds[chunk + 1]):
            middle = mean[i]
            for q in range(term.size):
                deviation = np.float64(x[i, q]) - middle
                term[q] = deviation * deviation
            out[i] = row_total(term)


@Threaded
def _layer_norm(counters, x, mean, inv_std, gain, bias, out, xhat, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        normal = np.empty(x.shape[1])
        for i in range(bounds[chunk], bounds[chunk + 1]):
            middle = mean[i]
            factor = inv_std[i]
            for q in range(normal.size):
                normal[q] = (np.float64(x[i, q]) - middle) * factor
            if xhat.size:
                for q in range(normal.size):
                    xhat[i, q] = normal[q]
            for q in range(normal.size):
                out[i, q] = normal[q] * gain[q] + bias[q]


@Threaded
def _backward_sums(counters, g, xhat, gain, sums, dgain, dbias, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        slope, product = np.empty(gain.size), np.empty(gain.size)
        by_gain, by_bias = np.zeros(gain.size), np.zeros(gain.size)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(gain.size):
                value = np.float64(g[i, q])
                slope[q] = value * gain[q]
                by_bias[q] += value
            for q in range(gain.size):
                normal = np.float64(xhat[i, q])
                product[q] = slope[q] * normal
                by_gain[q] += g[i, q] * normal
            sums[i, 0] = row_total(slope)
            sums[i, 1] = row_total(product)
        write_row(dgain, chunk, by_gain)
        write_row(dbias, chunk, by_bias)


@Threaded
def _layer_norm_backward(counters, g, xhat, inv_std, gain, means, out, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            factor = inv_std[i]
            first, second = means[i, 0], means[i, 1]
            for q in range(gain.size):
                centered = g[i, q] * gain[q] - first
                out[i, q] = factor * (centered - np.float64(xhat[i, q]) * second)


@Threaded
def _column_squares(counters, x, mean, sums, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        total = np.zeros(mean.size)  # other threads write to the cache lines of `sums`
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(mean.size):
                deviation = np.float64(x[i, q]) - mean[q]
                total[q] += deviation * deviation
        write_row(sums, chunk, total)


@Threaded
def _batch_norm(counters, x, mean, inv_std, gain, bias, out, xhat, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(gain.size):
                normal = (np.float64(x[i, q]) - mean[q]) * inv_std[q]
                if xhat.size:
                    xhat[i, q] = normal
                out[i, q] = normal * gain[q] + bias[q]


@Threaded
def _batch_norm_backward(counters, g, xhat, factor, means, out, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(factor.size):
                centered = np.float64(g[i, q]) - means[0, q]
                out[i, q] = factor[q] * (centered - np.float64(xhat[i, q]) * means[1, q])


def _doubled(values: Array) -> Array:
    """Return numbers as float64."""
    return derived(values.astype, np.float64)


def row_sum(x: Array) -> Array:
    out = np.empty(x.shape[0])
    _row_sum(2 * x.size, x, out, evenly(x.shape[0]))
    return out


def row_squares(x: Array, mean: Array) -> Array:
    out = np.empty(x.shape[0])
    _row_squares(4 * x.size, x, mean, out, evenly(x.shape[0]))
    return out


def layer_norm(x: Array, mean: Array, inv_std: Array, gain: Array, bias: Array,
               out: Array | None = None, *, xhat: Array | None = None) -> Array:
    out = np.empty_like(x) if out is None else out
    xhat = np.empty((0, 0), x.dtype) if xhat is None else xhat
    _layer_norm(6 * x.size, x, mean, inv_std, _doubled(gain), _doubled(bias), out,
                xhat, evenly(x.shape[0]))
    return out


def layer_norm_backward_sums(g: Array, xhat: Array, gain: Array) -> tuple[Array, ...]:
    bounds = evenly(g.shape[0])
    sums = np.empty((g.shape[0], 2))
    columns = np.empty((2, bounds.size - 1, gain.size))
    _backward_sums(10 * g.size, g, xhat, _doubled(gain), sums, *columns, bounds)
    return sums, *derived(np.sum, columns, 1)


def layer_norm_backward(g: Array, xhat: Array, inv_std: Array, gain: Array, means: Array,
                        out: Array | None = None) -> Array:
    out = np.empty_like(g) if out is None else out
    _layer_norm_backward(6 * g.size, g, xhat, inv_std, _doubled(gain), means, out,
                         evenly(g.shape[0]))
    return out


def column_squares(x: Array, mean: Array) -> Array:
    bounds = evenly(x.shape[0])
    sums = np.empty((bounds.size - 1, x.shape[1]))
    _column_squares(3 * x.size, x, mean, sums, bounds)
    return derived(np.sum, sums, 0)


def batch_norm(x: Array, mean: Array, inv_std: Array, gain: Array, bias: Array,
               out: Array | None = None, *, xhat: Array | None = None) -> Array:
    out = np.empty_like(x) if out is None else out
    xhat = np.empty((0, 0), x.dtype) if xhat is None else xhat
    _batch_norm(6 * x.size, x, mean, inv_std, _doubled(gain), _doubled(bias), out,
                xhat, evenly(x.shape[0]))
    return out


def batch_norm_backward(g: Array, xhat: Array, inv_std: Array, gain: Array, means: Array,
                        out: Array | None = None) -> Array:
    out = np.empty_like(g) if out is None else out
    factor = derived(np.multiply, inv_std, _doubled(gain))
    _batch_norm_backward(6 * g.size, g, xhat, factor, means, out, evenly(g.shape[0]))
    return out
