"""Aligned tables, and lists of labels with values; what a terminal would act on is escaped."""

from html import escape

from hpgcn.errors import printable

GAP = "  "


def table(rows, *, left=(0,), widths=(), rule=False, marks=None):
    """Align the columns of a table, rows of cells; headings are rows like others.

    Columns in `left` are set to the left; `widths` are least ones of the first columns. `rule`
    draws a line below the first row, `marks` are texts behind the rows of these numbers.
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
    """Align (label, value) pairs, a line each; a label that repeats the one above is shown once."""
    rows = []
    last = None
    for label, value in pairs:
        rows.append(("" if label == last else label, value))
        last = label
    return table(rows, left=(0, 1), widths=(width,))


def html_list(title, pairs):
    """Return (label, value) pairs as a table of HTML, for notebooks; empty values are left out."""
    rows = "".join(f'<tr><th style="text-align:left">{escape(printable(label))}</th>'
                   f'<td style="text-align:left">{escape(printable(value))}</td></tr>'
                   for label, value in pairs if value not in ("", None))
    return f"<table><caption>{escape(printable(title))}</caption>{rows}</table>"
