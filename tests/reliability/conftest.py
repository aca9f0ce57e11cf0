"""Starts the command line under an MPI: the one that tests run with, and Open MPI in an environment of its own."""
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import clean_environment

from hpgcn import store
from hpgcn.datasets import convert
from hpgcn.partition import make_partition

HERE = Path(sys.executable).parent
OPENMPI = Path(os.environ.get("HPGCN_OPENMPI_VENV", Path(__file__).parents[2] / ".venv-openmpi"))


class Launcher:
    """An mpiexec with its Python; `run` waits for the end, `start` does not."""

    def __init__(self, folder):
        self.folder, self.started = folder, []
        self.environment = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
                            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
        if os.geteuid() == 0:
            self.environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def command(self, *args, ranks=2):
        """The words of a start on equal ranks, or, for args that are tuples, of one rank each."""
        program = [str(self.folder / "python"), "-m", "hpgcn"]
        parts = [(1, part) for part in args] if isinstance(args[0], tuple) else [(ranks, args)]
        words = [str(self.folder / "mpiexec")]
        for count, part in parts:
            words += ["-n", str(count), *program, *map(str, part), ":"]
        return words[:-1]

    def start(self, *args, ranks=2, **environment):
        """Return the running process of mpiexec."""
        variables = {**clean_environment(), **self.environment, **environment}
        process = subprocess.Popen(self.command(*args, ranks=ranks), text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=variables)
        self.started.append(process)
        return process

    def run(self, *args, ranks=2, **environment):
        """Return (exit code, standard error)."""
        process = self.start(*args, ranks=ranks, **environment)
        _, err = process.communicate(timeout=100)
        return process.returncode, err


@contextlib.contextmanager
def launching(folder):
    found = Launcher(folder)
    yield found
    for process in found.started:
        process.kill()
        process.communicate()


@pytest.fixture
def here():
    """The MPI of this Python: for what does not depend on the library."""
    if not (HERE / "mpiexec").exists():
        pytest.skip("no mpiexec beside this Python: pip install 'hpgcn[mpi,mpich]'")
    with launching(HERE) as found:
        yield found


@pytest.fixture(params=["here", "openmpi"])
def launcher(request):
    """Both MPIs; the second is skipped where it is not installed, or where it is the first."""
    if request.param == "here":
        yield request.getfixturevalue("here")
        return
    if not (OPENMPI / "bin" / "mpiexec").exists():
        pytest.skip(f"no Open MPI in {OPENMPI}: scripts/test_openmpi.sh makes it")
    if OPENMPI / "bin" == HERE:
        pytest.skip("this is Open MPI")
    with launching(OPENMPI / "bin") as found:
        yield found


@pytest.fixture(scope="session")
def karate(tmp_path_factory):
    """Folder with karate.h5, and karate.p2.h5, karate.p3.h5 in random parts."""
    folder = tmp_path_factory.mktemp("karate")
    graph = convert.read("karate")[0]
    store.write_graph(folder / "karate.h5", graph)
    for k in (2, 3):
        store.write_partitioned(folder / f"karate.p{k}.h5", graph, make_partition(graph, k, method="random"),
                                source_path=folder / "karate.h5")
    return folder


def processes(word):
    """Numbers of the living processes that have `word` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def none_left(word, seconds=30):
    """Whether within so many seconds no process is left that has `word` in its command line."""
    end = time.monotonic() + seconds
    while processes(word):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
