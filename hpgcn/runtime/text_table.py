"""Text for a terminal: tables of aligned columns, and lists of labels with their values.

Whatever a terminal would act on is escaped, since names may come from files.
"""
from __future__ import annotations

from hpgcn.errors import printable

GAP = "  "


def table(rows, *, left=(0,), widths=(), rule=False, marks=None):
    """Align the columns of a table.

    Parameters
    ----------
    rows : iterable of sequences
        Cells, all rows of one length; headings are rows like others.
    left : container of int
        Columns set to the left; the others are set to the right.
    widths : sequence of int
        Least widths of the first columns.
    rule : bool
        Draw a line below the first row.
    marks : dict of int to str, optional
        Text behind the row of that number.

    Returns
    -------
    str
        No line feed at the end.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    columns = [max(map(len, column)) for column in zip(*rows)]
    for column, least in enumerate(widths[:len(columns)]):
        columns[column] = max(columns[column], least)

    lines = []
    for row in rows:
        cells = [cell.ljust(width) if column in left else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, columns))]
        lines.append(GAP.join(cells).rstrip())
    for number, mark in (marks or {}).items():
        lines[number] += GAP + mark
    if rule:
        lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def label_list(pairs, width=0):
    """Align (label, value) pairs, a line each; a label that repeats the one above is shown once.

    Parameters
    ----------
    pairs : iterable of (str, object)
    width : int
        Least width of the labels.

    Returns
    -------
    str
        No line feed at the end.
    """
    rows = []
    last = None
    for label, value in pairs:
        rows.append(("" if label == last else label, value))
        last = label
    return table(rows, left=(0, 1), widths=(width,))
