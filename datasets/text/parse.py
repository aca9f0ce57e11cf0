"""Compiled loop that parses lines of two integers, maybe a number, and other fields.

A mantissa of 19 digits, times or divided by a power of ten up to 10^270, is rounded
once. All other numbers are left to the caller, which uses Python's float.
"""
from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.kernels.host.jit import jit

if TYPE_CHECKING:
    pass

# constants for words of 8 bytes
ONES, ZEROS, TO_HIGH, HIGH = (np.uint64(byte * 0x0101010101010101)
                              for byte in (0x01, 0x30, 0x76, 0x80))
ONE = np.uint64(1)
PAIRS = np.uint64(0x000000FF000000FF)
FIRST, SECOND = np.uint64(100 + (1000000 << 32)), np.uint64(1 + (10000 << 32))
SAFE = 18  # an integer with at most this many digits fits into 64 bits
INT64_MAX = int(np.iinfo(np.int64).max)
POWERS = 10.0 ** np.arange(23)
NEWLINE, TAB, RETURN, SPACE, QUOTE, HASH, PERCENT = b"\n\t\r \"#%"
PLUS, MINUS, POINT, ZERO, NINE, LOWER_E, UPPER_E = b"+-.09eE"
DIGITS = 19  # a mantissa of 19 digits fits into 64 bits
LARGEST = 270  # largest power of ten for exact products of doubles, in two parts
SPLITTER = 134217729.0  # 2^27 + 1: Dekker, 1971
U, V, W, PASSED = range(4)  # roles of a field: first integer, second integer, number, not read
DONE, MISSING, EXTRA, NOT_INTEGER, TOO_LARGE, OUT_OF_RANGE, NOT_NUMBER = range(7)


def _powers_of_ten() -> np.ndarray:
    """Return 10^k as the sum of two doubles, for k from -LARGEST to LARGEST, (2, ..)."""
    powers = [Fraction(10) ** k for k in range(-LARGEST, LARGEST + 1)]
    high = [float(power) for power in powers]
    return np.array([high, [float(power - Fraction(each)) for power, each in zip(powers, high)]])


TENS = _powers_of_ten()


@jit(inner=True)
def is_blank(letter: int, delimiter: int) -> bool:
    return letter in (SPACE, RETURN) or (letter == TAB and delimiter != TAB)


@jit(inner=True)
def skip_blanks(text: np.ndarray, at: int, delimiter: int) -> int:
    """Return the position of the first non-blank byte from `text[at]` on."""
    while is_blank(text[at], delimiter):
        at += 1
    return at


@jit(inner=True)
def parse_sign(text: np.ndarray, at: int) -> tuple[int, int]:
    """Return the sign at `text[at]`, +1 without one, and the position after it."""
    if text[at] == MINUS:
        return -1, at + 1
    return 1, at + (text[at] == PLUS)


@jit(inner=True)
def _scaled(mantissa: np.uint64, scale: int) -> float:
    """Return mantissa x 10^scale, rounded once: products are exact in two parts."""
    if mantissa <= np.uint64(1 << 53) and -22 <= scale <= 22:
        value = np.float64(mantissa)
        return value * POWERS[scale] if scale >= 0 else value / POWERS[-scale]
    high = np.float64(mantissa)
    low = np.float64(np.int64(mantissa - np.uint64(high)))
    ten = TENS[0, scale + LARGEST]
    rest = high * TENS[1, scale + LARGEST] + low * ten

    # compute the product high x ten and its rounding error
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
def decimal(text: np.ndarray, at: int) -> tuple[float, int, bool, bool]:
    """Parse a decimal number at `text[at]`.

    Return the value, its end, whether there is a number, and whether the value is
    rounded only once.
    """
    sign, at = parse_sign(text, at)
    mantissa = np.uint64(0)
    digits = 0  # without leading zeros
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

    # parse the exponent
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


@jit(inner=True)
def _pass(text: np.ndarray, at: int, delimiter: int) -> int:
    """Return the position after the field that begins at `text[at]`.

    A delimiter within double quotes belongs to the field.
    """
    quoted = False
    while text[at] != NEWLINE and (quoted or text[at] != delimiter):
        if delimiter == SPACE and not quoted and (text[at] == TAB or text[at] == RETURN):
            break
        if text[at] == QUOTE:
            quoted = not quoted
        at += 1
    return at


@jit(inner=True)
def _load(text: np.ndarray, at: int) -> np.uint64:
    """Return the 8 bytes from text[at] on as a number, the first byte the lowest.

    The compiler makes one load of it, because the indices have no sign.
    """
    first = np.uint64(at)
    word = np.uint64(0)
    for k in range(8):
        word |= np.uint64(text[first + np.uint64(k)]) << np.uint64(8 * k)
    return word


@jit(inner=True)
def _eight(text: np.ndarray, at: int) -> tuple:
    """Return the value and the number of the digits at the start of the next 8 bytes.

    The digits are moved to the end of a word and summed in pairs, then in fours and
    eights.
    """
    # set the highest bit of each byte that is no digit; carries reach only bytes after the first
    word = _load(text, at) ^ ZEROS
    others = ((word + TO_HIGH) | word) & HIGH
    size = np.uint64(8)
    if others:
        size = ((((others - ONE) & ~others & ONES) * ONES) >> np.uint64(56)) - ONE
        if size == 0:
            return np.int64(0), np.int64(0)

    word <<= np.uint64(64) - (size << np.uint64(3))
    word = word * np.uint64(10) + (word >> np.uint64(8))
    word = ((word & PAIRS) * FIRST + ((word >> np.uint64(16)) & PAIRS) * SECOND) >> np.uint64(32)
    return np.int64(word), np.int64(size)


