"""Provide fixtures of the reliability tests: MPI launchers, small graphs and finished runs."""
import contextlib
import shutil
import sys
from pathlib import Path

import pytest
from graphs import make
from in_process import succeed
from jobs import OPENMPI, launching
from resuming import settings

import hpgcn
from hpgcn import store
from hpgcn.datasets import convert
from hpgcn.partition import make_partition
from hpgcn.runtime import faults

HERE = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch):
    """Make the folder of a test its working folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def here():
    """Provide a launcher of the MPI beside this Python, for tests that work with any MPI."""
    if not (HERE / "mpiexec").exists():
        pytest.skip("no mpiexec beside this Python: pip install '.[mpi,mpich]'")
    with launching(HERE) as launcher:
        yield launcher


@pytest.fixture(params=["here", "openmpi"])
def launcher(request):
    """Provide a launcher of each MPI.

    Skip Open MPI if it is missing or is the MPI beside this Python.
    """
    if request.param == "here":
        yield request.getfixturevalue("here")
        return
    if not (OPENMPI / "bin" / "mpiexec").exists():
        pytest.skip(f"no Open MPI in {OPENMPI}: scripts/test_openmpi.sh makes it")
    if OPENMPI / "bin" == HERE:
        pytest.skip("this is Open MPI")
    with launching(OPENMPI / "bin") as launcher:
        yield launcher


@pytest.fixture
def fault(monkeypatch):
    """Return a function that requests a fault by an environment variable; each call rearms it."""
    def ask(text):
        faults.STATE.set(faults.State())
        monkeypatch.setenv(faults.VARIABLE, text)

    yield ask
    monkeypatch.delenv(faults.VARIABLE, raising=False)


@pytest.fixture(scope="session")
def karate(tmp_path_factory):
    """Return a folder with the graph karate.h5 and its random partitions.

    They are karate.p2.h5 and karate.p3.h5.
    """
    folder = tmp_path_factory.mktemp("karate")
    graph = convert.read("karate")[0]
    store.write_graph(folder / "karate.h5", graph)
    source = store.load(folder / "karate.h5")
    for k in (2, 3):
        parts = make_partition(graph, k, method="random")
        store.write_partitioned(folder / f"karate.p{k}.h5", graph, parts, source=source)
    return folder


@pytest.fixture(scope="session")
def trained(karate, tmp_path_factory):
    """Return a copy of the folder `karate` with `done`, a finished run.

    The run has a trace and checkpoints.
    """
    folder = tmp_path_factory.mktemp("trained") / "of"
    shutil.copytree(karate, folder)
    with contextlib.chdir(folder):
        succeed("train", "karate.h5", "--epochs", 4, "--checkpoint-every", 2, "--out", "done",
                "--trace")
    return folder


@pytest.fixture(scope="session")
def graph():
    """Return a graph of 120 vertices, 9 features and 5 classes in memory."""
    return make(n=120, f=9)


@pytest.fixture(scope="session")
def two(graph, tmp_path_factory):
    """Return a folder with a run `run` and a longer one, `whole`.

    `run` has checkpoints after epochs 8 and 12; `whole` has 16 epochs.
    """
    folder = tmp_path_factory.mktemp("two")
    hpgcn.train(graph, settings(folder / "run"))
    hpgcn.train(graph, settings(folder / "whole", epochs=16))
    return folder


@pytest.fixture
def out(two, tmp_path):
    """Return a copy of the run directory `run` of the fixture `two`, to be damaged."""
    shutil.copytree(two / "run", tmp_path / "run")
    return tmp_path / "run"
