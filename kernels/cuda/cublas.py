"""Dense products by cuBLAS, called so that a CUDA graph can capture them.

CuPy refuses its products while a stream captures, so cuBLAS is called directly. It reads
16 bits as they are, and adds their products in float32 on tensor cores.
"""
import ctypes
import functools
import logging
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import BF16
from hpgcn.kernels.cuda.gpu_device import Device, current

log = logging.getLogger("hpgcn")
# numbers in the headers of CUDA: cudaDataType, cublasComputeType_t of the sums
KINDS = {np.dtype(np.float32): (0, 68), np.dtype(np.float64): (1, 70), BF16: (14, 68)}
TF32_SUMS = 77  # CUBLAS_COMPUTE_32F_FAST_TF32
PLAIN, TRANSPOSED = 0, 1  # cublasOperation_t
DEFAULT = -1  # CUBLAS_GEMM_DEFAULT
TRIED = {BF16: 0x4170}  # 15 = 1111 in binary has a product that 16 bits represent


def takes_tf32() -> bool:
    """Return whether the user permits dense products of float32 with 10 bits."""
    return os.environ.get("CUPY_TF32") == "1"


def multiply(x: Array, y: Array, out: Array) -> bool:
    """Write x y to `out` if cuBLAS can; return whether it has.

    x (m, k) and y (k, n) have one dtype. In rows of each, or of its transpose, numbers
    are adjacent. `out` (m, n), in C order, has their dtype; for 16 bits it may be of float32.
    """
    operands = [_operand(array) for array in (y, x)]
    gemm = _find_gemm(current(), x.dtype) if x.dtype == y.dtype in KINDS else None
    if gemm is None or None in operands or not out.flags.c_contiguous:
        return False
    if x.size and y.size:
        gemm(x, y, out, operands)
    else:
        out[...] = 0
    return True


def _operand(array: Array) -> tuple[int, int] | None:
    """Return operation and row distance of a matrix, or None if its rows have gaps."""
    for operation, matrix in ((PLAIN, array), (TRANSPOSED, array.T)):
        (rows, columns), (far, near) = matrix.shape, matrix.strides
        distance = max(columns, 1) if rows == 1 else far // array.itemsize
        if (near == array.itemsize or columns == 1) and distance >= columns:
            return operation, distance
    return None


@functools.cache
def _find_gemm(device: Device, dtype: np.dtype) -> Callable | None:
    """Return a function that writes products of a dtype; None if a small product fails.

    cuBLAS is tried directly first, then through CuPy, which has gemmEx for 16 bits.
    """
    cuda = getattr(device.xp, "cuda", None)
    for find in (_direct, _through_cupy) if cuda else ():
        try:
            gemm = functools.partial(_multiply, device, dtype, find(cuda))
            number = TRIED.get(dtype, 15)
            x, y = (device.xp.full(shape, number, dtype) for shape in ((3, 8), (8, 2)))
            out = device.xp.zeros((3, 2), np.float32 if dtype == BF16 else dtype)
            gemm(x, y, out, [_operand(y), _operand(x)])
            if (out == 8 * 15 * 15).all():
                return gemm
            reason: object = "a product is wrong"
        except Exception as error:  # releases of CuPy, CUDA and drivers fail in ways of their own
            reason = error
        log.debug("cuBLAS of %s, %s: %s", dtype, find.__name__.strip("_"), reason)
    return None


def _direct(cuda: Any) -> Callable:
    """Return cublasGemmEx on the current stream, without CuPy's checks."""
    handle = cuda.Device().cublas_handle
    library = load_library(cuda.cublas.getVersion(handle) // 10_000)

    def gemm(*arguments: Any) -> None:
        library.cublasSetStream_v2(ctypes.c_void_p(handle),
                                   ctypes.c_void_p(cuda.get_current_stream().ptr))
        status = library.cublasGemmEx(ctypes.c_void_p(handle), *arguments)
        if status:
            raise RuntimeError(f"cublasGemmEx: status {status}")

    return gemm


def load_library(major: int) -> Any:
    """Return the library of cuBLAS that CuPy has loaded."""
    return ctypes.CDLL(f"libcublas.so.{major}")


def _through_cupy(cuda: Any) -> Callable:
    handle = cuda.Device().cublas_handle

    def gemm(*arguments: Any) -> None:
        cuda.cublas.gemmEx(handle, *(each.value or 0 if hasattr(each, "value") else each
                                     for each in arguments))

    return gemm


def _multiply(device: Device, dtype: np.dtype, gemm: Callable, x: Array, y: Array, out: Array,
              operands: list) -> None:
    """Compute out^T = y^T x^T, because cuBLAS expects columns in order."""
    (m, k), n = x.shape, y.shape[1]
    (kind, sums), (kind_out, _) = KINDS[dtype], KINDS[out.dtype]
    if dtype == np.float32 and takes_tf32():
        sums = TF32_SUMS
    factor = ctypes.c_double if dtype == np.float64 else ctypes.c_float
    one, zero = factor(1), factor(0)  # read before the call returns
    (op_y, rows_y), (op_x, rows_x) = operands

    def place(array: Array) -> ctypes.c_void_p:
        return ctypes.c_void_p(device.address(array))

    gemm(op_y, op_x, n, m, k, address(one), place(y), kind, rows_y, place(x), kind, rows_x,
         address(zero), place(out), kind_out, n, sums, DEFAULT)


def address(number: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(ctypes.addressof(number))
