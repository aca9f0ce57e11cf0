"""Compiled parser of decimal numbers in text, and of the blanks around them.

A mantissa of 19 digits, times or divided by a power of ten up to 10^270, is rounded
once. The caller uses Python's float for all others.
"""
from fractions import Fraction

import numpy as np

from hpgcn.kernels.jit import jit

POWERS = 10.0 ** np.arange(23)
NEWLINE, TAB, RETURN, SPACE, QUOTE, HASH, PERCENT = b"\n\t\r \"#%"
PLUS, MINUS, POINT, ZERO, NINE, LOWER_E, UPPER_E = b"+-.09eE"
DIGITS = 19  # a mantissa of 19 digits fits into 64 bits
LARGEST = 270  # power of ten, up to which products of doubles are exact in two parts
SPLITTER = 134217729.0  # 2^27 + 1: Dekker, 1971


def _powers_of_ten():
    """Return 10^k as the sum of two doubles, for k from -LARGEST to LARGEST, (2, ..)."""
    powers = [Fraction(10) ** k for k in range(-LARGEST, LARGEST + 1)]
    high = [float(power) for power in powers]
    return np.array([high, [float(power - Fraction(each)) for power, each in zip(powers, high)]])


TENS = _powers_of_ten()


@jit(inner=True)
def is_blank(letter, delimiter):
    return letter in (SPACE, RETURN) or (letter == TAB and delimiter != TAB)


@jit(inner=True)
def skip_blanks(text, at, delimiter):
    """Return the position of the first non-blank byte from `text[at]` on."""
    while is_blank(text[at], delimiter):
        at += 1
    return at


@jit(inner=True)
def parse_sign(text, at):
    """Return the sign at `text[at]`, +1 without one, and the position after it."""
    if text[at] == MINUS:
        return -1, at + 1
    return 1, at + (text[at] == PLUS)


@jit(inner=True)
def _scaled(mantissa, scale):
    """Return mantissa x 10^scale, rounded once: products are exact in two parts."""
    if mantissa <= np.uint64(1 << 53) and -22 <= scale <= 22:
        value = np.float64(mantissa)
        return value * POWERS[scale] if scale >= 0 else value / POWERS[-scale]
    high = np.float64(mantissa)
    low = np.float64(np.int64(mantissa - np.uint64(high)))
    ten = TENS[0, scale + LARGEST]
    rest = high * TENS[1, scale + LARGEST] + low * ten

    # the product high x ten and its rounding error
    product = high * ten
    part = SPLITTER * high
    high_top = part - (part - high)
    high_rest = high - high_top
    part = SPLITTER * ten
    ten_top = part - (part - ten)
    ten_rest = ten - ten_top
    error = high_rest * ten_rest - (
        ((product - high_top * ten_top) - high_rest * ten_top) - high_top * ten_rest)
    return product + (error + rest)


@jit(inner=True)
def decimal(text, at):
    """Parse a decimal number at `text[at]`.

    Return the value, its end, whether there is a number, and whether the value is
    rounded once.
    """
    sign, at = parse_sign(text, at)
    mantissa = np.uint64(0)
    digits = 0  # without zeros in front
    seen = 0
    scale = 0
    point = False
    while ZERO <= text[at] <= NINE or (text[at] == POINT and not point):
        if text[at] == POINT:
            point = True
        else:
            digits += digits > 0 or text[at] > ZERO
            mantissa = mantissa * np.uint64(10) + np.uint64(text[at] - ZERO)
            scale -= point
            seen += 1
        at += 1

    # exponent
    if seen and (text[at] == LOWER_E or text[at] == UPPER_E):
        positive, at = parse_sign(text, at + 1)
        exponent = 0
        seen = 0
        while ZERO <= text[at] <= NINE:
            exponent = min(10 * exponent + (text[at] - ZERO), 100000)
            seen += 1
            at += 1
        scale += positive * exponent

    known = digits == 0 or (digits <= DIGITS and -LARGEST <= scale <= LARGEST)
    value = _scaled(mantissa, scale) if digits and known else 0.0
    return sign * value, at, seen > 0, known and seen > 0
