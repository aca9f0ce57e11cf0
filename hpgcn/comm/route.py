"""Decide whether MPI accepts GPU memory, by a query and a probe, equally on all ranks.

Three sources are queried in this order: the variable HPGCN_GPU_AWARE_MPI (0 or 1; auto:
go on), MPI's kinds of memory (MPI 4.1, section 3.2.4), a function of its library. A yes
is probed by a process that sends GPU memory to itself. If the library claims too much,
that process crashes, and no rank does.
"""
from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpgcn.errors import UsageError
from hpgcn.runtime.machine import child_environment

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.runtime.device import Host

log = logging.getLogger("hpgcn")
VARIABLE = "HPGCN_GPU_AWARE_MPI"
PROBE = (sys.executable, "-m", "hpgcn.comm.gpu_mpi_probe")
PROBE_SECONDS = 60
LATE = ("Open MPI started before the CUDA context of %d of %d ranks: messages of GPU memory may be "
        "100 times slower; call hpgcn.runtime.device.start_gpu() before the import of mpi4py.MPI")


@dataclass(frozen=True)
class Route:
    """The way of messages out of device memory, and the reason for it.

    Operations in `direct` ("message", "bcast") take GPU memory as it is, others pinned
    host memory. Without "bcast" broadcasts are messages.
    """

    direct: frozenset
    reason: str

    def __str__(self) -> str:
        straight = "messages, broadcasts" if "message" in self.direct else "nothing"
        return f"{straight} straight, the rest by way of pinned host memory: {self.reason}"


def choose(comm: SerialComm, device: Host, aware: str | None = None) -> Route:
    """Choose how messages of a communicator leave a device; all ranks call it together.

    `aware` ("0", "1" or "auto") stands in place of HPGCN_GPU_AWARE_MPI. The Route is
    the same on all ranks: if MPI refuses GPU memory on one rank, all ranks copy it to
    the host. Rank 0 logs a warning if a probe fails, or if Open MPI started too early.
    """
    if device.name == "cpu" or comm.size == 1:
        return Route(frozenset(), "no messages from a GPU")

    # query MPI, then probe once on each node
    with comm.collective_errors():
        claimed, reason = query_gpu_support(comm.MPI, aware)
    failure = ""
    if claimed and comm.local_rank == 0:
        failure = probe(device.number)

    # one failure, or one no, holds for all ranks
    claims, failures, late = zip(*comm.allgather(((claimed, reason), failure, device.late)))
    failed = [(rank, text) for rank, text in enumerate(failures) if text]
    if failed:
        rank, text = failed[0]
        reason = f"{reason}, but the probe of rank {comm.ranks[rank]} failed: {text}"
        if comm.rank == 0:
            log.warning("messages of GPU arrays are copied through host memory: %s", reason)
        return Route(frozenset(), reason)
    for claimed, reason in claims:
        if not claimed:
            return Route(frozenset(), reason)

    # all ranks can
    direct = {"message", "bcast"}
    if "Open MPI" in comm.MPI.Get_library_version():
        direct.remove("bcast")  # its own nonblocking collectives support host memory only
        if any(late) and comm.rank == 0:
            log.warning(LATE, sum(late), comm.size)
    return Route(frozenset(direct), f"{reason}; probe passed")


def query_gpu_support(MPI: Any, aware: str | None = None) -> tuple[bool, str]:
    """Return whether MPI claims to accept GPU memory, and the source of the claim."""
    text = os.environ.get(VARIABLE, "auto") if aware is None else aware
    if text not in ("0", "1", "auto"):
        raise UsageError(f"{VARIABLE}={text}: expected 0, 1 or auto")
    if text != "auto":
        return text == "1", f"{VARIABLE}={text}"
    kinds = MPI.COMM_WORLD.Get_info().Get("mpi_memory_alloc_kinds") or ""
    if any(kind.strip().partition(":")[0] == "cuda" for kind in kinds.split(",")):
        return True, f"MPI names the memory kinds {kinds}"
    return library(ctypes.CDLL(MPI.__file__))


def library(symbols: Any) -> tuple[bool, str]:
    """Return whether the MPI library claims to accept GPU memory, and by which function."""
    if hasattr(symbols, "MPIX_Query_cuda_support"):  # Open MPI, MVAPICH, MPICH
        name = "MPIX_Query_cuda_support"
        answer = symbols.MPIX_Query_cuda_support()
    elif hasattr(symbols, "MPIX_GPU_query_support"):  # Cray MPICH; the first kind of GPU is CUDA
        name = "MPIX_GPU_query_support"
        written = ctypes.c_int(0)
        symbols.MPIX_GPU_query_support(0, ctypes.byref(written))
        answer = written.value
    else:
        return False, "the MPI library has no function that tells"
    if answer and os.environ.get("MPICH_GPU_SUPPORT_ENABLED") == "0":
        return False, "MPICH_GPU_SUPPORT_ENABLED=0"
    return bool(answer), f"{name} says {'yes' if answer else 'no'}"


def probe(number: int) -> str:
    """Send memory of GPU `number` in another process.

    Return a text that describes the failure, "" after success.
    """
    try:
        done = subprocess.run([*PROBE, str(number)], check=False, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace",
                              timeout=PROBE_SECONDS, env=child_environment())
    except subprocess.TimeoutExpired:
        return f"no answer within {PROBE_SECONDS} s"
    except OSError as error:
        return str(error)
    if done.returncode < 0:
        return f"signal {-done.returncode}"
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return f"exit code {done.returncode} ({last[:200]})" if done.returncode else ""
