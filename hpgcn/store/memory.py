"""How much memory one rank may fill."""
from __future__ import annotations

import os
from pathlib import Path

RANKS_ON_NODE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


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


def ranks_on_node():
    """Ranks that the launcher started on this machine; 1 where no launcher says."""
    for variable in RANKS_ON_NODE:
        value = os.environ.get(variable, "")
        if value.isdecimal() and int(value) > 0:
            return int(value)
    return 1


def memory_budget():
    """Bytes that one rank may read at once: 80% of what is available, shared by the ranks on this machine."""
    return available_memory() * 4 // 5 // ranks_on_node()
