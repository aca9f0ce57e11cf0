"""Reader of MatrixMarket files: real, integer or pattern, with any real symmetry.

A graph is a square matrix. Features and labels may have any shape. Both may be dense
(array).
"""
from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.raw_graph import Raw
from hpgcn.datasets.readers.adjacency_matrix import from_matrix
from hpgcn.datasets.source import need
from hpgcn.datasets.text.lines import Grammar, open_lines, words
from hpgcn.datasets.text.parse import U, V, W
from hpgcn.errors import DataError
from hpgcn.graphs.validation import check_range

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source
    from hpgcn.datasets.text.lines import TextLines

FIELDS = {  # field -> whether values are integers, None without values
    "real": False, "double": False, "integer": True, "unsigned-integer": True, "pattern": None}
SYMMETRIES = {"general": 0, "symmetric": 1, "skew-symmetric": -1}


def read(source: Source, memory: int) -> Raw:
    """Read a square matrix from a MatrixMarket file.

    The entry `u v` is a[u - 1, v - 1].

    The banner may be missing. Then the first line has the numbers of rows, columns and
    entries, and the matrix is general.
    """
    if _is_dense(source):
        raw = from_matrix(_dense(source, memory), memory, str(source))
        raw.base = 1
        return raw
    found = _entries(source, memory)
    return Raw(found.shape[0], found.rows, found.columns, found.values, base=1,
               undirected=found.sign == 1, notes=found.notes)


def is_matrix_market(source: Source) -> bool:
    """Return whether a file is in MatrixMarket format, by its name or its banner."""
    return source.suffix == ".mtx" or source.head()[:14].lower() == b"%%matrixmarket"


def read_matrix(source: Source, memory: int) -> tuple[Any, list[str]]:
    """Read a matrix of any shape; return it, dense or scipy.sparse.csr_array, and notes."""
    if _is_dense(source):
        return _dense(source, memory), []
    found = _entries(source, memory, square=False)
    values = np.ones(found.rows.size, np.float32) if found.values is None else found.values
    return sp.csr_array((values, (found.rows, found.columns)), shape=found.shape), found.notes


def _is_dense(source: Source) -> bool:
    """Return whether the banner says that all numbers of the matrix are there."""
    with open_lines(source) as table:
        banner = words((table.readline() or b"").lower())
    return banner[2:3] == [b"array"]


class MarketEntries(NamedTuple):
    """The entries of a coordinate matrix; `sign` is that of mirrored ones, 0 if none are."""

    shape: tuple[int, int]
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray | None
    sign: int
    notes: list[str]


def _entries(source: Source, memory: int, square: bool = True) -> MarketEntries:
    notes = []
    with open_lines(source) as table:
        # find the form of entries by the banner, or by its absence
        line = table.readline() or b""
        bare = _is_sizes(words(line))
        integral, sign = (None, 0) if bare else _banner(line, source)
        n, m, nnz = _sizes(table, line if bare else b"%", "entries")
        header = table.line
        where = f"{source}: line {header}"
        if (square or sign) and n != m:
            raise DataError(f"{where}: {n} rows and {m} columns, expected a square matrix")

        # refuse impossible sizes before memory is allocated
        if nnz > source.text_room - table.stream.tell():
            raise DataError(f"{where}: {nnz} entries declared, more than a file of {source.size} "
                            "bytes can hold")
        if bare:
            integral = _fields(table)
        if bare and square:
            notes.append("no banner: read as a general matrix; use --symmetrize to read both "
                         "directions")

        # read the entries
        roles = (U, V) if integral is None else (U, V, W)
        size = 64 * n + 16 * len(roles) * nnz * (2 if sign else 1)
        need(size, memory, f"{where}: {n} rows and {nnz} entries")
        grammar = Grammar(roles, low=1, high=max(n, m), names=("row", "column", "value"),
                          integral=bool(integral), comments=False)
        rows, columns, values = table.columns(grammar, memory)

    # refuse another number of entries than declared
    if rows.size < nnz:
        raise DataError(f"{source}: ends after line {table.line} with {rows.size} entries, but the "
                        f"header declares {nnz}")
    if rows.size > nnz:
        line = _line_of_entry(source, nnz + 1, header)
        raise DataError(f"{source}: line {line}: more entries than the header declares")

    # count from 0; mirror the triangle of a symmetric matrix
    rows -= 1
    columns -= 1
    if n != m:
        check_range(rows, n, f"{source}: row numbers less 1")
        check_range(columns, m, f"{source}: column numbers less 1")
    if sign:
        rows, columns, values = _mirrored(rows, columns, values, sign, source)
    return MarketEntries((n, m), rows, columns, values, sign, notes)


