"""Run directories: settings, metrics, summary, model, checkpoints.

The files are config.toml, metrics.jsonl, summary.json, model.h5 and a folder. Only rank
0 writes them; docs/files.md defines their contents.
"""
from __future__ import annotations

import errno
import fcntl
import functools
import json
import logging
import os
import platform
from contextlib import ExitStack, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn import store
from hpgcn.config import Config, parse_toml
from hpgcn.errors import (
    COMMAND_LINE,
    DataError,
    HpgcnError,
    InputNotFoundError,
    OutputError,
    StorageError,
    UsageError,
    setting,
)
from hpgcn.graphs.contents import NAMED
from hpgcn.runtime import faults
from hpgcn.runtime.files import open_each, replaced
from hpgcn.runtime.temporary import NAME as LEFT
from hpgcn.runtime.temporary import remove
from hpgcn.training.files.records import read_history

if TYPE_CHECKING:
    pass

log = logging.getLogger("hpgcn")
FILES = ("config.toml", "metrics.jsonl", "summary.json", "model.h5", "predictions.h5", "trace.json",
         "traffic.npy", "sums.npy")
PARTITIONS = "partitions"  # folder of those that could not be kept beside their graph
LONGEST = Path("checkpoints", "0" * 64, "0" * 64)  # no name that a run creates is longer
NAME_BYTES = 100  # bytes of a graph's name, in the name of a run directory
OURS = {"overwrite": True, "follow": False}  # a file of the run is replaced, a link not followed


def refuse_existing_run(path: Path | str, overwrite: bool) -> None:
    """Raise OutputError if the run directory exists already.

    A file is refused, and so is a directory that is not empty, unless `overwrite`. Files
    that a killed process left do not count. It is also refused if it cannot be read, or
    if a name in it is too long for the file system.
    """
    path = Path(path)

    # refuse a file, or a directory in use
    try:
        if _exists(path) and not path.is_dir():
            raise OutputError(f"{path}: exists and is not a directory")
        in_use = _exists(path) and not all(
            each.name == PARTITIONS or LEFT.fullmatch(each.name) for each in path.iterdir())
        if in_use and not overwrite:
            raise OutputError(f"{path}: run directory exists; {setting('resume')} continues it, "
                              f"{setting('overwrite', True)} replaces it; or choose another "
                              f"{setting('out')}")

        # refuse names that the file system cannot store
        anchor = next(folder for folder in (path, *path.parents) if folder.exists())
        longest = path / LONGEST
        longest_name = max(len(os.fsencode(name)) for name in longest.parts)
        if (len(os.fsencode(longest)) >= os.pathconf(anchor, "PC_PATH_MAX")
                or longest_name > os.pathconf(anchor, "PC_NAME_MAX")):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    except OutputError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"{path}: cannot be created: {reason}") from error


def refuse_inputs(path: str, *inputs: str | None) -> None:
    """Raise UsageError if a run in the directory would replace one of these files.

    None and the empty text are ignored.
    """
    with replaced(*(Path(path, name) for name in FILES)):
        open_each(*filter(None, inputs))


def check_files(run: str) -> None:
    """Open each file of a run directory, given as it or its model.h5; errors as `reading`."""
    folder = run if os.path.isdir(run) else os.path.dirname(run)
    open_each(*(os.path.join(folder, name) for name in FILES))


