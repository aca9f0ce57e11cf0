"""The processors: what they are, what they can do at most, how long work takes there."""

import os
import platform
import time
from functools import partial
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
from numba import prange
from numba.core import config

from hpgcn.bench import peers
from hpgcn.bench.timing import in_turns
from hpgcn.errors import UsageError
from hpgcn.kernels.cpu import trusted
from hpgcn.kernels.cpu.row_product import vector_bytes
from hpgcn.kernels.jit import jit
from hpgcn.runtime.machine import available_memory, memory_budget
from hpgcn.training.run_directory import versions

CPUS = Path("/sys/devices/system/cpu")
ASSUMED_CACHE = 32 << 20  # bytes, where the system does not say
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
CACHES = 4  # an array that bandwidth is measured with is so many times the last-level cache
GEMM_SIZE = 2048
SMALLEST = 32 << 20  # bytes of such an array at least


class Host:
    """The processors that this process may use, with the methods of `hpgcn.bench.gpu.Gpu`."""

    xp = np
    kernels = trusted

    def __init__(self):
        self.cpus = sorted(os.sched_getaffinity(0))
        self.caches = caches(self.cpus)
        self.cache_bytes = last_level(self.caches)

    def describe(self):
        """Return what the machine is: text, and numbers with their unit in their key."""
        blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
        return {
            "cpu_model": cpu_model(), "architecture": platform.machine(), "cores": cores(self.cpus),
            "logical_cpus": len(self.cpus), "threads": numba.get_num_threads(),
            "llvm_cpu": config.CPU_NAME or llvmlite.binding.get_host_cpu_name(),
            "vector_bits": 8 * vector_bytes(), "caches": self.caches,
            "last_level_cache_bytes": self.cache_bytes,
            "available_memory_bytes": available_memory(),
            "blas": f"{blas.get('name', '')} {blas.get('version', '')}".strip(),
            "versions": versions()}

    def limits(self, settings):
        """Measure the bandwidth of memory, by all threads; for `machine`, dense products, too.

        read is a sum of an array, copy is a = b, triad is a = b + s c, float64, several times the
        last-level cache (less if memory is short). Bytes read plus bytes written are counted; the
        read of a line that a store needs first (write-allocate) is not. memory_bytes_per_s, which
        rooflines are taken from, is the highest rate. A dense product counts 2 n^3 operations.
        """
        size = min(max(CACHES * self.cache_bytes, SMALLEST), memory_budget() // 4) // 8
        a, b, c = (np.empty(size) for _ in range(3))
        for array in (a, b, c):  # each thread touches its pages first: they lie near it
            _fill(array, 1.0)
        calls = {"read": partial(_read, b), "copy": partial(_copy, a, b),
                 "triad": partial(_triad, a, b, c, 0.5)}
        timings = in_turns(self, calls, settings.repeats, "memory")
        rates = {f"{name}_bytes_per_s": arrays * b.nbytes / (1e-3 * timings[name]["time_ms"])
                 for name, arrays in (("read", 1), ("copy", 2), ("triad", 3))}
        rates["memory_bytes_per_s"] = max(rates.values())
        if settings.command == "machine":
            rates |= self._gemm(settings)
        return {**rates, "array_bytes": b.nbytes}

    def _gemm(self, settings):
        n = GEMM_SIZE
        rng = np.random.default_rng(settings.seed)
        calls = {}
        for dtype in ("float32", "float64"):
            a, b, out = (rng.standard_normal((n, n)).astype(dtype) for _ in range(3))
            calls[dtype] = partial(self.kernels.matmul, a, b, out)
        rates = {f"gemm_{dtype}_flops_per_s": 2 * n**3 / (1e-3 * timing["time_ms"])
                 for dtype, timing in in_turns(self, calls, settings.repeats, "gemm").items()}
        return {**rates, "gemm_size": n}

    def product_peers(self, A, threads, absent):
        """Return what multiplies by A on processors, besides us (hpgcn.bench.peers)."""
        return peers.products_on_cpu(A, threads, absent)

    def need(self, host_bytes, gpu_bytes, purpose):
        """Refuse, by a UsageError, to allocate more than the memory of the host."""
        budget = memory_budget()
        if host_bytes > budget:
            raise UsageError(f"bench: {purpose} needs {host_bytes} bytes of memory, the limit is "
                             f"{budget}; use --scale-down")

    def put(self, array):
        return array

    def get(self, array):
        """Return the array of NumPy or torch as one of NumPy."""
        return np.asarray(array)

    def copy(self, target, source):
        """Copy, by all threads, between contiguous arrays; return the target."""
        _copy(target.reshape(-1), source.reshape(-1))
        return target

    def seconds(self, call):
        begin = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - begin
        del result
        return (seconds,)

    def release(self):
        """Do nothing: memory is given back by itself."""


@jit(parallel=True)
def _fill(a, value):
    for i in prange(a.size):
        a[i] = value


@jit(parallel=True, fastmath=True)
def _read(a):
    total = 0.0
    for i in prange(a.size):
        total += a[i]
    return total


@jit(parallel=True)
def _copy(a, b):
    for i in prange(a.size):
        a[i] = b[i]


@jit(parallel=True)
def _triad(a, b, c, s):
    for i in prange(a.size):
        a[i] = b[i] + s * c[i]


def cpu_model():
    """Return the name of the processor, as far as the system knows it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores(cpus, root=CPUS):
    """Count the cores of some processors; those where the system does not say."""
    names = ("physical_package_id", "core_id")
    folders = [root / f"cpu{cpu}" / "topology" for cpu in cpus]
    try:
        return len({tuple((folder / name).read_text() for name in names) for folder in folders})
    except OSError:
        return len(cpus)


def caches(cpus, root=CPUS):
    """List caches: level, type, size_bytes (of one), line_bytes, instances."""
    files = ("level", "type", "size", "coherency_line_size", "shared_cpu_list")
    sharers = {}
    for cpu in cpus:
        for folder in sorted((root / f"cpu{cpu}" / "cache").glob("index[0-9]*")):
            try:
                level, kind, size, line, users = (
                    (folder / name).read_text().strip() for name in files)
                size = int(size.rstrip("KMG")) * UNITS.get(size[-1:], 1)
                sharers.setdefault((int(level), kind, size, int(line)), set()).add(users)
            except (OSError, ValueError):  # not every system tells all of it
                continue
    keys = ("level", "type", "size_bytes", "line_bytes")
    return [dict(zip(keys, cache), instances=len(users))
            for cache, users in sorted(sharers.items())]


def last_level(listed):
    """Sum the bytes of all instances of the highest data cache that `caches` lists."""
    data = [cache for cache in listed if cache["type"] != "Instruction"]
    top = max((cache["level"] for cache in data), default=0)
    size = sum(cache["size_bytes"] * cache["instances"] for cache in data if cache["level"] == top)
    return size or ASSUMED_CACHE
