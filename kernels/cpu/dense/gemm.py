"""Dense products of many rows in register tiles; one operand is small or just as tall.

BLAS is made for matrices that are large in both dimensions. Here one operand has
thousands of rows, and the other fits the second-level cache or has the same number of
rows. While a block of rows is multiplied, each tile prefetches some rows of the next
block.

Rows may be stored in 16 bits. The other operand is then rounded to 16 bits as well.
Sums are float32, by instructions for pairs of bfloat16 if the CPU has them. The order
of a sum depends only on the shapes.
"""
import functools
import math
from collections.abc import Callable

import numpy as np
from numba.np.numpy_support import from_dtype

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import BF16, number_dtype, to_bf16, to_float32
from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.dense.amx import columns_product, padded, rows_product, tiles_of
from hpgcn.kernels.cpu.emit.amx_intrinsics import CONFIG, SIDE, has_tiles
from hpgcn.kernels.cpu.emit.bfloat16 import widen
from hpgcn.kernels.cpu.emit.c_functions import CompiledFunction, c_function, call
from hpgcn.kernels.cpu.emit.emitter import uses_dots, vector_bytes
from hpgcn.kernels.cpu.emit.row_passes import unit_past_cache
from hpgcn.kernels.cpu.emit.row_product import RowShape
from hpgcn.kernels.cpu.emit.tile_product import (
    ROWS,
    panel_shape,
    panel_width,
    tile_outer,
    tile_product,
)
from hpgcn.kernels.cpu.emit.vector_intrinsics import LINE, address, ask
from hpgcn.kernels.cpu.tuning import second_cache
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.record import derived
from hpgcn.kernels.host.threads import Threaded, chunks

NO_MASK = np.empty((0, 0), np.uint8)
NOTHING = np.empty((0, 0), BF16)  # to be widened
BLOCK = 16 * ROWS  # rows that stay in the first cache while panels pass
DEPTH = 32  # rows of x^T g at a time: the first cache has this number of places for rows 1 KB apart
LEAST_ROWS = 256
CHUNK_ROWS = 1 << 12  # rows of a partial sum of x^T g, at least
MOST_CHUNKS = 32
PIECE = 16 * ROWS  # columns of x in a piece of x^T g, at least
ALL_ROWS, ONE_ROW = (0,) * ROWS, (0,)
RATE = 16  # multiplications in the time of one scalar operation of other kernels
TILES_RATE = 128  # the same for AMX


@jit(inner=True)
def _widen(rows, first, last, out):
    """Convert rows [first, last) from 16 bits to float32; return the address of the copies."""
    for i in range(first, last):
        for q in range(rows.shape[1]):
            out[i - first, q] = widen(rows[i, q])
    return np.int64(out.ctypes.data)


@functools.cache
def _panel_code(shape: RowShape, real: np.dtype) -> CompiledFunction:
    """Return a C function that multiplies rows by a panel, tile by tile."""
    shape, real = shape.literal(), from_dtype(real)

    @c_function(one=real)
    def panel_rows(rows, source, target, later, until, kept, panel, width, num_bytes, ldx, x_bytes,
                   row_bytes, step, depth, ldo, out_bytes, stride, one):
        i = 0
        while i < rows:
            x, out = source + i * ldx * x_bytes, target + i * ldo * out_bytes
            mask = kept + i * stride if kept else kept
            ask(later + i * row_bytes, until + i * row_bytes)
            if i + ROWS <= rows:
                tile_product(x, ldx, panel, step, out, ldo, depth, width, one, mask, stride,
                             num_bytes, ALL_ROWS, shape)
                i += ROWS
            else:
                tile_product(x, ldx, panel, step, out, ldo, depth, width, one, mask, stride,
                             num_bytes, ONE_ROW, shape)
                i += 1

    return panel_rows


