"""Copies and sums of rows of two dtypes."""

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import numbers, store


def convert(x: Array, out: Array) -> Array:
    """Copy numbers (m, f) to an array of another dtype; return it.

    Numbers are rounded to nearest, with ties to even.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> x = np.array([[1.00001, 2.0]])
    >>> bits = reference.convert(x, np.empty((1, 2), np.uint16))  # 16 bits
    >>> reference.convert(bits, np.empty((1, 2), np.float32))
    array([[1., 2.]], dtype=float32)
    """
    return store(numbers(x), out)


def add(x: Array, out: Array) -> Array:
    """Add numbers (m, f) to `out` of the same dtype, rounded, and return it.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> x, out = np.array([[1.0, 2.0]]), np.array([[10.0, 20.0]])
    >>> reference.add(x, out)
    array([[11., 22.]])
    """
    return store(numbers(out) + numbers(x), out)
