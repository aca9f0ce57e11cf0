"""Check that MPI delivers messages between ranks, and avoid its transports that fail.

MPICH copies messages of 16 KiB or more out of the memory of another process. Linux
refuses this between user namespaces, such as those of containers that a launcher starts
for each rank. The filter of a container may refuse it everywhere. Then nonblocking
reductions complete with wrong numbers, and messages raise exceptions.
"""
from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.errors import ConfigError, UsageError, agreed
from hpgcn.runtime.launcher import copies_refused

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm


# without copies between processes; UCX maps memory of other processes, and says that it fails
SETTINGS = {"MPIR_CVAR_CH4_CMA_ENABLE": "0", "UCX_TLS": "^posix"}
ADVICE = {"MPICH": "set MPIR_CVAR_CH4_CMA_ENABLE=0", "Open MPI": "set "
          "OMPI_MCA_smsc=^cma (before Open MPI 5: OMPI_MCA_btl_vader_single_copy_mechanism=none)"}
TEST_BYTES = 1 << 20  # bytes of a test message


def check_running(comm: SerialComm = None) -> None:
    """Refuse (UsageError) a communicator that is not running.

    Before MPI starts, after it ends, a freed one, and one of two groups. None stands
    for MPI's own.

    MPI would end this process if it were called.
    """
    MPI = sys.modules.get("mpi4py.MPI")
    if MPI is None or not (comm is None or isinstance(comm, MPI.Comm)):
        return
    if MPI.Is_finalized():
        raise UsageError("comm: MPI was finalized, so its communicators cannot be used")
    if not MPI.Is_initialized():
        raise UsageError("comm: MPI is not initialized; call MPI.Init() first")
    if comm == MPI.COMM_NULL or isinstance(comm, MPI.Intercomm):
        raise UsageError("comm: expected a communicator of one group, and not a freed one")


def avoid_copies() -> None:
    """Switch off copies between processes if the system refuses them.

    Call it before MPI starts.
    """
    if copies_refused():
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)


def check_messages(comm: SerialComm) -> None:
    """Send known numbers between ranks; all ranks call this together.

    ConfigError on all ranks if others arrive. It is on this rank only if MPI itself raises
    an error, because other ranks may still wait.
    """
    size = TEST_BYTES // 8
    numbers = np.arange(size, dtype=np.float64)
    own = numbers + comm.rank

    total, copied = own.copy(), own.copy()
    received, gathered = np.empty(size), np.empty(size)
    blocks = np.diff(np.arange(comm.size + 1) * size // comm.size)
    counts = np.zeros((2, comm.size), np.int64)
    counts[0, (comm.rank + 1) % comm.size] = counts[1, comm.rank - 1] = size
    try:
        # a reduction, which may complete with wrong numbers
        comm.start_allreduce(total, None).wait("an allreduce of test numbers")
        expected = comm.size * numbers + comm.size * (comm.size - 1) / 2
        if comm.max([not np.array_equal(total, expected)])[0]:
            raise agreed(_failure(comm, "an allreduce"))

        # messages between all ranks, and long ones to the next rank and from the first
        comm.start_allgather(own[:blocks[comm.rank]], gathered, blocks, None).wait("test messages")
        comm.start_alltoall(own, counts[0], received, counts[1], None).wait("a long test message")
        comm.start_bcast(copied, 0, None).wait("a broadcast of test numbers")
    except comm.MPI.Exception as error:
        raise _failure(comm, f"messages ({error})") from error
    parts = [numbers[:count] + rank for rank, count in enumerate(blocks)]
    right = (np.array_equal(gathered, np.concatenate(parts))
             and np.array_equal(received, numbers + (comm.rank - 1) % comm.size)
             and np.array_equal(copied, numbers))
    if comm.max([not right])[0]:
        raise agreed(_failure(comm, "messages"))


def _failure(comm: SerialComm, what: str) -> ConfigError:
    vendor, _ = comm.MPI.get_vendor()
    advice = ADVICE.get(vendor, "switch off copies between processes (CMA)")
    return ConfigError(
        f"{vendor} does not deliver {what} of {TEST_BYTES >> 20} MiB between these ranks: they may "
        "be in containers, or user namespaces, that cannot read each other's memory; "
        f"{advice} for all ranks")
