"""Find this process's rank and the number of processes from environment variables.

Find out as well whether ranks can copy memory of each other.
"""
from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

VARIABLE = "HPGCN_ALONE"  # 1: this process is no rank, whatever launcher started it
ALONE = ContextVar("alone", default=False)  # the flag --alone, while a command runs
PTY = "SLURM_PTY_PORT"  # set by `srun --pty`
NODE = "SLURM_NODEID"  # index of this node in Slurm's lists such as 4(x2),2
ALL_IDS = "0 0 4294967295"  # user mapping of the namespace in which a machine boots
# prefixes of variables by which a child of a rank would take itself for a rank
PREFIXES = (
    "PMI", "PRTE", "HYDI", "HYDRA", "SLURM_", "PALS_", "FLUX_", "JSM_", "MPI_LOCAL",
    "MV2_COMM_WORLD", "OMPI_COMM_WORLD", "OMPI_UNIVERSE", "OMPI_MCA_orte", "OMPI_MCA_ess",
    "OMPI_MCA_pmix", "TORCHELASTIC_")


class Launcher(NamedTuple):
    """The names of the environment variables that one launcher sets."""

    size: tuple  # number of processes
    rank: tuple
    local_size: tuple = ()  # number of processes on this node
    nodes: tuple = ()
    # tuples of which one variable each must be set
    needs: tuple = ()
    job: tuple = ()  # set in jobs whose size may be known to MPI alone
    mpi: bool = False  # whether a job of one process uses MPI too
    local_rank: tuple = ()  # index of the process on this node


# The first match counts. MPI launchers come first, because their variables number the ranks, and
# later launchers may set them too.
LAUNCHERS = {
    "Open MPI's launcher": Launcher(("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_RANK",),
                                    ("OMPI_COMM_WORLD_LOCAL_SIZE",), mpi=True,
                                    local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",)),
    "MVAPICH's launcher": Launcher(("MV2_COMM_WORLD_SIZE",), ("MV2_COMM_WORLD_RANK",),
                                   ("MV2_COMM_WORLD_LOCAL_SIZE",), mpi=True,
                                   local_rank=("MV2_COMM_WORLD_LOCAL_RANK",)),
    "mpiexec": Launcher(("PMI_SIZE",), ("PMI_RANK",), ("MPI_LOCALNRANKS",), mpi=True,
                        local_rank=("MPI_LOCALRANKID",)),
    "PMIx": Launcher(("PMIX_SIZE",), ("PMIX_RANK",), ("PMIX_LOCAL_SIZE",),
                     job=("PMIX_NAMESPACE",), mpi=True),
    "PALS": Launcher(("PALS_NRANKS", "PALS_SIZE"), ("PALS_RANKID",), ("PALS_LOCAL_SIZE",),
                     job=("PALS_RANKID",), local_rank=("PALS_LOCAL_RANKID",)),
    "Flux": Launcher(("FLUX_JOB_SIZE",), ("FLUX_TASK_RANK",), nodes=("FLUX_JOB_NNODES",),
                     local_rank=("FLUX_TASK_LOCAL_ID",)),
    "jsrun": Launcher(("JSM_NAMESPACE_SIZE",), ("JSM_NAMESPACE_RANK",),
                      ("JSM_NAMESPACE_LOCAL_SIZE",), local_rank=("JSM_NAMESPACE_LOCAL_RANK",)),
    "torchrun": Launcher(("WORLD_SIZE",), ("RANK",), ("LOCAL_WORLD_SIZE",),
                         needs=(("WORLD_SIZE",), ("RANK",), ("LOCAL_RANK", "MASTER_ADDR")),
                         local_rank=("LOCAL_RANK",)),
    "srun": Launcher(("SLURM_STEP_NUM_TASKS",), ("SLURM_PROCID",),
                     ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE",
                      "SLURM_TASKS_PER_NODE"), needs=(("SLURM_STEP_NUM_TASKS",),),
                     local_rank=("SLURM_LOCALID",)),
}


class Started(NamedTuple):
    """The size, rank and kind of a job according to the variables of one launcher."""

    name: str
    size: int | None  # None if unknown; it may be 1
    rank: int
    local_size: int | None
    mpi: bool
    local_rank: int | None


class _Node:
    """A store for the ranks on this node; values are None until MPI has gathered them."""

    ranks = None  # their number
    cores = None  # the cores that each of them may use, and the number of this rank


def started() -> list:
    """Return a Started for each launcher whose variables are set, in the order of LAUNCHERS."""
    return [each for each in map(_read, LAUNCHERS.items()) if each is not None]


def farm() -> tuple[str, int | None] | None:
    """Return (launcher, number of processes) of this job; None for a single process.

    The number is None if the launcher does not set it.
    """
    seen = started()
    known = [each for each in seen if each.size is not None]
    if known:
        largest = max(reversed(known), key=lambda each: each.size)
        return (largest.name, largest.size) if largest.size > 1 else None
    return (seen[-1].name, None) if seen else None


def in_interactive_shell() -> bool:
    """Return whether this process belongs to a shell that `srun --pty` started."""
    return PTY in os.environ


def alone() -> bool:
    """Return whether this process must work independently of others that its launcher started."""
    return ALONE.get() or os.environ.get(VARIABLE, "") not in ("", "0")


def launched() -> bool:
    """Return whether a launcher may have started this process as a rank of MPI."""
    return not alone() and (farm() is not None or any(each.mpi for each in started()))


