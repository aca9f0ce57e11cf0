"""Multiply rows of 16 bits by AMX tiles: `rows_times` and `columns_times` of gemm.

Sums are float32. Rows and columns that do not fill a tile are copied and padded with
zeros.
"""

import numpy as np

from hpgcn.kernels.cpu.emit.amx_intrinsics import (
    DEEP,
    MOST,
    SIDE,
    configure,
    release,
    tiles_product,
    transpose_pairs,
    write_rows,
)
from hpgcn.kernels.cpu.emit.vector_intrinsics import ask
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import Threaded, chunks

STEP = MOST * SIDE  # columns of a panel
AHEAD = 96  # rows between the prefetch of a line and its use
BLOCK = 128  # rows of x^T g that are multiplied at once, from the second cache
LINE = 64
COUNTS = tuple((0,) * count for count in range(MOST + 1))


@jit(inner=True)
def _aligned(rows, row_bytes):
    """Return `rows` rows of zeros that begin at a cache line, and their address."""
    memory = np.zeros(rows * row_bytes + LINE, np.uint8)
    return memory, np.int64(memory.ctypes.data + -memory.ctypes.data % LINE)


@jit(forceinline=True)
def _copy(x, first, last, some):
    """Copy rows [first, last) of x to the longer rows of `some`; return their address."""
    for i in range(first, last):
        for q in range(x.shape[1]):
            some[i - first, q] = x[i, q]
    return np.int64(some.ctypes.data)


@Threaded
def rows_product(counters, x, panels, out, out_bytes, itemsize, columns, mask, few, whole, rest,
                 tile_config, bounds):
    """Write x w for x (m, k) and panels of w, (panels, depth / 2, STEP) uint32.

    Panels are padded with zeros. `out` is the address of the result's rows, of
    `itemsize` bytes a number. `few` is a tuple; its length is the number of tiles of
    the last panel.
    """
    k, stride = x.shape[1], np.int64(x.strides[0])

    # buffers of this thread
    depth = panels.shape[1] // SIDE
    mask_bytes = np.int64(mask.shape[1])
    sums_memory, sums = _aligned(SIDE, 4 * STEP)
    some = np.zeros((SIDE, depth * DEEP), np.uint16)
    configure(tile_config.ctypes.data)
    for chunk in chunks(counters, bounds.size - 1):
        for begin in range(bounds[chunk], bounds[chunk + 1], SIDE):
            # rows that do not fill tiles are copied and padded
            count = min(SIDE, bounds[chunk + 1] - begin)
            source, apart = np.int64(x.ctypes.data + begin * stride), stride
            ask(source + AHEAD * stride, source + (AHEAD + SIDE) * stride)
            if count < SIDE or k % DEEP:
                source = _copy(x, begin, begin + count, some)
                apart = np.int64(some.strides[0])
            for first in range(0, columns, STEP):
                # a panel of columns
                width = min(STEP, columns - first)
                panel = np.int64(panels[first // STEP].ctypes.data)
                target = np.int64(out + begin * out_bytes + first * itemsize)
                kept = np.int64(0)
                if mask.size:
                    kept = np.int64(mask.ctypes.data + begin * mask_bytes + first // 8)
                num_bytes = mask_bytes - first // 8

                # the last panel has fewer tiles
                if width == STEP:
                    tiles_product(source, apart, panel, 4 * STEP, depth, sums, 4 * STEP,
                                  COUNTS[MOST], COUNTS[0])
                    write_rows(sums, 4 * STEP, count, target, out_bytes, width, kept, mask_bytes,
                               num_bytes, whole)
                else:
                    tiles_product(source, apart, panel, 4 * STEP, depth, sums, 4 * STEP, few,
                                  COUNTS[0])
                    write_rows(sums, 4 * STEP, count, target, out_bytes, width, kept, mask_bytes,
                               num_bytes, rest)
    release()
    return sums_memory[0] + some[0, 0]  # keeps both buffers alive until here


@Threaded
def columns_product(counters, x, g, sums, few, tile_config, bounds):
    """Write x^T g of each chunk of rows to `sums`, (chunks, k', n').

    k' and n' are k and n rounded up to whole tiles.
    """
    k, n = x.shape[1], g.shape[1]
    height, columns = sums.shape[1:]

    # buffers of this thread
    strides = np.int64(x.strides[0]), np.int64(g.strides[0])
    memory, left = _aligned(height, 2 * BLOCK)
    some = np.zeros((BLOCK, height), np.uint16)
    pairs = np.zeros((BLOCK // 2, columns), np.uint32)
    right = np.int64(pairs.ctypes.data)
    rows = -(-BLOCK // (height // SIDE))
    configure(tile_config.ctypes.data)
    for chunk in chunks(counters, bounds.size - 1):
        sums[chunk] = 0
        total = np.int64(sums.ctypes.data + chunk * height * columns * 4)
        for begin in range(bounds[chunk], bounds[chunk + 1], BLOCK):
            # left operand: columns of x as rows, in pairs
            count = min(BLOCK, bounds[chunk + 1] - begin)
            source, apart = np.int64(x.ctypes.data + begin * strides[0]), strides[0]
            if count < BLOCK or k % SIDE:
                some[:] = 0
                source = _copy(x, begin, begin + count, some)
                apart = np.int64(some.strides[0])
            for first in range(0, height, SIDE):
                for row in range(0, BLOCK, DEEP):
                    transpose_pairs(source + row * apart + 2 * first, apart,
                                    left + (first * BLOCK + row) * 2, 2 * BLOCK)

            # right operand: pairs of rows of g
            for pair in range(BLOCK // 2):
                i = begin + 2 * pair
                lower, upper = 2 * pair < count, 2 * pair + 1 < count
                for q in range(n):
                    word = np.uint32(g[i, q]) if lower else np.uint32(0)
                    above = np.uint32(g[i + 1, q]) if upper else np.uint32(0)
                    pairs[pair, q] = word | above << np.uint32(16)

            # multiply tile by tile, and prefetch the next rows
            asked = begin + BLOCK
            for i in range(0, height, SIDE):
                ask(x.ctypes.data + asked * strides[0], x.ctypes.data + (asked + rows) * strides[0])
                ask(g.ctypes.data + asked * strides[1], g.ctypes.data + (asked + rows) * strides[1])
                asked += rows
                for first in range(0, columns, STEP):
                    to = total + (i * columns + first) * 4
                    if columns - first >= STEP:
                        tiles_product(left + i * 2 * BLOCK, 2 * BLOCK, right + 4 * first,
                                      4 * columns, BLOCK // DEEP, to, 4 * columns, COUNTS[MOST],
                                      COUNTS[1])
                    else:
                        tiles_product(left + i * 2 * BLOCK, 2 * BLOCK, right + 4 * first,
                                      4 * columns, BLOCK // DEEP, to, 4 * columns, few, COUNTS[1])
    release()
    return memory[0] + some[0, 0] + pairs[0, 0]


def tiles_of(columns: int) -> tuple:
    """Return a tuple whose length is the number of tiles in the last panel of `columns`."""
    return COUNTS[-(-(columns % STEP or STEP) // SIDE)]


def padded(number: int) -> int:
    """Return `number` rounded up to a multiple of the tile's side."""
    return -(-number // SIDE) * SIDE
