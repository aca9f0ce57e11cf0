"""What lies at a path, in words: the text of `hpgcn inspect` for files, run directories and checkpoints."""
from __future__ import annotations

import shlex
import time
from pathlib import Path

from hpgcn import store
from hpgcn.checkpoint import NAME, Checkpoints, read_checkpoint
from hpgcn.config import Config
from hpgcn.errors import DataError, HpgcnError, InputNotFoundError, UsageError
from hpgcn.report import read_runs
from hpgcn.rundir import FILES
from hpgcn.store import words


def describe(path, *, verify=False):
    """Say what a file of hpgcn, a run directory, its folder of checkpoints or one of these holds, and what is next.

    Parameters
    ----------
    verify : bool
        Compare every checksum, of a run directory that of its model.

    Returns
    -------
    str
        Aligned lines, no line feed at the end.

    Raises
    ------
    InputNotFoundError, DataError, StorageError
        As `hpgcn.store.describe`; the folder is none of these, or a file in it is malformed.
    """
    folder = Path(path)
    try:
        is_folder = folder.is_dir()
        names = {entry.name for entry in folder.iterdir()} if is_folder else set()
    except (OSError, ValueError) as error:
        raise InputNotFoundError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not is_folder:
        return store.describe(path, verify=verify)
    if "state.h5" in names:
        return f"{_checkpoint(folder)}\n{store.describe(folder / 'state.h5', verify=verify)}"
    if any(map(NAME.fullmatch, names)):
        return store.table([("folder", str(path)), ("kind", "checkpoints of a run"), *_checkpoints(folder.parent)])
    if names & {"metrics.jsonl", "config.toml"}:
        return store.table([*_run(folder, names), *(_verified(folder, names) if verify else ())])
    raise DataError(f"{path}: is a folder, but no run directory (it has no config.toml and no metrics.jsonl) and no "
                    "checkpoint (it has no state.h5)")


def _checkpoint(folder):
    """Say whether a run can go on from a checkpoint."""
    try:
        read_checkpoint(folder)
    except HpgcnError as error:
        return f"{folder.name}: damaged, --resume leaves it out: {error}"
    return f"{folder.name}: sound, --resume goes on after it"


def _checkpoints(run):
    """A line for each checkpoint of a run directory."""
    folder = Checkpoints(run, None).path
    found = sorted(entry for entry in folder.iterdir() if NAME.fullmatch(entry.name)) if folder.is_dir() else []
    return [("checkpoint", _checkpoint(each)) for each in found]


def _verified(folder, names):
    """Read the files of a run directory that have checksums; StorageError if one does not match."""
    found = [name for name in ("model.h5", "predictions.h5") if name in names]
    for name in found:
        store.describe(folder / name, verify=True)
    return [("checksums", f"all match: {', '.join(found) or 'there are none'}")]


def _run(folder, names):
    """(label, text) pairs about a run directory."""
    run, = read_runs([folder])
    try:
        config = Config(**Config.from_toml(folder / "config.toml")) if "config.toml" in names else None
    except UsageError as error:
        raise DataError(str(error)) from error
    summary, done = run.summary, run.epochs
    at_most = f" of {config.epochs:,} at most" if config else ""
    ended = "finished" if summary else "not finished"
    checkpoints = _checkpoints(folder)
    return [
        ("folder", str(folder)), ("kind", f"run directory, {ended}"),
        ("epochs", f"{done:,}{at_most}{_why_ended(run, config)}"), *_figures(run),
        *(words.settings(config) if config else [("settings", "unknown: there is no config.toml")]),
        *(_circumstances(summary) if summary else []),
        ("when", _when(folder, summary)), *(checkpoints or [("checkpoint", "none")]),
        ("files", ", ".join(name for name in FILES if name in names)),
        *(("note", note) for note in run.notes),
        *(("next", line) for line in _next(folder, names, config, run, checkpoints))]


def _why_ended(run, config):
    """Say why fewer epochs were done than were asked for."""
    if not run.summary or not config or run.epochs >= config.epochs:
        return ""
    best = run.number("best_epoch") or 0
    impatient = config.patience and run.epochs - best >= config.patience
    return f", ended by patience {config.patience:,}" if impatient else ", ended early"


def _figures(run):
    """The best and the last epoch."""
    if not run.epochs:
        return [("best epoch", "none so far")]
    metrics = {name: column.tolist() for name, column in run.metrics.items()}
    best = run.best
    if best is None:
        said = "none so far: nothing was evaluated"
    else:
        said = f"{metrics['epoch'][best]:.0f}, " + words.accuracies({name: metrics[name][best] for name in metrics})
    seconds = run.median("epoch_s")
    return [("best epoch", said), ("loss", f"{metrics['loss'][-1]:.4f} in epoch {metrics['epoch'][-1]:.0f}"),
            ("seconds", "unknown" if seconds is None else f"{seconds:.4g} per epoch")]


def _circumstances(summary):
    """Data, ranks and versions of a finished run."""
    found = {name: summary.get(name, "unknown") for name in ("graph", "ranks", "threads", "device", "strategy", "grid")}
    known = summary.get("versions")
    return [("data", str(found["graph"])),
            ("ranks", f"{found['ranks']} x {found['threads']} threads on {found['device']}, strategy "
                      f"{found['strategy']}, grid {found['grid']}"),
            ("versions", words.versions(known if isinstance(known, dict) else {}))]


def _when(folder, summary):
    hosts = summary.get("hosts")
    on = f" on {', '.join(map(str, hosts))}" if isinstance(hosts, list) else ""
    last = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime((folder / "metrics.jsonl").stat().st_mtime))
    return f"started {summary['started_utc']}{on}, last epoch {last}" if "started_utc" in summary \
        else f"last epoch {last}"


def _next(folder, names, config, run, checkpoints):
    """Commands that a user may want now."""
    out, graph = shlex.quote(str(folder)), shlex.quote(config.graph if config and config.graph else "GRAPH")
    ranks = run.number("ranks") or 1
    train = f"{f'mpiexec -n {ranks:.0f} ' * (ranks > 1)}hpgcn train {graph} --out {out}"
    if not run.summary:
        yield f"{train} --resume    # {'goes on' if checkpoints else 'starts at epoch 1'}, if no job is at it now"
    if "model.h5" in names:
        yield f"hpgcn predict {out}"
    yield f"hpgcn report {out} --html report.html"
    if run.summary and checkpoints:
        yield f"{train} --resume --epochs {2 * run.epochs}    # trains longer"
