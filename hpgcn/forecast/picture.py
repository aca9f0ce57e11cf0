"""A picture of a forecast: seconds and bytes against the number of ranks, a line for each strategy and its parts."""
from __future__ import annotations

from pathlib import Path

import numpy as np

from hpgcn.errors import UsageError, require
from hpgcn.store import atomic_write

SUFFIXES = ("png", "svg", "pdf")
COLORS = {"p2p": "C0", "1d": "C1", "1.5d": "C2", "2d": "C3", "3d": "C4", "mop": "C5"}
STYLES = ("-", "--", ":", "-.")


def check_picture(path):
    """Refuse a file of a suffix that is no picture's, and a missing matplotlib, before time is spent on numbers.

    Raises
    ------
    UsageError, MissingError
    """
    if Path(path).suffix[1:].lower() not in SUFFIXES:
        raise UsageError(f"--plot {path}: expected a name that ends in .{', .'.join(SUFFIXES)}")
    require("matplotlib", "plot", "a picture")


def plot(report, path):
    """Draw predicted seconds of a training step, and bytes that the busiest rank sends, against ranks.

    Strategies that can be run are drawn in full, those only forecast are pale. A picture of that name is replaced.

    Parameters
    ----------
    report : dict
        What `hpgcn.forecast.forecast` returned.
    path : str or path-like
        .png, .svg or .pdf.

    Raises
    ------
    UsageError, MissingError
        As `check_picture`.
    OutputError, StorageError
        The file cannot be written.
    """
    check_picture(path)
    figure = require("matplotlib.figure", "plot", "a picture").Figure(figsize=(11, 4.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for label, rows in _lines(report["rows"]).items():
        style = {"color": COLORS[rows[0]["strategy"]], "marker": "o", "markersize": 4, "linestyle": STYLES[
            _rank_among(rows[0], report["rows"]) % len(STYLES)], "alpha": 1.0 if rows[0]["runs"] else 0.45}
        ranks = [row["ranks"] for row in rows]
        axes[0].plot(ranks, np.array([row["seconds"]["epoch"] for row in rows]), label=label, **style)
        sent = np.array([(row["ranks"], row["bytes"]["max"] / 1e6) for row in rows if row["bytes"]["max"]])
        axes[1].plot(*sent.reshape(-1, 2).T, **style)
    if report["choice"]:
        choice = report["rows"][report["choice"]["index"]]
        axes[0].plot(choice["ranks"], choice["seconds"]["epoch"], "k*", markersize=13, label="choice", zorder=5)
    ticks = sorted({row["ranks"] for row in report["rows"]})
    for axis, text in zip(axes, ("predicted seconds per training step", "MB sent by the busiest rank")):
        axis.set_xscale("log", base=2)
        if any(line.get_ydata().size for line in axis.lines):  # a single rank sends nothing
            axis.set_yscale("log")
        axis.set_xticks(ticks, list(map(str, ticks)))
        axis.set_xticks([], minor=True)
        axis.set_xlabel("ranks")
        axis.set_ylabel(text)
        axis.grid(alpha=0.3)
    graph = report["graph"]
    figure.suptitle(f"{graph['name']}: {graph['num_nodes']:,} vertices, {graph['multiplied_nonzeros']:,} nonzeros, "
                    f"widths {', '.join(map(str, report['step']['widths']))}")
    figure.legend(loc="outside right center", frameon=False)
    kind = Path(path).suffix[1:].lower()
    atomic_write(path, lambda file: figure.savefig(file, format=kind, dpi=150), overwrite=True)


def _lines(rows):
    """Rows by line: label -> rows, in order of ranks. A single rank begins every line."""
    alone = [row for row in rows if row["ranks"] == 1]
    found = {}
    for row in rows:
        if row["ranks"] > 1 or len(alone) == len(rows):
            note = "" if row["runs"] else " (forecast only)"
            parts = "" if row["parts"] == "stored" else f", {row['parts']} parts"
            found.setdefault(row["strategy"] + parts + note, []).append(row)
    return {label: line if line[0] in alone else [*({**row, "runs": line[0]["runs"], "strategy": line[0]["strategy"],
                                                     "parts": line[0]["parts"]} for row in alone), *line]
            for label, line in found.items()}


def _rank_among(row, rows):
    """Place of a row's parts among those of its strategy: it picks the style of its line."""
    alike = (other for other in rows if other["strategy"] == row["strategy"] and other["ranks"] > 1)
    parts = list(dict.fromkeys(other["parts"] for other in alike))
    return parts.index(row["parts"]) if row["parts"] in parts else 0
