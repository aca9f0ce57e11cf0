"""Commands `hpgcn` and `python` without the seconds of CPU that imports and kernels take.

`forked_commands` makes a folder for the PATH of scripts. `hpgcn`, `python -m hpgcn` and
`python FILE` run in forks of one process there, which has imported all packages and
loaded the usual kernels. Standard streams, environment, exit codes and ranks of mpiexec
are those of real processes.
"""
import atexit
import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from commands import clean_environment

from hpgcn.__main__ import main
from hpgcn.partition.engines.child import main as run_engine
from hpgcn.runtime import machine

FREE = 100  # larger than any file number of a client

CLIENT = Path(__file__).with_name("forked_client.py")


@contextlib.contextmanager
def forked_commands(*packages):
    """Context manager: start the server, and give the folder of its two commands.

    `packages` are names of more modules that commands need; missing ones are ignored.
    """
    with tempfile.TemporaryDirectory(prefix="hpgcn-fork-") as folder:
        path = str(Path(folder) / "socket")
        for name in ("hpgcn", "python"):
            file = Path(folder) / name
            words = [sys.executable, "-I", "-S", str(CLIENT), path]
            module = '"-m hpgcn") shift 2; set -- hpgcn "$@";;'
            cases = (f'case "$1 $2" in\n{module}\n-*) exec {sys.executable} "$@";;\n'
                     '*) set -- python "$@";;\nesac' if name == "python" else 'set -- hpgcn "$@"')
            file.write_text(f'#!/bin/sh\n{cases}\nexec {shlex.join(words)} "$@"\n')
            file.chmod(0o755)
        environment = {**clean_environment(), "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
                       "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg",
                       "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with serving(__file__, path, *packages, environment=environment):
            yield folder


@contextlib.contextmanager
def serving(script, path, *arguments, environment):
    """Run a script that calls `serve` for the socket `path`.

    A context manager. `path` is the script's first argument; it is ready when the block
    begins.
    """
    server = subprocess.Popen([sys.executable, script, path, *arguments], env=environment,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert server.stdout.readline() == b"ready\n"
        yield
    finally:
        server.terminate()
        server.communicate()


def serve(path, warm_up):
    """Run each request at the socket `path` in a fork; send the client its exit code.

    `warm_up` is called first; what it imports is there in all forks. The server ends
    when its standard input does, which its parent keeps open.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    warm_up()
    print("ready", flush=True)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        key = selector.select()[0][0]
        if key.fileobj is sys.stdin:
            return
        if key.fileobj is listener:
            client, _ = listener.accept()
            child = fork(client)
            for watched in (client, os.pidfd_open(child)):
                selector.register(watched, selectors.EVENT_READ, (client, child))
            continue
        client, child = key.data
        selector.unregister(key.fileobj)
        if key.fileobj is client:  # it was killed
            os.kill(child, signal.SIGKILL)
            continue
        os.close(key.fileobj)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(KeyError, OSError):
            selector.unregister(client)
            client.sendall(code.to_bytes(8, "little", signed=True))
        client.close()


def warm_up(packages):
    """Import the packages of commands, and load the usual kernels; leave no thread."""
    import matplotlib.pyplot  # noqa: F401
    import tqdm
    from graphs import make

    import hpgcn.cli.commands
    import hpgcn.report

    for name in packages:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    tqdm.tqdm.monitor_interval = 0
    for ranks in (1, 2):
        hpgcn.train(make(n=200, f=16, c=4), hpgcn.Config(epochs=1), ranks=ranks)


def fork(client):
    """Return the id of a new process that runs the request of a client and exits."""
    length, streams, _, _ = socket.recv_fds(client, 8, 4)
    with client.makefile("rb") as file:
        request = json.loads(file.read(int.from_bytes(length, "little")))
    child = os.fork()
    if child:
        for stream in streams:
            os.close(stream)
        return child
    run(request, streams)
    raise AssertionError("a fork goes on")


def run(request, streams):
    """Run the request of a client in this process, and exit."""
    # the streams of the client get the numbers that they have there
    machine.die_with_parent()
    high = [fcntl.fcntl(stream, fcntl.F_DUPFD, FREE) for stream in streams]
    os.closerange(3, FREE)
    for stream, number in zip(high, request["streams"], strict=True):
        os.dup2(stream, number)
        os.close(stream)

    # its environment, folder and command
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    tempfile.tempdir = None  # TMPDIR may name another folder
    end(execute(*request["argv"]))


def execute(program, *argv):
    """Run `hpgcn`, an engine of partitions, or a file of Python.

    Return the exit code.
    """
    if program == "hpgcn":
        return main(argv)
    if program == "engine":
        sys.stdout.flush()
        os._exit(run_engine(Path(argv[0]), os.getppid()))
    sys.argv = [*argv]
    sys.path[:0] = [str(Path(argv[0]).parent),
                    *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def end(code):
    """End this process like Python does, but let the system free its memory, which is faster."""
    atexit._run_exitfuncs()
    if "mpi4py.MPI" in sys.modules:
        sys.modules["mpi4py.MPI"].Finalize()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).exit(code)  # MPI says farewell to its launcher there


if __name__ == "__main__":
    serve(sys.argv[1], lambda: warm_up(sys.argv[2:]))
