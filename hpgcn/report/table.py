"""The table over runs: one row a run, for the terminal and for HTML."""
from __future__ import annotations

import math

import numpy as np

from hpgcn.errors import printable

HEADINGS = ("run", "graph", "strategy", "ranks", "threads", "epochs", "best epoch", "val acc %", "test acc %",
            "s/epoch", "spmm s", "dense s", "comm s", "wait s", "MB sent", "peak GB")
TEXTS = 3  # columns that are set to the left
LEGEND = ("Seconds are medians over epochs of one training step; spmm, dense, comm and wait are each the maximum over "
          "ranks. MB sent: all ranks, one step (10^6 bytes). peak GB: the rank that needs most (10^9 bytes).")


def cells(run):
    """A row of texts, one for each of HEADINGS; "-" where nothing is known."""
    best, metrics = run.best, run.metrics
    val, test = ((None, None) if best is None else (metrics["val_acc"][best], metrics["test_acc"][best]))
    graph = run.get("graph") if run.summary else str(run.get("graph") or "").rsplit("/", 1)[-1]
    peak = np.nanmax(metrics["peak_rss_bytes"], initial=0)
    return [run.name, printable(graph or "-"), printable(run.get("strategy") or "-"),
            _cell(run.summary.get("ranks"), "d"), _cell(run.number("threads") or None, "d"), _cell(run.epochs, "d"),
            _cell(None if best is None else metrics["epoch"][best], ".0f"),
            *(_cell(None if value is None else 100 * value, ".2f") for value in (val, test)),
            *(_cell(run.median(f"{name}_s"), ".3g") for name in ("epoch", "spmm", "dense", "comm", "wait")),
            _cell(_scaled(run.median("sent_bytes"), 1e-6), ",.3f"), _cell(_scaled(peak or None, 1e-9), ".2f")]


def table(runs):
    """The table as aligned text, with the notes on each run and what the columns say.

    Parameters
    ----------
    runs : list of Run

    Returns
    -------
    str
    """
    rows = [HEADINGS, *map(cells, runs)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(cell.ljust(width) if place < TEXTS else cell.rjust(width)
                       for place, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows]
    lines.insert(1, "-" * max(map(len, lines)))
    notes = [f"{run.name}: {note}" for run in runs for note in run.notes]
    return "\n".join([*lines, "", LEGEND, *notes])


def _scaled(value, factor):
    return None if value is None else value * factor


def _cell(value, form):
    try:
        return "-" if value is None or math.isnan(value) else format(value, form)
    except (TypeError, ValueError):
        return printable(value)
