"""The table of runs: one row per run, for the terminal and for HTML."""

import math

import numpy as np

from hpgcn.errors import printable
from hpgcn.runtime import text_table
from hpgcn.runtime.text_table import join_first_names
from hpgcn.setting_words import score

WORK = ("spmm", "dense", "comm", "wait")  # kinds of work, each timed in a column of the metrics
HEADINGS = ("run", "graph", "model", "layers x hidden", "strategy", "ranks", "threads", "epochs",
            "best epoch", "metric", "val", "test", "s/epoch", *(f"{kind} s" for kind in WORK),
            "MB sent", "peak GB")
TEXTS = range(5)  # columns that are set to the left
LEGEND = (
    "Seconds are medians of training steps over epochs; spmm, dense, comm and wait are each the "
    "maximum over ranks. MB sent: all ranks, per epoch (10^6 bytes). peak GB: the rank with the "
    "highest peak (10^9 bytes).")
SPEEDUP = "speed-up: s/epoch of {}, over that of the run."


def cells(run):
    """Return the texts of a run's row in the table, one for each of HEADINGS.

    A text is "-" if its value is unknown.
    """
    epoch = val_acc = test_acc = None
    if run.best is not None:
        epoch, val_acc, test_acc = (
            run.metrics[name][run.best] for name in ("epoch", "val_acc", "test_acc"))

    graph = run.get("graph") or "-"
    if not run.summary:  # the settings have a path
        graph = str(graph).rsplit("/", 1)[-1]
    widths = "-"
    if {"layers", "hidden"} <= run.settings.keys():
        widths = f"{run.settings['layers']} x {run.settings['hidden']}"

    peak = np.nanmax(run.metrics["peak_rss_bytes"], initial=0)
    return [
        run.name, printable(graph), printable(run.get("model") or "-"), printable(widths),
        printable(run.get("strategy") or "-"),
        _cell(run.summary.get("ranks"), "d"), _cell(run.number("threads") or None, "d"),
        _cell(run.epochs, "d"), _cell(epoch, ".0f"), printable(run.metric),
        _score(val_acc, run.metric), _score(test_acc, run.metric),
        *(_cell(run.median(f"{name}_s"), ".3g") for name in ("epoch", *WORK)),
        _cell(run.median("sent_bytes"), ",.3f", 1e-6), _cell(peak or None, ".2f", 1e-9)]


def rows_of(runs, reference=None):
    """Return the rows of the table, with the headings as the first row.

    With a `reference`, a Run, the last column is the speedup of each run: the
    reference's seconds over the run's.
    """
    rows = [[*HEADINGS], *map(cells, runs)]
    if reference is not None:
        seconds = reference.median("epoch_s")
        rows[0].append("speed-up")
        for row, run in zip(rows[1:], runs):
            own = run.median("epoch_s")
            row.append(_cell(seconds / own if seconds and own else None, ".2f"))
    return rows


def table(runs, reference=None):
    """Return the table as aligned text, with its legend, the names of classes, and notes."""
    notes = [printable(f"{run.name}: classes {join_first_names(run.class_names)}") for run in runs
             if run.class_names]
    notes += [f"{run.name}: {note}" for run in runs for note in run.notes]
    if reference is not None:
        notes.insert(0, SPEEDUP.format(reference.name))
    text = text_table.table(rows_of(runs, reference), left=TEXTS, rule=True, keys=1)
    return "\n".join([text, "", LEGEND, *notes])


def _score(value, metric):
    return "-" if value is None or math.isnan(value) else score(float(value), metric)


def _cell(value, style, factor=1):
    try:
        return "-" if value is None or math.isnan(value) else format(value * factor, style)
    except (TypeError, ValueError):
        return printable(value)
