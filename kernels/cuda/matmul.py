"""Dense products on a GPU by cuBLAS, in float32 with all 23 bits.

The setting CUPY_TF32 permits 10 bits. Rows of 16 bits are multiplied on tensor cores.
Where these are missing, or one operand is of float32, rows are unpacked in blocks. Sums
over all rows are then added block by block.
"""
import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import BF16
from hpgcn.kernels.cuda import tensor_cores
from hpgcn.kernels.cuda.copies import convert
from hpgcn.kernels.cuda.elementwise import apply_mask
from hpgcn.kernels.cuda.gpu_device import current

BLOCK_NUMBERS = 1 << 24  # numbers in the unpacked rows of a block, or in its result


def matmul(x: Array, y: Array, out: Array | None = None, *, mask: Array | None = None) -> Array:
    out = _product(x, y, out)
    return out if mask is None else apply_mask(out, mask)


def _product(x: Array, y: Array, out: Array) -> Array:
    xp = current().xp
    if BF16 not in (x.dtype, y.dtype, None if out is None else out.dtype):
        return xp.matmul(x, y, out=out)
    (m, k), n = x.shape, y.shape[1]
    out = xp.empty((m, n), np.float32) if out is None else out
    in_rows = x.flags.c_contiguous or not x.flags.f_contiguous
    if in_rows and x.dtype == BF16:
        x, y = current().ordered(x), _as(y, BF16)
    if x.dtype == y.dtype and tensor_cores.multiply(x, y, out):
        return out
    if not in_rows:  # y also has rows in order
        height = max(1, BLOCK_NUMBERS // (m + n))
        total = xp.zeros((m, n), np.float32)
        for first in range(0, k, height):
            rows = slice(first, first + height)
            total += xp.matmul(_float32(x.T[rows]).T, _float32(y[rows]))
        out[...] = _as(total, out.dtype)
        return out
    y = _float32(y)
    height = max(1, BLOCK_NUMBERS // (k + n))
    for first in range(0, m, height):
        rows = slice(first, first + height)
        out[rows] = _as(xp.matmul(_float32(x[rows]), y), out.dtype)
    return out


def _float32(array: Array) -> Array:
    return _as(array, np.dtype(np.float32))


def _as(array: Array, dtype: np.dtype) -> Array:
    """Return an array converted to `dtype`, or the array itself if it has that dtype."""
    if array.dtype == dtype:
        return array
    array = current().ordered(array)
    return convert(array, current().xp.empty(array.shape, dtype))
