"""Graph attention on CPU threads, in tiles of a row's entries; x is read once.

A tile is processed in three steps of vector code: scores and their maximum, weights by
exp, sums of rows of x (`attend_tiles`). If a tile raises the maximum of the row,
earlier sums are rescaled (online softmax). So x is read once, in the order of the
entries, as by `spmm`. An entry moves K f + K numbers, and a row K f + 2 K. These
numbers over the bandwidth bound the time from below.

These ratios were measured with 8 heads of 16, R-MAT of 2^17 vertices and 3 M entries,
on two cores with AVX-512. Forward takes about 2 times `spmm` of 128 columns, or 2.4
times with `above`; backward takes 2.8 times. The cost is exp and short rows. Dropout
draws a Philox block for 8 heads of an entry, about 2 times `spmm`.
"""
import math

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cpu.chunks import by_nonzeros, evenly
from hpgcn.kernels.cpu.emit.attend_intrinsics import column_shape, head_shape
from hpgcn.kernels.cpu.emit.attend_tiles import TileShapes, backward_code, forward_code
from hpgcn.kernels.cpu.emit.c_functions import call
from hpgcn.kernels.cpu.emit.vector_intrinsics import address
from hpgcn.kernels.cpu.random import LOW, SHIFT, keep_lanes
from hpgcn.kernels.cpu.spmm import CHUNKS
from hpgcn.kernels.cpu.tuning import last_level_cache
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.record import of_step
from hpgcn.kernels.host.threads import Threaded, chunks
from hpgcn.kernels.reference.attend import attention_key
from hpgcn.kernels.reference.random import dropout_scale, dropout_threshold

TILE = 32  # entries; their rows of x, 16 KB for 128 floats each, stay in the first cache
EXP = 24  # scalar operations of other kernels in the time of a score and its weight
NO_NUMBERS = np.empty(0, np.int64)


@jit(forceinline=True)
def _place(array):
    return np.int64(array.ctypes.data)


@jit(forceinline=True)
def _entry_byte(vertex, neighbor, byte, key):
    """Return the keep bits of an entry for 8 heads, from head number first + 8 byte on."""
    first = key[3]
    byte = np.uint64(byte) + first // np.uint64(8)
    shift = first % np.uint64(8)
    bits = np.uint64(_aligned_byte(vertex, neighbor, byte, key))
    if shift:
        after = np.uint64(_aligned_byte(vertex, neighbor, byte + np.uint64(1), key))
        bits = (bits >> shift | after << (np.uint64(8) - shift)) & np.uint64(255)
    return np.uint8(bits)


@jit(forceinline=True)
def _aligned_byte(vertex, neighbor, byte, key):
    """Return the keep bits of an entry for heads 8 byte to 8 byte + 7."""
    k0, k1, threshold, _ = key
    i, j = np.uint64(vertex), np.uint64(neighbor)
    return keep_lanes(i & LOW, j & LOW, (i >> SHIFT) << np.uint64(16) | j >> SHIFT,
                      np.uint64(byte), k0, k1, threshold)


