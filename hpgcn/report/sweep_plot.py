"""A picture of a sweep: seconds over ranks.

There is one panel per depth, one line per width, and one marker per strategy. With one
number of ranks the picture shows seconds over widths, one line per depth.
"""

from hpgcn.planning.answers.model_sweep import best_of
from hpgcn.report import look
from hpgcn.report.comparison import MARKERS, rank_axis

PANEL = 4.0  # inches


def sweep_figure(found):
    """Plot the result of `hpgcn.planning.answers.model_sweep.forecast`; return the Figure."""
    # markers stand for strategies
    models = found["models"]
    every = [row for model in models for row in best_of(model)]
    strategies = list(dict.fromkeys(row["strategy"] for row in every))
    markers = {name: MARKERS[at % len(MARKERS)] for at, name in enumerate(strategies)}
    scale, unit = look.unit_of(max(row["seconds"]["epoch"] for row in every))

    # a panel for each depth, or one over hidden widths
    depths = sorted({model["layers"] for model in models})
    ranks = sorted({row["ranks"] for row in every})
    several = len(ranks) > 1
    panels = depths if several else [None]
    drawing = look.figure(2.5 + PANEL * len(panels), 4.6)
    axes = drawing.subplots(1, len(panels), sharey=True, squeeze=False)[0]

    # a line for each model, a marker for each case
    for axis, depth in zip(axes, panels):
        lines = _over_ranks(models, depth) if several else _over_widths(models, depths)
        for number, (label, line) in enumerate(lines):
            places = [x for x, _ in line]
            seconds = [row["seconds"]["epoch"] * scale for _, row in line]
            style = look.line_style(number)
            axis.plot(places, seconds, label=label, linewidth=1.4, **style)
            for x, value, (_, row) in zip(places, seconds, line):
                axis.plot(x, value, markers[row["strategy"]], color=style["color"],
                          markersize=6, markerfacecolor=style["color"] if row["fits"] else "none")
        axis.set(xscale="log", yscale="log", xlabel="ranks" if several else "hidden width")
        if several:
            axis.set_title(f"{depth} layer{'s' * (depth > 1)}")
        rank_axis(axis, ranks if several else sorted({model["hidden"] for model in models}))

    # axes and legend
    axes[0].set_ylabel(f"{unit} per training step, predicted")
    handles, labels = axes[0].get_legend_handles_labels()
    for name, marker in markers.items():
        handles += axes[0].plot([], [], marker, color="black", label=name)
        labels.append(name)
    if not all(row["fits"] for row in every):
        handles += axes[0].plot([], [], "o", color="black", markerfacecolor="none")
        labels.append("more than the memory")
    drawing.legend(handles, labels, loc="outside right center")

    # title
    graph = found["graph"]
    alone = "" if several else f", {ranks[0]} rank{'s' * (ranks[0] > 1)}"
    drawing.suptitle(f"{look.truncate(graph['name'])}: {graph['num_nodes']:,} vertices, "
                     f"{graph['multiplied_nonzeros']:,} nonzeros{alone}\n"
                     "the fastest strategy of each model")
    return drawing


def _over_ranks(models, depth):
    return [(f"hidden {model['hidden']}", [(row["ranks"], row) for row in best_of(model)])
            for model in models if model["layers"] == depth]


def _over_widths(models, depths):
    return [(f"{depth} layer{'s' * (depth > 1)}",
             [(model["hidden"], best_of(model)[0]) for model in models if model["layers"] == depth])
            for depth in depths]
