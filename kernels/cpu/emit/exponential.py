"""Exponentials and logarithms without branches or calls, so that loops become vector code."""
from hpgcn.kernels.cpu.emit.vector_intrinsics import power_of_two
from hpgcn.kernels.host.jit import jit

MAGIC = 1.5 * 2.0**52


@jit(forceinline=True)
def _reduce_argument(x):
    """Return (rounded, t) for x <= 0 such that exp(x) = 2^k (1 + t).

    x = k ln 2 + r with |r| <= ln 2 / 2. `rounded` is k + 1.5 * 2^52, whose low bits
    hold k.
    """
    x = max(x, -700.0)
    rounded = x * 1.4426950408889634 + MAGIC
    k = rounded - MAGIC
    r = x - k * 6.93147180369123816490e-01 - k * 1.90821492927058770002e-10  # ln 2, in two parts
    # Taylor's series to r^13; a loop over the coefficients would not become vector code
    p = ((r / 6227020800.0 + 1 / 479001600.0) * r + 1 / 39916800.0) * r + 1 / 3628800.0
    p = (((p * r + 1 / 362880.0) * r + 1 / 40320.0) * r + 1 / 5040.0) * r + 1 / 720.0
    p = (((p * r + 1 / 120.0) * r + 1 / 24.0) * r + 1 / 6.0) * r + 0.5
    return rounded, (p * r + 1.0) * r


@jit(forceinline=True)
def exp(x):
    """Return exp(x) for x <= 0, with a relative error of 2e-16."""
    rounded, t = _reduce_argument(x)
    return (t + 1.0) * power_of_two(rounded)


@jit(forceinline=True)
def expm1(x):
    """Return exp(x) - 1 = 2^k t + (2^k - 1) for x <= 0, with a relative error of 4e-16."""
    rounded, t = _reduce_argument(x)
    power = power_of_two(rounded)
    return power * t + (power - 1.0)


@jit(forceinline=True)
def log1p(x):
    """Return log(1 + x) = 2 artanh(x / (2 + x)) for 0 <= x <= 1, with an error of 4e-16."""
    s = x / (2.0 + x)
    t = s * s
    p = (((t / 33.0 + 1 / 31.0) * t + 1 / 29.0) * t + 1 / 27.0) * t + 1 / 25.0
    p = (((p * t + 1 / 23.0) * t + 1 / 21.0) * t + 1 / 19.0) * t + 1 / 17.0
    p = (((p * t + 1 / 15.0) * t + 1 / 13.0) * t + 1 / 11.0) * t + 1 / 9.0
    p = (((p * t + 1 / 7.0) * t + 1 / 5.0) * t + 1 / 3.0) * t
    return 2.0 * (s + s * p)
