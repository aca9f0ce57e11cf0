"""The cells of a text table in blocks of its text, and columns that are read from them."""
from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.text import cell_kernels
from hpgcn.datasets.text.data_table import HEAD, CellError, TextColumn, parse_number

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

NEAR = 8  # columns that are found from the start of a row
LARGE = 1 << 18  # bytes of a text that is worth the compiled parser
MOST = 4096  # cells that are no simple numbers, before they are counted


class TextCells:
    """The cells of a text table, as blocks of its text and the starts of its rows.

    `delimiter` is a byte, a blank for any run of blanks. `width` is the number of cells
    of a row.
    """

    def __init__(self, delimiter: str, width: int) -> None:
        self.delimiter = ord(delimiter)
        self.width = width
        self.num_rows = 0
        self.blocks = []  # tuples of bytes and starts of rows
        self._offsets = None
        self._head = None

    def append(self, block: bytes) -> np.ndarray | None:
        """Append whole lines, bytes; return the line of each row, from 0, or None.

        None, and nothing is appended, for text that the csv module must read.
        """
        if b"\0" in block or not _is_utf8(block) or (
                b"\r" in block and block.count(b"\r") != block.count(b"\r\n")):
            return None
        starts, lines = np.empty((2, block.count(b"\n")), np.int64)
        rows = cell_kernels.scan(_array(block), self.delimiter, self.width, starts, lines)
        if rows < 0:
            return None
        self.blocks.append((block, starts[:rows].copy()))
        self.num_rows += rows
        return lines[:rows]

    def column(self, k: int) -> Iterator:
        """Yield the cells of column k of each block, a list of bytes."""
        for number, (block, starts) in enumerate(self.blocks):
            bounds = np.empty((starts.size, 2), np.int64)
            if k >= NEAR:
                starts = starts + self._starts(number)[:, k]
            cell_kernels.bounds(_array(block), self.delimiter, starts, k if k < NEAR else 0, bounds)
            yield [block[start:end] for start, end in bounds.tolist()]

    def _starts(self, number: int) -> np.ndarray:
        """Return the start of each cell of a block in its row, (rows, width)."""
        if self._offsets is None:
            self._offsets = [np.empty((starts.size, self.width), np.uint32)
                             for _, starts in self.blocks]
            for (block, starts), out in zip(self.blocks, self._offsets):
                cell_kernels.offsets(_array(block), self.delimiter, starts, out)
        return self._offsets[number]

    def head(self, k: int, above: Sequence[str] = ()) -> list[str]:
        """Return `above` and the first cells of column k, at most HEAD of them."""
        if self._head is None:
            block, starts = self.blocks[0] if self.blocks else (b"", np.empty(0, np.int64))
            stop = starts[HEAD] if starts.size > HEAD else len(block)
            rows = _split(block[:stop].decode(), chr(self.delimiter))
            self._head = [[cell.strip() for cell in cells] for cells in zip(*rows)]
        return [*above, *self._head[k]][:HEAD] if self._head else [*above]

    def numbers(self, chosen: Sequence[int], dtype: DTypeLike) -> np.ndarray:
        """Return the numbers in the columns `chosen`, (rows, m), NaN in empty cells.

        A CellError has the row and the column of a cell that is not a number.
        """
        places = np.full(self.width, -1, np.int64)
        places[chosen] = np.arange(len(chosen))
        places = places[:max(chosen) + 1]
        result = np.empty((self.num_rows, len(chosen)), dtype)
        first = 0
        for block, starts in self.blocks:
            values = np.empty((starts.size, len(chosen)))
            arguments = _array(block), self.delimiter, starts, places, values
            rough = np.empty((MOST, 4), np.int64)
            count = cell_kernels.numbers(*arguments, rough)
            if count > MOST:
                rough = np.empty((count, 4), np.int64)
                cell_kernels.numbers(*arguments, rough)
            for row, place, start, end in rough[:count].tolist():
                values[row, place] = parse_number(block[start:end], first + row, chosen[place])
            with np.errstate(over="ignore"):
                result[first:first + starts.size] = values
            first += starts.size
        return result


class CellColumn(TextColumn):
    """A column of TextCells; a first cell may precede them."""

    def __init__(self, cells: TextCells, k: int) -> None:
        self.name = ""
        self.cells = cells
        self.k = k
        self.first = None

    @property
    def blocks(self) -> Any:
        """The cells as those of a TextColumn."""
        first = [] if self.first is None else [self.first.encode()]
        return first + [b"\0".join(cells) for cells in self.cells.column(self.k) if cells]

    def prepend(self, cell: str) -> None:
        self.first = cell

    def head(self) -> Any:
        return self.cells.head(self.k, () if self.first is None else (self.first.strip(),))

    def numbers(self) -> np.ndarray:
        return numbers([self], np.float64)[:, 0]


def numbers(columns: list[CellColumn], dtype: DTypeLike) -> np.ndarray:
    """Return the numbers in columns of the same TextCells, (rows, m).

    A column may have a first cell above the others. CellError for a cell that is not a
    number.
    """
    above = [parse_number(column.first.encode(), 0, column.k) for column in columns
             if column.first is not None]
    try:
        values = columns[0].cells.numbers([column.k for column in columns], dtype)
    except CellError as error:
        raise CellError(error.row + bool(above), error.text, error.column) from None
    with np.errstate(over="ignore"):
        return np.concatenate([np.array([above], dtype), values]) if above else values


def simple_numbers(lines: list[bytes], width: int) -> np.ndarray | None:
    """Return the numbers in lines (bytes) of `width` cells between commas, float32, or None.

    None for few lines, and if a cell is no number.
    """
    if sum(map(len, lines)) < LARGE:
        return None
    cells = TextCells(",", width)
    block = b"".join(lines)
    if cells.append(block if block.endswith(b"\n") else block + b"\n") is None:
        return None
    try:
        found = cells.numbers([*range(width)], np.float32)
    except CellError:
        return None
    return None if np.isnan(found).any() or len(found) < len(lines) else found


def _split(text: str, delimiter: str) -> list[list[str]]:
    """Return the rows of a text of simple cells as lists of cells."""
    if '"' in text:
        rows = csv.reader((" ".join(line.split()) if delimiter == " " else line.strip(" \r")
                           for line in text.split("\n")), delimiter=delimiter,
                          skipinitialspace=True)
        return [row for row in rows if any(row)]
    lines = text.split("\n")
    if delimiter == " ":
        return [cells for line in lines if (cells := line.split())]
    return [cells for line in lines if any(map(str.strip, cells := line.split(delimiter)))]


def _array(block: bytes) -> np.ndarray:
    return np.frombuffer(block, np.uint8)


def _is_utf8(block: bytes) -> bool:
    if block.isascii():
        return True
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True
