"""Threads and memory that are available to a rank. This module imports nothing slow."""
import ctypes
import math
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

from hpgcn.errors import UsageError
from hpgcn.kernels.host.cgroups import cpu_quota, free_memory, memory_domains, usable_cores
from hpgcn.runtime.core_shares import domain_of, share_of
from hpgcn.runtime.launcher import cores_on_node, ranks_on_node, without_launcher

LEAST_MEMORY = 1 << 20  # bytes that are reported as available at least
# Bytes that kernels, their compiler and freed memory add to a process in a run. Measured: 70 MB
# if kernels are loaded from the cache, 100 MB if they are compiled.
COMPILED = 96 << 20
PR_SET_PDEATHSIG = 1  # linux/prctl.h
M_MMAP_THRESHOLD = -3  # malloc.h


def size(text: str) -> int:
    """Return the number of bytes that a text such as 500M or 2G means; else raise UsageError."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    try:
        unit = units.get(text.rstrip("Bb")[-1:].upper(), 1)
        value = float(text.rstrip("KMGTkmgtBb") or "x") * unit
    except ValueError:
        value = 0
    if not 1 <= value < 1 << 63:
        raise UsageError(f"{text!r} is not a size, expected for example 500M or 2G")
    return int(value)


def default_threads() -> int:
    """Return the usable cores divided by the ranks of this node that share them, at least 1."""
    ranks, gathered = ranks_on_node(), cores_on_node()
    if gathered is None:
        return max(1, usable_cores() // ranks)
    share, quota = share_of(*gathered), cpu_quota()
    return share if quota is None else min(share, max(1, math.ceil(quota) // ranks))


def stay_in_domain() -> None:
    """Bind this rank to a NUMA domain of its node, unless the launcher has bound it.

    One rank alone uses all domains.
    """
    cores = domain_of(*(cores_on_node() or ([], 0)), memory_domains())
    if cores is not None:
        os.sched_setaffinity(0, cores)


def limit_threads(threads: int) -> None:
    """Set the number of threads of kernels, OpenMP and BLAS, before they are imported.

    Dense products are divided among the threads of kernels (`hpgcn.kernels.host.threads`),
    so BLAS gets one thread. By default, threads of OpenMP spin for milliseconds after
    their work; this is disabled.
    """
    os.environ.update(NUMBA_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads),
                      OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # idle threads spin 2^4 cycles, not 2^26


def child_environment() -> dict[str, str]:
    """Return the environment of a child process: no launcher's variables, this search path."""
    environment = without_launcher(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    environment["OPENBLAS_NUM_THREADS"] = "1"  # more threads would waste address space
    return environment


def die_with_parent(parent: int | None = None) -> None:
    """Let the system kill this process when its parent ends, or exit if it has ended already."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return  # not Linux; parents usually end their children themselves
    if parent is not None and os.getppid() != parent:
        sys.exit(1)


def available_memory() -> int:
    """Return the free bytes of this machine, within the limits of its control groups."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError, IndexError):
        pass
    group = free_memory()
    if group is not None:
        limits.append(group)
    return max(LEAST_MEMORY, min(limits))


def map_large_arrays() -> None:
    """Let the C library return the memory of arrays of a mebibyte or more when freed.

    By default glibc raises this limit to 32 MiB as arrays are freed, and keeps the
    freed memory. Set-up would then need half as much memory again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 20)


def return_freed_memory() -> None:
    """Return freed memory to the system, if the C library supports it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc
    if trim is not None:
        trim(0)


def memory_budget() -> int:
    """Return the bytes that one rank may read at once: its share of 80% of the available memory."""
    return available_memory() * 4 // 5 // ranks_on_node()


def process_bytes() -> int:
    """Return the bytes of memory that a run takes in this process beside its arrays.

    These are the bytes that are resident now (Python, its libraries and MPI) plus
    COMPILED.
    """
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") + COMPILED
    return peak_rss() + COMPILED


def peak_rss() -> int:
    """Return the peak resident set of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def is_allowed(variable: str) -> bool:
    """Return whether an environment variable is 1 or not set; UsageError unless 0 or 1."""
    text = os.environ.get(variable, "1")
    if text not in ("0", "1"):
        raise UsageError(f"{variable}={text}: expected 0 or 1")
    return text == "1"
