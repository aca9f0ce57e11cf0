"""A picture of a forecast: seconds and bytes over ranks, one line per strategy and partition."""

from pathlib import Path

import numpy as np

from hpgcn.errors import UsageError, require
from hpgcn.report import look
from hpgcn.store import atomic_write

SUFFIXES = ("png", "svg", "pdf")
MARKERS = "os^DvPX*<>"
LABELS_APART = 0.06  # share of the width of an axis: labels of ranks that lie closer are left out


def check_picture(path, flag="--plot"):
    """Refuse an unknown suffix or a missing matplotlib.

    Call it before a long computation.
    """
    if Path(path).suffix[1:].lower() not in SUFFIXES:
        raise UsageError(f"{flag} {path}: expected a name that ends in .{', .'.join(SUFFIXES)}")
    require("matplotlib", "plot", "a picture")


def plot(report, path, make_figure, flag="--plot"):
    """Draw a report with `make_figure`, and write the picture.

    `make_figure` returns a Figure. An older file is replaced.
    """
    check_picture(path, flag)
    kind = Path(path).suffix[1:].lower()
    with look.style():
        drawing = make_figure(report)
        atomic_write(path, look.rendered(drawing, kind), overwrite=True)


def forecast_figure(report):
    """Plot the result of `planning.answers.report.forecast`; return the Figure.

    It shows the predicted seconds of a training step, and the bytes of the rank that
    sends most, over the number of ranks. If all cases have the same number of ranks, as
    for a partitioned file, they are drawn as bars. Cases of which only lower bounds are
    known are left out.
    """
    rows = report["rows"]
    choice = rows[report["choice"]["index"]] if report["choice"] else None
    rows = [row for row in rows if row["counted"]]
    several = len({row["ranks"] for row in rows}) > 1
    drawing = look.figure(11, 4.6 if several else 1.6 + 0.34 * len(rows))
    axes = drawing.subplots(1, 2)

    # seconds on the left, bytes on the right
    scale, unit = look.unit_of(max(row["seconds"]["epoch"] for row in rows))
    add = _lines if several else _bars
    add(axes[0], rows, lambda row: row["seconds"]["epoch"] * scale,
        f"{unit} per training step, predicted", choice)
    add(axes[1], rows, lambda row: row["bytes"]["max"] / 1e6,
        "MB sent by the busiest rank", choice)

    # legend and title
    if several:
        handles, labels = axes[0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside right center")
    else:
        axes[1].set_yticklabels([])
    graph = report["graph"]
    widths = ", ".join(map(str, report["step"]["widths"]))
    ranks = "" if several else f", {rows[0]['ranks']} rank{'s' * (rows[0]['ranks'] > 1)}"
    drawing.suptitle(f"{look.truncate(graph['name'])}: {graph['num_nodes']:,} vertices, "
                     f"{graph['multiplied_nonzeros']:,} nonzeros, widths {widths}{ranks}")
    return drawing


def _label(row):
    parts = "" if row["parts"] in ("stored", "whole") else f", {row['parts']} parts"
    return row["strategy"] + parts


def _lines(axis, rows, value, text, choice):
    """Draw a line for each strategy and partition.

    Each line begins with the value of a single rank.
    """
    alone = [row for row in rows if row["ranks"] == 1]
    lines = {}
    for row in rows:
        if row["ranks"] > 1:
            lines.setdefault(_label(row), []).append(row)

    # each line begins at one rank
    for number, (label, line) in enumerate(lines.items()):
        points = [(row["ranks"], value(row)) for row in [*alone, *line] if value(row)]
        style = {**look.line_style(number), "marker": MARKERS[number % len(MARKERS)]}
        ranks, values = np.array(points).reshape(-1, 2).T
        axis.plot(ranks, values, label=label, markersize=4.5, linewidth=1.4, **style)

    if choice and value(choice):
        axis.plot(choice["ranks"], value(choice), "o", markersize=13, markerfacecolor="none",
                  markeredgecolor="black", markeredgewidth=1.6, label="choice", zorder=5)

    axis.set(xscale="log", yscale="log", xlabel="ranks", ylabel=text)
    rank_axis(axis, sorted({row["ranks"] for row in rows}))


def rank_axis(axis, ticks):
    """Label the ticks of a logarithmic x axis with numbers of ranks.

    Ticks without room have no label.
    """
    axis.set_xlim(ticks[0] / 1.1, ticks[-1] * 1.1)
    axis.set_xticks(ticks, _sparse_labels(ticks))
    axis.set_xticks([], minor=True)


def _bars(axis, rows, value, text, choice):
    places = np.arange(len(rows))
    colors = [look.PALETTE[1] if row is choice else look.PALETTE[0] for row in rows]
    bars = axis.barh(places, [value(row) for row in rows], color=colors, height=0.66)
    axis.bar_label(bars, fmt=look.digits, padding=3)
    axis.set_yticks(places, [_label(row) + "  (choice)" * (row is choice) for row in rows])
    axis.set(xlabel=text, ylim=(len(rows) - 0.4, -0.6))
    axis.margins(x=0.14)
    axis.grid(visible=False, axis="y")


def _sparse_labels(ticks):
    """Return labels for numbers of ranks on a logarithmic axis.

    Labels that would overlap are empty.
    """
    labels = []
    last = -np.inf
    span = np.log(ticks[-1] / ticks[0]) or 1.0
    for tick in ticks:
        place = np.log(tick / ticks[0]) / span
        apart = place - last >= LABELS_APART
        labels.append(str(tick) if apart else "")
        last = place if apart else last
    return labels
