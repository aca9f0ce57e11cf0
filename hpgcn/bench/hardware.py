"""What this machine is: processor, vector width, caches, libraries. Numbers carry their unit in their key."""
from __future__ import annotations

import os
import platform
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
from numba.core import config

from hpgcn.machine import available_memory
from hpgcn.rundir import versions

CPUS = Path("/sys/devices/system/cpu")
ASSUMED_CACHE = 32 << 20  # where the system does not say
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
VECTORS = (("avx512f", 512), ("avx", 256), ("sse2", 128), ("neon", 128), ("altivec", 128), ("vector", 128))


def describe():
    """Return the machine as a dict of text and numbers.

    Caches and cores are those of the processors that this process may use. vector_bits is the widest vector register
    of the instruction set that Numba compiles for (0: unknown).
    """
    allowed = sorted(os.sched_getaffinity(0))
    found = caches(allowed)
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return {
        "cpu_model": cpu_model(), "architecture": platform.machine(), "cores": cores(allowed),
        "logical_cpus": len(allowed), "threads": numba.get_num_threads(),
        "llvm_cpu": config.CPU_NAME or llvmlite.binding.get_host_cpu_name(), "vector_bits": vector_bits(),
        "caches": found, "last_level_cache_bytes": last_level(found), "available_memory_bytes": available_memory(),
        "blas": " ".join(str(blas.get(key, "")) for key in ("name", "version")).strip(), "versions": versions()}


def cpu_model():
    """Name of the processor, as far as the system knows it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores(allowed, root=CPUS):
    """Physical cores among the processors `allowed`; their number where the system does not say."""
    found = set()
    for cpu in allowed:
        topology = root / f"cpu{cpu}" / "topology"
        try:
            found.add(tuple((topology / name).read_text() for name in ("physical_package_id", "core_id")))
        except OSError:
            return len(allowed)
    return len(found)


def caches(allowed, root=CPUS):
    """Caches of the processors `allowed`: dicts of level, type, size_bytes (of one), line_bytes and instances."""
    shared = {}
    for cpu in allowed:
        for folder in sorted((root / f"cpu{cpu}" / "cache").glob("index[0-9]*")):
            try:
                level, kind, size, line, users = (
                    (folder / name).read_text().strip()
                    for name in ("level", "type", "size", "coherency_line_size", "shared_cpu_list"))
                shared.setdefault((int(level), kind, _bytes(size), int(line)), set()).add(users)
            except (OSError, ValueError):  # not every system tells all of it
                continue
    return [{"level": level, "type": kind, "size_bytes": size, "line_bytes": line, "instances": len(users)}
            for (level, kind, size, line), users in sorted(shared.items())]


def last_level(found):
    """Bytes of all instances of the highest data cache."""
    data = [cache for cache in found if cache["type"] != "Instruction"]
    top = max((cache["level"] for cache in data), default=0)
    return sum(cache["size_bytes"] * cache["instances"] for cache in data if cache["level"] == top) or ASSUMED_CACHE


def vector_bits():
    """Bits of the widest vector register of the instruction set that Numba compiles for; 0 if unknown."""
    features = config.CPU_FEATURES
    if features is None:
        present = {name for name, there in llvmlite.binding.get_host_cpu_features().items() if there}
    else:
        present = {name[1:] for name in features.split(",") if name.startswith("+")}
    return next((bits for name, bits in VECTORS if name in present), 0)


def _bytes(text):
    unit = UNITS.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit
