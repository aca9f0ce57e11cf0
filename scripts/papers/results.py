"""Functions that read results and write tables, numbers and pictures.

The scripts of this folder use them.
"""
import json
import os
from collections import defaultdict
from pathlib import Path

from matplotlib.transforms import offset_copy

from hpgcn.report.look import PALETTE, figure, line_style, plain, png, style
from hpgcn.runtime import text_table

# NAME.json of the script NAME.sh: its numbers; the picture is NAME.png beside it
RESULTS = Path(os.environ["RESULTS"])


def read(path):
    """Return the content of a JSON file."""
    return json.loads(Path(path).read_text())


def summary(run):
    """Return the content of summary.json in a run directory."""
    return read(Path(run) / "summary.json")


def median_epoch(run):
    """Return the trace events of a run's median step, and its seconds.

    The seconds are those of the slowest rank.
    """
    lengths, events = defaultdict(float), defaultdict(list)
    end = 0.0
    for event in read(Path(run) / "trace.json")["traceEvents"]:
        if event["ph"] != "X":
            continue
        epoch = event["args"]["epoch"]
        if event["name"].startswith("epoch "):  # it precedes the events that it encloses
            lengths[epoch] = max(lengths[epoch], event["dur"] / 1e6)
            end = event["ts"] + event["dur"]
        elif event["ts"] < end:  # later ones evaluate
            events[epoch].append(event)
    middle = sorted(lengths, key=lengths.get)[len(lengths) // 2]
    return events[middle], lengths[middle]


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


def picture(draw, width=7, height=4, panels=1):
    """Write the plots of `draw(*axes)` to the script's PNG file.

    There is one for each panel. Print the path.
    """
    path = RESULTS.with_suffix(".png")
    with style():
        drawing = figure(width, height)
        axes = drawing.subplots(1, panels, squeeze=False)[0]
        draw(*axes)
        add_legends(drawing, axes)
        path.write_bytes(png(drawing))
    print(f"\npicture: {path}")


def add_legends(drawing, axes):
    """Add a legend below the picture, or below each panel.

    One suffices if all panels have the same labels.
    """
    given = [each.get_legend_handles_labels() for each in axes]
    if given[0][1] and all(labels == given[0][1] for _, labels in given):
        labels = given[0][1]
        inches = 0.6 + 0.09 * max(map(len, labels))
        columns = max(1, int(drawing.get_figwidth() / inches))
        rows = -(-len(labels) // columns)
        drawing.legend(*given[0], loc="outside lower center", ncols=-(-len(labels) // rows))
        return
    for each, (handles, labels) in zip(axes, given):
        if len(labels) > 1:
            below = offset_copy(each.transAxes, drawing, y=-0.55)  # inches
            each.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0),
                        bbox_transform=below, ncols=1 + (len(labels) > 4))


def curves(axes, data, **labels):
    """Plot curves, a dict from name to (x, y), each in its own style."""
    for number, (name, (x, y)) in enumerate(data.items()):
        axes.plot(x, y, marker="o", markersize=4, label=name, **line_style(number))
    axes.set(**labels)


def bars(axes, names, parts, **labels):
    """Plot stacked horizontal bars; `parts` is a dict from kind to one number for each name."""
    left = [0.0] * len(names)
    for (kind, values), color in zip(parts.items(), PALETTE):
        axes.barh(range(len(names)), values, left=left, color=color, label=kind, height=0.7)
        left = [low + value for low, value in zip(left, values)]
    axes.grid(visible=False, axis="y")
    axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5), **labels)


def groups(axes, names, series, style=".2f", **labels):
    """Plot a group of horizontal bars for each name, with their numbers.

    `series` is a dict from kind to one number for each name; None: no bar.
    """
    height = 0.8 / len(series)
    for number, (kind, values) in enumerate(series.items()):
        places = [place - 0.4 + (number + 0.5) * height for place in range(len(names))]
        known = [(place, value) for place, value in zip(places, values) if value is not None]
        drawn = axes.barh(*zip(*known), color=PALETTE[number % len(PALETTE)], height=height,
                          label=kind)
        axes.bar_label(drawn, [format(value, style) for _, value in known], padding=2, fontsize=8)
    axes.margins(x=0.2)
    axes.grid(visible=False, axis="y")
    axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5), **labels)


def count_axis(axis, counts):
    """Make an axis logarithmic, with a tick at each of these numbers of ranks or blocks."""
    axis.axes.set_xscale("log", base=2)
    axis.set_ticks(counts, labels=list(map(plain, counts)))
    axis.set_ticks([], minor=True)
