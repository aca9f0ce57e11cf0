"""Sums over rows on a GPU, in float64 and in a fixed order."""
import numpy as np

from hpgcn.kernels.cuda.device import CHUNKS, current


def column_sum(x):
    """Sum over rows, in float64: see `hpgcn.kernels.reference.column_sum`."""
    device, (m, width) = current(), x.shape
    chunks = chunks_of(m)
    sums = device.xp.empty((chunks, width))
    device.launch("total", "chunk_sums", sums.size, device.ordered(x), m, width, chunks, sums, REAL=x.dtype)
    return total(sums)


def inner(x, y):
    """Sum of all products of elements, in float64: see `hpgcn.kernels.reference.inner`."""
    device, (m, width) = current(), x.shape
    chunks = chunks_of(m)
    sums = device.xp.empty((chunks, width))
    device.launch("total", "chunk_products", sums.size, device.ordered(x), device.ordered(y, x.dtype), m, width, chunks,
                  sums, REAL=x.dtype)
    return total(sums.reshape(sums.size, 1))


def total(sums):
    """Sum over chunks: (chunks, f) float64 to (f,)."""
    device, (chunks, width) = current(), sums.shape
    out = device.xp.empty(width)
    device.launch("total", "total", width * device.team, sums, chunks, width, out, REAL=np.float64)
    return out


def chunks_of(m):
    """Chunks that m rows are summed in: 32 rows each, or more where that would be above CHUNKS."""
    return max(1, min(CHUNKS, -(-m // 32)))
