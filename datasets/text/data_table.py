"""A table in memory: columns of text or numbers, and the place of each row in the file."""
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpgcn.datasets.source import truncate
from hpgcn.errors import DataError
from hpgcn.graphs.classes import BOOLEANS, NUMBER, UNLABELED
from hpgcn.graphs.edge_weights import join_names

SEPARATOR = b"\0"  # between the cells of a block
WHOLE = re.compile(r"[-+]?(\d{1,18})(\.0*)?", re.ASCII)
HEAD = 500  # first cells, which decide the type of a column
EXACT = 2**53  # above it, float64 cannot hold all whole numbers


class CellError(Exception):
    """Error for a cell that is not a number."""

    def __init__(self, row: int, text: str, column: int | None = None) -> None:
        super().__init__(row, text)
        self.row = row
        self.text = text
        self.column = column


class TextColumn:
    """A column of text cells, stored as blocks of UTF-8, about as large as its text."""

    width = None  # length of cells that are lists

    def __init__(self, name: str = "", cells: Sequence = ()) -> None:
        self.name = name
        self.blocks = []
        if cells:
            self.append(cells)

    def append(self, cells: Sequence) -> None:
        """Append cells, a list of str without NUL."""
        self.blocks.append("\0".join(cells).encode("utf-8", "surrogatepass"))

    def prepend(self, cell: str) -> None:
        self.blocks.insert(0, cell.encode())

    def texts(self) -> list[str]:
        """Return the cells as a list of str without surrounding blanks."""
        return [cell.strip() for block in self.blocks
                for cell in block.decode("utf-8", "surrogatepass").split("\0")]

    def head(self) -> list[str]:
        """Return the first cells, at most HEAD of them."""
        cells = self.blocks[0].split(SEPARATOR, HEAD)[:HEAD] if self.blocks else []
        return [cell.decode("utf-8", "replace").strip() for cell in cells]

    def numbers(self) -> np.ndarray:
        """Return the cells as float64, NaN for an empty one; CellError for one without a number."""
        parts = []
        row = 0
        for block in self.blocks:
            cells = block.split(SEPARATOR)
            try:
                if b"_" in block:
                    raise ValueError
                part = np.array(cells).astype(np.float64)
            except ValueError:
                part = np.array([parse_number(cell, row + k) for k, cell in enumerate(cells)])
            parts.append(part)
            row += len(cells)
        return np.concatenate([*parts, np.empty(0)])

    def whole_numbers(self) -> np.ndarray | None:
        """Return the cells as int64, or None if one is not a whole number such as 7 or 7.0."""
        if not all(map(WHOLE.fullmatch, self.head())):
            return None
        parts = []
        for block in self.blocks:
            cells = block.split(SEPARATOR)
            try:
                if b"_" in block:
                    return None
                parts.append(np.array(cells).astype(np.int64))
            except (ValueError, OverflowError):
                words = [WHOLE.fullmatch(cell.decode("utf-8", "replace").strip()) for cell in cells]
                if not all(words):
                    return None
                parts.append(np.array([int(word[0].partition(".")[0]) for word in words], np.int64))
        return np.concatenate([*parts, np.empty(0, np.int64)])


class NumberColumn:
    """A column of numbers, (n,), or of lists of k numbers, (n, k)."""

    def __init__(self, name: str, array: Any) -> None:
        self.name = name
        self.array = array

    @property
    def width(self) -> int | None:
        """Count of the numbers in a cell, or None for a single one."""
        return self.array.shape[1] if self.array.ndim == 2 else None

    def texts(self) -> list[str]:
        return [str(cell) for cell in self.array.tolist()]

    def head(self) -> list[str]:
        return NumberColumn(self.name, self.array[:HEAD]).texts()

    def numbers(self) -> np.ndarray:
        return self.array.astype(np.float64) if self.array.dtype.kind != "f" else self.array

    def whole_numbers(self) -> np.ndarray | None:
        array = self.array
        if array.ndim != 1 or array.dtype.kind not in "iuf":
            return None
        if array.dtype.kind == "f":
            whole = (np.abs(array) < EXACT).all() and (array == np.floor(array)).all()
            return array.astype(np.int64) if whole else None
        return None if array.max(initial=0) >= 2**63 else array.astype(np.int64)