@jit(inner=True)
def _digits(text: np.ndarray, at: int) -> tuple:
    """Parse at most SAFE digits, which cannot overflow; return the value and the end."""
    stop = at + SAFE
    value = np.int64(0)
    if at + 8 <= text.size:
        value, size = _eight(text, at)
        at += size
        if size < 8:
            return value, at
    while at < stop:
        digit = np.int64(text[at]) - ZERO
        if not 0 <= digit <= 9:
            break
        value = 10 * value + digit
        at += 1
    return value, at


@jit()
def _pairs(text: np.ndarray, at: int, delimiter: int, low: int, high: int, first: np.ndarray,
           second: np.ndarray, count: int) -> tuple[int, int]:
    """Parse lines that only have two integers with one delimiter between them.

    The integers have at most SAFE digits and lie in low..high. They are written to
    `first` and `second` from `count` on. Return the position of the first other line
    and the new count.
    """
    while at < text.size:
        one, middle = _digits(text, at)
        if middle == at or text[middle] != delimiter:
            break
        two, end = _digits(text, middle + 1)
        if end == middle + 1 or text[end] != NEWLINE:
            break
        if not (low <= one <= high and low <= two <= high):
            break
        first[count] = one
        second[count] = two
        count += 1
        at = end + 1
    return at, count


@jit(inner=True)
def _integer(text: np.ndarray, at: int) -> tuple[int, int, int]:
    """Parse an integer, which may end in .0; return (status, value, end)."""
    sign, at = parse_sign(text, at)
    first = at
    value, at = _digits(text, at)
    while ZERO <= text[at] <= NINE:
        digit = np.int64(text[at]) - ZERO
        if value > INT64_MAX // 10 or (value == INT64_MAX // 10 and digit > INT64_MAX % 10):
            return TOO_LARGE, value, at
        value = 10 * value + digit
        at += 1
    if at > first and text[at] == POINT and text[at + 1] == ZERO:  # 1.0 for 1 in pandas
        at += 2
        while text[at] == ZERO:
            at += 1
    return (DONE if at > first else NOT_INTEGER), sign * value, at


@jit()
def parse(text: np.ndarray, delimiter: int, comments: bool, roles: np.ndarray, low: int, high: int,
          integral: bool, line: int, u: np.ndarray, v: np.ndarray, w: np.ndarray,
          inexact: np.ndarray) -> tuple:
    """Parse lines of text into the arrays u, v and w.

    `text` ends with a newline, and its first line has the number `line`. `roles` (k,)
    int64 are the roles of a line's fields. `inexact` (rows, 4) int64 receives row,
    start, end and line of each value that the caller must parse.

    Return the status; the position, number and line of the wrong field; and the numbers
    of rows, of inexact values and of skipped comments.
    """
    at = 0
    count = 0
    rough = 0
    skipped = 0
    plain = roles.size == 2 and roles[0] + roles[1] == U + V
    while at < text.size:
        # parse a line of two integers, which most lines are
        if plain:
            before = count
            if roles[0] == U:
                at, count = _pairs(text, at, delimiter, low, high, u, v, count)
            else:
                at, count = _pairs(text, at, delimiter, low, high, v, u, count)
            line += count - before
            if at == text.size:
                break

        # skip comments and empty lines
        at = skip_blanks(text, at, delimiter)
        if comments and (text[at] == HASH or text[at] == PERCENT):
            skipped += 1
            while text[at] != NEWLINE:
                at += 1
        if text[at] == NEWLINE:
            at += 1
            line += 1
            continue

        # parse the fields of an edge, except those without a role
        for k in range(roles.size):
            # find where the field begins
            role = roles[k]
            if k > 0:
                at = skip_blanks(text, at, delimiter)
                if text[at] == delimiter:
                    at = skip_blanks(text, at + 1, delimiter)
                elif delimiter != SPACE:
                    return MISSING, at, k, line, count, rough, skipped
            if text[at] == NEWLINE and (role != PASSED or delimiter == SPACE):
                return MISSING, at, k, line, count, rough, skipped
            if role == PASSED:
                at = _pass(text, at, delimiter)
                continue

            # parse the number
            quoted = text[at] == QUOTE
            at += quoted
            start = at
            wrong = NOT_NUMBER if role == W else NOT_INTEGER
            if role == W:
                w[count], at, found, exact = decimal(text, at)
                status = DONE if found else NOT_NUMBER
                for letter in text[start:at]:
                    if integral and (letter == POINT or letter > NINE):
                        status = NOT_NUMBER
                if not exact:
                    # one number at a time: Numba compiles the assignment of a row for seconds
                    inexact[rough, 0] = count
                    inexact[rough, 1] = start
                    inexact[rough, 2] = at
                    inexact[rough, 3] = line
                    rough += 1
            else:
                status, value, at = _integer(text, at)
                (u if role == U else v)[count] = value

            # what follows must end the field
            if status == DONE and quoted:
                status = DONE if text[at] == QUOTE else wrong
                at += 1
            ends = text[at] in (NEWLINE, delimiter) or is_blank(text[at], delimiter)
            if status == DONE and not ends:
                status = wrong
            if status == DONE and role != W and not low <= value <= high:
                status = OUT_OF_RANGE
            if status != DONE:
                return status, start - quoted, k, line, count, rough, skipped

        # nothing may follow the last field
        at = skip_blanks(text, at, delimiter)
        if text[at] != NEWLINE:
            return EXTRA, at, roles.size, line, count, rough, skipped
        at += 1
        line += 1
        count += 1
    return DONE, at, 0, line, count, rough, skipped
