"""Copies of rows into exchange buffers, and sums of received rows, on CPU threads."""


import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.emit.emitter import ONCE, vector_bytes
from hpgcn.kernels.cpu.emit.vector_intrinsics import add, address, move, prefetch
from hpgcn.kernels.cpu.tuning import last_level_cache
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import Threaded, chunks, num_threads

CHUNKS = 256
AHEAD = 8  # rows between a prefetch and its use
VECTOR = vector_bytes()


@jit(forceinline=True)
def _prefetch_row(row, row_bytes):
    for offset in range(0, row_bytes, 64):
        prefetch(row + offset, ONCE)
    prefetch(row + row_bytes - 1, ONCE)  # a row may spill into one more cache line


@jit(inner=True)
def _copy_row(source, out, row_bytes):
    whole = row_bytes // VECTOR * VECTOR
    for at in range(0, whole, VECTOR):
        move(source + at, out + at, VECTOR, False)
    for at in range(whole, row_bytes // 4 * 4, 4):
        move(source + at, out + at, 4, False)
    for at in range(row_bytes // 4 * 4, row_bytes):
        move(source + at, out + at, 1, False)


@jit(inner=True)
def _stream_row(source, out, row_bytes):
    # First 16 bytes at a time, until `out` is aligned to vectors, then whole vectors. The
    # write buffer joins the pieces of a cache line.
    head = min(-out % VECTOR, row_bytes)
    whole = head + (row_bytes - head) // VECTOR * VECTOR
    for at in range(0, head, 16):
        move(source + at, out + at, 16, True)
    for at in range(head, whole, VECTOR):
        move(source + at, out + at, VECTOR, True)
    for at in range(whole, row_bytes, 16):
        move(source + at, out + at, 16, True)


@Threaded
def _gather(counters, x, stride, index, out, out_stride, row_bytes, streamed, bounds):
    last = index.size - 1
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            _prefetch_row(x + index[min(i + AHEAD, last)] * stride, row_bytes)
            if streamed:
                _stream_row(x + index[i] * stride, out + i * out_stride, row_bytes)
            else:
                _copy_row(x + index[i] * stride, out + i * out_stride, row_bytes)


@Threaded
def _scatter_add(counters, x, stride, index, out, out_stride, width, zero, itemsize, firsts,
                 lasts, bounds):
    # A chunk reads the rows [firsts, lasts) of x, and adds those that belong to its own rows
    # of `out`: in order, and without atomics.
    row_bytes = width * itemsize
    whole = row_bytes // VECTOR * VECTOR
    for chunk in chunks(counters, bounds.size - 1):
        low, high = bounds[chunk], bounds[chunk + 1]
        last = lasts[chunk] - 1
        for i in range(firsts[chunk], lasts[chunk]):
            ahead = index[min(i + AHEAD, last)]
            if low <= ahead < high:
                _prefetch_row(out + ahead * out_stride, row_bytes)
            if low <= index[i] < high:
                source = x + i * stride
                target = out + index[i] * out_stride
                for at in range(0, whole, VECTOR):
                    add(source + at, target + at, VECTOR, zero)
                for at in range(whole, row_bytes, itemsize):
                    add(source + at, target + at, itemsize, zero)


def gather(x: Array, index: Array, out: Array | None = None) -> Array:
    """Gather rows; results larger than half of the last-level cache are stored past it.

    A store to the cache first reads the line. Only adjacent rows, in multiples of 16
    bytes, are stored past the cache.
    """
    if out is None:
        out = np.empty((index.size, x.shape[1]), x.dtype)
    if out.size:
        row_bytes = x.shape[1] * x.itemsize
        in_order = out.strides[0] == row_bytes and (address(out) | row_bytes) % 16 == 0
        streamed = in_order and out.nbytes > last_level_cache() // 2
        _gather(out.size, address(x), x.strides[0], index, address(out), out.strides[0], row_bytes,
                streamed, evenly(index.size, CHUNKS))
    return out


def scatter_add(x: Array, index: Array, out: Array) -> Array:
    """Add rows of x to rows of `out`, in the order of x; each chunk owns a range of `out`.

    An index that never decreases, such as a plan's, is cut into ranges. With any other
    index, each thread reads all of it and adds the rows of its own range.
    """
    if not x.size:
        return out
    if (index[1:] >= index[:-1]).all():
        bounds = np.append(index[evenly(index.size, CHUNKS)[:-1]], out.shape[0]).astype(np.int64)
        cuts = np.searchsorted(index, bounds)
        firsts, lasts = cuts[:-1], cuts[1:]
    else:
        bounds = evenly(out.shape[0], num_threads())
        firsts = np.zeros(bounds.size - 1, np.int64)
        lasts = np.full(bounds.size - 1, index.size)
    _scatter_add(x.size, address(x), x.strides[0], index, address(out), out.strides[0], x.shape[1],
                 x.dtype.type(0), x.itemsize, firsts, lasts, bounds)
    return out
