"""What this machine and its launcher offer a rank: threads and memory. Imports nothing heavy: it runs first."""
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "MPI_LOCALRANKID")
LOCAL_SIZES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")
WORLD_SIZES = ("SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
# A child of a rank must not take itself for one.
LAUNCHER_PREFIXES = ("PMI", "PRTE", "HYDI", "HYDRA", "SLURM_", "PALS_", "MPI_LOCAL", "MV2_COMM_WORLD",
                     "OMPI_COMM_WORLD", "OMPI_UNIVERSE", "OMPI_MCA_orte", "OMPI_MCA_ess", "OMPI_MCA_pmix")
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
PR_SET_PDEATHSIG = 1  # linux/prctl.h
M_MMAP_THRESHOLD = -3  # malloc.h
THREAD_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS")
BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _number(name):
    value = os.environ.get(name, "").split("(")[0]  # Slurm writes 4(x2)
    return int(value) if value.isdigit() else None


def slurm_tasks():
    """Tasks of the Slurm step that this process belongs to; 1 outside one."""
    return _number("SLURM_STEP_NUM_TASKS") or 1


def launched_size():
    """Processes that the launcher started with this one, by the environment; 1 if it does not say."""
    return max((_number(name) or 1 for name in WORLD_SIZES), default=1)


def launched():
    """Whether an MPI launcher started this process."""
    return slurm_tasks() > 1 or any(name in os.environ for name in RANK_VARIABLES)


def launched_rank():
    """Rank of this process by the environment; 0 if it does not say."""
    names = (*RANK_VARIABLES[:-1], *(["SLURM_PROCID"] if slurm_tasks() > 1 else []))
    return next((rank for rank in map(_number, names) if rank is not None), 0)


def ranks_on_node():
    """Ranks on this node; 1 if the environment does not say."""
    return next((size for size in map(_number, LOCAL_SIZES) if size), 1) if launched() else 1


def default_threads():
    """Threads of a rank: the cores this process may use over the ranks on its node, at least 1."""
    return max(1, len(os.sched_getaffinity(0)) // ranks_on_node())


def limit_threads(threads):
    """Set Numba's thread count and give BLAS one thread, and let none spin while it waits; before both are imported.

    Sparse products (Numba, on OpenMP) and dense ones (blocks that BLAS multiplies, `hpgcn.kernels.cpu.matmul`) take
    turns. By default the threads of each spin for milliseconds after their work and take the cores from the other.
    """
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    for name in BLAS_VARIABLES:
        os.environ[name] = "1"
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # spins 2^4 cycles, not 2^26


def child_environment():
    """The environment without a launcher's variables, with this process's module path and one BLAS thread."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHER_PREFIXES)}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    environment["OPENBLAS_NUM_THREADS"] = "1"  # each would reserve address space and compute nothing
    return environment


def die_with_parent(parent=None):
    """Have this process killed when its parent ends, by whatever signal: no orphan goes on computing.

    Parameters
    ----------
    parent : int, optional
        Its number, where known: a parent that has ended already ends this process at once.
    """
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return  # not Linux: launchers and parents still end their children whenever they can
    if parent is not None and os.getppid() != parent:
        sys.exit(1)


def cpu_quota():
    """Cores' worth of time that the container around this process gives it; None without a limit."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(limit) / int(period)
    except (OSError, ValueError):  # absent, or "max"
        return None


def available_memory():
    """Bytes that this machine, or the container around this process, can still give."""
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
    """Have the C library map every array of a mebibyte or more by itself, so that freeing it gives its memory back.

    glibc raises this limit to 32 MiB as arrays are freed, and then keeps what was: half as much again during set-up.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 20)


def return_freed_memory():
    """Give memory that was freed back to the system, which the C library would keep; a no-op where it cannot."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc
    if trim is not None:
        trim(0)


def memory_budget():
    """Bytes that one rank may read at once: 80% of what is available, shared by the ranks on this machine."""
    return available_memory() * 4 // 5 // ranks_on_node()


def peak_rss():
    """Peak resident set of this process so far, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
