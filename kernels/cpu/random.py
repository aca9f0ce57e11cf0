"""Counter-based random bits (Philox4x32-10), and dropout by keyed bits, on CPU threads.

Only integers are used, so that every backend and every number of threads draws the same
bits. `hpgcn.kernels.reference.dropout_bits` documents the counter, and the column of
each bit.
"""

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import number_dtype
from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.emit.bfloat16 import narrow, widen
from hpgcn.kernels.cpu.emit.vector_intrinsics import mask_some
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.record import of_step
from hpgcn.kernels.host.threads import Threaded, chunks
from hpgcn.kernels.reference.random import draw_key, dropout_scale

DRAW = 16  # scalar operations of other kernels in the time of drawing one byte
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(0xFFFF)
SHIFT = np.uint64(32)
LANES = 8  # numbers of a vector that draws
ROWS = 64  # shorter rows whose bits are drawn together


@jit(forceinline=True)
def _two_bits(word, threshold):
    """Return the keep bits of the lower and the upper half of a word of 32 bits."""
    lower = np.uint64(word & HALF >= threshold)
    upper = np.uint64(word >> np.uint64(16) & HALF >= threshold)
    return lower | upper << np.uint64(1)


@jit(forceinline=True)
def keep_byte(vertex, byte, key):
    """Return the keep bits of columns 8 byte to 8 byte + 7 of a vertex."""
    epoch, layer, k0, k1, threshold = key
    v = np.uint64(vertex)
    return keep_lanes(v & LOW, np.uint64(byte), epoch, layer << np.uint64(16) | v >> SHIFT, k0, k1,
                      threshold)


@jit(forceinline=True)
def keep_lanes(c0, c1, c2, c3, k0, k1, threshold):
    """Return the keep bits of the 8 lanes of a Philox block, without branches.

    The block has the counter (c0, c1, c2, c3) and the key (k0, k1).
    """
    for _ in range(10):  # rounds on 32-bit words
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0 = (p1 >> SHIFT) ^ c1 ^ k0
        c1 = p1 & LOW
        c2 = (p0 >> SHIFT) ^ c3 ^ k1
        c3 = p0 & LOW
        k0 = (k0 + np.uint64(0x9E3779B9)) & LOW
        k1 = (k1 + np.uint64(0xBB67AE85)) & LOW
    return (_two_bits(c0, threshold) | _two_bits(c1, threshold) << np.uint64(2)
            | _two_bits(c2, threshold) << np.uint64(4) | _two_bits(c3, threshold) << np.uint64(6))


@jit(forceinline=True)
def every_bit(width):
    """Return ones for the keep bits of rows that are drawn together, (rows, b) uint8."""
    size = (width + 7) // 8
    return np.full((ROWS if size < LANES else LANES, size), 0xFF, np.uint8)


@jit(forceinline=True)
def draw(vertex, begin, end, first, key, bits):
    """Fill `bits` of `every_bit` with the keep bits of vertices [begin, end), one a row.

    Their columns begin at `first`. If that column lies within a byte, all bytes are
    shifted to begin there. A vector of numbers is drawn along a row, or down several
    rows that are shorter than the vector.
    """
    byte = np.int64(first) >> 3
    shift = np.uint8(first & 7)
    size = bits.shape[1]
    own = vertex[begin:end]
    if size >= LANES:
        for row in range(own.size):
            for b in range(size):
                bits[row, b] = keep_byte(own[row], byte + b, key)
    else:
        column = np.empty(ROWS, np.uint8)
        for b in range(size):
            for row in range(own.size):
                column[row] = keep_byte(own[row], byte + b, key)
            for row in range(own.size):
                bits[row, b] = column[row]
    if shift and size:
        for row in range(end - begin):
            after = np.uint8(keep_byte(vertex[begin + row], byte + size, key))
            for b in range(size):
                later = bits[row, b + 1] if b + 1 < size else after
                bits[row, b] = bits[row, b] >> shift | later << (np.uint8(8) - shift)


