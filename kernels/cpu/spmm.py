"""Sparse times dense on CPU threads: vector code per row, chunks balanced by nonzeros, columns in passes that fit."""
import functools
from pathlib import Path

import numba
import numpy as np

from hpgcn.kernels.cpu.chunks import by_nonzeros, evenly
from hpgcn.kernels.cpu.pieces import address
from hpgcn.kernels.cpu.simd import distance, max_width, row_product, shape_of
from hpgcn.kernels.jit import Threaded

NO_ROWS, NO_MASK = np.empty(0, np.int64), np.empty((0, 0), np.uint8)
CHUNKS = 256


@Threaded
def _spmm(indptr, indices, data, col_scale, row_scale, rows, mask, accumulate, bounds, x, ldx, out, ldo, itemsize,
          width, first_byte, ahead, one, vectors, sets, lanes, lines, power):
    last = np.int64(indices.size - 1)
    num_bytes = np.int64(mask.shape[1] - first_byte)
    masked, some, scaled = mask.size > 0, rows.size > 0, row_scale.size > 0
    bits = mask.ctypes.data
    for chunk in numba.prange(bounds.size - 1):
        for r in range(bounds[chunk], bounds[chunk + 1]):
            i = rows[r] if some else r
            start, stop, at = np.int64(indptr[i]), np.int64(indptr[i + 1]), np.int64(0)
            if masked:
                at = np.int64(bits + i * mask.shape[1] + first_byte)
            row_product(indices, data, col_scale, start, stop, ahead, last, x, ldx, out + i * ldo * itemsize, width,
                        row_scale[i] if scaled else one, accumulate, at, num_bytes, vectors, sets, lanes, lines, power)


@Threaded
def _pack(x, first, columns, slab, bounds):
    for chunk in numba.prange(bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(columns):
                slab[i, q] = x[i, first + q]


def spmm(indptr, indices, data, x, out=None, *, row_scale=None, col_scale=None, rows=None, mask=None, accumulate=False):
    """Sparse times dense: see `hpgcn.kernels.reference.spmm` for what each argument means.

    Threads take chunks of rows balanced by nonzeros, on a dynamic schedule; a row is summed by one thread in an order
    that its length and the width fix, so the bits do not depend on the number of threads. Wide x is multiplied in
    passes over its columns (`pass_width`): as many as the registers hold, fewer where a narrower slab of x then stays
    in the cache. Rows that are read often may first be copied to the bounds of cache lines (`is_packed`).
    """
    m, width, dtype = indptr.size - 1, x.shape[1], x.dtype
    if out is None:
        out = np.zeros((m, width), dtype) if rows is not None or accumulate else np.empty((m, width), dtype)
    if m == 0 or width == 0 or (rows is not None and rows.size == 0):
        return out
    nnz = int(indptr[-1]) - int(indptr[0])
    if nnz == 0:  # nothing of x or of the indices may be read
        indptr, indices = np.zeros(m + 1, np.int64), np.zeros(1, np.int32)
    bounds = by_nonzeros(indptr, CHUNKS) if rows is None else evenly(rows.size, CHUNKS)
    data = None if data is None else data.astype(dtype, copy=False)
    col_scale = None if col_scale is None else np.ascontiguousarray(col_scale, dtype)
    row_scale = np.empty(0, dtype) if row_scale is None else np.ascontiguousarray(row_scale, dtype)
    step = pass_width(width, x.shape[0], nnz, dtype.itemsize)
    packed = is_packed(x, step, nnz)
    for first in range(0, width, step):
        columns = min(step, width - first)
        cached = x.shape[0] * columns * dtype.itemsize <= last_level_cache() // 2
        source, ldx = address(x) + first * dtype.itemsize, width
        if packed:
            slab = aligned_rows(x.shape[0], columns, dtype)
            _pack(x.shape[0] * columns, x, first, columns, slab, evenly(x.shape[0]))
            source, ldx = address(slab), slab.shape[1]
        power = packed and ldx & (ldx - 1) == 0
        aligned = source % 64 == 0 and ldx * dtype.itemsize % min(64, 32 * -(-columns * dtype.itemsize // 32)) == 0
        _spmm((nnz + m) * columns, indptr, indices, data, col_scale, row_scale, NO_ROWS if rows is None else rows,
              NO_MASK if mask is None else mask, accumulate, bounds, source, ldx.bit_length() - 1 if power else ldx,
              address(out) + first * dtype.itemsize, width, dtype.itemsize, columns, first // 8,
              distance(columns * dtype.itemsize, cached), dtype.type(1),
              *shape_of(columns, dtype.itemsize, cached=cached, aligned=aligned, power=power))
    return out


def pass_width(width, n, nnz, itemsize):
    """Columns per pass over a product with (n, width) rows of x.

    One pass holds at most what the registers do. If rows of x are read many times (nnz >= 32 n), x as a whole does not
    fit in half of the last-level cache, and a slab of at least 32 of its columns does, passes are that narrow: the
    indices are read again for each, 4 to 8 bytes a nonzero, and x comes from the cache instead of from memory.
    """
    passes = -(-width // max_width(itemsize))
    step = -(-width // passes)
    fits = last_level_cache() // 2 // max(1, n * itemsize) // 16 * 16
    if nnz >= 32 * n and 32 <= fits < step:
        step = -(-width // -(-width // fits))
    return min(width, -(-step // 16) * 16)


def is_packed(x, step, nnz):
    """Whether rows of x are first copied to where each begins a cache line (or half of one).

    A row of 64 bytes that begins anywhere takes two lines. Where rows come from the cache, and are read often, fewer
    lines pay for the copy; where they come from memory, where lines travel in pairs, they were measured not to.
    """
    n, row_bytes = x.shape[0], step * x.itemsize
    if nnz < 16 * n or n * row_bytes > last_level_cache() // 2:
        return False
    return step < x.shape[1] or address(x) % 64 != 0 or row_bytes % (32 if row_bytes <= 32 else 64) != 0


def aligned_rows(n, columns, dtype):
    """Return an uninitialised (n, c) array, c >= columns, whose rows begin at multiples of 32 or 64 bytes.

    The memory is kept from call to call: fresh pages would cost more than the copy.
    """
    unit = 32 if columns * dtype.itemsize <= 32 else 64
    row_bytes = -(-columns * dtype.itemsize // unit) * unit
    need = n * row_bytes + 64
    if _scratch[0].size < need:
        _scratch[0] = np.empty(need, np.uint8)  # not resized: only new arrays get huge pages
    skip = -address(_scratch[0]) % 64
    return _scratch[0][skip:skip + n * row_bytes].view(dtype).reshape(n, row_bytes // dtype.itemsize)


_scratch = [np.empty(0, np.uint8)]


@functools.cache
def last_level_cache():
    """Bytes of the largest cache of this CPU; 32 MiB if the system does not say."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]])
    return max(sizes, default=32 << 20)
