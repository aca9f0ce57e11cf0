"""Sparse times dense on CPU threads: vector code per row, chunks balanced by nonzeros, columns in passes that fit."""
import functools
from pathlib import Path

import numba
import numpy as np

from hpgcn.kernels.cpu.chunks import by_nonzeros, evenly
from hpgcn.kernels.cpu.simd import address, max_width, row_product, shape_of
from hpgcn.kernels.jit import Threaded

NO_ROWS, NO_MASK = np.empty(0, np.int64), np.empty((0, 0), np.uint8)
CHUNKS = 256


@Threaded
def _spmm(indptr, indices, data, col_scale, row_scale, rows, mask, accumulate, bounds, x, ldx, out, ldo, itemsize,
          width, first_byte, one, vectors, sets, lanes):
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
                read = False
                for b in range(first_byte, min(mask.shape[1], first_byte + (width + 7) // 8)):
                    read |= mask[i, b] != 0
                if not read:
                    stop = start  # nothing of this row is kept: its sum need not be taken
            row_product(indices, data, col_scale, start, stop, last, x, ldx, out + i * ldo * itemsize, width,
                        row_scale[i] if scaled else one, accumulate, at, num_bytes, vectors, sets, lanes)


@Threaded
def _pack(x, first, slab, bounds):
    for chunk in numba.prange(bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(slab.shape[1]):
                slab[i, q] = x[i, first + q]


def spmm(indptr, indices, data, x, out=None, *, row_scale=None, col_scale=None, rows=None, mask=None, accumulate=False):
    """Sparse times dense: see `hpgcn.kernels.reference.spmm` for what each argument means.

    Threads take chunks of rows balanced by nonzeros, on a dynamic schedule; a row is summed by one thread in an order
    that its length and the width fix, so the bits do not depend on the number of threads. Wide x is multiplied in
    passes over its columns (`pass_width`): as many as the registers hold, fewer where a narrower slab of x, copied
    together, then stays in the cache.
    """
    m, width, dtype = indptr.size - 1, x.shape[1], x.dtype
    if out is None:
        out = np.zeros((m, width), dtype) if rows is not None else np.empty((m, width), dtype)
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
    packed = step < min(width, max_width(dtype.itemsize))
    slab = np.empty(x.shape[0] * step, dtype) if packed else None
    with numba.parallel_chunksize(1):
        for first in range(0, width, step):
            columns = min(step, width - first)
            source, ldx = address(x) + first * dtype.itemsize, width
            if packed:
                part = slab[:x.shape[0] * columns].reshape(-1, columns)
                _pack(part.size, x, first, part, evenly(x.shape[0]))
                source, ldx = address(part), columns
            _spmm((nnz + m) * columns, indptr, indices, data, col_scale, row_scale, NO_ROWS if rows is None else rows,
                  NO_MASK if mask is None else mask, accumulate, bounds, source, ldx,
                  address(out) + first * dtype.itemsize, width, dtype.itemsize, columns, first // 8, dtype.type(1),
                  *shape_of(columns, dtype.itemsize))
    return out


def pass_width(width, n, nnz, itemsize):
    """Columns per pass over a product with (n, width) rows of x.

    One pass holds at most what the registers do. If x as a whole exceeds the last-level cache, rows of x are read many
    times (nnz >> n), and a slab of at least 32 columns fits in the cache, passes are that narrow: the indices are read
    again for each, 4 to 8 bytes a nonzero, and x comes from the cache instead of from memory.
    """
    widest = max_width(itemsize)
    passes = -(-width // widest)
    step = -(-width // passes)
    fits = last_level_cache() * 3 // 4 // max(1, n * itemsize) // 16 * 16
    if nnz >= 32 * n and 32 <= fits < step:
        step = -(-width // -(-width // fits))
    return min(width, -(-step // 16) * 16)


@functools.cache
def last_level_cache():
    """Bytes of the largest cache of this CPU; 32 MiB if the system does not say."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]])
    return max(sizes, default=32 << 20)
