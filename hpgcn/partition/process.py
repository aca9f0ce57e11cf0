"""Runs an engine in a child process, under a time and a memory limit: partitioners crash, and exit, on bad input."""
from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack

import numpy as np

from hpgcn import signals
from hpgcn.errors import InternalError, MissingError, StorageError
from hpgcn.machine import available_memory, child_environment
from hpgcn.partition.engines import ENGINES
from hpgcn.partition.partition import check_parts
from hpgcn.temporary import temporary_folder

OUT_OF_MEMORY = ("bad_alloc", "memoryerror", "cannot allocate memory", "memory allocation failed", "out of memory",
                 "pthread_create", "max_allowed_parallelism cannot be 0")  # the last two: no thread can be started


def run_engine(name, arrays, settings, *, time_limit, memory):
    """Run one engine on arrays and return its part vector and its own count of the volume.

    Parameters
    ----------
    name : str
        Key of `hpgcn.partition.engines.ENGINES`.
    arrays : dict of str -> ndarray
        As `hpgcn.partition.model` makes them, with `weights` (n,).
    settings : dict
        k, epsilon, seed, threads.
    time_limit : float
        Seconds, then the child is killed.
    memory : int or None
        Bytes of address space that the child may have; None: 80% of the memory available.

    Returns
    -------
    part : (n,) int32
    volume : int or None
        Connectivity-1 by the engine's own count.

    Raises
    ------
    MissingError
        The engine is not installed.
    InternalError
        It crashed, ended the process, ran out of memory or time, or returned no valid part vector.
    StorageError
        Its input could not be written to the temporary folder.
    """
    require_engine(name)
    memory = available_memory() * 4 // 5 if memory is None else memory
    with ExitStack() as held:
        try:
            folder = held.enter_context(temporary_folder(tempfile.gettempdir()))
        except OSError as error:
            raise StorageError(f"{tempfile.gettempdir()}: cannot make a folder for {name}: {error.strerror}") from error
        try:
            for key, array in arrays.items():
                np.save(folder / f"{key}.npy", array)
            (folder / "settings.json").write_text(json.dumps({**settings, "engine": name, "memory": int(memory)}))
        except OSError as error:
            raise StorageError(f"{folder}: cannot write the input of {name}: {error.strerror or error}") from error
        code = _spawn(name, folder, time_limit)
        if code != 0:
            raise _failure(name, code, folder, memory)
        return _answer(name, folder, arrays["weights"].size, settings["k"])


def require_engine(name):
    """Raise MissingError, with the extra that brings it, if an engine is not installed."""
    if importlib.util.find_spec(ENGINES[name].module) is None:
        raise MissingError(_missing(name, "not installed"))


def engine_version(name):
    """Version of an installed engine, empty if unknown."""
    try:
        return importlib.metadata.version(ENGINES[name].package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _spawn(name, folder, time_limit):
    # -P: the working folder, which may hold a folder named hpgcn, stays off the module path
    command = [sys.executable, "-P", "-m", "hpgcn.partition.child", str(folder), str(os.getpid())]
    with open(folder / "log", "wb") as log:
        try:
            with signals.blocked(signal.SIGUSR1):  # meant for the run, but a scheduler sends it to every process
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                         env=child_environment(), start_new_session=True)
        except OSError as error:
            raise InternalError(f"{name}: cannot start a child process: {error.strerror}") from error
        try:
            return child.wait(time_limit)
        except subprocess.TimeoutExpired:
            raise InternalError(f"{name} did not finish within its time limit of {time_limit:g} s") from None
        finally:
            if child.returncode is None:  # past its limit, or we were interrupted
                child.kill()
                child.wait()


def _failure(name, code, folder, memory):
    """The error that tells why the child ended with a code other than 0."""
    log = (folder / "log").read_text(errors="replace")
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    kind, cause = "", f"exited with code {code}"
    if (folder / "failure.json").exists():
        failure = json.loads((folder / "failure.json").read_text())
        kind, cause = failure["kind"], f"failed with {failure['kind']}: {_one_line(failure['message'])}"
    elif code < 0:
        cause = f"was killed by {_signal_name(-code)}"
    if kind in ("ImportError", "ModuleNotFoundError"):
        return MissingError(_missing(name, cause))
    tail = f" (its last line: {_one_line(lines[-1])})" if lines else ""
    evidence = " ".join([cause, *lines[-5:]]).lower()
    if any(sign in evidence for sign in OUT_OF_MEMORY):
        cause = f"ran out of memory under a limit of {memory / 2**30:.2f} GiB: it {cause}"
    elif code == -signal.SIGKILL:
        cause += ", perhaps because the machine ran out of memory"
    return InternalError(f"{name} {cause}{tail}")


def _answer(name, folder, n, k):
    try:
        part = check_parts(np.load(folder / "part.npy"), k, n=n, where=f"the answer of {name}")
        return part, json.loads((folder / "volume.json").read_text())
    except FileNotFoundError:
        raise InternalError(f"{name} ended the process without an answer") from None
    except (OSError, ValueError, EOFError) as error:  # a DataError is a ValueError
        raise InternalError(f"{name} went wrong: {_one_line(str(error))}") from error


def _missing(name, why):
    engine = ENGINES[name]
    return f"partitioning with {name} needs {engine.module}: pip install 'hpgcn[{engine.extra}]' ({why})"


def _signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _one_line(text, width=200):
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= width else text[:width - 3] + "..."
