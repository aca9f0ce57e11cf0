"""Sparse times dense on CPU threads: vector code per row, columns in passes that fit."""
import threading

import numpy as np

from hpgcn.kernels.bits16 import BF16, ROUNDED_ONCE
from hpgcn.kernels.cpu.chunks import by_nonzeros, evenly
from hpgcn.kernels.cpu.row_product import max_width, row_product, shape_of
from hpgcn.kernels.cpu.tuning import current, last_level_cache, reach_of
from hpgcn.kernels.cpu.vector_intrinsics import address
from hpgcn.kernels.threads import Threaded, chunks

NO_ROWS = np.empty(0, np.int64)
NO_MASK = np.empty((0, 0), np.uint8)
CHUNKS = 256


@Threaded
def _spmm(taken, indptr, indices, data, col_scale, row_scale, rows, mask, accumulate, bounds, x,
          ldx, out, out_bytes, width, first_byte, near, far, one, shape):
    last = np.int64(indices.size - 1)
    num_bytes = np.int64(mask.shape[1] - first_byte)
    bits = mask.ctypes.data
    for chunk in chunks(taken, bounds.size - 1):
        for r in range(bounds[chunk], bounds[chunk + 1]):
            i = rows[r] if rows.size else r
            scale = row_scale[i] if row_scale.size else one
            mask_row = np.int64(0)
            if mask.size:
                mask_row = np.int64(bits + i * mask.shape[1] + first_byte)
            row_product(indices, data, col_scale, np.int64(indptr[i]), np.int64(indptr[i + 1]),
                        near, far, last, x, ldx, out + i * out_bytes, width, scale, accumulate,
                        mask_row, num_bytes, shape)


@Threaded
def _pack(taken, x, first, columns, slab, bounds):
    for chunk in chunks(taken, bounds.size - 1):
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
    narrow = x.dtype == BF16
    dtype = np.dtype(np.float32) if narrow else x.dtype
    if accumulate and out is not None and out.dtype == BF16:
        raise ValueError(ROUNDED_ONCE)
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

    step = pass_width(width, n, nnz, x.itemsize, dtype.itemsize)
    packed = is_packed(x, step, nnz)
    launches = []
    for first in range(0, width, step):
        columns = min(step, width - first)
        source = x[:, first:first + columns]
        if packed:
            slab = aligned_rows(n, columns, x.dtype)
            launches.append((_pack, (n * columns, x, first, columns, slab, evenly(n))))
            source = slab
        shape, near, far = layout(source, columns, width, out)
        ldx = source.strides[0] // source.itemsize
        power = packed and ldx & (ldx - 1) == 0
        streamed = 0 if accumulate else unit_past_cache(out, first, columns, shape)
        shape = shape._replace(power=int(power), streamed=streamed)
        launches.append((_spmm, (
            (nnz + m) * columns, indptr, indices, data, col_scale, row_scale, rows, mask,
            accumulate, bounds, address(source),
            ldx.bit_length() - 1 if power else ldx, address(out) + first * out.itemsize,
            width * out.itemsize, columns, first // 8, near, far, dtype.type(1),
            shape.literal())))
    return out, launches


def layout(source, columns, width=None, out=None):
    """Return the RowShape of a pass over some of `width` columns, and near and far in nonzeros.

    `source` are the rows of x in these columns; `out` tells how results are stored.
    """
    row_bytes = columns * source.itemsize
    size = source.shape[0] * row_bytes
    reach = reach_of(source.shape[0], row_bytes)
    unit = min(64, 32 * -(-row_bytes // 32))
    aligned = address(source) % 64 == 0 and source.strides[0] % unit == 0
    lines = -(-row_bytes // 64) + (not aligned)
    near = min(reach.near_lines + (not aligned), lines) if reach.near else 0

    narrow = source.dtype == BF16
    shape = shape_of(
        columns, width or columns, 4 if narrow else source.itemsize,
        wide=aligned or size <= last_level_cache() // 2,
        narrow=(narrow, out is not None and out.dtype == BF16))
    return shape._replace(near=near, far=lines if reach.far else 0), reach.near, reach.far


def unit_past_cache(out, first, columns, shape):
    """Return how many times 16 bytes are stored past the cache at once; 0: into it.

    Results that the last cache does not hold pass by it, unless some lanes do not exist.
    """
    if out.nbytes <= last_level_cache() or not current().streamed or columns % shape.lanes:
        return 0
    begins = address(out) | first * out.itemsize | out.strides[0]
    return min(begins & -begins, 64) // 16


def pass_width(width, n, nnz, x_bytes, itemsize):
    """Return the columns per pass over a product with (n, width) rows of x.

    One pass holds at most what the registers do, numbers of `itemsize` bytes; those of x have
    `x_bytes`. If rows of x are read many times (nnz >= 32 n), x as a whole does not fit in half of
    the last-level cache, and a slab of at least 32 of its columns does, passes are that narrow: the
    indices are read again for each, 4 to 8 bytes a nonzero, and x comes from the cache instead of
    from memory.
    """
    count = -(-width // max_width(itemsize))
    step = -(-width // count)
    fits = last_level_cache() // 2 // max(1, n * x_bytes) // 16 * 16
    if nnz >= 32 * n and 32 <= fits < step:
        step = -(-width // -(-width // fits))
    return min(width, -(-step // 16) * 16)


def is_packed(x, step, nnz):
    """Whether rows of x are first copied to where each begins a cache line (or half of one).

    A row of 64 bytes that begins anywhere takes two lines. Where rows come from the cache, and
    often, fewer lines pay for the copy; from memory, measured not to.
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
