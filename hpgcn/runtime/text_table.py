"""Format aligned tables and lists of labels with values; escape control characters."""

import shutil
from collections.abc import Iterable, Sequence
from html import escape

from hpgcn.errors import printable

GAP = "  "
NAMED = 50  # classes that are listed


def table(rows: list, *, left: Sequence = (0,), widths: tuple = (), rule: bool = False,
          marks: dict[int, str] | None = None, keys: int = 0) -> str:
    """Return rows of cells as an aligned table; headings are ordinary rows.

    A table wider than the terminal (80 columns without one) is divided into several
    tables below each other, if it has key columns. The environment variable COLUMNS
    overrides the width of the terminal.

    Parameters
    ----------
    rows : list of sequence of str
    left : container of int
        Columns that are aligned to the left.
    widths : sequence of int
        Least widths of the first columns.
    rule : bool
        Draw a line below the first row.
    marks : dict of int to str
        Row number -> text at the end of the row.
    keys : int
        Number of first columns that every part of a divided table repeats; 0: never
        divide.
    """
    # find the widths of the columns
    rows = [[printable(cell) for cell in row] for row in rows]
    columns = [max(map(len, column)) for column in zip(*rows)]
    for column, least in enumerate(widths[:len(columns)]):
        columns[column] = max(columns[column], least)
    marks = marks or {}

    # divide the columns if the table is too wide
    chosen = [range(len(columns))]
    if keys:
        room = shutil.get_terminal_size().columns
        mark = max(map(len, marks.values()), default=-len(GAP)) + len(GAP)
        chosen = _parts(columns, keys, room, mark)

    # align each part
    parts = []
    for number, part in enumerate(chosen):
        cells = [[row[column] for column in part] for row in rows]
        parts.append(_aligned(cells, [columns[column] for column in part],
                              [place for place, column in enumerate(part) if column in left],
                              rule, {} if number else marks))
    return "\n\n".join(parts)


def _parts(columns: list[int], keys: int, room: int, mark: int) -> list[list]:
    """Divide columns into groups of at most `room` letters, the first with room for a mark."""
    first = list(range(keys))
    parts = [list(first)]
    for column in range(keys, len(columns)):
        wide = sum(columns[each] + len(GAP) for each in (*parts[-1], column)) - len(GAP)
        if wide + mark > room and parts[-1] != first:
            parts.append(list(first))
            mark = 0
        parts[-1].append(column)
    return parts


def _aligned(rows: list[list], columns: list[int], left: list[int], rule: bool, marks: dict) -> str:
    """Return rows of cells as lines of text, with columns aligned to these widths."""
    lines = []
    for row in rows:
        cells = [cell.ljust(width) if column in left else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, columns))]
        lines.append(GAP.join(cells).rstrip())
    for number, mark in marks.items():
        lines[number] += GAP + mark
    if rule:
        lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def label_list(pairs: list, width: int = 0) -> str:
    """Return (label, value) pairs as aligned lines; equal labels are shown once."""
    rows = []
    last = None
    for label, value in pairs:
        rows.append(("" if label == last else label, value))
        last = label
    return table(rows, left=(0, 1), widths=(width,))


def html_list(title: str, pairs: Iterable[tuple]) -> str:
    """Return (label, value) pairs as an HTML table, for notebooks, without empty values."""
    rows = "".join(f'<tr><th style="text-align:left">{escape(printable(label))}</th>'
                   f'<td style="text-align:left">{escape(printable(value))}</td></tr>'
                   for label, value in pairs if value not in ("", None))
    return f"<table><caption>{escape(printable(title))}</caption>{rows}</table>"


def percent(value: object) -> str:
    """Return a share as text; "none" for other values."""
    return f"{100 * value:.2f}%" if isinstance(value, int | float) and 0 <= value <= 1 else "none"


def join_first_names(names: Sequence[str]) -> str:
    """Return names as one line of text, at most NAMED of them."""
    return ", ".join(names[:NAMED]) + f" and {len(names) - NAMED:,} more" * (len(names) > NAMED)
