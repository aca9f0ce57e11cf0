"""Read run directories, including those of unfinished runs."""
from __future__ import annotations

import functools
import io
import math
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.config import toml_values
from hpgcn.errors import (
    DataError,
    HpgcnError,
    InputNotFoundError,
    MissingError,
    UsageError,
    printable,
)
from hpgcn.runtime.files import check_path, read_bytes
from hpgcn.runtime.text_table import html_list
from hpgcn.setting_words import ERRORS, LABEL_METRICS, LINK_METRIC, TARGET_METRICS
from hpgcn.store import check_fields, parse_json, read_json, read_lines, read_model_classes
from hpgcn.training.files.records import METRICS, PART_SECONDS, SCORES, TARGET_FIELDS, read_summary
from hpgcn.training.files.result import summary_pairs
from hpgcn.training.files.run_directory import read_run as read_model_of_run

if TYPE_CHECKING:
    import pandas

FIELDS = {name: kind if name in ("epoch", "loss") else kind._replace(optional=True)
          for name, kind in (METRICS | PART_SECONDS).items()}
METRIC_NAMES = (*LABEL_METRICS, *TARGET_METRICS)
MAX_TRACE = 1 << 30  # bytes
MOST_EVENT = [2**31, 2**53, 1e15, 1e15]  # rank, epoch, microseconds from when and for how long


@dataclass(eq=False)
class Run:
    """A recorded run, read from its directory; docs/files.md describes each file."""

    path: Path
    name: str  # unique among the runs that were read together; printable
    settings: dict[str, Any]  # config.toml; empty if missing
    metrics: dict[str, np.ndarray]  # columns of metrics.jsonl, (epochs,) float64; NaN for null
    summary: dict[str, Any]  # summary.json; empty while the run is not finished
    traffic: np.ndarray | None = None  # (P, P) int64: bytes from p to q in one training step
    sums: np.ndarray | None = None  # the same of partial sums; None in older runs
    notes: list = field(default_factory=list)  # for readers: the last line was half-written...
    class_names: tuple[str, ...] | None = None  # as model.h5 has them

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.epochs} epochs{', unfinished' * (not self.summary)})"

    def __fspath__(self) -> str:
        """Return the path, so that `hpgcn.predict(graph, run)` takes a Run as well."""
        return os.fspath(self.path)

    @functools.cached_property
    def stored_model(self) -> tuple[dict, ...]:
        """Weights, settings and attributes of model.h5, three dicts; read once."""
        return read_model_of_run(self.path)

    def _repr_html_(self) -> str:
        return html_list(f"run {self.name}", summary_pairs(self.get, self.epochs))

    @property
    def epochs(self) -> int:
        """Number of epochs in the metrics."""
        return len(self.metrics["epoch"])

    @property
    def frame(self) -> pandas.DataFrame:
        """Metrics as a pandas table with one row per epoch.

        Raise a MissingError without pandas.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingError("Run.frame needs pandas: pip install pandas; Run.metrics are arrays"
                               ) from error
        return pandas.DataFrame(self.metrics).astype({"epoch": int}).set_index("epoch")

    @property
    def metric(self) -> str:
        """Name of the metric in the columns val_acc and test_acc; "score" if unknown."""
        known = [name for name in (self.summary.get("metric"), self.settings.get("metric"))
                 if isinstance(name, str) and (name in METRIC_NAMES or LINK_METRIC.fullmatch(name))]
        unknown = "rmse" if "val_rmse" in self.metrics else "score"  # a run with metric auto
        if self.settings.get("task") == "links":
            unknown = "auc"
        return known[0] if known else unknown

    def get(self, key: str) -> Any:
        """Return the value of `key` from the summary, else from the settings, else None."""
        return self.summary.get(key, self.settings.get(key))

    def number(self, key: str) -> float | None:
        """Return the result of `get` if it is a finite number, else None."""
        value = self.get(key)
        return value if isinstance(value, int | float) and math.isfinite(value) else None

    def median(self, column: str) -> float | None:
        """Return the median of a column over all epochs; None if it has no numbers."""
        known = self.metrics[column][np.isfinite(self.metrics[column])]
        return float(np.median(known)) if known.size else None

    @property
    def best(self) -> int | None:
        """Index of the best epoch in the metrics.

        It is the one in the summary, or else the one with the best validation metric.
        """
        known = np.flatnonzero(self.metrics["epoch"] == (self.number("best_epoch") or 0))
        if known.size:
            return int(known[0])
        if not np.isfinite(self.metrics["val_acc"]).any():
            return None
        sign = -1 if self.metric in ERRORS else 1
        value = np.nan_to_num(sign * self.metrics["val_acc"], nan=-math.inf)
        loss = np.nan_to_num(self.metrics["val_loss"], nan=math.inf)
        return int(np.lexsort([loss, -value])[0])


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read a run directory, finished or not: settings, metrics as arrays, summary.

    Raises
    ------
    InputNotFoundError
        There is nothing under the path, or a file cannot be opened.
    DataError
        The path is no run directory, or a file in it is malformed; the message names
        file, line and field.

    Examples
    --------
    >>> import os, tempfile
    >>> A = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))  # two triangles
    >>> y, masks = [0, 0, 0, 1, 1, 1], ([0, 3], [1, 4], [2, 5])
    >>> graph = hpgcn.Graph.from_scipy(A, np.eye(6), y, masks)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     out = os.path.join(folder, "run")
    ...     result = hpgcn.train(graph, hpgcn.Config(hidden=4, epochs=3, out=out))
    ...     run = hpgcn.read_run(out)
    >>> run.name, run.summary["epochs"], run.metrics["epoch"]
    ('run', 3, array([1., 2., 3.]))
    """
    # `read_runs` would change only a name that occurs twice
    run, = read_runs([path])
    return run