@Threaded
def _attend(counters, indptr, indices, row_score, out, lse, above, share, vertex, neighbor, key,
            accumulate, itemsize, heads, width, padded, bounds, code, numbers):
    zero, one = lse.dtype.type(0), lse.dtype.type(1)
    num_bytes = np.int64((padded + 7) // 8)
    row_bytes = heads * width * itemsize
    for chunk in chunks(counters, bounds.size - 1):
        # buffers of this thread
        tiles = np.zeros((2, TILE, padded), lse.dtype)
        state = np.zeros((4, padded), lse.dtype)
        bits = np.zeros((TILE, num_bytes), np.uint8)
        top, factors, total, shares = (
            _place(state[0]), _place(state[1]), _place(state[2]), _place(state[3]))
        for i in range(bounds[chunk], bounds[chunk + 1]):
            start, stop = np.int64(indptr[i]), np.int64(indptr[i + 1])
            if accumulate and start == stop:
                continue

            # begin a row: state of the softmax, and zero sums
            for h in range(padded):
                state[0, h], state[2, h], state[3, h] = -np.inf, zero, zero
            if accumulate:
                for h in range(heads):
                    state[0, h] = lse[i, h]
                    state[2, h] = one if lse[i, h] != -np.inf else zero
                    state[3, h] = share[i, h] if share.size else zero
            else:
                out[i] = zero
                if above.size:
                    above[i] = zero

            # add its entries tile by tile
            for first in range(start, stop, TILE):
                count = min(stop - first, TILE)
                if key[2]:
                    for t in range(count):
                        j = neighbor[indices[first + t]]
                        for b in range(num_bytes):
                            bits[t, b] = _entry_byte(vertex[i], j, b, key)
                # addresses of `tiles` are taken here: Numba frees an array after its last use
                call(code, (first, count, row_score + i * heads * itemsize, _place(tiles[0]),
                            _place(tiles[1]) if above.size else 0, top, factors, total, shares,
                            _place(bits) if key[2] else 0, _place(out) + i * row_bytes,
                            _place(above) + i * row_bytes), numbers)

            # end the row: log of the sum, and sums divided by it
            for h in range(heads):
                whole = state[2, h]
                lse[i, h] = state[0, h] + math.log(whole)
                state[1, h] = zero if whole == zero else one / whole
                if share.size:
                    share[i, h] = state[3, h] * state[1, h]
            for h in range(heads):
                for q in range(h * width, (h + 1) * width):
                    out[i, q] *= state[1, h]
                if above.size:
                    for q in range(h * width, (h + 1) * width):
                        above[i, q] *= state[1, h]


def attend(indptr: Array, indices: Array, x: Array, row_score: Array, col_score: Array,
           out: Array | None = None, lse: Array | None = None, *, above: Array | None = None,
           share: Array | None = None, slope: float = 0.2, vertex: Array | None = None,
           neighbor: Array | None = None, seed: int = 0, epoch: int = 0, layer: int = 0,
           p: float = 0.0, first: int = 0, accumulate: bool = False) -> tuple[Array, Array]:
    """Compute attention on threads that each take chunks of rows, balanced by nonzeros.

    One thread sums a row. The order of the sum depends on the length of the row and the
    widths, not on the number of threads.
    """
    m, heads = row_score.shape
    dtype = x.dtype
    out = np.empty((m, x.shape[1]), dtype) if out is None else out
    lse = np.empty((m, heads), dtype) if lse is None else lse
    none = np.empty((0, 0), dtype)
    vertex, neighbor, key, scale = _draws(vertex, neighbor, seed, epoch, layer, p, first)
    if m:
        width, ahead, shapes = _plan(x, indices, x.shape[1], heads, 1 if above is None else 2)
        numbers = (address(indices), indices.size - 1, ahead, address(col_score), address(x), heads,
                   width, -(-shapes.padded // 8), dtype.type(slope), dtype.type(scale))
        _attend(_work(indptr, x.shape[1], heads), indptr, indices, address(row_score), out, lse,
                none if above is None else above, none if share is None else share, vertex,
                neighbor, key, accumulate, dtype.itemsize, heads, width, shapes.padded,
                by_nonzeros(indptr, CHUNKS), forward_code(shapes).address, numbers)
    return out, lse


@Threaded
def _attend_backward(counters, indptr, indices, x, col_score, dx, dcol_score, slope, vertex,
                     neighbor, key, accumulate, itemsize, heads, width, padded, bounds, code,
                     numbers):
    zero, one = dcol_score.dtype.type(0), dcol_score.dtype.type(1)
    num_bytes = np.int64((padded + 7) // 8)
    columns = heads * width
    for chunk in chunks(counters, bounds.size - 1):
        tiles = np.zeros((2, TILE, padded), dcol_score.dtype)
        state = np.ones((2, padded), dcol_score.dtype)  # sums, and factors
        sums = np.zeros((2, columns), dcol_score.dtype)
        bits = np.zeros((TILE, num_bytes), np.uint8)
        for j in range(bounds[chunk], bounds[chunk + 1]):
            sums[:] = zero
            state[0] = zero
            start, stop = np.int64(indptr[j]), np.int64(indptr[j + 1])
            for first in range(start, stop, TILE):
                count = min(stop - first, TILE)
                if key[2]:
                    for t in range(count):
                        i = vertex[indices[first + t]]
                        for b in range(num_bytes):
                            bits[t, b] = _entry_byte(i, neighbor[j], b, key)
                call(code, (first, count, col_score + j * heads * itemsize, _place(tiles[0]),
                            _place(tiles[1]), _place(state[0]), _place(state[1]),
                            _place(bits) if key[2] else 0, _place(sums[0]), _place(sums[1])),
                     numbers)
            for h in range(heads):
                # the sum of alpha keep LeakyReLU' <grad, x>, without a dot product for
                # each entry
                total = -state[0, h]
                for q in range(h * width, (h + 1) * width):
                    total += (slope * sums[0, q] + (one - slope) * sums[1, q]) * x[j, q]
                dcol_score[j, h] = dcol_score[j, h] + total if accumulate else total
            for q in range(columns):
                dx[j, q] = dx[j, q] + sums[0, q] if accumulate else sums[0, q]


def attend_backward(indptr: Array, indices: Array, pulled: Array, x: Array, col_score: Array,
                    dx: Array | None = None, dcol_score: Array | None = None, *, slope: float = 0.2,
                    vertex: Array | None = None, neighbor: Array | None = None, seed: int = 0,
                    epoch: int = 0, layer: int = 0, p: float = 0.0, first: int = 0,
                    accumulate: bool = False) -> tuple[Array, Array]:
    """Compute gradients on threads that each take chunks of rows of A^T.

    One thread sums a row, in order.
    """
    n, heads = col_score.shape
    dtype = x.dtype
    dx = np.empty_like(x) if dx is None else dx
    dcol_score = np.empty_like(col_score) if dcol_score is None else dcol_score
    vertex, neighbor, key, scale = _draws(vertex, neighbor, seed, epoch, layer, p, first)
    if n:
        width, ahead, shapes = _plan(pulled, indices, x.shape[1], heads, 2)
        numbers = (address(indices), indices.size - 1, ahead, address(pulled), heads, width,
                   -(-shapes.padded // 8), dtype.type(slope), dtype.type(scale))
        _attend_backward(
            2 * _work(indptr, x.shape[1], heads), indptr, indices, x, address(col_score), dx,
            dcol_score, dtype.type(slope), vertex, neighbor, key, accumulate, dtype.itemsize,
            heads, width, shapes.padded, by_nonzeros(indptr, CHUNKS),
            backward_code(shapes).address, numbers)
    return dx, dcol_score


def _draws(vertex: Array | None, neighbor: Array | None, seed: int, epoch: int, layer: int,
           p: float, first: int = 0) -> tuple[Array, Array, tuple, float]:
    """Return vertex and neighbor numbers, the key, and the scale of kept weights for dropout."""
    threshold = dropout_threshold(p)
    given = seed, layer, threshold, first
    key = of_step(_key_of_epoch, epoch, *given) if threshold else _key_of_epoch(epoch, *given)
    numbers = (NO_NUMBERS if each is None or not threshold else each
               for each in (vertex, neighbor))
    return *numbers, key, dropout_scale(p)


def _key_of_epoch(epoch: int, seed: int, layer: int, threshold: int, first: int) -> tuple:
    return tuple(map(np.uint64, (*attention_key(seed, epoch, layer), threshold, first)))


def _plan(x: Array, indices: Array, columns: int, heads: int, sides: int) -> tuple[int, int,
          TileShapes]:
    """Return the width of a head, the prefetch distance in entries, and the TileShapes."""
    width = columns // heads
    row_bytes = max(1, x.shape[1]) * x.itemsize
    cached = x.nbytes <= last_level_cache() // 2
    ahead = 32 if cached else max(16, min(128, 16384 // row_bytes))
    return width, ahead, TileShapes(x.dtype, indices.dtype, head_shape(heads, x.itemsize),
                                 column_shape(heads, width, x.itemsize, sides))


def _work(indptr: Array, columns: int, heads: int) -> int:
    entries = int(indptr[-1]) - int(indptr[0])
    return entries * (columns + EXP * heads) + indptr.size * columns


@Threaded
def _merge(counters, out, lse, part, part_lse, above, share, part_above, part_share, bounds):
    heads = lse.shape[1]
    width = out.shape[1] // heads
    zero, one = lse.dtype.type(0), lse.dtype.type(1)
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for h in range(heads):
                if part_lse[i, h] == -np.inf:
                    continue
                mine, theirs = zero, one
                if lse[i, h] == -np.inf:
                    lse[i, h] = part_lse[i, h]
                else:
                    # ratio of the smaller sum to the larger
                    ratio = lse.dtype.type(math.exp(-abs(lse[i, h] - part_lse[i, h])))
                    larger = one / (one + ratio)
                    mine, theirs = larger, larger * ratio
                    if not lse[i, h] > part_lse[i, h]:
                        mine, theirs = theirs, mine
                    lse[i, h] = max(lse[i, h], part_lse[i, h]) + math.log1p(ratio)
                for q in range(h * width, (h + 1) * width):
                    out[i, q] = mine * out[i, q] + theirs * part[i, q]
                if above.size:
                    for q in range(h * width, (h + 1) * width):
                        above[i, q] = mine * above[i, q] + theirs * part_above[i, q]
                if share.size:
                    share[i, h] = mine * share[i, h] + theirs * part_share[i, h]


def attend_merge(out: Array, lse: Array, part: Array, part_lse: Array, *,
                 above: Array | None = None, share: Array | None = None,
                 part_above: Array | None = None, part_share: Array | None = None) -> None:
    none = np.empty((0, 0), out.dtype)
    if lse.size:
        others = (none if array is None else array
                  for array in (above, share, part_above, part_share))
        _merge(4 * out.size + EXP * lse.size, out, lse, part, part_lse, *others,
               evenly(out.shape[0]))


@Threaded
def _dots(counters, grad, out, above, share, row_score, lse, slope, pulled, drow_score, bounds):
    heads = share.shape[1]
    columns = grad.shape[1]
    width = columns // heads
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for h in range(heads):
                whole, part = 0.0, 0.0
                for q in range(h * width, (h + 1) * width):
                    pulled[i, q] = grad[i, q]
                    whole += np.float64(grad[i, q]) * out[i, q]
                    part += np.float64(grad[i, q]) * above[i, q]
                pulled[i, columns + h] = row_score[i, h]
                pulled[i, columns + heads + h] = lse[i, h]
                pulled[i, columns + 2 * heads + h] = whole
                drow_score[i, h] = (1 - slope) * (part - whole * share[i, h])


def attend_dots(grad: Array, out: Array, above: Array, share: Array, row_score: Array, lse: Array,
                pulled: Array | None = None, drow_score: Array | None = None, *,
                slope: float = 0.2) -> tuple[Array, Array]:
    m, heads = share.shape
    drow_score = np.empty_like(share) if drow_score is None else drow_score
    if pulled is None:
        pulled = np.empty((m, grad.shape[1] + 3 * heads), grad.dtype)
    if share.size:
        _dots(4 * grad.size, grad, out, above, share, row_score, lse, float(slope), pulled,
              drow_score, evenly(m))
    return pulled, drow_score


@Threaded
def _bits(counters, vertex, neighbor, key, out, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        for k in range(bounds[chunk], bounds[chunk + 1]):
            for h in range(out.shape[1]):
                if h % 8 == 0:
                    byte = _entry_byte(vertex[k], neighbor[k], h // 8, key)
                out[k, h] = byte >> np.uint64(h % 8) & np.uint64(1)


def attention_bits(vertex: Array, neighbor: Array, heads: int, *, seed: int, epoch: int,
                   layer: int, p: float) -> Array:
    out = np.empty((vertex.size, heads), bool)
    key = _draws(None, None, seed, epoch, layer, p)[2]
    _bits(EXP * out.size, vertex, neighbor, key, out, evenly(vertex.size))
    return out
