"""Rows of another type: copied, and added."""
from hpgcn.kernels.bits16 import numbers, store


def convert(x, out):
    """Copy numbers (m, f) to an array of another dtype, rounded to nearest even. Returns out."""
    return store(numbers(x), out)


def add(x, out):
    """Add numbers (m, f) to those of `out`, of the same dtype, and round. Returns out."""
    return store(numbers(out) + numbers(x), out)
