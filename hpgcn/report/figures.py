"""Pictures of runs. Every function returns a matplotlib Figure, or None where there is nothing to draw.

Colours are Okabe and Ito's, which readers with any colour vision tell apart; matrices use cividis.
"""
from __future__ import annotations

import io
import warnings

import numpy as np

from hpgcn.errors import require

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
WORK = {"spmm": "#0072B2", "dense": "#E69F00", "comm": "#009E73", "wait": "#B0B0B0", "reduce": "#CC79A7"}
MEANING = {"spmm": "SpMM", "dense": "dense", "comm": "comm (pack, start)", "wait": "wait", "reduce": "wait (reduction)"}
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "text.parse_math": False,
         "axes.titlesize": 11, "axes.titlelocation": "left", "legend.frameon": False, "axes.formatter.useoffset": False,
         "axes.grid": True, "grid.alpha": 0.25, "figure.dpi": 100}
BINS = 250  # epochs are drawn one by one up to here, else as medians of groups
LINES = 21  # curves beyond are too many for a legend


def figure(width, height):
    """An empty figure, inches; drawn without a display."""
    return require("matplotlib.figure", "plot", "a picture").Figure(figsize=(width, height), layout="constrained")


def style():
    """Context in which figures are drawn and saved."""
    return require("matplotlib", "plot", "a picture").rc_context(STYLE)


def png(drawing, dpi=144):
    """A figure as bytes of a PNG file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font lacks: boxes will do
        drawing.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def shown(name, most=32):
    """A name as a legend takes it: an underscore in front would hide it, a long one push the axes aside."""
    name = name if len(name) <= most else name[:most // 2] + "…" + name[1 - most // 2:]
    return " " + name if name.startswith("_") else name


def curves(runs):
    """Loss and accuracy against epochs, a colour for each run; a ring marks the best epoch."""
    runs = [run for run in runs if run.epochs]
    if not runs:
        return None
    rows = -(-min(len(runs), LINES) // 3)
    drawing = figure(11, 4.4 + 0.22 * rows)
    axes = drawing.subplots(1, 2)
    handles = []
    for place, run in enumerate(runs):
        # dashes differ, too: of equal curves both are seen
        look = {"color": PALETTE[place % len(PALETTE)], "linestyle": DASHES[place % len(DASHES)]}
        epoch, best = run.metrics["epoch"], run.best
        dot = {"marker": "."} if run.epochs == 1 else {}
        handles += axes[0].plot(epoch, run.metrics["loss"], linewidth=1.6, label=shown(run.name), **look, **dot)
        for axis, name, factor in ((axes[0], "val_loss", 1), (axes[1], "val_acc", 100), (axes[1], "test_acc", 100)):
            values = factor * run.metrics[name]
            known = np.isfinite(values)  # epochs without an evaluation are passed over
            wide = 1.6 if name == "val_acc" else 0.8
            axis.plot(epoch[known], values[known], linewidth=wide, alpha=1.0 if wide > 1 else 0.6, **look,
                      **({"marker": "."} if known.sum() == 1 else {}))
            if best is not None and known[best] and name != "test_acc":
                axis.plot(epoch[best], values[best], "o", markersize=7, markerfacecolor="white", markeredgewidth=1.6,
                          color=look["color"], zorder=5)
    for axis, title, text in zip(axes, ("Loss: training (thick), validation (thin)",
                                        "Accuracy: validation (thick), test (thin)"), ("loss", "accuracy, %")):
        axis.set(title=title, xlabel="epoch", ylabel=text)
        axis.xaxis.get_major_locator().set_params(integer=True)
    if not axes[1].lines:
        axes[1].text(0.5, 0.5, "no evaluation yet", transform=axes[1].transAxes, ha="center", color="#666666")
    if len(handles) > LINES:
        handles = [*handles[:LINES - 1], axes[0].plot([], [], " ", label=f"and {len(handles) - LINES + 1} more")[0]]
    drawing.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)))
    return drawing


def seconds(run):
    """Where the time of each training step went: stacked kinds of work, and the step's own time as a line."""
    kinds = [name for name in ("spmm", "dense", "comm", "wait") if np.isfinite(run.metrics[f"{name}_s"]).any()]
    if not kinds or not run.epochs:
        return None
    groups = np.array_split(np.arange(run.epochs), min(run.epochs, BINS))
    known = (np.nan_to_num(run.metrics[name]) for name in ("epoch_s", *(f"{kind}_s" for kind in kinds)))
    whole, *parts = (np.array([np.median(column[group]) for group in groups]) for column in known)
    highest = np.maximum(sum(parts), whole)
    highest, usual = highest.max(), np.percentile(highest, 90)
    scale, unit = unit_of(usual)
    epoch = run.metrics["epoch"]
    edges = np.array([*(epoch[group[0]] - 0.5 for group in groups), epoch[-1] + 0.5])
    drawing = figure(11, 3.4)
    axis = drawing.subplots()
    below = np.zeros(len(groups))
    for kind, part in zip(kinds, parts):
        axis.stairs((below + part) * scale, edges, baseline=below * scale, fill=True, color=WORK[kind],
                    label=MEANING[kind])
        below = below + part
    axis.stairs(whole * scale, edges, baseline=None, color="black", linewidth=1.1, label="whole step")
    title = "Time of a training step" + (f" (medians of groups of {len(groups[0])} epochs)"
                                         if run.epochs > BINS else "")
    if highest > 2 * usual > 0:
        axis.set_ylim(0, 1.5 * usual * scale)
        factor, larger = unit_of(highest)
        title += f"; cut off above, the highest is {highest * factor:.3g} {larger}"
    axis.set(title=title, xlabel="epoch", ylabel=f"{unit}, maximum over ranks", xlim=(edges[0], edges[-1]))
    axis.xaxis.get_major_locator().set_params(integer=True)
    drawing.legend(loc="outside right center")
    return drawing


