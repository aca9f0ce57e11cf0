"""Run directories, read back: settings, metrics by column, summary, communication matrix; half-written ones too."""
from __future__ import annotations

import io
import json
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hpgcn.errors import DataError, HpgcnError, InputNotFoundError
from hpgcn.files import read_bytes

COLUMNS = ("epoch", "loss", "train_acc", "val_acc", "test_acc", "val_loss", "epoch_s", "eval_s", "spmm_s", "dense_s",
           "comm_s", "wait_s", "sent_bytes", "sent_messages", "peak_rss_bytes")
REQUIRED = ("epoch", "loss")


@dataclass(eq=False)
class Run:
    """One run directory.

    Attributes
    ----------
    path : pathlib.Path
    name : str
        Unique among the runs that were read together; printable.
    settings : dict
        config.toml; empty if there is none.
    metrics : dict of (epochs,) float64
        Columns of metrics.jsonl; NaN where there is no number.
    summary : dict
        summary.json; empty while the run is not finished.
    traffic : (P, P) int64, or None
        Bytes that rank p sends rank q in one training step.
    notes : list of str
        What a reader should know, e.g. that the last line was half-written.
    """

    path: Path
    name: str
    settings: dict
    metrics: dict
    summary: dict
    traffic: np.ndarray | None = None
    notes: list = field(default_factory=list)

    @property
    def epochs(self):
        """Number of epochs with metrics."""
        return len(self.metrics["epoch"])

    def get(self, key):
        """A value of the summary, else of the settings, else None."""
        return self.summary.get(key, self.settings.get(key))

    def median(self, column):
        """Median of a column over epochs, None without numbers."""
        known = self.metrics[column][np.isfinite(self.metrics[column])]
        return float(np.median(known)) if known.size else None

    def number(self, key):
        """`get`, if it is a finite number; else None."""
        value = self.get(key)
        return value if isinstance(value, int | float) and math.isfinite(value) else None

    @property
    def best(self):
        """Place in the columns of the best epoch: highest validation accuracy, lowest loss, earliest; None if unknown.

        The summary's best epoch, when there is a summary.
        """
        found = np.flatnonzero(self.metrics["epoch"] == (self.number("best_epoch") or 0))
        if found.size:
            return int(found[0])
        val_acc, val_loss = (np.nan_to_num(self.metrics[name], nan=worst)
                             for name, worst in (("val_acc", -1.0), ("val_loss", math.inf)))
        return int(np.lexsort([val_loss, -val_acc])[0]) if np.isfinite(self.metrics["val_acc"]).any() else None


def read_runs(paths):
    """Read run directories.

    Parameters
    ----------
    paths : sequence of str or path-like

    Returns
    -------
    list of Run

    Raises
    ------
    InputNotFoundError
        There is nothing under a path, or a file cannot be opened.
    DataError
        It is no run directory, or a file in it is malformed: file, line and field are named.
    StorageError
        Reading failed.
    """
    runs = [_read_run(Path(path)) for path in paths]
    names = [run.name for run in runs]
    for run, path in zip(runs, paths):
        if names.count(run.name) > 1:
            run.name = printable(path)
    for number, run in enumerate(runs):  # the same directory twice
        if run.name in (other.name for other in runs[:number]):
            run.name += f" ({number + 1})"
    return runs


def printable(value):
    """Text on one line without control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def _read_run(path):
    try:
        there, folder = path.exists(), path.is_dir()
    except (OSError, ValueError) as error:
        raise InputNotFoundError(f"{path}: {error}") from error
    if not there:
        raise InputNotFoundError(f"{path}: no such run directory")
    if not folder:
        raise DataError(f"{path}: a file, expected a run directory (what `hpgcn train --out` made)")
    if not (path / "metrics.jsonl").exists():
        raise DataError(f"{path}: no run directory: it has no metrics.jsonl")
    notes = []
    metrics = _metrics(path / "metrics.jsonl", notes)
    summary = _optional(path / "summary.json", _json) or {}
    settings = _optional(path / "config.toml", tomllib.loads) or {}
    if not isinstance(summary, dict):
        raise DataError(f"{path / 'summary.json'}: {type(summary).__name__}, expected one JSON object")
    if not summary:
        notes.append(f"not finished: no summary.json after {len(metrics['epoch'])} epochs")
    run = Run(path, printable(path.resolve().name or path), settings, metrics, summary, notes=notes)
    if (path / "traffic.npy").exists():
        run.traffic = _traffic(path / "traffic.npy")
    return run


def _metrics(path, notes):
    lines = _text(path).splitlines(keepends=True)
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = _json(line)
        except ValueError as error:
            if number == len(lines) and not line.endswith("\n"):
                notes.append(f"metrics.jsonl: line {number} is half-written and left out")
                break
            raise DataError(f"{path}: line {number}: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}: line {number}: {type(row).__name__}, expected one JSON object")
        rows.append([_number(path, number, name, row.get(name)) for name in COLUMNS])
        if len(rows) > 1 and rows[-1][0] <= rows[-2][0]:
            raise DataError(f"{path}: line {number}: epoch {rows[-1][0]:g} after epoch {rows[-2][0]:g}, "
                            "expected increasing epochs")
    return dict(zip(COLUMNS, np.array(rows, np.float64).reshape(-1, len(COLUMNS)).T))


def _number(path, line, name, value):
    if value is None and name not in REQUIRED:
        return math.nan
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        pass
    raise DataError(f"{path}: line {line}: {name} is {printable(repr(value))[:60]}, expected a number")


def _json(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    except RecursionError as error:
        raise ValueError("not JSON that a run writes: nested too deeply") from error


def _text(path):
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8 text") from error


def _optional(path, parse):
    """Parse a file that need not be there; None if it is not."""
    if not path.exists():
        return None
    try:
        return parse(_text(path))
    except DataError:
        raise
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: {error}") from error


def read_trace(path):
    """The rank, epoch, name, begin and end of every complete event of a trace, and what the file says of itself.

    Returns
    -------
    events : dict
        rank, epoch (events,) int64; name (events,) str; begin, end (events,) float64, seconds. Events without an
        epoch are left out.
    notes : dict

    Raises
    ------
    DataError
        It is not what `hpgcn train --trace` writes.
    """
    trace = _optional(path, _json)
    try:
        rows = [(event["pid"], event["args"]["epoch"], event["ts"], event["dur"], event["name"])
                for event in trace["traceEvents"] if event["ph"] == "X" and "epoch" in event.get("args", ())]
        numbers = np.array([row[:4] for row in rows], np.float64).reshape(-1, 4)
        if not np.isfinite(numbers).all() or not all(isinstance(row[4], str) for row in rows):
            raise ValueError("an event of the trace lacks a name or a finite time")
        notes = dict(trace.get("otherData", {}))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(f"{path}: not a trace of `hpgcn train --trace`: {type(error).__name__}: {error}") from error
    rank, epoch = numbers[:, :2].astype(np.int64).T
    begin, duration = numbers[:, 2:].T / 1e6
    return {"rank": rank, "epoch": epoch, "name": np.array([row[4] for row in rows], str), "begin": begin,
            "end": begin + duration}, notes


def _traffic(path):
    try:
        matrix = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
    except HpgcnError:
        raise
    except (ValueError, EOFError) as error:
        raise DataError(f"{path}: not a .npy file: {error}") from error
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or not (
            matrix.shape[0] == matrix.shape[1] > 0 and matrix.dtype.kind in "iu" and matrix.min() >= 0):
        raise DataError(f"{path}: expected a square matrix of integers >= 0, one row and one column a rank")
    return matrix.astype(np.int64)