def read_runs(paths):
    """Read run directories; return a list of Run.

    InputNotFoundError if the path does not exist, or a file cannot be opened. DataError
    if it is no run directory, or a file in it is malformed (file, line and field are
    named).
    """
    runs = [_read_run(Path(check_path(path))) for path in paths]
    names = [run.name for run in runs]
    for run, path in zip(runs, paths):
        if names.count(run.name) > 1:
            run.name = printable(path)
    for number, run in enumerate(runs):  # the same directory twice
        if run.name in (other.name for other in runs[:number]):
            run.name += f" ({number + 1})"
    return runs


def _read_run(path):
    # refuse what is not a run directory
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a name with a NUL byte
        raise InputNotFoundError(f"{path}: no such run directory") from None
    except OSError as error:
        raise InputNotFoundError(f"{path}: {error.strerror}") from error
    if not is_folder:
        raise DataError(f"{path}: is a file, expected a run directory (written by `hpgcn train "
                        "--out`)")
    if not (path / "metrics.jsonl").exists():
        raise DataError(f"{path}: not a run directory: it has no metrics.jsonl")

    # metrics and summary
    notes = []
    metrics = _metrics(path / "metrics.jsonl", notes)
    summary = read_summary(path, whole=False) or {}
    if not summary:
        notes.append(f"not finished: no summary.json after {len(metrics['epoch'])} epochs")
    settings = _settings(path / "config.toml")

    # traffic between ranks
    traffic, sums = (_traffic(path / name) for name in ("traffic.npy", "sums.npy"))
    if sums is not None and (traffic is None or sums.shape != traffic.shape
                             or (sums > traffic).any()):
        raise DataError(f"{path / 'sums.npy'}: does not match traffic.npy")
    name = printable(path.resolve().name or path)
    names = _class_names(path / "model.h5", notes)
    return Run(path, name, settings, metrics, summary, traffic, sums, notes, names)


def _class_names(path, notes):
    if not path.exists():
        return None
    try:
        return read_model_classes(path)
    except HpgcnError as error:
        notes.append(f"names of classes are not read: {error}")
        return None


def _metrics(path, notes):
    rows, fields = [], FIELDS
    for number, line in read_lines(path):
        where = f"{path}: line {number}"
        try:
            row = parse_json(line, where)
        except DataError:
            if line.endswith(b"\n"):
                raise
            notes.append(f"metrics.jsonl: line {number} is incomplete and skipped")
            break

        if not rows and TARGET_FIELDS.keys() <= row.keys():
            fields = FIELDS | TARGET_FIELDS | SCORES
        row = {**dict.fromkeys(fields), **row}
        check_fields(row, fields, where)
        if rows and row["epoch"] <= rows[-1][0]:
            raise DataError(f"{where}: epoch {row['epoch']} after epoch {rows[-1][0]:g}, expected "
                            "increasing epochs")
        rows.append([row[name] for name in fields])

    columns = np.array(rows, np.float64).reshape(-1, len(fields)).T  # None becomes NaN
    return dict(zip(fields, np.where(np.isfinite(columns), columns, np.nan)))


def _settings(path):
    if not path.exists():
        return {}
    try:
        return toml_values(read_bytes(path), path)
    except UsageError as error:
        raise DataError(str(error)) from error


def _traffic(path):
    if not path.exists():
        return None
    try:
        matrix = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
    except HpgcnError:
        raise
    except (ValueError, EOFError, MemoryError) as error:
        raise DataError(f"{path}: not a .npy file: {error}") from error
    square = isinstance(matrix, np.ndarray) and matrix.ndim == 2 and len(set(matrix.shape)) == 1
    if not square or not matrix.size or matrix.dtype.kind not in "iu" or matrix.min() < 0:
        raise DataError(f"{path}: expected a square matrix of integers >= 0, one row and one "
                        "column per rank")
    return matrix.astype(np.int64)


def read_trace(path):
    """Read the complete events and the metadata of a trace file as two dicts.

    The events are rank, epoch (events,) int64; name (events,) str; begin, end (events,)
    float64, seconds; those without an epoch are left out. DataError for anything else.
    """
    # keep spans that belong to an epoch
    trace = read_json(path, MAX_TRACE)
    try:
        rows = [(event["pid"], event["args"]["epoch"], event["ts"], event["dur"], event["name"])
                for event in trace["traceEvents"]
                if event["ph"] == "X" and "epoch" in event.get("args", ())]

        numbers = np.array([row[:4] for row in rows], np.float64).reshape(-1, 4)
        names = [row[4] for row in rows]
        if not (np.abs(numbers) <= MOST_EVENT).all() or {*map(type, names)} - {str}:
            raise ValueError("an event lacks a name, or has an invalid rank, epoch or time")
        notes = dict(trace.get("otherData", {}))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(f"{path}: not a trace of `hpgcn train --trace`: {type(error).__name__}: "
                        f"{error}") from error

    rank, epoch = numbers[:, :2].astype(np.int64).T
    begin, duration = numbers[:, 2:].T / 1e6
    return {"rank": rank, "epoch": epoch, "name": np.array(names, str), "begin": begin,
            "end": begin + duration}, notes
