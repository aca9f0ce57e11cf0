"""A run directory: config.toml, metrics.jsonl, summary.json, model.h5, checkpoints (written by rank 0 alone)."""
from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import platform
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

from hpgcn import faults, store
from hpgcn.config import Config, parse_toml
from hpgcn.errors import DataError, HpgcnError, InputNotFoundError, OutputError, StorageError, UsageError, setting
from hpgcn.records import read_history
from hpgcn.temporary import remove

log = logging.getLogger("hpgcn")
FILES = ("config.toml", "metrics.jsonl", "summary.json", "model.h5", "predictions.h5", "trace.json", "traffic.npy")
LONGEST = Path("checkpoints", "0" * 64, "0" * 64)  # no name that a run makes is longer
NAME_BYTES = 100  # of a graph's name, in the name of a run directory


def refuse_existing_run(path, overwrite):
    """Refuse a run directory that exists.

    Raises
    ------
    OutputError
        The path is a file, or a directory that is not empty and overwrite is False; it cannot be looked at, or a name
        in it would be longer than the file system takes.
    """
    path = Path(path)
    try:
        there = _stat(path) is not None
        if there and not path.is_dir():
            raise OutputError(f"{path}: exists and is not a directory")
        if there and not overwrite and any(path.iterdir()):
            raise OutputError(f"{path}: run directory exists; {setting('resume')} goes on in it, "
                              f"{setting('overwrite', True)} replaces it; or choose another {setting('out')}")
        anchor = next(folder for folder in (path, *path.parents) if folder.exists())
        longest = path / LONGEST
        if (len(os.fsencode(longest)) >= os.pathconf(anchor, "PC_PATH_MAX")
                or max(len(os.fsencode(part)) for part in longest.parts) > os.pathconf(anchor, "PC_NAME_MAX")):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    except OutputError:
        raise
    except (OSError, ValueError) as error:
        raise OutputError(f"{path}: cannot be created: {getattr(error, 'strerror', None) or error}") from error


def _stat(path):
    try:
        return path.stat()
    except FileNotFoundError:
        return None


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
            raise OutputError(f"{self.path}: another job writes to it; wait for its end, or choose another "
                              f"{setting('out')}") from error
        except OSError as error:
            log.debug("%s: cannot be locked: %s", self.path, error.strerror)

    def _cut(self, after):
        """Cut metrics.jsonl back to an epoch; lines that are not whole or not in order are left out, with a warning."""
        path, last = self.path / "metrics.jsonl", after["epoch"]
        found, wrong = read_history(self.path, last)
        self.history += [*found, after]
        if len(self.history) < last:
            log.warning("%s: holds %d of the %d epochs before%s", path, len(self.history) - 1, last - 1,
                        wrong and f"; {wrong}")
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


def free_name(name):
    """The first of run-NAME-1, run-NAME-2... that does not exist; a long name is cut."""
    name = name.encode()[:NAME_BYTES].decode(errors="ignore")
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
    if os.path.isdir(path):
        path = path / "model.h5"
    if not os.path.exists(path):
        raise InputNotFoundError(f"{path}: no such file; expected a run directory or its model.h5")
    weights, attributes = store.read_model(path)
    return weights, vars(stored_config(path, attributes["config_toml"])), attributes


def stored_config(path, text):
    """The Config that a file holds in its attribute config_toml; DataError if it is none."""
    try:
        return Config(**parse_toml(text.encode(), "config_toml"))
    except UsageError as error:
        raise DataError(f"{path}: attribute {error}") from error


def versions():
    """Versions of everything that a result may depend on."""
    found = {"python": platform.python_version()}
    for name in ("hpgcn", "numpy", "scipy", "numba", "h5py", "mpi4py", "mpich", "openmpi"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
