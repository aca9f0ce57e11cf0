"""Pictures of runs: each function returns a matplotlib Figure, or None without data."""

import numpy as np

from hpgcn.report.look import digits, figure, line_style, truncate, unit_of
from hpgcn.report.table import WORK
from hpgcn.setting_words import TARGET_METRICS

COLORS = {"spmm": "#0072B2", "dense": "#E69F00", "comm": "#009E73", "wait": "#B0B0B0",
          "sparse_comm": "#005C43", "reduce": "#CC79A7", "read from disk": "#56B4E9",
          "write to disk": "#D55E00", "wait for disk": "#000000"}
LABELS = {"spmm": "SpMM", "dense": "dense", "comm": "comm (pack, start)", "wait": "wait",
          "sparse_comm": "messages of blocks of A", "reduce": "wait (reduction)",
          **{name: name for name in ("read from disk", "write to disk", "wait for disk")}}
BINS = 250  # epochs are drawn one by one up to here, else as medians of groups
MOST_CURVES = 21  # more are too many for a legend
BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes"))


def curves(runs):
    """Draw loss and metric over epochs, one color per run.

    A ring marks the best epoch.
    """
    runs = [run for run in runs if run.epochs]
    if not runs:
        return None

    # lines
    rows = -(-min(len(runs), MOST_CURVES) // 3)
    drawing = figure(11, 4.4 + 0.22 * rows)
    loss, score = drawing.subplots(1, 2)
    handles = []
    for number, run in enumerate(runs):
        style = line_style(number)
        handles += _curve(loss, run, "loss", 1.6, 1, style, label=truncate(run.name))
        _curve(loss, run, "val_loss", 0.8, 1, style)
        factor = 1 if run.metric in TARGET_METRICS else 100  # percent
        _curve(score, run, "val_acc", 1.6, factor, style)
        _curve(score, run, "test_acc", 0.8, factor, style)

    # axes
    loss.set(title="Loss: training (thick), validation (thin)", xlabel="epoch", ylabel="loss")
    names = dict.fromkeys(run.metric for run in runs)
    metrics = ", ".join(names)
    units = ", ".join(name if name in TARGET_METRICS else f"{name}, %" for name in names)
    score.set(title=f"{metrics[0].upper()}{metrics[1:]}: validation (thick), test (thin)",
              xlabel="epoch", ylabel=units)
    for axis in (loss, score):
        axis.xaxis.get_major_locator().set_params(integer=True)
    if not score.lines:
        score.text(0.5, 0.5, "no evaluation yet", transform=score.transAxes, ha="center",
                   color="#666666")

    # legend; a long one is cut off
    if len(handles) > MOST_CURVES:
        rest = loss.plot([], [], " ", label=f"and {len(handles) - MOST_CURVES + 1} more")
        handles = [*handles[:MOST_CURVES - 1], *rest]
    drawing.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)))
    return drawing


def _curve(axis, run, name, width, factor, style, **options):
    """Draw one column of the metrics.

    If the column is of validation, a ring marks the best epoch.
    """
    values = factor * run.metrics[name]
    known = np.isfinite(values)  # epochs without an evaluation are passed over
    epoch = run.metrics["epoch"]
    marker = "." if known.sum() == 1 else None
    lines = axis.plot(epoch[known], values[known], linewidth=width, marker=marker,
                      alpha=1.0 if width > 1 else 0.6, **style, **options)
    best = run.best
    if name.startswith("val") and best is not None and known[best]:
        axis.plot(epoch[best], values[best], "o", markersize=7, markerfacecolor="white",
                  markeredgewidth=1.6, color=style["color"], zorder=5)
    return lines


