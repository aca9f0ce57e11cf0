"""Functions that read results and write tables, numbers and pictures, for the scripts of
this folder.
"""
import json
import os
from pathlib import Path

from hpgcn.report.figures import figure, png, style
from hpgcn.runtime import text_table

# NAME.json of the script NAME.sh: its numbers; the picture is NAME.png beside it
RESULTS = Path(os.environ["RESULTS"])


def read(path):
    """Return the content of a JSON file."""
    return json.loads(Path(path).read_text())


def summary(run):
    """Return the content of summary.json in a run directory."""
    return read(Path(run) / "summary.json")


def show(key, title, columns, records):
    """Print records as a table, and store them as table `key` of the script's JSON file.

    Parameters
    ----------
    key : str
    title : str
    columns : dict of str to (str, str)
        Heading and style by the name of a column in the JSON file. The style formats
        numbers; a column with the style "" has texts.
    records : list of dict
        Numbers and texts by column; one that is missing or None is printed as "-".
    """
    records = [{name: record.get(name) for name in columns} for record in records]
    results = read(RESULTS) if RESULTS.exists() else {"script": RESULTS.stem, "tables": {}}
    results["tables"][key] = records
    RESULTS.write_text(json.dumps(results, indent=1, default=lambda number: number.item()) + "\n")

    rows = [["-" if record[name] is None else format(record[name], style)
             for name, (_, style) in columns.items()] for record in records]
    left = [place for place, (_, style) in enumerate(columns.values()) if not style]
    rows.insert(0, [heading for heading, _ in columns.values()])
    print(f"\n{title}\n\n{text_table.table(rows, left=left, rule=True)}")


def picture(draw, width=7, height=4):
    """Write the plot of `draw(axes)` to the script's PNG file, and print its path."""
    path = RESULTS.with_suffix(".png")
    with style():
        drawing = figure(width, height)
        draw(drawing.subplots())
        path.write_bytes(png(drawing))
    print(f"\npicture: {path}")


def lines(title, x_label, y_label, curves, *, log=False):
    """Plot curves, a dict from name to (x, y)."""
    def draw(axes):
        for name, (x, y) in curves.items():
            axes.plot(x, y, marker="o", markersize=3, label=name)
        if log:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
        axes.set(title=title, xlabel=x_label, ylabel=y_label)
        axes.legend()
    picture(draw)


def bars(title, y_label, names, parts):
    """Plot stacked bars; `parts` is a dict from kind to one number for each name."""
    def draw(axes):
        base = [0.0] * len(names)
        for kind, values in parts.items():
            axes.bar(names, values, bottom=base, label=kind)
            base = [low + value for low, value in zip(base, values)]
        axes.set(title=title, ylabel=y_label)
        axes.tick_params(axis="x", labelrotation=30)
        axes.legend()
    picture(draw)