def _dense(source: Source, memory: int) -> np.ndarray:
    """Return a matrix of the format array, (n, m) float64: values column by column."""
    with open_lines(source) as table:
        integral, sign = _banner(table.readline(), source, "array")
        n, m = _sizes(table, b"%", "columns")
        where = f"{source}: line {table.line}"
        need(24 * n * m, memory, f"{where}: {n} x {m} numbers")
        if sign and n != m:
            raise DataError(f"{where}: {n} rows and {m} columns, expected a square matrix")
        grammar = Grammar((W,), names=("", "", "value"), integral=bool(integral), comments=False)
        values = table.columns(grammar, memory)[2]

    # the file lists one triangle of a symmetric matrix
    chosen = np.ones((m, n), bool)  # transposed, because rows of the array are columns of the file
    if sign:
        chosen = np.triu(chosen, int(sign < 0))
    if values.size != np.count_nonzero(chosen):
        raise DataError(f"{source}: {values.size} values, expected {np.count_nonzero(chosen)} for "
                        f"{n} rows and {m} columns")
    matrix = np.zeros((m, n))
    matrix[chosen] = values
    if sign:
        matrix += sign * np.tril(matrix.T, -1)
    return np.ascontiguousarray(matrix.T)


def _is_sizes(fields: list[bytes], count: int = 3) -> bool:
    return len(fields) == count and all(size.isdigit() and len(size) <= 19 for size in fields)


def _fields(table: TextLines) -> bool | None:
    """Return False if the first entry of a file without banner has a value, else None.

    False means that values are any numbers, as in FIELDS.
    """
    ahead = []
    while (line := table.readline()) is not None:
        ahead.append(line)
        if words(line):
            break
    table.unread(*ahead)
    return False if ahead and len(words(ahead[-1])) > 2 else None


def _banner(line: bytes, source: Source, layout: str = "coordinate") -> tuple:
    """Return whether values are integers, and the sign of mirrored entries.

    The first is None if there are no values, the second 0 if no entries are mirrored.
    """
    where = f"{source}: line 1"
    banner = [word.decode("latin1") for word in words(line.lower())]

    if banner[:1] != ["%%matrixmarket"]:
        raise DataError(f"{where}: no %%MatrixMarket banner")
    if len(banner) != 5 or banner[1] != "matrix":
        raise DataError(f"{where}: banner {' '.join(banner)[:80]!r}, expected '%%MatrixMarket "
                        f"matrix {layout} FIELD SYMMETRY'")

    allowed: tuple[Collection[str], ...] = (layout,), FIELDS, SYMMETRIES
    for word, known in zip(banner[2:], allowed):
        if word not in known:
            raise DataError(f"{where}: {word[:40]!r} in the banner, expected {' or '.join(known)}")

    field, symmetry = banner[3:]
    if field == "pattern" and (symmetry == "skew-symmetric" or layout == "array"):
        kind = "dense" if layout == "array" else symmetry
        raise DataError(f"{where}: a {kind} matrix needs values, not pattern")
    return FIELDS[field], SYMMETRIES[symmetry]


def _sizes(table: TextLines, line: bytes, last: str) -> tuple[int, ...]:
    """Return the numbers of rows, columns and, if that is the `last`, of entries.

    They are read from `line` or from the first line after comments.
    """
    while line is not None and (not words(line) or line.startswith(b"%")):
        line = table.readline()
    where = f"{table.where}: line {table.line}"
    sizes = words(line or b"")
    if not _is_sizes(sizes, 3 if last == "entries" else 2):
        text = "the end of the file" if line is None else repr(line[:60].decode("latin1"))
        between = ", columns" if last == "entries" else ""
        raise DataError(f"{where}: {text}, expected the numbers of rows{between} and {last}")
    return tuple(map(int, sizes))


def _line_of_entry(source: Source, number: int, header: int) -> int:
    """Return the line number of entry `number`, counted from 1 after the line `header`."""
    with open_lines(source) as table:
        while number:
            line = table.readline()
            if table.line > header and words(line):
                number -= 1
    return table.line


def _mirrored(rows: np.ndarray, columns: np.ndarray, values: np.ndarray | None, sign: int,
              where: Source) -> tuple:
    """Return all entries, followed by the mirror images of those off the diagonal."""
    off = rows != columns
    if sign < 0 and np.any(values[~off]):
        k = np.flatnonzero(~off & (values != 0))[0]
        u = rows[k] + 1
        raise DataError(f"{where}: entry {k + 1} is {values[k]} at ({u}, {u}), expected 0 on the "
                        "diagonal of a skew-symmetric matrix")
    if values is not None:
        values = np.concatenate([values, sign * values[off]])
    rows, columns = np.concatenate([rows, columns[off]]), np.concatenate([columns, rows[off]])
    return rows, columns, values
