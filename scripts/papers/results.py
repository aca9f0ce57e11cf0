"""Functions that read results and write tables and plots, for the scripts of this
folder.
"""
import json
from pathlib import Path

from hpgcn.report.figures import figure, png, style
from hpgcn.runtime import text_table


def read(path):
    """Return the content of a JSON file."""
    return json.loads(Path(path).read_text())


def summary(run):
    """Return the content of summary.json in a run directory."""
    return read(Path(run) / "summary.json")


def cell(value, style=".2f"):
    """Return a number as the text of a table cell; "-" for None."""
    return "-" if value is None else format(value, style)


def show(title, header, rows, left=(0,)):
    """Print a table with its title; cells are texts, or None for "-"."""
    lines = [header, *([cell if isinstance(cell, str) else "-" for cell in row] for row in rows)]
    print(f"\n{title}\n\n{text_table.table(lines, left=left, rule=True)}")


def picture(path, draw, width=7, height=4):
    """Write the plot of `draw(axes)` to a PNG file, and print its path."""
    with style():
        drawing = figure(width, height)
        draw(drawing.subplots())
        Path(path).write_bytes(png(drawing))
    print(f"\npicture: {path}")


def lines(path, title, x_label, y_label, curves, *, log=False):
    """Plot curves, a dict from name to (x, y), to a PNG file."""
    def draw(axes):
        for name, (x, y) in curves.items():
            axes.plot(x, y, marker="o", markersize=3, label=name)
        if log:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
        axes.set(title=title, xlabel=x_label, ylabel=y_label)
        axes.legend()
    picture(path, draw)


def bars(path, title, y_label, names, parts):
    """Plot stacked bars to a PNG file; `parts` is a dict from kind to one number for
    each name.
    """
    def draw(axes):
        base = [0.0] * len(names)
        for kind, values in parts.items():
            axes.bar(names, values, bottom=base, label=kind)
            base = [low + value for low, value in zip(base, values)]
        axes.set(title=title, ylabel=y_label)
        axes.tick_params(axis="x", labelrotation=30)
        axes.legend()
    picture(path, draw)
