"""Partitioning engines without the start of a process for each, a third of a CPU second.

All engines of the tests of a process run in forks of another process, which has
imported NumPy and Mt-KaHyPar. Tests of the processes of engines themselves call `apart`.
"""
import contextlib
import importlib
import os
import sys
import tempfile
import threading
from pathlib import Path

from forked_client import ask
from forked_commands import serve, serving

from hpgcn.errors import InternalError
from hpgcn.partition.engines import engine_process
from hpgcn.runtime.machine import child_environment

REAL = engine_process._spawn


def apart(monkeypatch):
    """Run the engines of a test in processes of their own, like users do."""
    monkeypatch.setattr(engine_process, "_spawn", REAL)


@contextlib.contextmanager
def forked_engines():
    """Context manager: run engines in forks of a process, which the first engine starts."""
    lock = threading.Lock()
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as patch:
        path = None

        def spawn(name, folder, time_limit):
            nonlocal path
            with lock:
                path = path or stack.enter_context(server())
            return run(path, name, folder, time_limit)

        engine_process._spawn = spawn
        patch.callback(setattr, engine_process, "_spawn", REAL)
        yield


@contextlib.contextmanager
def server():
    """Context manager: start the process that is forked, and return the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="hpgcn-fork-") as folder:
        path = str(Path(folder) / "socket")
        with serving(__file__, path, environment=child_environment()):
            yield path


def run(path, name, folder, time_limit):
    """Run the engine whose input is in `folder`, like `engine_process._spawn`; return its code."""
    with (folder / "log").open("wb") as log, open(os.devnull) as nothing:
        streams = {0: nothing.fileno(), 1: log.fileno(), 2: log.fileno()}
        with ask(path, ["engine", str(folder)], child_environment(), streams) as answer:
            answer.settimeout(time_limit)
            try:
                return int.from_bytes(answer.recv(8), "little", signed=True)
            except TimeoutError:
                raise InternalError(f"{name} did not finish within its time limit of "
                                    f"{time_limit:g} s") from None


def import_engines():
    """Import the package of the usual engine, if it is installed."""
    with contextlib.suppress(ImportError):
        importlib.import_module("mtkahypar")


if __name__ == "__main__":
    serve(sys.argv[1], import_engines)
