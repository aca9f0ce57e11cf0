"""Fused passes over dense rows on CPU threads: activation, column sums, optimizer steps."""
import math

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import number_dtype
from hpgcn.kernels.cpu.chunks import evenly, write_row
from hpgcn.kernels.cpu.emit.bfloat16 import narrow, widen
from hpgcn.kernels.cpu.emit.exponential import expm1
from hpgcn.kernels.cpu.emit.vector_intrinsics import activate_some, ask
from hpgcn.kernels.cpu.random import draw, every_bit, mask_row, note, step_key
from hpgcn.kernels.host.record import derived
from hpgcn.kernels.host.threads import Threaded, chunks
from hpgcn.kernels.reference.random import dropout_scale

NO_MASK = np.empty((0, 0), np.uint8)
NO_VERTEX = np.empty(0, np.int64)
AHEAD = 1 << 12  # bytes between rows whose bits are drawn and those that are prefetched
ROOT_HALF = math.sqrt(0.5)
DENSITY = 1 / math.sqrt(2 * math.pi)  # density of the normal distribution at 0


@Threaded
def _activate(counters, z, bias, vertex, first, relu, key, dropping, drawn, scale, mask,
              bounds):
    width, itemsize = z.shape[1], z.itemsize
    whole = width // 8
    start, addend = z.ctypes.data, bias.ctypes.data
    zero = bias.dtype.type(0)
    nothing = z.dtype.type(0)
    for chunk in chunks(counters, bounds.size - 1):
        bits = every_bit(width)
        for begin in range(bounds[chunk], bounds[chunk + 1], bits.shape[0]):
            # bits that dropout keeps
            end = min(begin + bits.shape[0], bounds[chunk + 1])
            if dropping:
                later = np.int64(start + begin * width * itemsize + AHEAD)
                ask(later, later + (end - begin) * width * itemsize)
                draw(vertex, begin, end, first, key, bits)
            elif drawn:
                for row in range(end - begin):
                    for b in range(mask.shape[1]):
                        bits[row, b] = mask[begin + row, b]

            for row in range(end - begin):
                i = begin + row
                # 16 columns at a time, then 8
                place = np.int64(start + i * width * itemsize)
                for b in range(0, whole - 1, 2):
                    two = np.uint16(bits[row, b] | np.uint16(bits[row, b + 1]) << 8)
                    kept = activate_some(place + 8 * b * itemsize, addend + 8 * b * bias.itemsize,
                                         two, relu, scale, nothing)
                    if mask.size:
                        mask[i, b] = kept & 0xFF
                        mask[i, b + 1] = kept >> 8
                if whole & 1:
                    b = whole - 1
                    kept = activate_some(place + 8 * b * itemsize, addend + 8 * b * bias.itemsize,
                                         bits[row, b], relu, scale, nothing)
                    if mask.size:
                        mask[i, b] = kept

                # columns that do not fill a byte
                if width % 8:
                    kept = np.uint8(0)
                    for q in range(8 * whole, width):
                        value = widen(z[i, q]) + bias[q]
                        bit = bits[row, whole] >> (q & 7) & 1
                        if relu and value <= zero:  # NaN is kept, and the loss shows it
                            bit = 0
                        kept |= np.uint8(bit << (q & 7))
                        z[i, q] = narrow(value * scale, nothing) if bit else nothing
                    if mask.size:
                        mask[i, whole] = kept


@Threaded
def _elu(counters, z, bias, vertex, first, key, dropping, scale, mask, slopes, bounds):
    width = z.shape[1]
    for chunk in chunks(counters, bounds.size - 1):
        bits = every_bit(width)
        for begin in range(bounds[chunk], bounds[chunk + 1], bits.shape[0]):
            end = min(begin + bits.shape[0], bounds[chunk + 1])
            if dropping:
                draw(vertex, begin, end, first, key, bits)
            for row in range(end - begin):
                i = begin + row
                # loops without bits become vector code
                if slopes.size:
                    for q in range(width):
                        value = np.float64(z[i, q] + bias[q])
                        slopes[i, q] = scale * (1.0 if value > 0 else expm1(min(value, 0.0)) + 1)
                for q in range(width):
                    value = np.float64(z[i, q] + bias[q])
                    low = expm1(min(value, 0.0))
                    z[i, q] = scale * (low if value <= 0 else value)
                if dropping:
                    mask_row(z, z, i, bits, row, z.dtype.type(1))
                    if slopes.size:
                        mask_row(slopes, slopes, i, bits, row, z.dtype.type(1))
            if mask.size:
                note(bits, mask, begin, end, width)


@Threaded
def _gelu(counters, z, bias, vertex, first, key, dropping, scale, mask, slopes, bounds):
    width = z.shape[1]
    for chunk in chunks(counters, bounds.size - 1):
        bits = every_bit(width)
        for begin in range(bounds[chunk], bounds[chunk + 1], bits.shape[0]):
            end = min(begin + bits.shape[0], bounds[chunk + 1])
            if dropping:
                draw(vertex, begin, end, first, key, bits)
            for row in range(end - begin):
                i = begin + row
                for q in range(width):
                    value = np.float64(z[i, q] + bias[q])
                    below = (1 + math.erf(value * ROOT_HALF)) / 2
                    rise = below + value * DENSITY * math.exp(-value * value / 2)
                    kept = bits[row, q >> 3] >> (q & 7) & 1
                    z[i, q] = value * below * scale if kept else 0.0
                    if slopes.size:
                        slopes[i, q] = rise * scale if kept else 0.0
            if mask.size:
                note(bits, mask, begin, end, width)


