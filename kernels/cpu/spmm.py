"""Sparse times dense on CPU threads, by vector code for each row.

Wide rows take several passes over columns, which fit the cache. If rows of A have many
nonzeros and x exceeds the second-level cache, rows of x are read in blocks that fit it
(DistGNN, Algorithm 2). The sum of a row is stored after its nonzeros in a block, and
continued in the next block. So the order of the sum, and its bits, are those of one
pass.

Nonzeros are prefetched as rows of x are. If rows of x are read in random order, the CPU
does not detect by itself that nonzeros are read in order.
"""
import functools
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import BF16, ROUNDED_ONCE
from hpgcn.kernels.cpu.chunks import by_nonzeros, evenly
from hpgcn.kernels.cpu.column_blocks import AHEAD, block_of, blocks_read, cuts_of
from hpgcn.kernels.cpu.emit.c_functions import CompiledFunction, c_function, call
from hpgcn.kernels.cpu.emit.emitter import FIRST, vector_bytes
from hpgcn.kernels.cpu.emit.row_passes import (
    aligned_rows,
    choose_row_shape,
    in_whole_vectors,
    is_packed,
    pass_width,
    unit_past_cache,
)
from hpgcn.kernels.cpu.emit.row_product import RowShape, row_product
from hpgcn.kernels.cpu.emit.vector_intrinsics import LINE, address, ask, place_of, prefetch
from hpgcn.kernels.cpu.tuning import Tuning, current, last_level_cache, level_of, second_cache
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.record import derived, repeat
from hpgcn.kernels.host.threads import Threaded, chunks
from hpgcn.kernels.masks import with_mask
from hpgcn.kernels.scan import invalid_rows

NO_MASK = np.empty((0, 0), np.uint8)
CHUNKS = 256
MOST_LINES = 4  # cache lines that are prefetched of a row's nonzeros in a block
AT_ONCE = 1024  # nonzeros that are prefetched and validated together
ROWS_AT_ONCE = 128  # rows that are prefetched and validated together, at most
NOTHING = np.empty(0, np.int64)
UNSIGNED = {np.dtype(f"i{size}"): np.dtype(f"u{size}") for size in (4, 8)}
LARGEST = 1 << 31  # rows of x, at most, if indices have 32 bits
FLOAT32 = np.dtype(np.float32)
MOST_WAYS = 1024


@jit(forceinline=True)
def _prefetch(pointer, first, beyond, itemsize):
    """Prefetch entries first..beyond - 1 of an array, at most a few cache lines."""
    begin = place_of(pointer, first)
    size = min((beyond - first) * itemsize, MOST_LINES * LINE)
    for byte in range(0, size + LINE - 1, LINE):
        prefetch(begin + byte, FIRST)


@functools.cache
def _rows_code(shape: RowShape, real: np.dtype, number: np.dtype, index: np.dtype, weighted: bool,
               scaled: bool, ahead: int) -> CompiledFunction:
    """Return a C function that multiplies a range of rows, for a RowShape and dtypes.

    `real` is the dtype of sums, `number` of row pointers, `index` of indices.
    `weighted` and `scaled` say whether there are data and col_scale. Entries are
    prefetched `ahead` rows in advance, or not at all for 0.
    """
    shape = shape.literal()
    out_itemsize, itemsize = real.itemsize, index.itemsize
    number, index, real = (types.CPointer(from_dtype(each)) for each in (number, index, real))

    @c_function(rows=types.CPointer(types.int64), starts=number, stops=number, indices=index,
                data=real if weighted else types.none, col_scale=real if scaled else types.none,
                row_scale=real, one=real.dtype)
    def multiply(first, beyond, rows, chosen, starts, stops, last_row, indices, data, col_scale,
                 row_scale, row_scaled, mask, mask_row_bytes, num_bytes, resume, accumulate, near,
                 far, last, x, ldx, out, out_bytes, width, one):
        for each in range(first, beyond):
            # prefetch the entries of a later row
            i = rows[each] if chosen else each
            start, stop = np.int64(starts[i]), np.int64(stops[i])
            if ahead:
                later = min(i + ahead, last_row)
                begin, until = np.int64(starts[later]), np.int64(stops[later])
                _prefetch(indices, begin, until, itemsize)
                if weighted:
                    _prefetch(data, begin, until, out_itemsize)
                for byte in range(0, width * out_itemsize, LINE):
                    prefetch(out + later * out_bytes + byte, FIRST)

            # multiply this row
            if resume and start == stop and not row_scaled:
                continue
            row_product(indices, data, col_scale, start, stop, near, far, last, x, ldx,
                        out + i * out_bytes, width, row_scale[i] if row_scaled else one,
                        resume != 0, accumulate != 0, mask + i * mask_row_bytes if mask else mask,
                        num_bytes, shape)

    return multiply


