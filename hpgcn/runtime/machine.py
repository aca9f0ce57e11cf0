"""Threads and memory that a machine and its launcher offer a rank; imports nothing heavy."""
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK",
                  "MPI_LOCALRANKID")
LOCAL_SIZES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE",
               "SLURM_NTASKS_PER_NODE")
WORLD_SIZES = ("SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
# of variables that a child of a rank must not see: it would take itself for a rank
LAUNCHER_PREFIXES = (
    "PMI", "PRTE", "HYDI", "HYDRA", "SLURM_", "PALS_", "MPI_LOCAL", "MV2_COMM_WORLD",
    "OMPI_COMM_WORLD", "OMPI_UNIVERSE", "OMPI_MCA_orte", "OMPI_MCA_ess", "OMPI_MCA_pmix")
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
PR_SET_PDEATHSIG = 1  # linux/prctl.h
M_MMAP_THRESHOLD = -3  # malloc.h


def _number(name):
    value = os.environ.get(name, "").split("(")[0]  # Slurm writes 4(x2)
    return int(value) if value.isdigit() else None


def slurm_tasks():
    """Count the tasks of the Slurm step that this process belongs to; 1 outside one."""
    return _number("SLURM_STEP_NUM_TASKS") or 1


def launched_size():
    """Count the processes that the launcher started, by the environment; 1 if it does not say."""
    return max((_number(name) or 1 for name in WORLD_SIZES), default=1)


def launched():
    return slurm_tasks() > 1 or any(name in os.environ for name in RANK_VARIABLES)


def launched_rank():
    """Return the rank of this process by the environment; 0 if it does not say."""
    names = RANK_VARIABLES[:-1]
    if slurm_tasks() > 1:
        names += ("SLURM_PROCID",)
    return next((rank for rank in map(_number, names) if rank is not None), 0)


def ranks_on_node():
    """Count the ranks on this node; 1 if the environment does not say."""
    if not launched():
        return 1
    return next(filter(None, map(_number, LOCAL_SIZES)), 1)


def default_threads():
    """Divide the cores that this process may use by the ranks on its node; at least 1 thread."""
    return max(1, len(os.sched_getaffinity(0)) // ranks_on_node())


def limit_threads(threads):
    """Set the thread count of kernels, give BLAS one, and let none spin; before both are imported.

    Blocks of dense products go to the threads of kernels (`hpgcn.kernels.threads`). Other libraries
    may bring OpenMP, whose threads by default spin for milliseconds after their work.
    """
    os.environ.update(NUMBA_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads),
                      OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # spins 2^4 cycles, not 2^26


def child_environment():
    """Return the environment without a launcher's variables, with this process's module path."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(LAUNCHER_PREFIXES)}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    environment["OPENBLAS_NUM_THREADS"] = "1"  # others would reserve addresses and compute nothing
    return environment


def die_with_parent(parent=None):
    """Have this process killed when its parent ends; at once, if number `parent` has ended."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return  # not Linux: parents still end their children whenever they can
    if parent is not None and os.getppid() != parent:
        sys.exit(1)


def cpu_quota():
    """Return the cores' worth of time that a container gives this process; None: no limit."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(limit) / int(period)
    except (OSError, ValueError):  # absent, or "max"
        return None


def available_memory():
    """Return the bytes that this machine, or the container around this process, can give."""
    limits = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError, IndexError):
        pass
    for path in CGROUP_LIMITS:
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # absent, or "max"
            continue
    return min(limits, default=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def map_large_arrays():
    """Have the C library map arrays of a mebibyte or more apart, to give them back when freed.

    glibc raises this limit to 32 MiB as arrays are freed, and keeps what was: half again in set-up.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 20)


def return_freed_memory():
    """Give memory that was freed back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc
    if trim is not None:
        trim(0)


def memory_budget():
    """Return the bytes that one rank may read at once: its share of 80% of what is available."""
    return available_memory() * 4 // 5 // ranks_on_node()


def peak_rss():
    """Return the peak resident set of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
