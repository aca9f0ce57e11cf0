"""Describe a path: `hpgcn inspect` of files, run directories and checkpoints."""

import shlex
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from hpgcn import store
from hpgcn.cli.inspect_files import (
    RANKS,
    classes,
    describe_file,
    scores,
    settings,
    versions,
)
from hpgcn.config import Config
from hpgcn.errors import DataError, HpgcnError, InputNotFoundError, UsageError
from hpgcn.report import expanded, read_runs
from hpgcn.runtime.advice import resume_command
from hpgcn.runtime.text_table import label_list
from hpgcn.training.files.run_directory import FILES
from hpgcn.training.saved.checkpoint import NAME, Checkpoints, read_checkpoint


def describe(path, *, verify=False):
    """Describe a file, a run or a checkpoint; name the next command.

    `verify` compares every checksum; in a run directory those of its model. DataError
    for other files.
    """
    folder = Path(path)
    try:
        is_folder = folder.is_dir()
        names = {entry.name for entry in folder.iterdir()} if is_folder else set()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputNotFoundError(f"{path}: {reason}") from error

    # a folder: a checkpoint, checkpoints of a run, or a run
    if not is_folder:
        return describe_file(path, verify=verify)
    if "state.h5" in names:
        return f"{_checkpoint(folder)}\n{describe_file(folder / 'state.h5', verify=verify)}"
    if any(map(NAME.fullmatch, names)):
        return label_list([("folder", path), ("kind", "checkpoints of a run"),
                           *_checkpoints(folder.parent)])
    if names & {"metrics.jsonl", "config.toml"}:
        return label_list([*_run(folder, names), *(_verified(folder, names) if verify else ())])
    runs, _ = expanded([path])
    if len(runs) > 1:
        raise DataError(f"{path}: a folder of {len(runs)} runs: compare them with `hpgcn report "
                        f"{path}`, or inspect one of them")
    raise DataError(f"{path}: neither a run directory (no config.toml or metrics.jsonl) nor a "
                    "checkpoint (no state.h5)")


def _checkpoint(folder):
    """Return a text that says whether a run can resume from this checkpoint."""
    try:
        read_checkpoint(folder)
    except HpgcnError as error:
        return f"{folder.name}: damaged, --resume skips it: {error}"
    return f"{folder.name}: valid, --resume continues after it"


def _saved(run):
    folder = Checkpoints(run, None).path
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return [entry for entry in entries if NAME.fullmatch(entry.name)]


def _checkpoints(run):
    return [("checkpoint", _checkpoint(folder)) for folder in _saved(run)]


def _verified(folder, names):
    """Verify the checksums of the files in a run directory.

    Raise a StorageError if one does not match.
    """
    checked = [name for name in ("model.h5", "predictions.h5") if name in names]
    for name in checked:
        describe_file(folder / name, verify=True)
    yield "checksums", f"all match: {', '.join(checked) or 'there are none'}"


def _run(folder, names):
    # read all before the first line is printed
    run, = read_runs([folder])
    config = None
    if "config.toml" in names:
        try:
            config = Config.from_toml(folder / "config.toml")
        except UsageError as error:
            raise DataError(str(error)) from error
    checkpoints = _checkpoints(folder)

    # the run and its end
    yield "folder", folder
    yield "kind", f"run directory, {'' if run.summary else 'not '}finished"
    yield "epochs", _epochs(run, config.epochs, config.patience) if config else f"{run.epochs:,}"
    yield from _figures(run)

    # settings and circumstances
    if config:
        yield from settings(config)
    else:
        yield "settings", "unknown: there is no config.toml"
    if run.summary:
        yield from _circumstances(run.summary)
    yield from classes(run.class_names or ())
    yield "when", _when(folder, run.summary)
    yield from checkpoints or [("checkpoint", "none")]

    # the next commands
    yield "files", ", ".join(name for name in FILES if name in names)
    for note in run.notes:
        yield "note", note
    for command in _next(folder, names, config and config.graph, run, checkpoints):
        yield "next", command


def _epochs(run, most, patience):
    text = f"{run.epochs:,} of {most:,} at most"
    if not run.summary or run.epochs >= most:
        return text
    if patience and run.epochs - (run.number("best_epoch") or 0) >= patience:
        return f"{text}, ended by patience {patience:,}"
    return f"{text}, ended early"


def _figures(run):
    if not run.epochs:
        yield "best epoch", "none so far"
        return
    metrics = {name: column.tolist() for name, column in run.metrics.items()}
    if run.best is None:
        yield "best epoch", "none so far: nothing was evaluated"
    else:
        best = {name: column[run.best] for name, column in metrics.items()}
        yield "best epoch", f"{best['epoch']:.0f}, {scores(best, run.metric)}"
    yield "loss", f"{metrics['loss'][-1]:.4f} in epoch {metrics['epoch'][-1]:.0f}"
    seconds = run.median("epoch_s")
    yield "seconds", "unknown" if seconds is None else f"{seconds:.4g} per epoch"


def _circumstances(summary):
    facts = defaultdict(lambda: "unknown", summary)
    yield "data", facts["graph"]
    yield "ranks", RANKS.format_map(facts)
    yield "versions", versions(facts["versions"])


def _when(folder, summary):
    seconds = (folder / "metrics.jsonl").stat().st_mtime
    last = f"last epoch {time.strftime('%Y-%m-%dT%H:%M:%S+00:00', time.gmtime(seconds))}"
    if "started_utc" not in summary:
        return last
    hosts = summary.get("hosts")
    where = f" on {', '.join(map(str, hosts))}" if isinstance(hosts, list) else ""
    return f"started {summary['started_utc']}{where}, {last}"


def _ranks(folder, graph, run):
    """Return the number of ranks of a run: its own, else the parts of its graph."""
    if run.number("ranks"):
        return int(run.number("ranks"))
    for saved in _saved(folder):
        with suppress(HpgcnError):
            return read_checkpoint(saved)[0].provenance["ranks"]
    with suppress(HpgcnError), store.load(graph) as source:
        return 1 if source.offsets is None else len(source.offsets) - 1
    return 1


def _next(folder, names, graph, run, checkpoints):
    out = shlex.quote(str(folder))
    processes = int(run.number("processes") or run.summary.get("in_process") is True) or None
    train = resume_command(graph, folder, _ranks(folder, graph, run), processes)

    if not run.summary:
        where = "continues" if checkpoints else "starts at epoch 1"
        yield f"{train}    # {where}, if no job is running"
    if "model.h5" in names:
        yield f"hpgcn predict {out}" + " --top 10" * (run.get("task") == "links")
    yield f"hpgcn report {out} --html report.html"
    if run.summary and checkpoints:
        yield f"{train} --epochs {2 * run.epochs}    # trains longer"
