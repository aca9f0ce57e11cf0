"""Tests under mpiexec: rank 0 prints results; a failure on any rank ends all ranks."""
import sys

import pytest

pytest.importorskip("mpi4py", reason="MPI tests need mpi4py: pip install '.[mpi,mpich]'")
from mpi4py import MPI
from poison import poisoned  # noqa: F401 - a fixture

from hpgcn.comm import as_comm


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore:.*this process runs on its own")
    if MPI.COMM_WORLD.Get_rank():
        config.pluginmanager.unregister(name="terminalreporter")


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if report.failed and MPI.COMM_WORLD.Get_size() > 1:
        place = f"rank {MPI.COMM_WORLD.Get_rank()}: {report.nodeid}"
        print(f"{place} failed\n{report.longreprtext}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)


@pytest.fixture
def comm():
    """Return the communicator of all ranks, with a deadline of 60 seconds for each wait."""
    ranks = as_comm(MPI.COMM_WORLD, timeout=60)
    yield ranks
    ranks.barrier()
    ranks.close()
