"""Compiled loops over the cells of text tables: where rows and cells begin, and the
numbers in them.

A cell in double quotes has no quote and no line end in it; the caller reads other
texts with Python's csv module.
"""
from fractions import Fraction

import numpy as np

from hpgcn.datasets.text.parse import (
    LOWER_E,
    MINUS,
    NEWLINE,
    NINE,
    PLUS,
    POINT,
    POWERS,
    QUOTE,
    RETURN,
    SPACE,
    TAB,
    UPPER_E,
    ZERO,
)
from hpgcn.kernels.jit import jit

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
def _is_blank(letter, delimiter):
    return letter in (SPACE, RETURN) or (letter == TAB and delimiter != TAB)


@jit(inner=True)
def _cell(text, at, delimiter):
    """Return the start and the end of the cell at `text[at]`, and the end of its field.

    The field ends at a delimiter or a newline. -1 means a cell that is not simple.
    """
    while _is_blank(text[at], delimiter):
        at += 1
    if text[at] == QUOTE:
        start = at + 1
        at = start
        while text[at] != QUOTE:
            if text[at] == NEWLINE:
                return start, start, -1
            at += 1
        end = at
        at += 1
        if delimiter != SPACE:
            while _is_blank(text[at], delimiter):
                at += 1
        ends = text[at] == delimiter or text[at] == NEWLINE or _is_blank(text[at], delimiter)
        return start, end, at if ends else -1

    start = at
    while text[at] != delimiter and text[at] != NEWLINE:
        if delimiter == SPACE and _is_blank(text[at], delimiter):
            break
        at += 1
    end = at
    while end > start and _is_blank(text[end - 1], delimiter):
        end -= 1
    return start, end, at


@jit(inner=True)
def _next(text, at, delimiter):
    """Return where the next cell begins, after the end of one at `text[at]`; -1 at the
    end of a row.
    """
    if delimiter == SPACE:
        while _is_blank(text[at], delimiter):
            at += 1
        return -1 if text[at] == NEWLINE else at
    return -1 if text[at] == NEWLINE else at + 1


@jit()
def scan(text, delimiter, width, starts, lines):
    """Find the rows of a text of whole lines: where each starts, and its line from 0.

    Rows without any cell are left out. Return the number of rows, or -1 if a row does
    not have `width` simple cells.
    """
    at = 0
    line = 0
    rows = 0
    while at < text.size:
        start = at
        cells = 0
        filled = False
        while at >= 0:
            first, last, end = _cell(text, at, delimiter)
            if end < 0:
                return -1
            cells += 1
            filled = filled or last > first
            at = _next(text, end, delimiter)
        if filled:
            if cells != width:
                return -1
            starts[rows] = start
            lines[rows] = line
            rows += 1
        at = end
        while text[at] != NEWLINE:
            at += 1
        at += 1
        line += 1
    return rows


@jit()
def offsets(text, delimiter, starts, out):
    """Set `out`, (rows, width), to the start of each cell, from that of its row."""
    for row in range(starts.size):
        at = starts[row]
        for k in range(out.shape[1]):
            out[row, k] = at - starts[row]
            _, _, end = _cell(text, at, delimiter)
            at = _next(text, end, delimiter)


@jit()
def bounds(text, delimiter, starts, skipped, out):
    """Set `out`, (rows, 2), to start and end of a cell, `skipped` cells from `starts`."""
    for row in range(starts.size):
        at = starts[row]
        for _ in range(skipped):
            _, _, end = _cell(text, at, delimiter)
            at = _next(text, end, delimiter)
        out[row, 0], out[row, 1], _ = _cell(text, at, delimiter)


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
def _decimal(text, at):
    """Parse a decimal number at `text[at]`; return the value, its end, and whether it
    is one that this function rounds.
    """
    negative = text[at] == MINUS
    at += negative or text[at] == PLUS
    mantissa = np.uint64(0)
    digits = 0  # without zeros in front
    seen = 0
    scale = 0
    point = False
    while True:
        letter = text[at]
        if ZERO <= letter <= NINE:
            mantissa = mantissa * np.uint64(10) + np.uint64(letter - ZERO)
            digits += mantissa > 0
            if digits > DIGITS:
                return 0.0, at, False
            scale -= point
            seen += 1
        elif letter == POINT and not point:
            point = True
        else:
            break
        at += 1

    if seen and (text[at] == LOWER_E or text[at] == UPPER_E):
        at += 1
        down = text[at] == MINUS
        at += down or text[at] == PLUS
        exponent = 0
        seen = 0
        while ZERO <= text[at] <= NINE and seen < 5:
            exponent = 10 * exponent + (text[at] - ZERO)
            seen += 1
            at += 1
        scale += -exponent if down else exponent
    if not seen or not -LARGEST <= scale <= LARGEST:
        return 0.0, at, False
    value = _scaled(mantissa, scale) if mantissa else 0.0
    return -value if negative else value, at, True


@jit()
def numbers(text, delimiter, starts, places, out, rough):
    """Set `out`, (rows, m) float64, to the numbers in some cells of each row.

    `places` (width,) is the column of `out` for each cell, or -1. Cells that are no
    simple numbers are left out: `rough`, (most, 4) int64, receives their row, column of
    `out`, start and end. Return their number, which may exceed `most`.
    """
    count = 0
    for row in range(starts.size):
        at = starts[row]
        for k in range(places.size):
            place = places[k]
            if place >= 0:
                # most cells have a number and nothing else
                start = at
                while _is_blank(text[start], delimiter):
                    start += 1
                value, end, known = _decimal(text, start)
                if known and (text[end] == delimiter or text[end] == NEWLINE):
                    out[row, place] = value
                    at = _next(text, end, delimiter)
                    continue

            # other cells, with blanks or quotes around
            start, end, after = _cell(text, at, delimiter)
            at = _next(text, after, delimiter)
            if place < 0:
                continue
            value, last, known = _decimal(text, start)
            if known and last == end:
                out[row, place] = value
                continue
            if count < len(rough):
                rough[count, 0] = row
                rough[count, 1] = place
                rough[count, 2] = start
                rough[count, 3] = end
            count += 1
    return count