def seconds(run):
    """Draw the time of each training step.

    Kinds of work are stacked areas, and the whole step is a line.
    """
    # medians of groups of epochs, if there are more than BINS
    kinds = [kind for kind in WORK if np.isfinite(run.metrics[f"{kind}_s"]).any()]
    if not kinds or not run.epochs:
        return None
    groups = np.array_split(np.arange(run.epochs), min(run.epochs, BINS))
    whole, *parts = (
        np.array([np.median(np.nan_to_num(run.metrics[f"{name}_s"][group])) for group in groups])
        for name in ("epoch", *kinds))

    # scale by usual steps: one slow step must not flatten all
    heights = np.maximum(sum(parts), whole)
    usual = np.percentile(heights, 90)
    scale, unit = unit_of(usual)
    epoch = run.metrics["epoch"]
    edges = np.array([*(epoch[group[0]] - 0.5 for group in groups), epoch[-1] + 0.5])

    # stack the kinds of work
    drawing = figure(11, 3.4)
    axis = drawing.subplots()
    below = np.zeros(len(groups))
    for kind, part in zip(kinds, parts):
        axis.stairs((below + part) * scale, edges, baseline=below * scale, fill=True,
                    color=COLORS[kind], label=LABELS[kind])
        below = below + part
    axis.stairs(whole * scale, edges, baseline=None, color="black", linewidth=1.1,
                label="whole step")

    # note steps that exceed the axis
    title = "Time of a training step"
    if run.epochs > BINS:
        title += f" (medians of groups of {len(groups[0])} epochs)"
    if heights.max() > 2 * usual > 0:
        axis.set_ylim(0, 1.5 * usual * scale)
        factor, larger = unit_of(heights.max())
        title += f"; cut off at the top, the highest is {digits(heights.max() * factor)} {larger}"
    axis.set(title=title, xlabel="epoch", ylabel=f"{unit}, maximum over ranks",
             xlim=(edges[0], edges[-1]))
    axis.xaxis.get_major_locator().set_params(integer=True)
    drawing.legend(loc="outside right center")
    return drawing


def comparison(runs):
    """Draw the median time of a training step, one stacked bar per run."""
    runs = [run for run in runs if run.median("epoch_s") is not None]
    if len(runs) < 2:
        return None

    whole = np.array([run.median("epoch_s") for run in runs])
    scale, unit = unit_of(whole.max())
    parts = {LABELS[kind]: [scale * (run.median(f"{kind}_s") or 0.0) for run in runs]
             for kind in WORK}
    drawing, axis, *_ = stacked_bars(runs, parts, [COLORS[kind] for kind in WORK], 1.3)
    axis.plot(whole * scale, range(len(runs)), "d", color="black", markersize=6, label="whole step")
    axis.set(title="Median time of a training step", xlabel=f"{unit}, maximum over ranks")
    drawing.legend(loc="outside right center")
    return drawing


def stacked_bars(runs, parts, colors, height):
    """Draw a bar for each run, stacked of `parts`.

    `parts` has the numbers of all runs by label. Return the Figure, its axis, and the
    container and the ends of the last bars.
    """
    names = [f"{truncate(run.name)}  ({run.summary.get('ranks', '?')} ranks)" for run in runs]
    drawing, axis = _rows(names, height + 0.38 * len(runs))
    left, bars = np.zeros(len(runs)), None
    for (label, lengths), color in zip(parts.items(), colors, strict=True):
        if any(lengths):
            bars = axis.barh(range(len(runs)), lengths, left=left, height=0.62, color=color,
                             label=label)
        left += lengths
    return drawing, axis, bars, left


def _rows(names, height):
    """Make a Figure with one horizontal row per name, the first on top."""
    drawing = figure(11, height)
    axis = drawing.subplots()
    axis.set(ylim=(len(names) - 0.4, -0.6), yticks=range(len(names)), yticklabels=names)
    axis.grid(visible=False, axis="y")
    return drawing, axis