@dataclass
class Table:
    """A table: columns of equal length.

    Attributes
    ----------
    where : str
        The file, for errors.
    columns : list of TextColumn and NumberColumn
    num_rows : int
    names_known : bool
        Whether `columns` have names; false until the first row of a text is known to be a
        header or data.
    has_names : bool
        Whether the file has the names; otherwise they are numbers from 1.
    first : list of str
        Cells of the first row of a text.
    lines : array of int, (num_rows,), or None
        Line of each row in a text.
    """

    where: str
    columns: list
    num_rows: int
    names_known: bool = True
    has_names: bool = True
    first: list[str] = field(default_factory=list)
    lines: object = None
    notes: list[str] = field(default_factory=list)
    first_line: int = 1
    declared_rows: int | None = None  # from the first row, if it may be a line of sizes
    in_order: bool = False  # row i is of vertex i, whatever its id

    def place(self, row: int) -> str:
        """Return the name of a row for errors, such as "row 3" or "line 5"."""
        return f"row {row}" if self.lines is None else f"line {self.lines[row]}"

    def name_columns(self, header: bool, *, keep: bool = True) -> None:
        """Use the first row as the names of the columns if `header`, else as data.

        Without `keep` a row of data is dropped.
        """
        self.has_names = header
        for k, (column, cell) in enumerate(zip(self.columns, self.first)):
            column.name = cell.strip() if header else str(k + 1)
            if keep and not header:
                column.prepend(cell)
        if keep and not header:
            self.num_rows += 1
            self.lines.insert(0, self.first_line)
        self.names_known = True

    def refuse_header_again(self) -> None:
        """Raise DataError if a row repeats the header, as in files that were concatenated."""
        k = max(range(len(self.first)), key=lambda k: len(self.first[k]))
        name = self.first[k].strip()
        if any(name.encode() in block for block in self.columns[k].blocks):
            names = [cell.strip() for cell in self.first]
            for row, cells in enumerate(zip(*(column.texts() for column in self.columns))):
                if list(cells) == names:
                    raise DataError(f"{self.where}: {self.place(row)}: repeats the header: remove "
                                    "this line")

    def column(self, name: str, flag: str) -> int:
        """Return the index of the column called `name`, which the user typed after `flag`."""
        places = [k for k, column in enumerate(self.columns) if column.name == name]
        if not places:
            places = [k for k, column in enumerate(self.columns)
                      if column.name.lower() == name.lower()]
        if len(places) != 1:
            count = "no column is" if not places else f"{len(places)} columns are"
            raise DataError(f"{self.where}: {count} called {truncate(name, 40)!r} ({flag}), "
                            f"expected one of {self.list_columns()}")
        return places[0]

    def list_columns(self) -> str:
        """Return the names of the first columns and the number of columns, for errors."""
        return join_names([self.title(k) for k in range(len(self.columns))])

    def title(self, k: int) -> str:
        """Return the name of column k for messages."""
        return truncate(self.columns[k].name, 40) or "(no name)"

    def number_column(self, k: int, hint: str = "") -> np.ndarray:
        """Return column k as float64, (n,) or (n, width); DataError names the first wrong cell."""
        try:
            return self.columns[k].numbers()
        except CellError as error:
            raise self.cell_error(error, k, hint) from None

    def cell_error(self, error: CellError, k: int, hint: str = "") -> DataError:
        """Return the DataError for a CellError in column k."""
        if re.fullmatch(r"[-+]?\d+,\d+", error.text, re.ASCII):
            hint = " with a decimal point"
        return DataError(f"{self.where}: {self.place(error.row)}: column {self.title(k)} is "
                         f"{truncate(error.text, 40)!r}, expected a number{hint}")

    def flags(self, k: int) -> np.ndarray:
        """Return column k as bool, (n,); DataError for a cell other than 0, 1, true or false."""
        numbers = self.number_column(k, ": 0 or 1, or true or false")
        wrong = ~np.isin(numbers, (0, 1))
        if wrong.any():
            row = np.argwhere(wrong)[0][0]
            raise DataError(f"{self.where}: {self.place(row)}: column {self.title(k)} is "
                            f"{self.columns[k].texts()[row]!r}, expected 0 or 1")
        return numbers == 1


def plural(count: int, one: str, several: str | None = None) -> str:
    """Return a number and its noun, such as "1 row" or "2 rows"."""
    return f"{count} {one if count == 1 else several or one + 's'}"


def parse_number(cell: bytes, row: int, column: int | None = None) -> float:
    """Return the number in a cell, bytes; NaN for an empty one. Raise CellError."""
    text = cell.decode("utf-8", "replace").strip()
    if NUMBER.fullmatch(text) or re.fullmatch(r"[-+]?inf(inity)?", text, re.IGNORECASE):
        return float(text)
    if text.lower() in BOOLEANS:
        return float(BOOLEANS[text.lower()])
    if text.lower() in UNLABELED:
        return np.nan
    raise CellError(row, text, column)
