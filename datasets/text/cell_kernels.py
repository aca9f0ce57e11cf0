"""Compiled loops that find rows, cells and numbers of text tables.

A cell in double quotes has no quote and no line end in it. The caller reads other texts
with Python's csv module.
"""


import numpy as np

from hpgcn.datasets.text.parse import (
    NEWLINE,
    QUOTE,
    SPACE,
    decimal,
    is_blank,
    skip_blanks,
)
from hpgcn.kernels.host.jit import jit


@jit(inner=True)
def _cell(text: np.ndarray, at: int, delimiter: int) -> tuple[int, int, int]:
    """Return start and end of the cell at `text[at]`, and the end of its field.

    The field ends at a delimiter or a newline. Its end is -1 for a cell that is not
    simple.
    """
    at = skip_blanks(text, at, delimiter)
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
            at = skip_blanks(text, at, delimiter)
        ends = text[at] == delimiter or text[at] == NEWLINE or is_blank(text[at], delimiter)
        return start, end, at if ends else -1

    start = at
    while text[at] != delimiter and text[at] != NEWLINE:
        if delimiter == SPACE and is_blank(text[at], delimiter):
            break
        at += 1
    end = at
    while end > start and is_blank(text[end - 1], delimiter):
        end -= 1
    return start, end, at


@jit(inner=True)
def _next(text: np.ndarray, at: int, delimiter: int) -> int:
    """Return where the next cell begins, after an end at `text[at]`; -1 at a row's end."""
    if delimiter == SPACE:
        at = skip_blanks(text, at, delimiter)
        return -1 if text[at] == NEWLINE else at
    return -1 if text[at] == NEWLINE else at + 1


@jit()
def scan(text: np.ndarray, delimiter: int, width: int, starts: np.ndarray,
         lines: np.ndarray) -> int:
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
def offsets(text: np.ndarray, delimiter: int, starts: np.ndarray, out: np.ndarray) -> None:
    """Set `out`, (rows, width), to the start of each cell, from that of its row."""
    for row in range(starts.size):
        at = starts[row]
        for k in range(out.shape[1]):
            out[row, k] = at - starts[row]
            _, _, end = _cell(text, at, delimiter)
            at = _next(text, end, delimiter)


@jit()
def bounds(text: np.ndarray, delimiter: int, starts: np.ndarray, skipped: int,
           out: np.ndarray) -> None:
    """Set `out`, (rows, 2), to start and end of a cell, `skipped` cells from `starts`."""
    for row in range(starts.size):
        at = starts[row]
        for _ in range(skipped):
            _, _, end = _cell(text, at, delimiter)
            at = _next(text, end, delimiter)
        out[row, 0], out[row, 1], _ = _cell(text, at, delimiter)


@jit()
def numbers(text: np.ndarray, delimiter: int, starts: np.ndarray, places: np.ndarray,
            out: np.ndarray, rough: np.ndarray) -> int:
    """Set `out`, (rows, m) float64, to the numbers in some cells of each row.

    `places` (width,) is the column of `out` for each cell, or -1. Cells that are no
    simple numbers are left out: `rough`, (most, 4) int64, receives their row, column of
    `out`, start and end. Return the number of such cells, which may exceed `most`.
    """
    count = 0
    for row in range(starts.size):
        at = starts[row]
        for k in range(places.size):
            place = places[k]
            if place >= 0:
                # parse a bare number, which most cells are
                start = at
                start = skip_blanks(text, start, delimiter)
                value, end, _, known = decimal(text, start)
                if known and (text[end] == delimiter or text[end] == NEWLINE):
                    out[row, place] = value
                    at = _next(text, end, delimiter)
                    continue

            # parse other cells, within blanks or quotes
            start, end, after = _cell(text, at, delimiter)
            at = _next(text, after, delimiter)
            if place < 0:
                continue
            value, last, _, known = decimal(text, start)
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