def _exists(path: Path) -> bool:
    """Return Path.exists, but raise if the path is too long or forbidden."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


class RunDirectory:
    """Creates the directory config.out and records a run in it; a context manager.

    The directory is locked until the end of the block (flock), on file systems that
    can. No other job can resume in it, or overwrite it. `overwrite` replaces an earlier
    run's files; whatever else lies in the directory stays. `after` is the line of
    metrics.jsonl of the epoch to go on after: the directory is kept, and the file cut
    back to it. An OutputError if it exists and overwrite is False, it cannot be
    created, or another job writes to it.
    """

    def __init__(self, config: Config, *, overwrite: bool = False,
                 after: dict[str, Any] | None = None) -> None:
        self.config = config
        self.path = Path(config.out)
        self.history = []  # lines of metrics.jsonl that were kept, that of `after` the last
        refuse_existing_run(self.path, overwrite or after is not None)

        try:
            with ExitStack() as held:
                new = not self.path.exists()
                try:
                    self._open(after, held)
                except StorageError:
                    if new:
                        self._remove()
                    raise
                self._held = held.pop_all()  # an error before this releases everything
        except HpgcnError:
            raise
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be created: {error.strerror}") from error

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def _remove(self) -> None:
        """Remove a new directory that could not be filled; it must still be locked."""
        with suppress(OSError):
            for name in FILES:
                remove(self.path / name)
            self.path.rmdir()

    def _open(self, after: dict[str, Any] | None, held: ExitStack) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        held.callback(os.close, folder)
        self._lock(folder)

        # check all files before the first one is removed
        for name in FILES:
            store.refuse_existing(self.path / name, **OURS)
        for name in (*FILES, "checkpoints") if after is None else ("summary.json",):
            remove(self.path / name)

        self._write("config.toml", self.config.to_toml())
        if after is not None:
            self._cut(after)
        self._write("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in self.history))

        file = open(self.path / "metrics.jsonl", "a", opener=_unfollowed)  # noqa: SIM115
        self.metrics = held.enter_context(file)

    def _lock(self, folder: int) -> None:
        """Lock the directory itself: the lock ends with the process."""
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(f"{self.path}: another job writes to it; wait for its end, or choose "
                              f"another {setting('out')}") from error
        except OSError as error:
            log.debug("%s: cannot be locked: %s", self.path, error.strerror)

    def _cut(self, after: dict[str, Any]) -> None:
        """Truncate the history after the epoch of the metrics `after`.

        If lines are missing, log a warning.
        """
        last = after["epoch"]
        rows, wrong = read_history(self.path, last)
        self.history += [*rows, after] if last else []
        if len(self.history) < last:
            log.warning("%s: has only %d of the %d earlier epochs%s", self.path / "metrics.jsonl",
                        len(rows), last - 1, wrong and f"; {wrong}")

    def _write(self, name: str, text: str) -> None:
        store.atomic_write(self.path / name, text, **OURS)

    def synchronize(self) -> None:
        """Force metrics.jsonl to disk, so that a checkpoint never has more epochs than it."""
        try:
            os.fsync(self.metrics.fileno())
        except OSError as error:
            raise StorageError(f"{self.path / 'metrics.jsonl'}: {error.strerror}") from error

    def append(self, metrics: dict[str, Any]) -> None:
        """Append the line of one epoch to metrics.jsonl and flush the file."""
        faults.point("record")
        try:
            self.metrics.write(json.dumps(metrics) + "\n")
            self.metrics.flush()
        except OSError as error:
            raise StorageError(f"{self.path / 'metrics.jsonl'}: {error.strerror}") from error

    def keep_model(self, weights: dict[str, np.ndarray], epoch: int, *, names: dict[str, Any],
                   vertex_ids: np.ndarray | None = None, **attributes: Any) -> None:
        """Write model.h5, the best weights so far.

        The file also has their epoch, the `names` of classes and features, the ids of
        learned rows, and attributes.
        """
        store.write_model(self.path / "model.h5", weights, config_toml=self.config.to_toml(),
                          epoch=epoch, attributes=attributes, names=names, vertex_ids=vertex_ids,
                          **OURS)

    def finish(self, summary: dict[str, Any], weights: dict[str, np.ndarray], epoch: int,
               **labels: Any) -> None:
        """Write model.h5 with the weights of the best epoch, as `keep_model`, and summary.json."""
        self.keep_model(weights, epoch, **labels)
        self._write("summary.json", json.dumps(summary, indent=1) + "\n")


def _unfollowed(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def free_name(name: str) -> str:
    """Return the first of run-NAME-1, run-NAME-2... that does not exist.

    A long NAME is truncated.
    """
    name = name.encode()[:NAME_BYTES].decode(errors="ignore")
    number = 1
    while os.path.lexists(f"run-{name}-{number}"):
        number += 1
    return f"run-{name}-{number}"


def read_run(path: Any) -> tuple[dict, ...]:
    """Return weights, settings and attributes of a run or a model.h5.

    They are three dicts. The attributes have `class_names` and `feature_names`, tuples
    of str, if classes and features have names, and the `vertex_ids` of learned rows. An
    object with `weights` and a `config`, such as the result of train, has no other
    attributes. A Run reads its model once. An InputNotFoundError, DataError or
    StorageError if the path has nothing to read.
    """
    if hasattr(path, "weights"):
        names = {field: each for field in (*NAMED, *store.SCALE, "vertex_ids")
                 if (each := getattr(path, field, None)) is not None}
        return path.weights, vars(path.config), names
    if hasattr(path, "stored_model"):  # a Run
        return path.stored_model
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"a {type(path).__name__}: expected a run directory, its model.h5, or "
                         "what train returned")
    path = Path(path)
    if os.path.isdir(path):
        path = path / "model.h5"
    if not os.path.exists(path):
        raise InputNotFoundError(f"{path}: no such file; expected a run directory or its model.h5")
    weights, attributes = store.read_model(path)
    return weights, vars(stored_config(path, attributes["config_toml"])), attributes


def stored_config(path: Any, text: str) -> Config:
    """Return the Config in a file's attribute config_toml.

    Raise a DataError if it is invalid.
    """
    token = COMMAND_LINE.set(False)  # the file has names of settings, not flags
    try:
        return Config(**parse_toml(text.encode(), "config_toml"))
    except UsageError as error:
        raise DataError(f"{path}: attribute {error}") from error
    finally:
        COMMAND_LINE.reset(token)


@functools.cache
def _version(name: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Return the version of each package that can influence a result, by name."""
    installed = {"python": platform.python_version()}
    for name in ("hpgcn", "numpy", "scipy", "numba", "h5py", "mpi4py", "mpich", "openmpi"):
        if _version(name):
            installed[name] = _version(name)
    return installed
