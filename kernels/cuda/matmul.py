"""Dense products on a GPU by cuBLAS, in float32 with all 23 bits.

The setting CUPY_TF32 permits 10 bits. Rows of 16 bits are multiplied on tensor cores.
Where these are missing, or one operand is of float32, rows are unpacked in blocks. Sums
over all rows are then added block by block.
"""
import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import BF16, number_dtype
from hpgcn.kernels.cuda import cublas
from hpgcn.kernels.cuda.copies import convert
from hpgcn.kernels.cuda.elementwise import apply_mask
from hpgcn.kernels.cuda.gpu_device import current
from hpgcn.kernels.host.accesses import writes
from hpgcn.kernels.host.record import repeat

BLOCK_NUMBERS = 1 << 24  # numbers in the unpacked rows of a block, or in its result


def matmul(x: Array, y: Array, out: Array | None = None, *, mask: Array | None = None) -> Array:
    if out is None:
        out = current().xp.empty((x.shape[0], y.shape[1]), number_dtype(x.dtype))
    repeat(_multiply, x, y, out)
    return out if mask is None else apply_mask(out, mask)


@writes(2)
def _multiply(x: Array, y: Array, out: Array) -> None:
    xp = current().xp
    in_rows = x.flags.c_contiguous or not x.flags.f_contiguous
    if in_rows and x.dtype == BF16:
        x, y = current().ordered(x), _as(y, BF16)
    if cublas.multiply(x, y, out):
        return
    if BF16 not in (x.dtype, y.dtype, out.dtype):
        xp.matmul(x, y, out=out)
        return
    (m, k), n = x.shape, y.shape[1]
    if not in_rows:  # y also has rows in order
        height = max(1, BLOCK_NUMBERS // (m + n))
        total = xp.zeros((m, n), np.float32)
        for first in range(0, k, height):
            rows = slice(first, first + height)
            total += xp.matmul(_float32(x.T[rows]).T, _float32(y[rows]))
        out[...] = _as(total, out.dtype)
        return
    y = _float32(y)
    height = max(1, BLOCK_NUMBERS // (k + n))
    for first in range(0, m, height):
        rows = slice(first, first + height)
        out[rows] = _as(xp.matmul(_float32(x[rows]), y), out.dtype)


def _float32(array: Array) -> Array:
    return _as(array, np.dtype(np.float32))


def _as(array: Array, dtype: np.dtype) -> Array:
    """Return an array converted to `dtype`, or the array itself if it has that dtype."""
    if array.dtype == dtype:
        return array
    array = current().ordered(array)
    return convert(array, current().xp.empty(array.shape, dtype))
