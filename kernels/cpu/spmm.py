"""Sparse times dense on CPU threads: vector code per row, columns in passes that fit."""
import functools
import threading
from pathlib import Path

import numba
import numpy as np

from hpgcn.kernels.cpu.chunks import by_nonzeros, evenly
from hpgcn.kernels.cpu.row_product import distance, max_width, row_product, shape_of
from hpgcn.kernels.cpu.vector_intrinsics import address
from hpgcn.kernels.jit import Threaded

NO_ROWS = np.empty(0, np.int64)
NO_MASK = np.empty((0, 0), np.uint8)
CHUNKS = 256


@Threaded
def _spmm(indptr, indices, data, col_scale, row_scale, rows, mask, accumulate, bounds, x, ldx, out,
          ldo, itemsize, width, first_byte, ahead, one, vectors, sets, lanes, lines, power):
    last = np.int64(indices.size - 1)
    num_bytes = np.int64(mask.shape[1] - first_byte)
    bits = mask.ctypes.data
    for chunk in numba.prange(bounds.size - 1):
        for r in range(bounds[chunk], bounds[chunk + 1]):
            i = rows[r] if rows.size else r
            scale = row_scale[i] if row_scale.size else one
            mask_row = np.int64(0)
            if mask.size:
                mask_row = np.int64(bits + i * mask.shape[1] + first_byte)
            row_product(indices, data, col_scale, np.int64(indptr[i]), np.int64(indptr[i + 1]),
                        ahead, last, x, ldx, out + i * ldo * itemsize, width, scale, accumulate,
                        mask_row, num_bytes, vectors, sets, lanes, lines, power)


