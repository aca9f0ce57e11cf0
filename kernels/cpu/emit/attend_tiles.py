"""C functions for a tile of graph attention: a range of entries of a row, and its sums."""
import functools
from typing import NamedTuple

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from hpgcn.kernels.cpu.emit.attend_intrinsics import (
    tile_alphas,
    tile_scores,
    tile_sums,
    tile_weights,
)
from hpgcn.kernels.cpu.emit.c_functions import c_function
from hpgcn.kernels.host.jit import jit


@jit(forceinline=True)
def _sum_tile(indices, start, count, ahead, last, weights, padded, source, stride, out,
              other_weights, other_out, factors, heads, width, zero, itemsize, of_columns):
    """Add a tile to a row of sums by `tile_sums`, in passes over columns."""
    sides, group, parts, part_lanes, lines, full = of_columns
    step = len(parts) * len(part_lanes)
    for h in range(0, heads, len(group)):
        for q in range(0, width, step):
            at = (h * width + q) * itemsize
            tile_sums(indices, start, count, ahead, last, weights + h * itemsize, padded,
                      source + at, stride, width, min(step, width - q), out + at,
                      other_weights + h * itemsize, other_out + at, factors + h * itemsize, zero,
                      sides, group, parts, part_lanes, lines, full)


class TileShapes(NamedTuple):
    """The dtypes and shapes for which the code of a tile is compiled."""

    real: np.dtype
    index: np.dtype
    of_heads: tuple  # head_shape
    of_columns: tuple  # column_shape

    @property
    def padded(self):
        """The number of heads, rounded up to whole vectors."""
        vectors, lanes = map(len, self.of_heads)
        return vectors * lanes

    def kinds(self):
        """Return the Numba types of arguments that are not integers, by name."""
        real = from_dtype(self.real)
        return {"indices": types.CPointer(from_dtype(self.index)), "slope": real, "scale": real}


@functools.cache
def forward_code(shapes):
    """Return a C function that adds a tile to a row of the attention's result."""
    (vectors, lanes), of_columns = shapes.of_heads, shapes.of_columns
    padded, itemsize = shapes.padded, shapes.real.itemsize
    zero = shapes.real.type(0)

    @c_function(**shapes.kinds())
    def forward_tile(first, count, row_score, scores, positive, top, factors, total, shares, bits,
                     out, above, indices, last, ahead, col_score, x, heads, width, num_bytes, slope,
                     scale):
        tile_scores(indices, first, count, ahead, last, row_score, col_score, heads, slope, scores,
                    top, factors, vectors, lanes)
        tile_weights(count, scores, top, factors, total, shares, bits, num_bytes, scale, positive,
                     vectors, lanes)
        _sum_tile(indices, first, count, ahead, last, scores, padded, x, heads * width, out,
                  positive, above, factors, heads, width, zero, itemsize, of_columns)

    return forward_tile


@functools.cache
def backward_code(shapes):
    """Return a C function that adds a tile to a row of the attention's gradient."""
    (vectors, lanes), of_columns = shapes.of_heads, shapes.of_columns
    padded, itemsize = shapes.padded, shapes.real.itemsize
    zero = shapes.real.type(0)

    @c_function(**shapes.kinds())
    def backward_tile(first, count, col_score, weights, positive, total, factors, bits, out, above,
                      indices, last, ahead, pulled, heads, width, num_bytes, slope, scale):
        columns = heads * width
        stride = columns + 3 * heads
        row_score = pulled + columns * itemsize
        tile_alphas(indices, first, count, ahead, last, col_score, row_score,
                    row_score + heads * itemsize, row_score + 2 * heads * itemsize, stride, heads,
                    slope, bits, num_bytes, scale, weights, positive, total, vectors, lanes)
        _sum_tile(indices, first, count, ahead, last, weights, padded, pulled, stride, out,
                  positive, above, factors, heads, width, zero, itemsize, of_columns)

    return backward_tile