def matrix(run):
    """Draw the bytes between all pairs of ranks in an epoch.

    If partial sums are recorded, they are drawn apart from rows.
    """
    sent = run.traffic
    if sent is None or not sent.any():
        return None

    pictures = {"Sent": sent}
    if run.sums is not None:
        pictures = {"Rows sent": sent - run.sums, "Partial sums sent": run.sums}
        pictures = {title: part for title, part in pictures.items() if part.any()}

    side = min(7.0 if len(pictures) == 1 else 5.0, 3.0 + 0.38 * len(sent))
    drawing = figure(len(pictures) * side + 1.6, side)
    axes = drawing.subplots(1, len(pictures), squeeze=False)[0]
    largest = max(part.max() for part in pictures.values())
    factor, unit = next(pair for pair in BYTES if largest >= pair[0])

    for axis, (title, part) in zip(axes, pictures.items()):
        picture = _bytes(axis, part, largest, factor)
        axis.set(title=f"{title} in one training step", xlabel="to rank", ylabel="from rank")
    drawing.colorbar(picture, ax=axes, label=unit, shrink=0.85)
    return drawing


def _bytes(axis, sent, largest, factor):
    """Draw the bytes from rank to rank, (P, P), as a colored matrix.

    If there are few ranks, it shows the numbers as well.
    """
    picture = axis.imshow(np.ma.masked_equal(sent / factor, 0), cmap="cividis", vmin=0,
                          vmax=largest / factor, interpolation="nearest")
    axis.set_facecolor("#f2f2f2")
    axis.grid(visible=False)
    if len(sent) > 12:
        axis.locator_params(integer=True)
        return picture
    for p, q in np.argwhere(sent).tolist():
        axis.text(q, p, digits(sent[p, q] / factor), ha="center", va="center", fontsize=9,
                  color="white" if sent[p, q] < 0.6 * largest else "black")
    axis.set(xticks=range(len(sent)), yticks=range(len(sent)))
    return picture


def timeline(trace):
    """Draw the events of all ranks in the middle step of a trace.

    The trace is one of `hpgcn.report.recorded_runs`.
    """
    # the middle epoch
    steps = np.char.startswith(trace["name"], "epoch ")
    epochs = np.unique(trace["epoch"][steps])
    if not epochs.size:
        return None
    middle = int(epochs[epochs.size // 2])
    here = trace["epoch"] == middle
    step = here & steps

    # times since the first rank began the step
    begin = trace["begin"][step].min()
    duration = trace["end"][step].max() - begin
    scale, unit = unit_of(duration)
    ranks, rows = np.unique(trace["rank"], return_inverse=True)
    low = (trace["begin"] - begin) * scale
    high = (trace["end"] - begin) * scale
    kinds = np.array([name.partition(",")[0] for name in trace["name"].tolist()])  # no stages
    over = np.zeros(len(ranks))
    over[rows[step]] = high[step]
    inside = here & ~steps & (low < over[rows])  # after its step a rank evaluates

    # a bar for each step, and one for each kind of work in it
    height = min(1.5 + 0.42 * len(ranks), 12)
    drawing, axis = _rows([f"rank {rank}" for rank in ranks], height)
    points = 0.8 * 72 * (height - 1.2) / len(ranks)  # height of a row in points
    axis.hlines(rows[step], low[step], high[step], colors="#ebebeb", linewidths=points,
                label="other")
    for kind, color in COLORS.items():
        chosen = inside & (kinds == kind)
        if chosen.any():
            axis.hlines(rows[chosen], low[chosen], high[chosen], colors=color, linewidths=points,
                        label=LABELS[kind])

    # axes
    axis.set(title=f"Timeline of epoch {middle}", xlim=(0, max(duration * scale, 1e-6)),
             xlabel=f"{unit} since the first rank began the step")
    if len(ranks) > 32:
        axis.set(yticks=[], ylabel=f"{len(ranks)} ranks, rank 0 on top")
    for handle in drawing.legend(loc="outside right center").legend_handles:
        handle.set_linewidth(8)
    return drawing