@Threaded
def _pack(x, first, columns, slab, bounds):
    for chunk in numba.prange(bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(columns):
                slab[i, q] = x[i, first + q]


def spmm(indptr, indices, data, x, out=None, *, row_scale=None, col_scale=None, rows=None,
         mask=None, accumulate=False):
    """Threads take chunks of rows balanced by nonzeros, on a dynamic schedule.

    One thread sums a row, in an order that its length and the width fix, whatever the threads.
    """
    out, launches = product(indptr, indices, data, x, out, row_scale, col_scale, rows, mask,
                            accumulate)
    for kernel, arguments in launches:
        kernel(*arguments)
    return out


def sspmm(indptr, indices, data, x, mask, out=None, *, row_scale=None, col_scale=None, rows=None,
          accumulate=False):
    out, launches = product(indptr, indices, data, x, out, row_scale, col_scale, rows, mask,
                            accumulate)
    for kernel, arguments in launches:
        kernel(*arguments)
    return out


def product(indptr, indices, data, x, out, row_scale=None, col_scale=None, rows=None, mask=None,
            accumulate=False):
    """Return the result of `spmm`, and the kernels that fill it, each with its arguments.

    Wide x is multiplied in passes over its columns (`pass_width`): as many as the
    registers hold, fewer where a narrower slab of x then stays in the cache. Rows that
    are read often may first be copied to the bounds of cache lines (`is_packed`).
    """
    m = indptr.size - 1
    n, width = x.shape
    dtype = x.dtype
    itemsize = dtype.itemsize
    if out is None:
        out = (np.empty if rows is None and not accumulate else np.zeros)((m, width), dtype)
    if m == 0 or width == 0 or (rows is not None and rows.size == 0):
        return out, ()
    nnz = int(indptr[-1]) - int(indptr[0])
    if nnz == 0:  # nothing of x or of the indices may be read
        indptr = np.zeros(m + 1, np.int64)
        indices = np.zeros(1, np.int32)
    bounds = by_nonzeros(indptr, CHUNKS) if rows is None else evenly(rows.size, CHUNKS)
    rows = NO_ROWS if rows is None else rows
    mask = NO_MASK if mask is None else mask
    data = None if data is None else data.astype(dtype, copy=False)
    col_scale = None if col_scale is None else np.ascontiguousarray(col_scale, dtype)
    row_scale = np.ascontiguousarray(() if row_scale is None else row_scale, dtype)

    step = pass_width(width, n, nnz, itemsize)
    packed = is_packed(x, step, nnz)
    launches = []
    for first in range(0, width, step):
        columns = min(step, width - first)
        row_bytes = columns * itemsize
        cached = n * row_bytes <= last_level_cache() // 2
        source = address(x) + first * itemsize
        ldx = width
        if packed:
            slab = aligned_rows(n, columns, dtype)
            launches.append((_pack, (n * columns, x, first, columns, slab, evenly(n))))
            source = address(slab)
            ldx = slab.shape[1]
        power = packed and ldx & (ldx - 1) == 0
        unit = min(64, 32 * -(-row_bytes // 32))
        aligned = source % 64 == 0 and ldx * itemsize % unit == 0
        launches.append((_spmm, (
            (nnz + m) * columns, indptr, indices, data, col_scale, row_scale, rows, mask,
            accumulate, bounds, source, ldx.bit_length() - 1 if power else ldx,
            address(out) + first * itemsize, width, itemsize, columns, first // 8,
            distance(row_bytes, cached), dtype.type(1),
            *shape_of(columns, itemsize, cached=cached, aligned=aligned, power=power))))
    return out, launches


def pass_width(width, n, nnz, itemsize):
    """Return the columns per pass over a product with (n, width) rows of x.

    One pass holds at most what the registers do. If rows of x are read many times (nnz
    >= 32 n), x as a whole does not fit in half of the last-level cache, and a slab of
    at least 32 of its columns does, passes are that narrow: the indices are read again
    for each, 4 to 8 bytes a nonzero, and x comes from the cache instead of from memory.
    """
    count = -(-width // max_width(itemsize))
    step = -(-width // count)
    fits = last_level_cache() // 2 // max(1, n * itemsize) // 16 * 16
    if nnz >= 32 * n and 32 <= fits < step:
        step = -(-width // -(-width // fits))
    return min(width, -(-step // 16) * 16)


def is_packed(x, step, nnz):
    """Whether rows of x are first copied to where each begins a cache line (or half of one).

    A row of 64 bytes that begins anywhere takes two lines. Where rows come from the cache, and
    often, fewer lines pay for the copy; from memory, where lines travel in pairs, measured not to.
    """
    n = x.shape[0]
    row_bytes = step * x.itemsize
    if nnz < 16 * n or n * row_bytes > last_level_cache() // 2:
        return False
    unit = 32 if row_bytes <= 32 else 64
    return step < x.shape[1] or address(x) % 64 != 0 or row_bytes % unit != 0


def aligned_rows(n, columns, dtype):
    """Return an (n, c) array, c >= columns, whose rows begin at multiples of 32 or 64 bytes.

    It holds anything, and is overwritten by the next call of the same thread.
    """
    row_bytes = columns * dtype.itemsize
    unit = 32 if row_bytes <= 32 else 64
    row_bytes = -(-row_bytes // unit) * unit
    if _scratch.memory.size < n * row_bytes + 64:
        # not resized: only new arrays get huge pages
        _scratch.memory = np.empty(n * row_bytes + 64, np.uint8)
    skip = -address(_scratch.memory) % 64
    rows = _scratch.memory[skip:skip + n * row_bytes].view(dtype)
    return rows.reshape(n, row_bytes // dtype.itemsize)


class _Scratch(threading.local):
    """Memory of each thread, kept from call to call: fresh pages would cost more than a copy."""

    memory = np.empty(0, np.uint8)


_scratch = _Scratch()


@functools.cache
def last_level_cache():
    """Return the bytes of the largest cache of this CPU; 32 MiB if the system does not say."""
    paths = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    texts = (path.read_text().strip() for path in paths)
    sizes = (int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]] for text in texts)
    return max(sizes, default=32 << 20)
