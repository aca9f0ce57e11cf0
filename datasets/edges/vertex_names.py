"""Edges whose ids are names; vertices are numbered in the order of their first edges.

Python splits the lines and looks up each name, some hundred thousand lines a second.
Edges are processed block by block. So only the names must fit into memory, not the
edges.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.source import need, not_utf8, truncate
from hpgcn.datasets.text.lines import BLANKS, MARKS, finite, split_line, stripped
from hpgcn.datasets.text.parse import INT64_MAX, U, V, W
from hpgcn.errors import DataError
from hpgcn.graphs.validation import MAX_NAME

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source
    from hpgcn.datasets.text.lines import TextLines

NAME_BYTES = 250  # memory per name, plus four times the longest name

MISSING = ("nan", "NaN", "NAN", "none", "None", "null", "Null", "NULL", "NA", "N/A", "#N/A", "<NA>")


class VertexNames:
    """The distinct names of vertices read so far, each with its number.

    They may take `memory` bytes. With `apart`, the names of an edge's first end and
    those of its second end are numbered separately.
    """

    def __init__(self, where: Source, memory: int, *, apart: bool = False) -> None:
        self.where = where
        self.memory = memory
        first = {}
        self.sides = (first, {}) if apart else (first, first)
        self.longest = 1

    def number(self, name: str, place: str, side: int = U) -> int:
        """Return the number of `name` (str) at the end `side`, U or V; new names get the next.

        `place` is for errors.
        """
        numbers = self.sides[side]
        found = numbers.get(name)
        if found is None:
            name = name.strip()  # like cells of tables
            found = numbers.get(name)
        if found is None:
            if not name or "\0" in name or len(name.encode("utf-8", "surrogatepass")) > MAX_NAME:
                raise DataError(f"{place} is {truncate(name, 40)!r}, expected a number, or a name "
                                f"of 1 to {MAX_NAME} bytes without NUL")
            self.longest = max(self.longest, len(name))
            found = numbers[name] = len(numbers)
        return found

    def blanks(self) -> list:
        """Return those names read so far that programs write for an empty cell, such as NaN."""
        return [name for name in MISSING if any(name in side for side in self.sides)]

    def check(self) -> None:
        """Raise an error if the names do not fit into memory."""
        first, second = self.sides
        count = len(first) + (len(second) if second is not first else 0)
        need(count * (NAME_BYTES + 4 * self.longest), self.memory, f"{self.where}: {count} names")

    def array(self, side: int = U) -> np.ndarray:
        self.check()
        return np.array(list(self.sides[side]), np.str_)


def is_name(field: str) -> bool:
    """Return whether a field (str) is a name: neither empty nor a number that fits an id."""
    try:
        float(field)
    except ValueError:
        return bool(field)
    return is_long(field)


def is_long(field: str) -> bool:
    """Return whether a field (str) is a whole number beyond 64 bits."""
    return len(field) > 18 and field.isdecimal() and int(field) > INT64_MAX


def named_parts(table: TextLines, roles: tuple[int, ...], delimiter: bytes, names: VertexNames,
                header: bytes | None = None) -> Iterator[tuple]:
    """Yield (u, v, w) of each block of lines.

    Arrays u and v have the numbers of names; w is None without weights. Lines that
    begin with # or % are edges, because names may begin so. A line equal to `header`
    raises DataError.
    """
    for block in table.blocks():
        columns = [], [], []
        for line in block.split(b"\n")[:-1]:
            table.line += 1
            text = stripped(line, delimiter)
            if text and text == header:
                raise DataError(f"{table.where}: line {table.line}: repeats the header: remove "
                                "this line")
            if text.strip(BLANKS):
                table.comments += text[:1] in MARKS
                _take(split_line(text, delimiter), roles, names, columns,
                      f"{table.where}: line {table.line}")

        names.check()
        u, v = (np.array(column, np.int64) for column in columns[:2])
        yield u, v, np.array(columns[2], np.float64) if W in roles else None


def _take(fields: list[bytes], roles: tuple[int, ...], names: VertexNames,
          columns: tuple[list, ...], where: str) -> None:
    while len(fields) > len(roles) and not fields[-1]:
        fields.pop()
    if len(fields) != len(roles):
        marked = fields and fields[0][:1] in MARKS
        raise DataError(f"{where}: {len(fields)} field(s), expected {len(roles)}"
                        + "; comments are allowed only above the first edge" * marked)
    for field, role in zip(fields, roles):
        if role in (U, V):
            columns[role].append(names.number(_text(field, where), f"{where}: id", role))
        elif role == W:
            columns[W].append(finite(field.strip(b'"'), where, "weight is "))


def _text(field: bytes, where: str) -> str:
    """Return a field as str, without the quotes around it."""
    if len(field) > 1 and field[:1] == field[-1:] == b'"':
        field = field[1:-1].replace(b'""', b'"')
    try:
        return field.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(where, error) from error
