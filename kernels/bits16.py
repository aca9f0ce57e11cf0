"""Rows stored in 16 bits: bfloat16, the upper half of a float32, in arrays of uint16.

NumPy has no such type; Numba, CuPy, MPI and HDF5 also accept uint16. These integers are
only storage. Kernels decode them, compute in float32 or more, and round what they
store. A number of float64 is rounded to float32 first.
"""
import numpy as np

BF16 = np.dtype(np.uint16)
ROUNDED_ONCE = ("spmm: accumulate needs an out of float32, because 16-bit sums would be rounded "
                "twice")


def number_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype of the stored numbers: float32 for BF16, else `dtype` itself."""
    return np.dtype(np.float32) if dtype == BF16 else np.dtype(dtype)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Round numbers to BF16, to nearest with ties to even; too large numbers become Inf.

    NaN stays NaN.
    """
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> 16 & 1)
    nan = bits & 0x7FFFFFFF > 0x7F800000
    return (np.where(nan, bits | 0x400000, rounded) >> 16).astype(BF16).reshape(np.shape(x))


def to_float32(bits: np.ndarray) -> np.ndarray:
    """Convert an array of BF16 to float32 exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def numbers(array: np.ndarray) -> np.ndarray:
    """Return an array of BF16 as a float32 copy, and any other array itself."""
    return to_float32(array) if array.dtype == BF16 else array


def store(values: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write `values` to `out`, rounded to its dtype; return `out`."""
    out[...] = to_bf16(values) if out.dtype == BF16 else values
    return out
