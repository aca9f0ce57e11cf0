"""Reader of text tables, with cells between tabs, semicolons, bars, commas or blanks."""
from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from hpgcn.datasets.source import need, not_utf8, truncate
from hpgcn.datasets.text import text_cells
from hpgcn.datasets.text.column_names import is_known
from hpgcn.datasets.text.data_table import Table, TextColumn, plural
from hpgcn.datasets.text.lines import BLANKS, open_lines
from hpgcn.datasets.text.text_cells import CellColumn, TextCells
from hpgcn.errors import DataError

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source
    from hpgcn.datasets.text.lines import TextLines

ROWS = 4096  # rows per block
SAMPLE = 20  # rows that decide the separator
SEPARATORS = "\t;|,"  # in the order of attempts
STATED = re.compile(r'"?sep=(.)"?')  # a line for Excel with the separator
SIZES = re.compile(r"(\d{1,18})(?:[ \t]*[ \t,;|][ \t]*(\d{1,9}))?", re.ASCII)
CELL = re.compile(r"[^\t;|,]*")
ROW_BYTES = 64  # memory per row, plus three times its text


def read_delimited(source: Source, memory: int, names: dict[str, int] | tuple = (), *,
                   of_names: bool = False) -> Table:
    """Return the Table of a text file; its first row may be a header.

    Lines above the first row that begin with # or % are comments, unless their first
    cell is one of `names`, the vertices. In a file `of_names`, each line is one name
    and is not divided at blanks. DataError for rows with different numbers of cells,
    text that is not UTF-8, and more than `memory` bytes.
    """
    with open_lines(source) as text_lines:
        # find the separator by the first lines
        reader = _CellRows(text_lines, memory, names)
        sample = list(islice(reader.lines(), SAMPLE))
        stated = STATED.fullmatch(sample[0][1].strip()) if sample else None
        sample = sample[stated is not None:]
        if not sample:
            raise DataError(f"{source}: no rows, expected a table")
        sized_line = sample[0][0]
        texts = [text for _, text in sample if text.strip()]
        size, is_row = (None, True) if stated else _size_line(texts)
        if not is_row:
            sample, texts = sample[1:], texts[1:]
        whole = of_names and 2 * sum(text.strip() in names for text in texts) > len(texts)
        separator = None if whole else _separator(texts)
        separator = separator if stated is None else stated[1]

        # count the columns in the first two rows
        rows = reader.rows(chain(sample, reader.lines()), separator)
        first = next(rows, None)
        if first is None:
            raise DataError(f"{source}: no rows, expected a table")
        first_line = reader.line
        second = next(rows, None)
        widened = False
        if second is not None and len(second) == len(first) + 1:
            first = ["", *first]  # R writes no name above the names of rows
            widened = True

        # read the cells in blocks; parse simple cells of large texts with compiled code
        table = Table(str(source), [TextColumn() for _ in first], 0, names_known=False,
                          first=first, lines=array("q"), first_line=first_line)
        cells = None
        if separator and source.size >= text_cells.LARGE:
            cells = _simple_cells(source, first_line, separator, len(first), memory, table.lines)
        if cells is not None:
            table.columns = [CellColumn(cells, k) for k in range(len(first))]
        else:
            del table.lines[:]
            rows = chain([] if second is None else [second], rows)
            while block := _block(rows, reader, len(first), table.lines, source):
                for column, texts in zip(table.columns, zip(*block)):
                    column.append(texts)
        table.num_rows = len(table.lines)

        # drop an empty last column, which trailing separators make
        if widened and not any(table.columns[-1].texts()):  # a separator ends each row
            del table.columns[-1], table.first[0]
        table.declared_rows = size
        if not is_row:
            table.name_columns(header=False)
            if table.num_rows != size:
                raise DataError(f"{source}: line {sized_line} declares {size} rows, but the file "
                                f"has {table.num_rows}")
            table.notes.append(f"{source}: line {sized_line} is read as the numbers of rows and "
                               "columns")

    # take names of columns from a comment above the rows
    if reader.comments:
        _take_comment(table, reader.comments[-1])
        table.notes.append(f"{source}: {plural(len(reader.comments), 'line')} of comments above "
                           "the first row")
    return table


def _simple_cells(source: Source, first_line: int, separator: str, width: int, memory: int,
                  lines: array[int]) -> TextCells | None:
    """Return the TextCells below the first row, or None if the csv module must read them.

    The first row ends in line `first_line`. The line of each row is appended to
    `lines`.
    """
    cells = TextCells(separator, width)
    size = 0
    with open_lines(source) as table:
        while table.line < first_line:
            table.readline()
        for block in table.blocks():
            size += len(block)
            need(3 * size, memory, source)
            found = cells.append(block)
            if found is None:
                return None
            lines.extend((found + table.line + 1).tolist())
            table.line += block.count(b"\n")
    return cells


