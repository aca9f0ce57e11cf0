"""Sums over rows on a GPU, in float64 and in a fixed order."""
from typing import Any

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cuda.gpu_device import CHUNKS, current, rows_of


def column_sum(x: Array) -> Array:
    return total(_chunk_sums("chunk_sums", x))


def inner(x: Array, y: Array) -> Array:
    sums = _chunk_sums("chunk_products", x, current().ordered(y, x.dtype))
    return total(sums.reshape(sums.size, 1))


def _chunk_sums(name: str, x: Array, *others: Any) -> Array:
    """Run a kernel that sums over chunks of rows; return the sums, (chunks, f) float64."""
    device = current()
    m, width = x.shape
    chunks = chunks_of(m)
    sums = device.xp.empty((chunks, width))
    device.launch("reductions", name, sums.size, device.ordered(x), *others, m, width, chunks, sums,
                  **rows_of(x.dtype))
    return sums


def total(sums: Array) -> Array:
    """Sum (chunks, f) float64 over the chunks to (f,)."""
    device = current()
    chunks, width = sums.shape
    out = device.xp.empty(width)
    device.launch("reductions", "total", width * device.team, sums, chunks, width, out,
                  REAL=np.float64)
    return out


def chunks_of(m: int) -> int:
    """Return the number of chunks in which m rows are summed: of 32 rows, at most CHUNKS."""
    return max(1, min(CHUNKS, -(-m // 32)))


def by_row(source: str, name: str, x: Array, dtype: np.dtype, *operands: Any) -> Array:
    """Run a kernel with a team of threads for each row of x; return its (m,) results."""
    device = current()
    m, width = x.shape
    out = device.xp.empty(m, dtype)
    device.launch(source, name, m * device.team, device.ordered(x), m, width, *operands, out,
                  REAL=x.dtype)
    return out
