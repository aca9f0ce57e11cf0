"""The processors: what they are, what they can do at most, how long work takes there."""

import os
import platform
import time
from functools import cached_property, partial
from pathlib import Path

import llvmlite.binding
import numpy as np
from numba.core import config

from benchmarks import peers
from hpgcn.bench.timing import in_turns
from hpgcn.errors import UsageError
from hpgcn.kernels.cpu import trusted, tuning
from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.emit.emitter import vector_bytes
from hpgcn.kernels.cpu.spmm import Pass, product
from hpgcn.kernels.threads import Threaded, chunks, num_threads
from hpgcn.runtime.machine import available_memory, memory_budget
from hpgcn.training.runs.run_directory import versions

CPUS = Path("/sys/devices/system/cpu")
ASSUMED_CACHE = 32 << 20  # bytes, where the system does not say
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
CACHES = 4  # an array that bandwidth is measured with is so many times the last-level cache
GEMM_SIZE = 2048
SMALLEST = 32 << 20  # bytes of such an array at least
COUNTED = {"read": 1, "copy": 2, "triad": 3}  # arrays that are read and written
MOVED = {"read": 1, "triad": 4}  # and lines that stores read first; a copy may do without


class Host:
    """The processors that this process may use, with the methods of `benchmarks.gpu.Gpu`."""

    xp = np
    kernels = trusted

    comm = None  # whose ranks begin each call together; None: this one is alone

    def __init__(self):
        self.cpus = sorted(os.sched_getaffinity(0))
        self.caches = caches(self.cpus)
        self.cache_bytes = last_level(self.caches)

    def describe(self):
        """Return what the machine is: text, and numbers with their unit in their key."""
        blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
        return {
            "cpu_model": cpu_model(), "architecture": platform.machine(), "cores": cores(self.cpus),
            "logical_cpus": len(self.cpus), "threads": num_threads(),
            "llvm_cpu": config.CPU_NAME or llvmlite.binding.get_host_cpu_name(),
            "vector_bits": 8 * vector_bytes(), "caches": self.caches,
            "last_level_cache_bytes": self.cache_bytes,
            "available_memory_bytes": available_memory(),
            "tuning": str(tuning.path()) if tuning.measured() else "default",
            "blas": f"{blas.get('name', '')} {blas.get('version', '')}".strip(),
            "versions": versions()}

    def limits(self, settings):
        """Measure the bandwidth of memory, by all threads; for `machine`, dense products, too.

        read is a sum of an array, copy is a = b, triad is a = b + s c, float64, several times the
        last-level cache (less if memory is short). Bytes read plus bytes written are counted; the
        read of a line that a store needs first (write-allocate) is not. memory_bytes_per_s, which
        rooflines are taken from, is the highest rate. A dense product counts 2 n^3 operations.
        """
        rates = self.memory_rates(in_turns(self, self.memory_calls, settings.repeats, "memory"))
        size = self.memory_calls["read"].args[0]
        if not settings.starved:  # else they are needed again
            del self.memory_calls
        if settings.command == "machine":
            rates |= self._gemm(settings)
        return {**rates, "array_bytes": 8 * size}

    @cached_property
    def memory_calls(self):
        """The calls that read, copy and triad, as `limits` says."""
        size = min(max(CACHES * self.cache_bytes, SMALLEST), memory_budget() // 4) // 8
        a, b, c = (np.empty(size) for _ in range(3))
        bounds = evenly(size)
        for array in (a, b, c):  # each thread touches its pages first: they lie near it
            _fill(size, array, 1.0, bounds)
        sums = np.empty(bounds.size - 1)
        return {"read": partial(_read, size, b, sums, bounds),
                "copy": partial(_copy, size, a, b, bounds),
                "triad": partial(_triad, size, a, b, c, 0.5, bounds)}

    def memory_rates(self, timings, arrays=COUNTED):
        """Return NAME_bytes_per_s of `memory_calls`, timed, and memory_bytes_per_s, the highest."""
        size = 8 * self.memory_calls["read"].args[0]
        rates = {f"{name}_bytes_per_s": count * size / (1e-3 * timings[name]["time_ms"])
                 for name, count in arrays.items()}
        return {**rates, "memory_bytes_per_s": max(rates.values())}

    def allocates(self, size):
        """Whether an array so large is read, line by line, before it is written."""
        return size > self.cache_bytes

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
        """Return what multiplies by A on processors, besides us (benchmarks.peers)."""
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
        _copy(target.size, target.reshape(-1), source.reshape(-1), evenly(target.size))
        return target

    def seconds(self, call):
        if self.comm is not None:
            self.comm.barrier()
        begin = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - begin
        del result
        if self.comm is not None:  # the slowest of them
            seconds = float(self.comm.max([seconds])[0])
        return (seconds,)

    def release(self):
        """Do nothing: memory is given back by itself."""


# loops over parts from 0 on: an index that may be negative, for all Numba knows, costs vector code


@Threaded
def _fill(taken, a, value, bounds):
    for chunk in chunks(taken, bounds.size - 1):
        part = a[bounds[chunk]:bounds[chunk + 1]]
        for i in range(part.size):
            part[i] = value


@partial(Threaded, fastmath=True)
def _read(taken, a, sums, bounds):
    for chunk in chunks(taken, bounds.size - 1):
        part = a[bounds[chunk]:bounds[chunk + 1]]
        total = 0.0
        for i in range(part.size):
            total += part[i]
        sums[chunk] = total


@Threaded
def _copy(taken, a, b, bounds):
    for chunk in chunks(taken, bounds.size - 1):
        first, last = bounds[chunk], bounds[chunk + 1]
        target, source = a[first:last], b[first:last]
        for i in range(target.size):
            target[i] = source[i]


@Threaded
def _triad(taken, a, b, c, s, bounds):
    for chunk in chunks(taken, bounds.size - 1):
        first, last = bounds[chunk], bounds[chunk + 1]
        target, left, right = a[first:last], b[first:last], c[first:last]
        for i in range(target.size):
            target[i] = left[i] + s * right[i]


def stores_past(indptr, indices, values, x, out):
    """Whether our product stores its result past the cache, so that no line of it is read first."""
    _, launches = product(indptr, indices, values, x, out)
    passes = [launch for launch in launches if isinstance(launch, Pass)]
    return bool(passes) and all(each.shape.streamed for each in passes)


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
