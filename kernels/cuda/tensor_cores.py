"""Dense products of 16-bit numbers on tensor cores, by cuBLAS.

cuBLAS reads the 16 bits, and adds products in float32.
"""
import functools
import logging
from typing import Any

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import BF16
from hpgcn.kernels.cuda.gpu_device import Device, current

log = logging.getLogger("hpgcn")
# numbers in the headers of CUDA
TYPES = {np.dtype(np.float32): 0, BF16: 14}  # cudaDataType: CUDA_R_32F, CUDA_R_16BF
PLAIN, TRANSPOSED = 0, 1  # cublasOperation_t
FLOAT32_SUMS = 68  # CUBLAS_COMPUTE_32F
DEFAULT = -1  # CUBLAS_GEMM_DEFAULT
ONE, ZERO = np.ones(1, np.float32), np.zeros(1, np.float32)


def multiply(x: Array, y: Array, out: Array) -> bool:
    """Write x y to `out` if tensor cores can; return whether they have.

    x (m, k) and y (k, n) have 16 bits. Rows of x or of its transpose lie in C order. `out`
    (m, n), in C order, is of float32 or of 16 bits.
    """
    gemm = _find_gemm(current())
    if gemm is None or not out.flags.c_contiguous:
        return False
    if x.size and y.size:
        gemm(x, current().ordered(y), out)
    else:
        out[...] = 0
    return True


@functools.cache
def _find_gemm(device: Device) -> Any:
    """Return a function that writes x y to `out`; None if a small product fails."""
    cuda = getattr(device.xp, "cuda", None)
    if cuda is None:
        return None
    try:
        gemm = functools.partial(_multiply, device, cuda.cublas.gemmEx, cuda.Device().cublas_handle)
        # 15 = 1111 in binary has a product that 16 bits represent
        x, y = (device.xp.full(shape, 0x4170, BF16) for shape in ((3, 8), (8, 2)))
        out = device.xp.zeros((3, 2), np.float32)
        gemm(x, y, out)
        if (out == 8 * 15 * 15).all():
            return gemm
        reason: object = "a product is wrong"
    except Exception as error:  # releases of CuPy, CUDA and drivers fail in ways of their own
        reason = error
    log.debug("16-bit products are computed in float32: %s", reason)
    return None


def _multiply(device: Device, gemm: Any, handle: int, x: Array, y: Array, out: Array) -> None:
    """Compute out^T = y^T x^T, because cuBLAS expects columns in order."""
    (m, k), n = x.shape, y.shape[1]
    if x.flags.c_contiguous:
        operation, width = PLAIN, k
    else:
        operation, width = TRANSPOSED, m
    gemm(handle, PLAIN, operation, n, m, k, ONE.ctypes.data, device.address(y), TYPES[BF16], n,
         device.address(x), TYPES[BF16], width, ZERO.ctypes.data, device.address(out),
         TYPES[out.dtype], n, FLOAT32_SUMS, DEFAULT)
