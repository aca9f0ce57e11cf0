"""Run an engine in a child process with limits, because partitioners crash on bad input."""
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

from hpgcn.errors import InternalError, MissingError, StorageError
from hpgcn.graphs.partition import check_parts
from hpgcn.partition.engines.engine_registry import ENGINES
from hpgcn.runtime import signals
from hpgcn.runtime.advice import install_command
from hpgcn.runtime.machine import available_memory, child_environment
from hpgcn.runtime.temporary import temporary_folder

OUT_OF_MEMORY = (
    "bad_alloc", "memoryerror", "cannot allocate memory", "memory allocation failed",
    "out of memory", "pthread_create", "max_allowed_parallelism cannot be 0",
)  # the last two are of threads that cannot start


def run_engine(name, arrays, settings, *, time_limit, memory):
    """Run one engine; return its part vector, (n,) int32, and its count of the volume or None.

    Arrays and settings are those of `engine_registry`. The child is killed after
    `time_limit` seconds, and has `memory` bytes of address space (None: 80% of the
    available memory).

    MissingError is raised if the engine is not installed, and StorageError if its input
    could not be written to the temporary folder. InternalError is raised if the engine
    crashed, ended the process, ran out of memory or time, or returned no valid part
    vector.
    """
    # refuse an engine that is missing
    if importlib.util.find_spec(ENGINES[name].module) is None:
        raise _missing(name, "not installed")
    memory = available_memory() * 4 // 5 if memory is None else memory
    with ExitStack() as stack:
        parent = tempfile.gettempdir()

        # write its input
        try:
            folder = stack.enter_context(temporary_folder(parent))
            for key, array in arrays.items():
                np.save(folder / f"{key}.npy", array)
            settings = {**settings, "engine": name, "memory": int(memory)}
            (folder / "settings.json").write_text(json.dumps(settings))
        except OSError as error:
            raise StorageError(f"{parent}: cannot write the input of {name}: "
                               f"{error.strerror or error}") from error

        # run the engine, and read its parts
        code = _spawn(name, folder, time_limit)
        if code != 0:
            raise _failure(name, code, folder, memory)
        return _answer(name, folder, arrays["weights"].size, settings["k"])


def engine_version(name):
    """Return the version of an installed engine, empty if unknown."""
    try:
        return importlib.metadata.version(ENGINES[name].package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _spawn(name, folder, time_limit):
    # -P: the working folder, which may hold a folder named hpgcn, stays off the module
    # path
    command = [sys.executable, "-P", "-m", "hpgcn.partition.engines.child", str(folder),
               str(os.getpid())]
    with open(folder / "log", "wb") as log:
        try:
            # signals that a scheduler sends to every process, but that are meant for the run
            with signals.blocked(*signals.STOPPING):
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                         env=child_environment(), start_new_session=True)
        except OSError as error:
            raise InternalError(f"{name}: cannot start a child process: "
                                f"{error.strerror}") from error
        try:
            return child.wait(time_limit)
        except subprocess.TimeoutExpired:
            raise InternalError(f"{name} did not finish within its time limit of "
                                f"{time_limit:g} s") from None
        finally:
            if child.returncode is None:  # the time is over, or this process was interrupted
                child.kill()
                child.wait()


def _failure(name, code, folder, memory):
    """Return the error that explains why the child ended with a code other than 0."""
    log = (folder / "log").read_text(errors="replace")
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    kind = ""
    cause = f"exited with code {code}"
    if (folder / "failure.json").exists():
        failure = json.loads((folder / "failure.json").read_text())
        kind = failure["kind"]
        cause = f"failed with {kind}: {_one_line(failure['message'])}"
    elif code < 0:
        cause = f"was killed by signal {-code} ({signal.strsignal(-code)})"
    if kind in ("ImportError", "ModuleNotFoundError"):
        return _missing(name, cause)

    advice = ""
    evidence = " ".join([cause, *lines[-5:]]).lower()
    if any(sign in evidence for sign in OUT_OF_MEMORY):
        cause = f"ran out of memory under a limit of {memory / 2**30:.2f} GiB: it {cause}"
        advice = "; the methods random and block need less"
    elif code == -signal.SIGKILL:
        cause += ", perhaps because the machine ran out of memory"
    last_line = f" (its last line: {_one_line(lines[-1])})" if lines else ""
    return InternalError(f"{name} {cause}{last_line}{advice}")


def _answer(name, folder, n, k):
    try:
        part = np.load(folder / "part.npy")
        volume = json.loads((folder / "volume.json").read_text())
        return check_parts(part, k, n=n, where=f"the answer of {name}"), volume
    except FileNotFoundError:
        raise InternalError(f"{name} ended the process without a result") from None
    except (OSError, ValueError, EOFError) as error:  # a DataError is a ValueError
        raise InternalError(f"{name} failed: {_one_line(str(error))}") from error


def _missing(name, why):
    """Return the error about a missing engine, with the command that installs it."""
    engine = ENGINES[name]
    return MissingError(f"partitioning with {name} needs {engine.module} (extra {engine.extra}): "
                        f"{install_command(engine.extra)} ({why})")


def _one_line(text, width=200):
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= width else text[:width - 3] + "..."