def launched_rank() -> int:
    """Return the rank of this process from the environment; 0 if unknown, or without a launcher."""
    return 0 if alone() else _task()


def launched_local_rank() -> int | None:
    """Return the number of this process on its node, by the environment; None if unknown."""
    known = (each.local_rank for each in started() if each.mpi or each.size != 1)
    return next((rank for rank in known if rank is not None), None)


def task_suffix() -> str:
    """Return "-task3" for process 3 if processes work alone, else "", for file names."""
    return f"-task{_task()}" if alone() and farm() else ""


def _task() -> int:
    return next((each.rank for each in started() if each.mpi or each.size != 1), 0)


def ranks_on_node() -> int:
    """Return the number of processes on this node, by MPI or else by the environment."""
    if _Node.ranks is not None:
        return _Node.ranks
    counts = (each.local_size for each in started() if each.mpi or each.size != 1)
    return next(filter(None, counts), 1)


def set_ranks_on_node(cores: list[set[int]], rank: int, *, all_ranks: bool) -> None:
    """Store the cores that each rank of this node may use, and the number of this rank.

    Their count is a lower bound for `ranks_on_node`, unless they are `all_ranks`.
    """
    _Node.ranks = len(cores) if all_ranks else max(len(cores), ranks_on_node())
    _Node.cores = (cores, rank) if all_ranks else None


def cores_on_node() -> tuple[list[set[int]], int] | None:
    """Return the arguments of `set_ranks_on_node`; None without those of all ranks."""
    return _Node.cores


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without a launcher's variables, for a child that is no rank."""
    named = {name for each in LAUNCHERS.values() for names in each[:4] for name in names}
    named |= {name for names in LAUNCHERS["torchrun"].needs for name in names}
    return {key: value for key, value in environment.items()
            if not key.startswith(PREFIXES) and key not in named}


def _read(entry: tuple[str, Launcher]) -> Started | None:
    name, launcher = entry
    if not all(any(key in os.environ for key in keys) for keys in launcher.needs):
        return None
    size, rank, local, nodes = (_first_count(names) for names in launcher[:4])
    if size is None and rank is None and local is None:
        return None
    if local is None and size and nodes:
        local = -(-size // nodes)
    if size is None:
        size = max(local or 1, (rank or 0) + 1)
        if size == 1 and any(key in os.environ for key in launcher.job):
            size = None
    return Started(name, size, rank or 0, local, launcher.mpi, _first_count(launcher.local_rank))


def _first_count(names: tuple[str, ...]) -> int | None:
    return next((count for count in map(_number, names) if count is not None), None)


def _number(name: str) -> int | None:
    """Return the number in an environment variable, for this node if it is Slurm's list."""
    counts = []
    for entry in os.environ.get(name, "").split(","):
        match = re.fullmatch(r"\s*([0-9]+)(?:\(x([0-9]+)\))?\s*", entry)
        if match is None:
            return None
        counts.append((int(match[1]), int(match[2] or 1)))
    if len(counts) == 1:
        return counts[0][0]

    node = os.environ.get(NODE, "")
    for count, repeats in counts if node.isdecimal() else ():
        if int(node) < repeats:
            return count
        node = int(node) - repeats
    return max(count for count, _ in counts)


def copies_refused() -> str:
    """Return why ranks cannot copy memory of each other: a text, empty if they probably can."""
    if not _reads_memory():
        return "the system refuses process_vm_readv"
    return "a user namespace of its own" if _is_apart() else ""


def _reads_memory() -> bool:
    """Return whether process_vm_readv works, on memory of this process; True without Linux."""
    try:
        read = ctypes.CDLL(None).process_vm_readv
    except AttributeError:
        return True
    source, target = (ctypes.create_string_buffer(8) for _ in range(2))
    vectors = [(ctypes.c_size_t * 2)(ctypes.addressof(each), 8) for each in (target, source)]
    read.restype = ctypes.c_ssize_t
    return read(os.getpid(), vectors[0], ctypes.c_ulong(1), vectors[1], ctypes.c_ulong(1),
                ctypes.c_ulong(0)) == 8


def _is_apart(proc: str = "/proc") -> bool:
    """Return whether the launcher is in another user namespace."""
    proc = Path(proc)
    try:
        own = os.stat(proc / "self/ns/user").st_ino
        process = proc / "self"
        while True:
            # go to the parent; a process without a rank's variables is the launcher
            process = proc / process.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            owner = process.stat().st_uid
            if os.stat(process / "ns/user").st_ino != own:
                return True
            if not _has_variables(process.joinpath("environ").read_bytes()):
                return False
    except PermissionError:
        # a process of this user is unreadable only in another namespace; one of another user
        # always is
        if owner == os.geteuid():
            return True
    except OSError:  # no /proc, or the launcher is in another namespace of processes
        pass
    return _maps_users(proc / "self/uid_map")


def _maps_users(path: Path) -> bool:
    with suppress(OSError):
        return path.read_text().split() != ALL_IDS.split()
    return False


def _has_variables(environment: bytes) -> bool:
    """Return whether an environment, as bytes of /proc, has the size or rank of a launcher."""
    names = {name for each in LAUNCHERS.values() for name in (*each.size, *each.rank)}
    given = {entry.partition(b"=")[0].decode("ascii", "replace")
             for entry in environment.split(b"\0")}
    return not names.isdisjoint(given)