def comparison(runs):
    """Median time of a training step of each run, a stacked bar a run."""
    runs = [run for run in runs if run.median("epoch_s") is not None]
    if len(runs) < 2:
        return None
    drawing = figure(11, 1.3 + 0.38 * len(runs))
    axis = drawing.subplots()
    scale, unit = unit_of(max(run.median("epoch_s") for run in runs))
    rows, left = np.arange(len(runs)), np.zeros(len(runs))
    for kind in ("spmm", "dense", "comm", "wait"):
        part = np.array([run.median(f"{kind}_s") or 0.0 for run in runs]) * scale
        axis.barh(rows, part, left=left, height=0.62, color=WORK[kind], label=MEANING[kind])
        left += part
    whole = [run.median("epoch_s") * scale for run in runs]
    axis.plot(whole, rows, "d", color="black", markersize=6, label="whole step")
    axis.set_yticks(rows, [f"{shown(run.name)}  ({run.summary.get('ranks', '?')} ranks)" for run in runs])
    axis.set(title="Median time of a training step", xlabel=f"{unit}, maximum over ranks", ylim=(len(runs) - 0.4, -0.6))
    axis.grid(visible=False, axis="y")
    drawing.legend(loc="outside right center")
    return drawing


def matrix(run):
    """Who sends how much to whom in one training step."""
    sent = run.traffic
    if sent is None or not sent.any():
        return None
    size = len(sent)
    largest = sent.max()
    scale, unit = next((1 / factor, unit) for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes"))
                       if largest >= factor)
    side = min(7.0, 3.0 + 0.38 * size)
    drawing = figure(side + 1.6, side)
    axis = drawing.subplots()
    picture = axis.imshow(np.ma.masked_equal(sent * scale, 0), cmap="cividis", vmin=0, interpolation="nearest")
    axis.set_facecolor("#f2f2f2")
    axis.grid(visible=False)
    if size <= 12:
        for p, q in np.argwhere(sent).tolist():
            axis.text(q, p, f"{sent[p, q] * scale:.3g}", ha="center", va="center", fontsize=9,
                      color="white" if sent[p, q] < 0.6 * largest else "black")
        axis.set_xticks(range(size))
        axis.set_yticks(range(size))
    for letter in (axis.xaxis, axis.yaxis):
        letter.get_major_locator().set_params(**({} if size <= 12 else {"integer": True}))
    axis.set(title="Sent in one training step", xlabel="to rank", ylabel="from rank")
    drawing.colorbar(picture, ax=axis, label=unit, shrink=0.85)
    return drawing


def timeline(trace):
    """All ranks during the training step in the middle of those recorded.

    Parameters
    ----------
    trace : dict
        Events, as hpgcn.report.runs.read_trace returns them.
    """
    steps = np.char.startswith(trace["name"], "epoch ")
    epochs = np.unique(trace["epoch"][steps])
    if not epochs.size:
        return None
    middle = int(epochs[epochs.size // 2])
    here = trace["epoch"] == middle
    begin, end = trace["begin"][here & steps].min(), trace["end"][here & steps].max()
    ranks = np.unique(trace["rank"])
    scale, unit = unit_of(end - begin)
    drawing = figure(11, min(1.5 + 0.42 * len(ranks), 12))
    axis = drawing.subplots()
    rows, low, high = (np.searchsorted(ranks, trace["rank"]), (trace["begin"] - begin) * scale,
                       (trace["end"] - begin) * scale)
    over = np.zeros(len(ranks))
    over[rows[here & steps]] = high[here & steps]
    inside = here & ~steps & (low < over[rows])  # what a rank does after its step is evaluation
    for found, color, label in ((here & steps, "#ebebeb", "other"), *((inside & (trace["name"] == kind), color, MEANING[
            kind]) for kind, color in WORK.items())):
        _boxes(axis, low[found], high[found], rows[found], color, label)
    axis.set(title=f"Timeline of epoch {middle}", xlabel=f"{unit} since the first rank began the step",
             ylim=(len(ranks) - 0.4, -0.6), xlim=(0, max((end - begin) * scale, 1e-6)))
    if len(ranks) <= 32:
        axis.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
    else:
        axis.set_yticks([])
        axis.set_ylabel(f"{len(ranks)} ranks, 0 on top")
    axis.grid(visible=False, axis="y")
    drawing.legend(loc="outside right center")
    return drawing


def _boxes(axis, low, high, rows, color, label):
    """Rectangles [low, high] on rows, as one collection."""
    collections = require("matplotlib.collections", "plot", "a picture")
    bottom, top = rows - 0.4, rows + 0.4
    corners = np.stack([np.stack([low, bottom], -1), np.stack([low, top], -1), np.stack([high, top], -1),
                        np.stack([high, bottom], -1)], axis=1)
    if len(corners):
        axis.add_collection(collections.PolyCollection(corners, facecolors=color, edgecolors="none", label=label,
                                                       zorder=2), autolim=False)


def unit_of(largest):
    """Factor and name of the unit in which some seconds are easy to read."""
    return next(((factor, unit) for factor, unit in ((1, "s"), (1e3, "ms")) if largest * factor >= 1), (1e6, "µs"))