@jit(forceinline=True)
def mask_row(x, out, i, bits, row, scale):
    """Store row i of x times `scale` in that of `out` where bits[row] is set, 0 elsewhere."""
    width = x.shape[1]
    source = x.ctypes.data + i * width * x.itemsize
    target = out.ctypes.data + i * width * out.itemsize
    number, zero = x.dtype.type(0), out.dtype.type(0)
    whole = width // 8
    for b in range(0, whole - 1, 2):
        two = np.uint16(bits[row, b] | np.uint16(bits[row, b + 1]) << 8)
        mask_some(source + 8 * b * x.itemsize, target + 8 * b * out.itemsize, two, scale, number,
                  zero)
    if whole & 1:
        b = whole - 1
        mask_some(source + 8 * b * x.itemsize, target + 8 * b * out.itemsize, bits[row, b], scale,
                  number, zero)
    for q in range(width // 8 * 8, width):
        kept = bits[row, q >> 3] >> (q & 7) & 1
        out[i, q] = narrow(widen(x[i, q]) * scale, zero) if kept else zero


@jit(forceinline=True)
def note(bits, mask, begin, end, width):
    """Copy the bits of rows [begin, end) to a mask, with zeros past the width."""
    last = np.uint8(0xFF >> (-width & 7))
    for row in range(end - begin):
        for b in range(mask.shape[1]):
            mask[begin + row, b] = bits[row, b]
        mask[begin + row, mask.shape[1] - 1] &= last


@Threaded
def _dropout_bits(counters, vertex, width, first, key, out, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        bits = every_bit(width)
        for begin in range(bounds[chunk], bounds[chunk + 1], bits.shape[0]):
            end = min(begin + bits.shape[0], bounds[chunk + 1])
            draw(vertex, begin, end, first, key, bits)
            note(bits, out, begin, end, width)


@Threaded
def _dropout(counters, x, vertex, first, key, scale, out, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        bits = every_bit(x.shape[1])
        for begin in range(bounds[chunk], bounds[chunk + 1], bits.shape[0]):
            end = min(begin + bits.shape[0], bounds[chunk + 1])
            draw(vertex, begin, end, first, key, bits)
            for row in range(end - begin):
                mask_row(x, out, begin + row, bits, row, scale)


@Threaded
def _dropout_csr(counters, indptr, indices, data, vertex, first, key, scale, out, bounds):
    zero = data.dtype.type(0)
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            # each entry draws all bits of its byte: without a branch this becomes vector code
            for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                column = first + np.int64(indices[k])
                bits = keep_byte(vertex[i], column >> 3, key)
                kept = bits >> np.uint64(column & 7) & np.uint64(1)
                out[k] = data[k] * scale if kept else zero


def step_key(seed: int, epoch: int, layer: int, p: float) -> tuple:
    """Return the key of dropout draws; see hpgcn.kernels.reference.random.draw_key."""
    given = epoch, seed, layer, p
    return of_step(_key_of_epoch, *given) if p else _key_of_epoch(*given)


def _key_of_epoch(epoch: int, seed: int, layer: int, p: float) -> tuple:
    return draw_key(np.uint64, seed, epoch, layer, p)


def dropout_bits(vertex: Array, width: int, *, seed: int, epoch: int, layer: int, p: float,
                 first: int = 0) -> Array:
    out = np.empty((vertex.size, -(-width // 8)), np.uint8)
    if out.size:
        key = step_key(seed, epoch, layer, p)
        _dropout_bits(DRAW * out.size, vertex, width, first, key, out, evenly(vertex.size))
    return out


def dropout(x: Array, vertex: Array, *, seed: int, epoch: int, layer: int, p: float, first: int = 0,
            out: Array | None = None) -> Array:
    out = np.empty_like(x) if out is None else out
    _dropout(DRAW // 8 * x.size, x, vertex, first, step_key(seed, epoch, layer, p),
             number_dtype(x.dtype).type(dropout_scale(p)), out, evenly(x.shape[0]))
    return out


def dropout_csr(indptr: Array, indices: Array, data: Array, vertex: Array, *, seed: int, epoch: int,
                layer: int, p: float, first: int = 0, out: Array | None = None) -> Array:
    out = np.empty_like(data) if out is None else out
    _dropout_csr(DRAW * data.size, indptr, indices, data, vertex, first,
                 step_key(seed, epoch, layer, p), data.dtype.type(dropout_scale(p)), out,
                 evenly(indptr.size - 1))
    return out