@Threaded
def _panels(counters, x, ldx, x_bytes, narrow, panels, depth, out, ldo, out_bytes, columns, mask,
            one, whole, rest, bounds):
    """Multiply rows by all panels: wide ones by the code `whole`, a narrow last one by `rest`."""
    step = panels.shape[2]
    bits, stride = mask.ctypes.data, mask.shape[1]
    row_bytes = np.int64(narrow.strides[0] if narrow.size else ldx * x_bytes)

    # a block of rows stays in the cache while all panels pass; the next is prefetched
    for chunk in chunks(counters, bounds.size - 1):
        wide = np.empty((BLOCK if narrow.size else 0, narrow.shape[1]), np.float32)
        for begin in range(bounds[chunk], bounds[chunk + 1], BLOCK):
            end = min(begin + BLOCK, bounds[chunk + 1])
            block = np.int64(x + begin * ldx * x_bytes)
            if narrow.size:
                block = _widen(narrow, begin, end, wide)
            later = np.int64(x + (begin + BLOCK) * row_bytes)
            for first in range(0, columns, step):
                width = min(step, columns - first)
                panel = np.int64(panels[first // step].ctypes.data)
                kept = np.int64(bits + begin * stride + first // 8 if mask.size else 0)
                call(whole if width == step else rest, (
                    end - begin, block, out + (begin * ldo + first) * out_bytes,
                    later + ROWS * row_bytes * first // columns,
                    later + ROWS * row_bytes * (first + width) // columns, kept, panel, width,
                    np.int64(stride - first // 8)), (
                    ldx, x_bytes, row_bytes, step, depth, ldo, out_bytes, stride, one))


@functools.cache
def _outer_code(shape: RowShape, real: np.dtype) -> CompiledFunction:
    """Return a C function that adds x^T g of a range of rows to a sum."""
    shape, real = shape.literal(), from_dtype(real)

    @c_function(one=real)
    def outer_columns(rows, of_x, of_g, to, width, asked, until, height, columns, size, itemsize, x,
                      ldx, bytes_x, span, g, ldg, bytes_g, together, one):
        i = 0
        while i < height:
            left, total = of_x + i * itemsize, to + i * columns * size
            if asked < until:
                if span == bytes_x:
                    ask(x + asked * bytes_x, x + (asked + together) * bytes_x)
                else:
                    for row in range(asked, asked + together):
                        ask(x + row * bytes_x, x + row * bytes_x + span)
                ask(g + asked * bytes_g, g + (asked + together) * bytes_g)
                asked += together
            if i + ROWS <= height:
                tile_outer(left, ldx, of_g, ldg, total, columns, rows, width, one, ALL_ROWS, shape)
                i += ROWS
            else:
                tile_outer(left, ldx, of_g, ldg, total, columns, rows, width, one, ONE_ROW, shape)
                i += 1

    return outer_columns


@Threaded
def _outer(counters, x, ldx, narrow_x, g, ldg, narrow_g, itemsize, sums, step, one, whole, rest,
           bounds, pieces):
    """Add x^T g of chunks of rows to `sums`, a piece of the columns of x at a time."""
    # compute the prefetch distance of a tile
    height, columns = sums.shape[1:]
    size = sums.itemsize
    bytes_x = np.int64(narrow_x.strides[0] if narrow_x.size else ldx * itemsize)
    bytes_g = np.int64(narrow_g.strides[0] if narrow_g.size else ldg * itemsize)
    count = pieces.size - 1
    for number in chunks(counters, (bounds.size - 1) * count):
        chunk, place = number // count, number % count
        first_row, rows = pieces[place], pieces[place + 1] - pieces[place]
        source = np.int64(x + first_row * itemsize)
        span = bytes_x if count == 1 else rows * itemsize

        # rows that a tile prefetches
        together = -(-DEPTH // (-(-columns // step) * -(-rows // ROWS)))
        asked_by_panel = (rows // ROWS + rows % ROWS) * together

        # buffers for rows of 16 bits
        wide_x = np.empty((DEPTH if narrow_x.size else 0, narrow_x.shape[1]), np.float32)
        wide_g = np.empty((DEPTH if narrow_g.size else 0, narrow_g.shape[1]), np.float32)
        sums[chunk, first_row:first_row + rows] = 0
        total = sums.ctypes.data + (chunk * height + first_row) * columns * size
        for begin in range(bounds[chunk], bounds[chunk + 1], DEPTH):
            end = min(begin + DEPTH, bounds[chunk + 1])

            # widen rows of 16 bits
            left = np.int64(source + begin * ldx * itemsize)
            if narrow_x.size:
                left = _widen(narrow_x, begin, end, wide_x)
            right = np.int64(g + begin * ldg * itemsize)
            if narrow_g.size:
                right = _widen(narrow_g, begin, end, wide_g)

            # add to a panel of columns
            for first in range(0, columns, step):
                width = min(step, columns - first)
                call(whole if width == step else rest, (
                    end - begin, left, right + first * itemsize, np.int64(total + first * size),
                    width, end + first // step * asked_by_panel, end + DEPTH), (
                    rows, columns, size, itemsize, source, ldx, bytes_x, span, g, ldg, bytes_g,
                    together, one))


def kernel_for(x: Array, y: Array, out: Array) -> Callable | None:
    """Return `rows_times` or `columns_times` for x (m, k) times y (k, n); None for BLAS.

    Operands of 16 bits always get a kernel that accepts their layout. Floats get None
    if vectors have only 16 bytes.
    """
    m, k = x.shape
    n = y.shape[1]
    narrow = BF16 in (x.dtype, y.dtype, out.dtype)
    if not narrow and vector_bytes() < 32:
        return None
    small = math.inf if narrow else second_cache() // 2
    least = 1 if narrow else LEAST_ROWS
    in_rows = out.strides[1] == out.itemsize
    if m >= least and in_rows and x.strides[1] == x.itemsize and k * n * y.itemsize <= small:
        return rows_times
    long = k >= least and x.strides[0] == x.itemsize and y.strides[1] == y.itemsize
    if long and m * n * sums_of(x).itemsize <= small:
        return columns_times
    return None


def sums_of(x: Array) -> np.dtype:
    """Return the dtype in which rows of x are summed."""
    return number_dtype(x.dtype)


def rows_times(x: Array, w: Array, out: Array, mask: Array | None = None) -> tuple:
    """Return the kernel that writes x w to `out`, (m, n), and the kernel's arguments.

    x (m, k) has many rows, and w (k, n) is small. `mask`, (m, ceil(n / 8)), says which
    numbers of the result are kept.
    """
    m, k = x.shape
    n = w.shape[1]

    # shapes of the tiles
    kind = sums_of(x)
    step = panel_width(kind.itemsize)
    narrow = x.dtype == BF16
    tiles = narrow and has_tiles()
    dots = narrow and not tiles and uses_dots()
    whole, rest = (panel_shape(columns, kind.itemsize, out.dtype == BF16, dots)
                   for columns in (step, n % step or step))

    # store past the cache only in whole lines
    streamed = unit_past_cache(out, 0, rest)
    if 16 * streamed < LINE or step * out.itemsize % LINE:
        streamed = 0  # else tiles would store a line in several parts
    whole, rest = (shape._replace(streamed=streamed) for shape in (whole, rest))

    # operands in the layout of the tiles
    mask = NO_MASK if mask is None else mask
    panels = derived(small_operand, w, step, narrow, dots or tiles)
    if tiles:
        panels = derived(np.pad, panels, ((0, 0), (0, -panels.shape[1] % SIDE), (0, 0)))
        return rows_product, (
            m * k * n // TILES_RATE, x, panels, address(out), out.strides[0], out.itemsize, n,
            mask, tiles_of(n), whole.literal(), rest.literal(), CONFIG, row_bounds(m))
    rows = long_operand(x, dots)
    return _panels, (
        m * k * n // RATE, *rows, panels, k, address(out),
        out.strides[0] // out.itemsize, out.itemsize, n, mask, kind.type(1),
        _panel_code(whole, kind).address, _panel_code(rest, kind).address, row_bounds(m))


def long_operand(x: Array, dots: bool) -> tuple[int, int, int, Array]:
    """Return how a kernel reads rows x (m, k).

    The result is (address, row length, bytes of a number, x if it is converted first).
    Rows of 16 bits are converted to float32 block by block, unless `dots` instructions
    multiply them as they are.
    """
    if x.dtype == BF16 and not dots:
        return address(x), x.shape[1], 4, x
    return address(x), x.strides[0] // x.itemsize, x.itemsize, NOTHING


def small_operand(w: Array, step: int, narrow: bool, dots: bool) -> Array:
    """Return w (k, n) as panels of `step` columns, (panels, k, step).

    Rows of a panel follow each other. If x has 16 bits, w is rounded to 16 bits on any
    CPU. For `dots`, pairs of rows are packed into (ceil(k / 2), n) uint32 before the
    cut, the first row in the lower halves.
    """
    if narrow and w.dtype != BF16:
        w = to_bf16(w)
    if dots:
        pairs = w[::2].astype(np.uint32)
        pairs[:w.shape[0] // 2] |= w[1::2].astype(np.uint32) << np.uint32(16)
        w = pairs
    elif w.dtype == BF16:
        w = to_float32(w)
    k, n = w.shape
    panels = np.zeros((-(-n // step), k, step), w.dtype)
    for panel, first in zip(panels, range(0, n, step)):
        panel[:, :n - first] = w[:, first:first + step]
    return panels


def columns_times(columns: Array, g: Array) -> tuple:
    """Return partial sums of x^T g, (chunks, k, n), the kernel that fills them, its arguments.

    x (m, k) has many rows, and is given as its transpose `columns` (k, m); g is (m, n).
    """
    x = columns.T
    m, k = x.shape
    n = g.shape[1]
    kind = sums_of(x)
    step = panel_width(kind.itemsize)
    narrow = x.dtype == g.dtype == BF16
    bounds = evenly(m, max(1, min(MOST_CHUNKS, m // CHUNK_ROWS)))
    if narrow and has_tiles():
        sums = np.empty((bounds.size - 1, padded(k), padded(n)), kind)
        return sums[:, :k, :n], columns_product, (
            m * k * n // TILES_RATE, x, g, sums, tiles_of(n), CONFIG, bounds)

    # without tiles: outer products of rows, a panel of columns at a time
    dots = narrow and uses_dots()
    whole, rest = (_outer_code(panel_shape(columns, kind.itemsize, False, dots), kind)
                   for columns in (step, n % step or step))
    sums = np.empty((bounds.size - 1, k, n), kind)
    left, ldx, itemsize, narrow_x = long_operand(x, dots)
    right, ldg, _, narrow_g = long_operand(g, dots)
    return sums, _outer, (
        m * k * n // RATE, left, ldx, narrow_x, right, ldg, narrow_g, itemsize, sums, step,
        kind.type(1), whole.address, rest.address, bounds,
        pieces_of(k, bounds.size - 1 if narrow_x.size == 0 else MOST_CHUNKS))


def pieces_of(k: int, chunks: int) -> Array:
    """Return bounds of pieces of k columns of x, so that few chunks of rows occupy all threads.

    Pieces have whole tiles, so that each number is summed by the same instructions.
    """
    count = max(1, min(MOST_CHUNKS // chunks // 2, k // PIECE))
    return np.minimum(evenly(-(-k // ROWS), count) * ROWS, k)


def row_bounds(m: int) -> Array:
    """Return bounds of chunks of m rows; each but the last has a whole number of blocks."""
    blocks = -(-m // BLOCK)
    return np.minimum(evenly(blocks) * BLOCK, m)
