"""`hpgcn report --breakdown FILE`: the time of an epoch by kind of work, one stacked bar per run.

The layout is that of Figure 5 of MG-GCN (2021). Each kind is a mean over ranks, counted
without overlap. The remaining time of the slowest rank is "other": Python, and
differences between ranks. A bar is thus as long as the epoch.
"""
import numpy as np

from hpgcn.errors import DataError
from hpgcn.report import look
from hpgcn.report.comparison import check_picture, plot
from hpgcn.report.figures import stacked_bars
from hpgcn.runtime.clock import PARTS

FLAG = "--breakdown"
OTHER = "other"
COLORS = ("#0072B2", "#E69F00", "#F0E442", "#D55E00", "#8C510A", "#F6C27A", "#009E73", "#005C43",
          "#66C2A5", "#B2DF8A", "#B0B0B0", "#E5E5E5")


def check_breakdown(path):
    """Refuse a suffix that is not one of pictures, and a missing matplotlib."""
    check_picture(path, FLAG)


def write_breakdown(runs, path):
    """Draw a bar for each run.

    Raise DataError if a run has not recorded the parts of an epoch.
    """
    plot([(run, parts_of(run)) for run in runs], path, make_figure, FLAG)


def parts_of(run):
    """Return the seconds per epoch of each kind of work, by label.

    Their sum is the time of an epoch. They are means over the middle half of the
    epochs, sorted by time, so that slow epochs do not count.
    """
    # epochs with all numbers
    columns = np.array([run.metrics[f"mean_{part}_s"] for part in PARTS])
    whole = run.metrics["epoch_s"]
    known = np.flatnonzero(np.isfinite(columns).all(axis=0) & np.isfinite(whole))
    if not known.size:
        raise DataError(f"{run.path}: no epoch says how its time divides; train again with this "
                        "version of hpgcn")

    # the middle half
    known = known[np.argsort(whole[known], kind="stable")]
    quarter = known.size // 4
    middle = known[quarter:known.size - quarter]
    seconds = columns[:, middle].mean(axis=1)
    rest = whole[middle].mean() - seconds.sum()
    return {**dict(zip(PARTS.values(), seconds.tolist())), OTHER: max(0.0, float(rest))}


def make_figure(rows):
    """Plot the results of `parts_of` as bars; return a Figure.

    Bars of all runs are labeled with their lengths.
    """
    scale, unit = look.unit_of(max(sum(parts.values()) for _, parts in rows))
    parts = {label: [scale * each[label] for _, each in rows] for label in rows[0][1]}
    drawing, axis, bars, ends = stacked_bars([run for run, _ in rows], parts, COLORS,
                                                     1.6 + 0.05 * len(COLORS))
    axis.set(title="Time of an epoch", xlabel=f"{unit}, mean over ranks")
    axis.bar_label(bars, map(look.digits, ends), padding=4)
    drawing.legend(loc="outside right center")
    return drawing