@Threaded
def _spmm(counters, starts, stops, columns, bounds, at_once, entries, data, data_bytes, invalid,
          last_row, code, arguments):
    """Multiply rows; set `invalid` if indptr or a column is out of range.

    An empty `invalid` is not set. `columns` are the indices as unsigned numbers. `data`
    is the address of the values, if there are any.
    """
    for chunk in chunks(counters, bounds.size - 1):
        for r in range(bounds[chunk], bounds[chunk + 1], at_once):
            beyond = min(r + at_once, bounds[chunk + 1])
            if invalid.size and invalid_rows(starts, stops, columns, r, beyond, last_row):
                invalid[0] = 1
                break
            if entries:
                first = np.int64(stops[beyond - 1])
                until = min(first + min(first - np.int64(starts[r]), 2 * AT_ONCE), columns.size)
                begin = np.int64(columns.ctypes.data)
                ask(begin + first * columns.itemsize, begin + until * columns.itemsize)
                ask(data + first * data_bytes, data + until * data_bytes)
            call(code, (r, beyond), arguments)


class Pass(partial):
    """A call that multiplies by some columns of x, or by a block of its rows.

    Its attribute `shape` is the RowShape. It keeps references to the arrays whose
    addresses are among its arguments.
    """


@Threaded
def _pack(counters, x, slab, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(x.shape[1]):
                slab[i, q] = x[i, q]


def spmm(indptr: Array, indices: Array, data: Array, x: Array, out: Array | None = None, *,
         row_scale: Array | None = None, col_scale: Array | None = None, rows: Array | None = None,
         mask: Array | None = None, accumulate: bool = False) -> Array:
    """Multiply on threads that each take chunks of rows, balanced by nonzeros.

    One thread sums a row. The order of the sum depends on the length of the row and the
    width, not on the number of threads. If indptr and indices may change, they are
    checked during the product. If they are refused, the content of `out` is undefined.
    """
    out, launches = product(indptr, indices, data, x, out, row_scale, col_scale, rows, mask,
                            accumulate)
    for launch in launches:
        launch()
    return out


def _validate_inline(**given: Any) -> Array:
    """Multiply by a matrix, and check it at the same time; arguments of `product`."""
    out, launches = product(**given)
    for launch in launches:
        launch()
    return out


spmm.validate_inline = _validate_inline  # hpgcn.kernels.checks calls it
sspmm = with_mask(spmm)


def product(indptr: Array, indices: Array, data: Array, x: Array, out: Array | None = None,
            row_scale: Array | None = None, col_scale: Array | None = None,
            rows: Array | None = None, mask: Array | None = None, accumulate: bool = False,
            validate: Callable | None = None) -> tuple:
    """Return the result array of `spmm`, and functions without arguments that fill it in turn.

    If x is wide, its columns are processed in passes (`pass_width`). A pass has at most
    `max_width` columns, or fewer if a narrower slab of x then stays in the cache. Rows
    that are read often may first be copied to aligned rows (`is_packed`), and be read
    block by block (`block_of`).

    `validate` raises an error if indptr or indices do not fit. Without it, they are
    known to fit. If rows are read in order, each is checked just before its use at no
    extra cost. After an invalid row, `validate` is called to raise the error.
    """
    # the result, and how to form it
    m = indptr.size - 1
    n, width = x.shape
    dtype = FLOAT32 if x.dtype == BF16 else x.dtype
    if accumulate and out is not None and out.dtype == BF16:
        raise ValueError(ROUNDED_ONCE)
    if out is None:
        out = np.empty((m, width), dtype)
        if rows is not None or accumulate:
            repeat(out.fill, 0)
    nnz = int(indptr[-1]) - int(indptr[0])
    nothing = m == 0 or width == 0 or (rows is not None and rows.size == 0)
    at_out = address(out)
    layout = (rows is None, accumulate, m, nnz, x.shape, x.strides, x.dtype, address(x) % LINE,
              out.strides, out.dtype, at_out % LINE)
    way = None if nothing else _find_way(layout, x, out)

    # validate at once what cannot be validated during the product
    if validate and (nothing or not way.inline or nnz <= 0 or n == 0):
        validate()
        validate = None
    if nothing:
        return out, ()
    if nnz == 0:  # neither x nor indices may be read
        indptr = np.zeros(m + 1, np.int64)
        indices = np.zeros(1, np.int32)

    # operands in the order and dtype of the kernels
    bounds = way.bounds
    if bounds is None:
        bounds = by_nonzeros(indptr, CHUNKS) if rows is None else evenly(rows.size, CHUNKS)
    rows = None if rows is None else np.ascontiguousarray(rows, np.int64)
    mask = NO_MASK if mask is None else mask
    if data is not None and data.dtype != dtype:
        data = derived(data.astype, dtype)
    col_scale = None if col_scale is None else np.ascontiguousarray(col_scale, dtype)
    row_scale = None if row_scale is None else np.ascontiguousarray(row_scale, dtype)

    # blocks of x
    cuts: Any = indptr[:-1], indptr[1:]
    if way.blocked:
        cuts = cuts_of(indptr, indices, n, way.size, bounds)
        if cuts is None:  # without rising columns there are no blocks
            cuts = indptr[:-1], indptr[1:]
            way = _find_way((*layout, "at once"), x, out, in_blocks=False)

    # the entries that are prefetched or validated ahead, a few rows at a time
    invalid = np.zeros(1, np.int64) if validate else NOTHING
    columns = indices.view(UNSIGNED[indices.dtype])
    last_row = way.last_row if columns.itemsize == 4 else np.uint64(max(n, 1) - 1)
    ahead = way.entries or validate is not None
    at_once = max(1, min(ROWS_AT_ONCE, m * AT_ONCE // max(1, nnz)) if ahead else m)

    # a launch for each pass and block
    launches = []
    at_data, at_mask = _at(data), _at(mask)
    for first in range(0, width, way.step):
        count = min(way.step, width - first)
        for block, (starts, stops) in enumerate(pairwise(cuts)):
            source = x
            if count < width or way.blocked:
                source = x[block * way.size:(block + 1) * way.size, first:first + count]
            if way.packed:
                slab = aligned_rows(len(source), count, x.dtype)
                launches.append(partial(_pack, source.size, source, slab, evenly(len(source))))
                source = slab

            # code for this shape
            key = first, block, starts.dtype, indices.dtype, data is None, col_scale is None
            if key not in way.passes:
                shape, near, far = _choose(source, count, width, out, first, way.packed,
                                           way.blocked, accumulate)
                code = _rows_code(shape, dtype, *key[2:4], data is not None, col_scale is not None,
                                  AHEAD if way.blocked else 0)
                way.passes[key] = shape, near, far, code
            shape, near, far, code = way.passes[key]
            stride = source.strides[0]
            ldx = stride // source.itemsize
            scale = row_scale if block == len(cuts) - 2 else None

            # addresses of arrays, which the launch keeps alive
            arguments = (
                _at(rows), int(rows is not None), address(starts), address(stops), m - 1,
                address(indices), at_data, _at(col_scale), _at(scale), int(scale is not None),
                at_mask and at_mask + first // 8, mask.shape[1], mask.shape[1] - first // 8,
                int(block > 0), int(accumulate), near, far, indices.size - 1,
                address(source) - block * way.size * stride,
                ldx.bit_length() - 1 if shape.power else ldx, at_out + first * out.itemsize,
                width * out.itemsize, count)
            launch = Pass(_spmm.launch(
                (nnz + m) * count * way.size // max(1, n), starts, stops, columns, bounds, at_once,
                ahead, at_data, 0 if data is None else data.itemsize, invalid, last_row,
                code.address, (*arguments, way.one)))
            launch.shape = shape
            launch.arrays = code, rows, indices, data, col_scale, scale, mask, source, out
            launches.append(launch)
            if validate:  # before another pass
                launches.append(partial(_refuse, invalid, validate))
                invalid, validate = NOTHING, None
    return out, launches


class Way(NamedTuple):
    """Choices for a product, by the layout of its arrays."""

    tuning: Tuning
    caches: tuple
    blocked: bool  # whether x is read in blocks
    step: int  # columns of a pass, at most
    size: int  # rows of a block, or of x
    packed: bool  # whether the columns of a pass are copied first
    entries: bool  # whether entries are prefetched as well
    inline: bool  # whether the matrix can be validated in a product
    bounds: Array | None  # bounds of chunks of rows, unless they depend on nonzeros
    last_row: np.uint32  # the last row of x, if indices have 32 bits
    one: Any  # in the dtype of sums
    passes: dict  # RowShape, prefetch distances and code, by column, block and dtypes


_ways: dict[tuple, Way] = {}


def _find_way(layout: tuple, x: Array, out: Array, *, in_blocks: bool = True) -> Way:
    """Return the Way of a product; it is chosen once for a layout of arrays."""
    caches = last_level_cache(), second_cache(), vector_bytes(), blocks_read()
    way = _ways.get(layout)
    if way is None or way.tuning is not current() or way.caches != caches:
        if len(_ways) >= MOST_WAYS:
            _ways.clear()
        way = _ways[layout] = _choose_way(layout, x, out, caches, in_blocks)
    return way


def _choose_way(layout: tuple, x: Array, out: Array, caches: tuple, in_blocks: bool) -> Way:
    every_row, accumulate, m, nnz, *_ = layout
    n, width = x.shape
    itemsize = 4 if x.dtype == BF16 else x.itemsize
    blocked = None
    if in_blocks and every_row and not accumulate and out.dtype != BF16:
        blocked = block_of(m, n, nnz, width, x.itemsize, itemsize)
    step, size = blocked or (pass_width(width, n, nnz, x.itemsize, itemsize), n)
    beyond = level_of(n * step * x.itemsize) != "second"
    return Way(current(), caches, bool(blocked), step, size, is_packed(x, step, nnz, size),
               every_row and not blocked and current().entries and beyond,
               every_row and not accumulate and not blocked,
               np.arange(m + 1) if every_row and m <= CHUNKS else None,
               np.uint32(min(max(n, 1), LARGEST) - 1),
               np.float32(1) if itemsize == 4 else x.dtype.type(1), {})


def _choose(source: Array, count: int, width: int, out: Array, first: int, packed: bool,
            blocked: bool, accumulate: bool) -> tuple[RowShape, int, int]:
    """Return the RowShape of a pass from column `first` on, and its prefetch distances."""
    shape, near, far = choose_row_shape(source, count, width, out)
    ldx = source.strides[0] // source.itemsize
    if blocked:  # few of the next nonzeros are of this block
        shape = shape._replace(near=0, far=0)
    else:
        shape = in_whole_vectors(shape, source)
        if not accumulate:
            shape = shape._replace(streamed=unit_past_cache(out, first, shape))
    return shape._replace(power=int(packed and ldx & (ldx - 1) == 0)), near, far


def _at(array: Array | None) -> int:
    return 0 if array is None else address(array)


def _refuse(invalid: Array, validate: Callable) -> None:
    if invalid[0]:
        validate()
        raise ValueError("indptr or indices changed while they were read")
