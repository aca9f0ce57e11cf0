"""The runs of a sweep in a report: their folder, their table, and a picture of each setting."""
import math
import os

import numpy as np

from hpgcn.config import SETTINGS
from hpgcn.report import look
from hpgcn.setting_words import TARGET_METRICS
from hpgcn.training.run_grid import FIXED, REPEATS
from hpgcn.training.sweep_table import SCORES, Sweep, value_order

RECORD = "metrics.jsonl"  # every run directory has it
PANEL = 3.6  # inches
COLUMNS = 3  # panels side by side


def expanded(paths):
    """Return the paths of runs, and the number of folders that hold them.

    A folder that is no run directory stands for all run directories below it.
    """
    found, folders = [], 0
    for path in paths:
        inside = []
        if os.path.isdir(path) and not os.path.exists(os.path.join(path, RECORD)):
            inside = sorted(folder for folder, _, files in os.walk(path) if RECORD in files)
        folders += bool(inside)
        found += inside or [path]
    return found, folders


def sweep_of(runs):
    """Return the Sweep of finished runs on one graph, or None if they differ in no setting."""
    done = [run for run in runs if run.summary and run.settings]
    if len({(run.get("graph"), run.metric) for run in done}) != 1:
        return None
    varied = [name for name in SETTINGS if name not in (*FIXED, *REPEATS)
              and len({str(run.settings.get(name)) for run in done}) > 1]
    rows = [{**run.summary, **{name: run.settings.get(name) for name in (*REPEATS, *varied)}}
            for run in done]
    rows.sort(key=lambda row: [value_order(row[name]) for name in (*varied, *REPEATS)])
    return Sweep(varied, rows) if varied else None


def panels(found):
    """Draw the validation results of a Sweep over the values of each setting; a Figure.

    A dot is a run, the line joins the means of values, and a ring marks the best
    combination.
    """
    factor = 1 if found.metric in TARGET_METRICS else 100
    columns = min(len(found.varied), COLUMNS)
    lines = math.ceil(len(found.varied) / columns)
    drawing = look.figure(1.2 + PANEL * columns, 0.6 + 2.9 * lines)
    axes = drawing.subplots(lines, columns, sharey=True, squeeze=False)
    score = next(iter(SCORES))
    known = [row for row in found if row.get(score) is not None]
    best = found.best

    for axis, name in zip(axes.flat, found.varied):
        values = sorted({row[name] for row in found}, key=value_order)
        place = {value: number for number, value in enumerate(values)}
        axis.plot([place[row[name]] for row in known], [factor * row[score] for row in known], "o",
                  color=look.PALETTE[0], alpha=0.35, markersize=5)
        groups = [[row[score] for row in known if row[name] == value] for value in values]
        axis.plot(range(len(values)),
                  [factor * np.mean(group) if group else math.nan for group in groups],
                  color=look.PALETTE[0], linewidth=1.6)
        if best is not None:
            axis.plot(place[best[name]], factor * best[score]["mean"], "o", markersize=9,
                      markerfacecolor="none", markeredgewidth=1.8, color=look.PALETTE[1])
        axis.set(xlabel=name.replace("_", "-"), xlim=(-0.5, len(values) - 0.5))
        axis.set_xticks(range(len(values)), [look.truncate(str(value), 14) for value in values])
    for axis in axes.flat[len(found.varied):]:
        axis.set_visible(False)
    unit = ", %" * (factor != 1)
    for axis in axes[:, 0]:
        axis.set_ylabel(f"validation {found.metric}{unit}")
    return drawing
