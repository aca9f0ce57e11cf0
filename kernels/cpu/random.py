"""Counter-based random bits (Philox4x32-10) and keyed dropout on CPU threads.

Integers only, so every backend and every thread count draws the same bits. What the counter holds and which bit
belongs to which column: `hpgcn.kernels.reference.dropout_bits`.
"""
import numba
import numpy as np

from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.pieces import mask_eight
from hpgcn.kernels.jit import Threaded, jit
from hpgcn.kernels.reference.random import dropout_scale, dropout_threshold

DRAW = 16  # work of drawing one byte, in scalar operations of other kernels
LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


@jit(inline="always")
def philox_words(c0, c1, c2, c3, k0, k1):
    """Ten rounds on uint64 scalars that hold 32-bit words; returns four of the same."""
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0 = (p1 >> SHIFT) ^ c1 ^ k0
        c1 = p1 & LOW
        c2 = (p0 >> SHIFT) ^ c3 ^ k1
        c3 = p0 & LOW
        k0 = (k0 + np.uint64(0x9E3779B9)) & LOW
        k1 = (k1 + np.uint64(0xBB67AE85)) & LOW
    return c0, c1, c2, c3


@jit(inline="always")
def _bit(word, shift, threshold, column):
    return np.uint64(word >> np.uint64(shift) & np.uint64(0xFFFF) >= threshold) << np.uint64(column)


@jit(inline="always")
def keep_byte(vertex, byte, epoch, layer, k0, k1, threshold):
    """The 8 keep bits of columns 8 byte .. 8 byte + 7 of one vertex. No branches: loops over it become vector code."""
    v = np.uint64(vertex)
    a, b, c, d = philox_words(v & LOW, np.uint64(byte), np.uint64(epoch),
                              np.uint64(layer) << np.uint64(16) | v >> SHIFT, k0, k1)
    return (_bit(a, 0, threshold, 0) | _bit(a, 16, threshold, 1) | _bit(b, 0, threshold, 2)
            | _bit(b, 16, threshold, 3) | _bit(c, 0, threshold, 4) | _bit(c, 16, threshold, 5)
            | _bit(d, 0, threshold, 6) | _bit(d, 16, threshold, 7))


@jit(inline="always")
def draw(vertex, first, epoch, layer, k0, k1, threshold, bits, row):
    """Fill row `row` of bits (rows, b) with the keep bits of columns first .. first + 8 b - 1 of one vertex.

    Every byte is drawn once; if the first column lies inside a byte, bytes are then shifted to begin there.
    """
    byte, shift, last = np.int64(first) >> 3, np.int64(first) & 7, bits.shape[1] - 1
    for b in range(bits.shape[1]):
        bits[row, b] = keep_byte(vertex, byte + b, epoch, layer, k0, k1, threshold)
    if shift and last >= 0:
        for b in range(last):
            bits[row, b] = bits[row, b] >> shift | bits[row, b + 1] << (8 - shift)
        after = np.int64(keep_byte(vertex, byte + last + 1, epoch, layer, k0, k1, threshold))
        bits[row, last] = bits[row, last] >> shift | after << (8 - shift)


@jit()
def _philox(counter, key, out):
    for i in range(counter.shape[0]):
        words = philox_words(np.uint64(counter[i, 0]), np.uint64(counter[i, 1]), np.uint64(counter[i, 2]),
                             np.uint64(counter[i, 3]), np.uint64(key[0]), np.uint64(key[1]))
        for w in range(4):
            out[i, w] = words[w]


@Threaded
def _dropout_bits(vertex, width, first, epoch, layer, k0, k1, threshold, out, bounds):
    last = np.uint8(0xFF >> (-width % 8))  # pad bits are 0
    for chunk in numba.prange(bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            draw(vertex[i], first, epoch, layer, k0, k1, threshold, out, i)
            out[i, out.shape[1] - 1] &= last


@Threaded
def _dropout(x, vertex, first, epoch, layer, k0, k1, threshold, scale, out, bounds):
    width, itemsize, start = x.shape[1], x.itemsize, out.ctypes.data
    zero = x.dtype.type(0)
    for chunk in numba.prange(bounds.size - 1):
        bits = np.empty((1, (width + 7) // 8), np.uint8)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            draw(vertex[i], first, epoch, layer, k0, k1, threshold, bits, 0)
            for q in range(width):
                out[i, q] = x[i, q]
            for b in range(width // 8):
                mask_eight(start + (i * width + 8 * b) * itemsize, bits[0, b], scale)
            for q in range(width // 8 * 8, width):
                out[i, q] = x[i, q] * scale if bits[0, q >> 3] >> (q & 7) & 1 else zero


@Threaded
def _dropout_csr(indptr, indices, data, vertex, first, epoch, layer, k0, k1, threshold, scale, out, bounds):
    zero = data.dtype.type(0)
    for chunk in numba.prange(bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            byte, bits = -1, np.uint64(0)
            for k in range(indptr[i], indptr[i + 1]):
                column = first + indices[k]
                if column >> 3 != byte:  # columns increase: entries of one byte share a draw
                    byte = column >> 3
                    bits = keep_byte(vertex[i], byte, epoch, layer, k0, k1, threshold)
                out[k] = data[k] * scale if bits >> np.uint64(column & 7) & np.uint64(1) else zero


def key_words(seed, p):
    """The two 32-bit words of a 64-bit seed, and the threshold of p."""
    return np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32), np.uint64(dropout_threshold(p))


def philox(counter, key):
    """Philox4x32-10: see `hpgcn.kernels.reference.philox`."""
    counter = np.ascontiguousarray(counter, np.uint64)
    out = np.empty(counter.shape, np.uint32)
    _philox(counter.reshape(-1, 4), np.asarray(key, np.uint64), out.reshape(-1, 4))
    return out


def dropout_bits(vertex, width, *, seed, epoch, layer, p, first=0):
    """Keyed dropout bits: see `hpgcn.kernels.reference.dropout_bits`."""
    out = np.empty((vertex.size, -(-width // 8)), np.uint8)
    if out.size:
        _dropout_bits(DRAW * out.size, vertex, width, first, epoch, layer, *key_words(seed, p), out,
                      evenly(vertex.size))
    return out


def dropout(x, vertex, *, seed, epoch, layer, p, first=0, out=None):
    """Dense dropout: see `hpgcn.kernels.reference.dropout`."""
    out = np.empty_like(x) if out is None else out
    scale = x.dtype.type(dropout_scale(p))
    _dropout(DRAW // 8 * x.size, x, vertex, first, epoch, layer, *key_words(seed, p), scale, out, evenly(x.shape[0]))
    return out


def dropout_csr(indptr, indices, data, vertex, *, seed, epoch, layer, p, first=0, out=None):
    """Dropout of stored entries: see `hpgcn.kernels.reference.dropout_csr`."""
    out = np.empty_like(data) if out is None else out
    scale = data.dtype.type(dropout_scale(p))
    _dropout_csr(DRAW * data.size, indptr, indices, data, vertex, first, epoch, layer, *key_words(seed, p), scale, out,
                 evenly(indptr.size - 1))
    return out
