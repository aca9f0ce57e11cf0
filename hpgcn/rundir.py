"""A run directory: config.toml, metrics.jsonl, summary.json, model.h5, checkpoints (written by rank 0 alone)."""
from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import platform
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

from hpgcn import faults, store
from hpgcn.config import Config, parse_toml
from hpgcn.errors import DataError, HpgcnError, InputNotFoundError, OutputError, StorageError, UsageError
from hpgcn.files import read_bytes
from hpgcn.temporary import remove

log = logging.getLogger("hpgcn")
FILES = ("config.toml", "metrics.jsonl", "summary.json", "model.h5", "predictions.h5", "trace.json", "traffic.npy")


def refuse_existing_run(path, overwrite):
    """Refuse a run directory that exists.

    Raises
    ------
    OutputError
        The path is a file, or a directory that is not empty and overwrite is False.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path}: exists and is not a directory")
    if path.exists() and any(path.iterdir()) and not overwrite:
        raise OutputError(f"{path}: run directory exists; --resume goes on in it, --overwrite replaces it; or choose "
                          "another --out")


class RunDirectory:
    """Makes the directory config.out and records a run in it; closed at the end of a with statement.

    The directory is locked until then (flock), on file systems that can: no other job goes on in it, or overwrites it.

    Parameters
    ----------
    config : hpgcn.Config
    overwrite : bool
        Replace an earlier run's files; whatever else lies in the directory stays.
    after : dict, optional
        The line of metrics.jsonl of the epoch to go on after: the directory is kept, and the file cut back to it.

    Attributes
    ----------
    history : list of dict
        Lines of metrics.jsonl that were kept, that of `after` the last.

    Raises
    ------
    OutputError
        It exists and overwrite is False, it cannot be created, or another job writes to it.
    """

    def __init__(self, config, *, overwrite=False, after=None):
        self.path, self.history = Path(config.out), []
        refuse_existing_run(self.path, overwrite or after is not None)
        try:
            with ExitStack() as held:
                self.path.mkdir(parents=True, exist_ok=True)
                folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                held.callback(os.close, folder)
                self._lock(folder)
                for name in FILES:
                    store.refuse_existing(self.path / name, overwrite=True, follow=False)
                for name in (*FILES, "checkpoints") if after is None else ("summary.json",):
                    remove(self.path / name)
                store.atomic_write(self.path / "config.toml", config.to_toml(), overwrite=True, follow=False)
                if after is None:
                    store.atomic_write(self.path / "metrics.jsonl", b"", follow=False)
                else:
                    self._cut(after)
                self.metrics = held.enter_context(open(self.path / "metrics.jsonl", "a", opener=_unfollowed))
                self._held = held.pop_all()  # what went wrong before this has let go of all
        except HpgcnError:
            raise
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be created: {error.strerror}") from error
        self.config = config

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._held.close()

    def _lock(self, folder):
        """Lock the directory itself, which is open as `folder`: no file is left, and the lock goes with the process."""
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(f"{self.path}: another job writes to it; wait for its end, or choose another --out") \
                from error
        except OSError as error:
            log.debug("%s: cannot be locked: %s", self.path, error.strerror)

    def _cut(self, after):
        """Cut metrics.jsonl back to an epoch; lines that a crash has spoilt are left out, with a warning."""
        path, last = self.path / "metrics.jsonl", after["epoch"]
        self.history += [*read_history(self.path, last), after]
        if len(self.history) < last:
            log.warning("%s: holds %d of the %d epochs before", path, len(self.history) - 1, last - 1)
        store.atomic_write(path, "".join(json.dumps(row) + "\n" for row in self.history), overwrite=True,
                           follow=False)

    def synchronise(self):
        """Bring metrics.jsonl to disk: a checkpoint must not know more epochs."""
        try:
            os.fsync(self.metrics.fileno())
        except OSError as error:
            raise StorageError(f"{self.path / 'metrics.jsonl'}: {error.strerror}") from error

    def append(self, metrics):
        """Write one epoch's line and flush it."""
        faults.point("record")
        try:
            self.metrics.write(json.dumps(metrics) + "\n")
            self.metrics.flush()
        except OSError as error:
            raise StorageError(f"{self.path / 'metrics.jsonl'}: {error.strerror}") from error

    def keep_model(self, weights, epoch, *, multilabel):
        """Write model.h5: the weights of an epoch, the best so far, and what kind of labels they predict."""
        store.write_model(self.path / "model.h5", weights, config_toml=self.config.to_toml(), epoch=epoch,
                          attributes={"strategy": self.config.strategy, "multilabel": multilabel}, overwrite=True,
                          follow=False)

    def finish(self, summary, weights, epoch, *, multilabel):
        """Write model.h5 (weights of the best epoch) and summary.json."""
        self.keep_model(weights, epoch, multilabel=multilabel)
        store.atomic_write(self.path / "summary.json", (json.dumps(summary, indent=1) + "\n").encode(), overwrite=True,
                           follow=False)


def _unfollowed(path, flags):
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def read_history(path, before=math.inf):
    """Lines of a run directory's metrics.jsonl, up to an epoch and to the first line that a crash has spoilt.

    Returns
    -------
    list of dict
    """
    path, history = Path(path) / "metrics.jsonl", []
    for line in read_bytes(path).splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
            fits = (history[-1]["epoch"] if history else 0) < row["epoch"] < before
        except (ValueError, LookupError, TypeError):
            break
        if not fits:
            break
        history.append(row)
    return history


def free_name(name):
    """The first of run-NAME-1, run-NAME-2... that does not exist."""
    number = 1
    while os.path.lexists(f"run-{name}-{number}"):
        number += 1
    return f"run-{name}-{number}"


def read_run(path):
    """Return (weights, settings, attributes) of a run directory or of a model.h5.

    Raises
    ------
    InputNotFoundError, DataError, StorageError
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"a {type(path).__name__}: expected a run directory, its model.h5, or what train returned")
    path = Path(path)
    if path.is_dir():
        path = path / "model.h5"
    if not path.exists():
        raise InputNotFoundError(f"{path}: no such file; expected a run directory or its model.h5")
    weights, attributes = store.read_model(path)
    try:
        config = Config(**parse_toml(attributes["config_toml"].encode(), "config_toml"))
    except UsageError as error:
        raise DataError(f"{path}: attribute {error}") from error
    return weights, vars(config), attributes


def read_summary(path):
    """The summary of a run directory, None while the run is not finished.

    Raises
    ------
    DataError
        It is no JSON object.
    """
    path = Path(path) / "summary.json"
    try:
        found = json.loads(read_bytes(path).decode())
    except InputNotFoundError:
        if not os.path.lexists(path):
            return None
        raise
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: {type(found).__name__}, expected one JSON object")
    return found


def versions():
    """Versions of everything that a result may depend on."""
    found = {"python": platform.python_version()}
    for name in ("hpgcn", "numpy", "scipy", "numba", "h5py", "mpi4py", "mpich", "openmpi"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