@Threaded
def _elu_backward(counters, g, out, mask, scale, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(g.shape[1]):
                g[i, q] *= scale + min(np.float64(out[i, q]), 0.0)
            if mask.size:
                mask_row(g, g, i, mask, i, g.dtype.type(1))


@Threaded
def keep_bits(counters, x, mask, scale, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            mask_row(x, x, i, mask, i, scale)


@Threaded
def _column_sum(counters, x, sums, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        total = np.zeros(x.shape[1])  # other threads write to the cache lines of `sums`
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(total.size):
                total[q] += widen(x[i, q])
        write_row(sums, chunk, total)


@Threaded
def _adam(counters, w, g, mean, variance, decay, decayed, beta1, beta2, lr, root_correction,
          epsilon, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        first, last = bounds[chunk], bounds[chunk + 1]
        weight, slope = w[first:last], g[first:last]
        average, square = mean[first:last], variance[first:last]
        for i in range(weight.size):  # a loop from 0 becomes vector code
            rise = slope[i] + decay * weight[i] if first + i < decayed else slope[i]
            average[i] += (1 - beta1) * (rise - average[i])
            square[i] += (1 - beta2) * (rise * rise - square[i])
            weight[i] -= lr * average[i] / (math.sqrt(square[i]) * root_correction + epsilon)


def activate(z: Array, bias: Array, vertex: Array | None = None, *, relu: bool = True,
             seed: int = 0, epoch: int = 0, layer: int = 0, p: float = 0.0, first: int = 0,
             mask: Array | None = None, drawn: bool = False) -> Array:
    if z.size:
        vertex = NO_VERTEX if vertex is None else vertex
        mask = NO_MASK if mask is None else mask
        key = step_key(seed, epoch, layer, p)
        scale = bias.dtype.type(dropout_scale(p))
        drops = bool(key[-1])
        _activate(4 * z.size, z, bias, vertex, first, relu, key, drops and not drawn,
                  drops and drawn, scale, mask, evenly(z.shape[0]))
    return z


def activate_smooth(z: Array, bias: Array, vertex: Array | None = None, *, kind: str, seed: int = 0,
                    epoch: int = 0, layer: int = 0, p: float = 0.0, first: int = 0,
                    mask: Array | None = None, slopes: Array | None = None) -> Array:
    if z.size:
        vertex = NO_VERTEX if vertex is None else vertex
        mask = NO_MASK if mask is None else mask
        slopes = np.empty((0, 0), z.dtype) if slopes is None else slopes
        key = step_key(seed, epoch, layer, p)
        work = _elu if kind == "elu" else _gelu
        work(20 * z.size, z, bias, vertex, first, key, bool(key[-1]), dropout_scale(p), mask,
             slopes, evenly(z.shape[0]))
    return z


def elu_backward(g: Array, out: Array, mask: Array | None = None, scale: float = 1.0) -> Array:
    if g.size:
        mask = NO_MASK if mask is None else mask
        _elu_backward(4 * g.size, g, out, mask, float(scale), evenly(g.shape[0]))
    return g


def apply_mask(x: Array, mask: Array, scale: float = 1.0) -> Array:
    if x.size:
        keep_bits(2 * x.size, x, mask, number_dtype(x.dtype).type(scale), evenly(x.shape[0]))
    return x


def column_sum(x: Array) -> Array:
    bounds = evenly(x.shape[0])
    sums = np.empty((bounds.size - 1, x.shape[1]))
    _column_sum(x.size, x, sums, bounds)
    return derived(np.sum, sums, 0)


def inner(x: Array, y: Array) -> Array:
    return derived(_inner, x, y)


def _inner(x: Array, y: Array) -> Array:
    return np.einsum("ij,ij->", x, y, dtype=np.float64).reshape(1)  # makes no array (m, f)


def adam(w: Array, g: Array, mean: Array, variance: Array, *, step: int, lr: float,
         decay: float = 0.0, decayed: int = 0, beta1: float = 0.9, beta2: float = 0.999,
         epsilon: float = 1e-8) -> None:
    rate = lr / (1 - beta1**step)
    correction = (1 - beta2**step) ** -0.5
    _adam(8 * w.size, w, g, mean, variance, decay, decayed, beta1, beta2, rate, correction, epsilon,
          evenly(w.size))


def sgd(w: Array, g: Array, *, lr: float, decay: float = 0.0, decayed: int = 0) -> None:
    kind = w.dtype.type
    w[decayed:] -= kind(lr) * g[decayed:]
    w[:decayed] -= kind(lr) * (g[:decayed] + kind(decay) * w[:decayed])
