"""Reader of METIS, Chaco and DIMACS graphs: a line lists the neighbors of a vertex.

Vertices are numbered from 1.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.raw_graph import Raw
from hpgcn.datasets.source import need
from hpgcn.datasets.text.lines import BLANKS, open_lines
from hpgcn.errors import DataError

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source
    from hpgcn.datasets.text.lines import TextLines

DIGITS = 18  # most digits of a number, so that it fits 64 bits
ENTRY_BYTES = 120  # peak memory per entry


def read(source: Source, memory: int) -> Raw:
    """Read a METIS file, which lists each edge at both ends.

    The sizes and weights of vertices are skipped.
    """
    hint = " (if it holds edges `u v`: --format snap)"
    with open_lines(source) as table:
        n, m, skipped, weighted = _header(table, hint)
        where = f"{source}: line {table.line}"
        need(64 * n + ENTRY_BYTES * 2 * m, memory, f"{where}: {n} vertices and {m} edges")

        if n > source.text_room or 4 * m > source.text_room:
            raise DataError(f"{where}: {n} vertices and {m} edges declared, more than a file of "
                            f"{source.size} bytes can hold{hint}")
        rows, columns, values = _lists(table, n, m, skipped, weighted, hint)

    _check(rows, columns, values, n, source)
    notes = ["read as METIS, one line per vertex; use --format snap for lines of edges `u v`"]
    if skipped:
        notes.append("vertex sizes and weights are not read")
    return Raw(n, rows, columns, values, base=1, notes=notes)


def _header(table: TextLines, hint: str) -> tuple[int, int, int, bool]:
    """Return n, m, how many numbers precede the neighbors, and whether edges have weights."""
    line = _next(table)
    words = [] if line is None else line.split()
    where = f"{table.where}: line {table.line}"
    numbers = all(word.isdigit() and len(word) <= DIGITS for word in words)

    if not 2 <= len(words) <= 4 or not numbers:
        raise DataError(f"{where}: expected the numbers of vertices and edges, optionally a format "
                        f"and a number of weights{hint}")

    n, m = int(words[0]), int(words[1])
    fmt = words[2].decode().zfill(3) if len(words) > 2 else "000"
    count = int(words[3]) if len(words) > 3 else int(fmt[1] == "1")
    if len(fmt) > 3 or set(fmt) - {"0", "1"} or (count > 0) != (fmt[1] == "1") or count > 1000:
        raise DataError(f"{where}: format {fmt} with {count} weights per vertex, expected up to "
                        "three digits 0 or 1 for vertex sizes, vertex weights and edge "
                        f"weights{hint}")

    return n, m, int(fmt[0] == "1") + count, fmt[2] == "1"


def _next(table: TextLines) -> bytes | None:
    """Return the next line that is not a comment, maybe an empty one; None at the end."""
    while (line := table.readline()) is not None and line.lstrip(BLANKS)[:1] == b"%":
        pass
    return line


def _lists(table: TextLines, n: int, m: int, skipped: int, weighted: bool,
           hint: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the rows, columns and weights (or None) of the entries of all lines."""
    parts = []
    row = entries = 0
    step = 1 + weighted

    # a line lists the weights of a vertex, then its neighbors
    for line in table.rest():
        text = line.strip(BLANKS)
        if text[:1] == b"%" or (row == n and not text):
            continue
        where = f"{table.where}: line {table.line}"
        if row == n:
            raise DataError(f"{where}: more lines than the {n} vertices of the header{hint}")

        # refuse other than whole numbers, and a wrong count of them
        words = text.split()
        for word in words:
            if not word.isdigit() or len(word) > DIGITS:
                shown = word[:40].decode("utf-8", "replace")
                raise DataError(f"{where}: {shown!r}, expected a whole number{hint}")
        if len(words) < skipped or (len(words) - skipped) % step:
            raise DataError(f"{where}: {len(words)} numbers, expected {skipped} of the vertex, "
                            f"then {'pairs' if weighted else 'its neighbors'}")
        numbers = np.array(words[skipped:], dtype=f"S{DIGITS}").astype(np.int64)

        # refuse neighbors out of range, and more than declared
        neighbors = numbers[::step]
        wrong = (neighbors < 1) | (neighbors > n) | (neighbors == row + 1)
        if wrong.any():
            raise DataError(f"{where}: neighbor {neighbors[np.argmax(wrong)]} of vertex "
                            f"{row + 1}, expected another vertex in 1..{n}{hint}")
        entries += neighbors.size
        if entries > 2 * m:
            raise DataError(f"{where}: more than twice the {m} edges of the header{hint}")
        parts.append((neighbors - 1, numbers[1::2] if weighted else None))
        row += 1

    # refuse other totals than declared
    if row < n:
        raise DataError(f"{table.where}: ends after line {table.line} with {row} vertices, but the "
                        f"header declares {n}{hint}")
    if entries != 2 * m:
        raise DataError(f"{table.where}: {entries} neighbors, expected twice the {m} edges of the "
                        f"header{hint}")

    # join the lines
    counts = [part[0].size for part in parts]
    none = [np.empty(0, np.int64)]
    columns = np.concatenate(none + [part[0] for part in parts])
    values = np.concatenate(none + [part[1] for part in parts]) if weighted else None
    return np.repeat(np.arange(n), counts), columns, values


def _check(rows: np.ndarray, columns: np.ndarray, values: np.ndarray | None, n: int,
           where: object) -> None:
    """Raise DataError if edges contradict each other.

    They do if a neighbor is listed twice, or an edge at one end only, or with two
    weights.
    """
    # refuse repeated neighbors
    places = np.arange(1, rows.size + 1)
    matrix = sp.coo_array((places, (rows, columns)), shape=(n, n)).tocsr()
    if matrix.nnz < rows.size:
        order = np.lexsort((columns, rows))
        same = (np.diff(rows[order]) == 0) & (np.diff(columns[order]) == 0)
        k = order[1:][same].min()
        raise DataError(f"{where}: vertex {rows[k] + 1} lists its neighbor {columns[k] + 1} twice")
    image = np.zeros(rows.size, np.int64)

    # refuse edges that are listed at one end only
    transposed = matrix.T.tocsr()
    transposed.sort_indices()
    matrix.sort_indices()
    if not (np.array_equal(matrix.indptr, transposed.indptr)
            and np.array_equal(matrix.indices, transposed.indices)):
        lonely = (abs(matrix.sign()) - abs(transposed.sign())).maximum(0).tocoo()
        lonely.eliminate_zeros()
        u, v = lonely.coords[0][0] + 1, lonely.coords[1][0] + 1
        raise DataError(f"{where}: vertex {u} lists {v} as a neighbor, but {v} does not list {u}")
    if values is None:
        return

    # refuse edges with two weights
    image[matrix.data - 1] = transposed.data - 1  # position of the edge at its other end
    wrong = values != values[image]
    if wrong.any():
        k = np.argmax(wrong)
        raise DataError(f"{where}: edge {rows[k] + 1} - {columns[k] + 1} has weight {values[k]} at "
                        f"one end and {values[image[k]]} at the other")
