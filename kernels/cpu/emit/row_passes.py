"""Divide a product into passes over columns of x: their width, rows of x, and row code."""
import threading

import numpy as np

from hpgcn.kernels.bits16 import BF16
from hpgcn.kernels.cpu.emit.emitter import vector_bytes
from hpgcn.kernels.cpu.emit.row_product import HELD, max_width, sets_of, shape_of
from hpgcn.kernels.cpu.emit.vector_intrinsics import address
from hpgcn.kernels.cpu.tuning import current, last_level_cache, prefetch_distance


def choose_row_shape(source, columns, width=None, out=None):
    """Return the RowShape of a pass of `columns` columns, and its prefetch distances.

    The distances are near and far, in nonzeros. `source` are the rows of x in these
    columns; `out` is the array that stores results.
    """
    row_bytes = columns * source.itemsize
    size = source.shape[0] * row_bytes
    reach = prefetch_distance(source.shape[0], row_bytes)
    unit = min(64, 32 * -(-row_bytes // 32))
    aligned = address(source) % 64 == 0 and source.strides[0] % unit == 0
    lines = -(-row_bytes // 64) + (not aligned)
    near = min(reach.near_lines + (not aligned), lines) if reach.near else 0
    far = min(reach.far_lines + (not aligned), lines) if reach.far else 0

    narrow = source.dtype == BF16
    shape = shape_of(
        columns, width or columns, 4 if narrow else source.itemsize,
        wide=aligned or size <= last_level_cache() // 2,
        narrow=(narrow, out is not None and out.dtype == BF16))
    return shape._replace(near=near, far=far), reach.near, reach.far


def in_whole_vectors(shape, source):
    """Return a RowShape that reads each row of x as aligned vectors, if that saves cache lines.

    If all rows begin `skipped` bytes after a multiple of the vector size, each of their
    vectors would lie in two cache lines. With the new shape, the bytes before and after
    a row are read and dropped. Each vector contains part of the row, so no read lies
    outside the memory. Rows that take several passes gain nothing by it.
    """
    size = vector_bytes()
    columns = source.shape[1]
    skipped = address(source) % size
    count = -(-(skipped + columns * source.itemsize) // size)
    alike = source.strides[0] % size == 0 and skipped % source.itemsize == 0
    # a last pass may be narrow although x is wide
    narrow = shape.narrow_x or sets_of(columns, source.itemsize) > 1
    if not skipped or not alike or narrow or count > HELD:
        return shape
    whole = shape_of(columns, columns, source.itemsize)
    return whole._replace(near=shape.near, far=shape.far, narrow_out=shape.narrow_out,
                          shifted=count)


def unit_past_cache(out, first, shape):
    """Return the unit of stores past the cache, in multiples of 16 bytes; 0 for none.

    Results larger than the last-level cache are stored past it, unless vectors have
    missing lanes.
    """
    if out.nbytes <= last_level_cache() or not current().streamed or shape.masked or shape.tail:
        return 0
    begins = address(out) | first * out.itemsize | out.strides[0]
    return min(begins & -begins, 64) // 16


def pass_width(width, n, nnz, x_bytes, itemsize):
    """Return the number of columns of each pass over a product with x (n, width).

    One pass sums at most `max_width` columns, numbers of `itemsize` bytes; those of x
    have `x_bytes`. Passes may be narrower if rows of x are read many times (nnz >= 32
    n). Then x must not fit in half of the last-level cache, but a slab of at least 32
    columns must.

    Each pass then reads the indices again, 4 to 8 bytes a nonzero, and x comes from the
    cache instead of from memory.
    """
    count = -(-width // max_width(itemsize))
    step = -(-width // count)
    fits = last_level_cache() // 2 // max(1, n * x_bytes) // 16 * 16
    if nnz >= 32 * n and 32 <= fits < step:
        step = -(-width // -(-width // fits))
    return min(width, -(-step // 16) * 16)


def is_packed(x, step, nnz, size):
    """Return whether rows of x are first copied to places that begin cache lines, or halves.

    A row of 64 bytes that begins anywhere lies in two lines. A copy pays if rows are
    read from the cache, and often. If rows come from memory, packing was slower. `size`
    is the number of rows that are read at once.
    """
    n = x.shape[0]
    row_bytes = step * x.itemsize
    if nnz < 16 * n or size * row_bytes > last_level_cache() // 2:
        return False
    unit = 32 if row_bytes <= 32 else 64
    return step < x.shape[1] or address(x) % 64 != 0 or row_bytes % unit != 0


def aligned_rows(n, columns, dtype):
    """Return an uninitialized (n, c) array with aligned rows, c >= columns.

    Rows begin at multiples of 32 or 64 bytes. The next call of the same thread
    overwrites the array.
    """
    row_bytes = columns * dtype.itemsize
    unit = 32 if row_bytes <= 32 else 64
    row_bytes = -(-row_bytes // unit) * unit
    if _scratch.memory.size < n * row_bytes + 64:
        # a new array, because only these get huge pages
        _scratch.memory = np.empty(n * row_bytes + 64, np.uint8)
    skip = -address(_scratch.memory) % 64
    rows = _scratch.memory[skip:skip + n * row_bytes].view(dtype)
    return rows.reshape(n, row_bytes // dtype.itemsize)


class _Scratch(threading.local):
    """Work memory of each thread, reused because fresh pages would cost more than a copy."""

    memory = np.empty(0, np.uint8)


_scratch = _Scratch()