class _CellRows:
    """Iterator of a text table's rows, lists of cells; `line` is the line of the last one."""

    def __init__(self, table: TextLines, memory: int, names: dict[str, int] | tuple) -> None:
        self.table = table
        self.memory = memory
        self.names = names
        self.comments = []  # comments above the first row
        self.line = 0
        self.size = 0
        self.started = False

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (line number, text) of lines that are neither blank nor comments above the rows."""
        while (line := self.table.readline()) is not None:
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise not_utf8(f"{self.table.where}: line {self.table.line}", error) from error

            # comments above the table
            marked = not self.started and line.lstrip(BLANKS)[:1] in (b"#", b"%")
            if marked and CELL.match(text)[0].strip() not in self.names:
                self.comments.append(text)
                continue

            self.started = self.started or bool(text.strip())
            if self.started:
                self.size += len(line) + 1
                need(3 * self.size, self.memory, self.table.where)
                yield self.table.line, text

    def rows(self, lines: Iterator, separator: str | None) -> Iterator[list[str]]:
        """Yield each row as a list of its cells, str."""
        lines = self._numbered(lines, separator == " ")
        if not separator:
            yield from ([_unquoted(text.strip())] for text in lines if text.strip())
            return
        try:
            for row in csv.reader(lines, delimiter=separator, skipinitialspace=True):
                if any(row):
                    yield row
        except csv.Error as error:
            raise DataError(f"{self.table.where}: line {self.line}: broken CSV "
                            f"({truncate(error)})") from error

    def _numbered(self, lines: Iterator, blanks: bool) -> Iterator[str]:
        for number, text in lines:
            self.line = number
            if "\0" in text:
                raise DataError(f"{self.table.where}: line {number}: a NUL byte, expected text")
            yield (text.replace("\t", " ").strip() if blanks else text) + "\n"


def _unquoted(text: str) -> str:
    return text[1:-1].replace('""', '"') if len(text) > 1 and text[0] == text[-1] == '"' else text


def _block(rows: Iterator, reader: _CellRows, width: int, lines: array[int],
           where: Source) -> list[list]:
    block = []
    for row in rows:
        if len(row) != width:
            raise DataError(f"{where}: line {reader.line}: {len(row)} field(s), expected {width}")
        block.append(row)
        lines.append(reader.line)
        if len(block) == ROWS:
            break
    need(ROW_BYTES * len(lines), reader.memory, where)
    return block


def _separator(texts: list[str]) -> str | None:
    """Return the separator that divides the first lines into equally many cells, or None.

    None means one column.
    """
    for separator in SEPARATORS:
        widths = _widths(texts, separator)
        if widths and widths[0] > 1 and len(set(widths)) == 1:
            return separator
        if len(widths) > 2 and widths[0] + 1 == widths[1] and len(set(widths[1:])) == 1:
            return separator
    found = [separator for separator in SEPARATORS if separator in texts[0]]
    if found:
        return max(found, key=texts[0].count)  # a row that differs is refused later
    widths = _widths([text.replace("\t", " ").strip() for text in texts], " ")
    return " " if widths and len(set(widths[1:] or widths)) == 1 and widths[-1] > 1 \
        and widths[0] >= widths[-1] - 1 else None


def _size_line(texts: list[str]) -> tuple[int | None, bool]:
    """Return the number of rows in a first line `rows [columns]`, and whether it may be a row.

    The number is None for other lines. word2vec writes such a line; its columns do not
    count the ids.
    """
    sizes = SIZES.fullmatch(texts[0].strip()) if texts else None
    if not sizes or len(texts) < 2:
        return None, True
    separator = _separator(texts[1:])
    width = _widths([texts[1]], separator)[0] if separator else 1
    own = 1 + (sizes[2] is not None)
    if separator and len(_widths([texts[0]], separator)) == 1:
        own = _widths([texts[0].strip()], separator)[0]

    rows = int(sizes[1])
    if sizes[2] is None:
        return rows, width == 1
    columns = int(sizes[2])
    if width == columns:
        return rows, own == width
    return (rows, False) if width == columns + 1 > 2 else (None, True)


def _widths(texts: list[str], separator: str) -> list[int]:
    try:
        rows = csv.reader((text + "\n" for text in texts), delimiter=separator,
                          skipinitialspace=True)
        return [len(row) for row in rows]
    except csv.Error:
        return []


def _take_comment(table: Table, comment: str) -> None:
    """Take the comment above a table as its header if it has one name for each column."""
    words = re.split(r"[\s,;|]+", comment.lstrip("#% \t").strip())
    if len(words) == len(table.first) and any(map(is_known, words)):
        table.name_columns(header=False)
        table.has_names = True
        for column, word in zip(table.columns, words):
            column.name = word
