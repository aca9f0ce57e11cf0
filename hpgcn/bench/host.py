"""Describe the processors of this process; measure their highest rates and the time of a call."""

import os
import platform
import time
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from hpgcn.bench.timing import in_turns
from hpgcn.errors import UsageError
from hpgcn.kernels.cpu import trusted, tuning
from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.emit.emitter import cpu_name, vector_bytes
from hpgcn.kernels.host.threads import Threaded, chunks, num_threads
from hpgcn.runtime.machine import available_memory, memory_budget
from hpgcn.training.files.run_directory import versions

CPUS = Path("/sys/devices/system/cpu")
ASSUMED_CACHE = 32 << 20  # bytes, if the system lists no cache
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
CACHES = 4  # the arrays of a bandwidth test have this multiple of the last-level cache's bytes
SMALLEST = 32 << 20  # least bytes of such an array
GEMM_SIZE = 2048
COUNTED = {"read": 1, "copy": 2, "triad": 3}  # arrays that each call reads or writes


class BenchHost:
    """The processors that this process may use, as a device on which kernels are timed.

    `comm` is a communicator whose ranks begin each timed call together; None if only
    this rank measures.
    """

    kernels = trusted
    comm = None

    def __init__(self):
        self.cpus = sorted(os.sched_getaffinity(0))
        self.caches = caches(self.cpus)
        self.cache_bytes = last_level(self.caches)

    def describe(self):
        """Return a description of this machine, a dict of texts and numbers.

        A key of a number ends with its unit.
        """
        blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
        return {
            "cpu_model": cpu_model(), "architecture": platform.machine(), "cores": cores(self.cpus),
            "logical_cpus": len(self.cpus), "threads": num_threads(),
            "llvm_cpu": cpu_name(),
            "vector_bits": 8 * vector_bytes(), "caches": self.caches,
            "last_level_cache_bytes": self.cache_bytes,
            "available_memory_bytes": available_memory(),
            "tuning": str(tuning.path()) if tuning.measured() else "default",
            "blas": f"{blas.get('name', '')} {blas.get('version', '')}".strip(),
            "versions": versions()}

    def memory_limits(self, repeats):
        """Measure the memory bandwidth that all threads reach together.

        read sums an array, copy is a = b, triad is a = b + s c, all of float64. An
        array has several times the bytes of the last-level cache, or fewer if memory is
        short. A rate counts bytes read plus bytes written, without the line that a
        store may read first (write-allocate). memory_bytes_per_s, the bandwidth of
        rooflines, is the highest rate.
        """
        rates = self.memory_rates(in_turns(self, self.memory_calls, repeats, "memory"))
        size = self.memory_calls["read"].args[0]
        del self.memory_calls  # and the arrays of these calls
        return {**rates, "array_bytes": 8 * size}

    @cached_property
    def memory_calls(self):
        """The calls that `memory_limits` times, by name."""
        size = min(max(CACHES * self.cache_bytes, SMALLEST), memory_budget() // 4) // 8
        a, b, c = (np.empty(size) for _ in range(3))
        bounds = evenly(size)
        for array in (a, b, c):  # each thread touches its own pages first, so they are near it
            fill_array(size, array, 1.0, bounds)
        sums = np.empty(bounds.size - 1)
        return {"read": partial(read_array, size, b, sums, bounds),
                "copy": partial(copy_array, size, a, b, bounds),
                "triad": partial(triad_arrays, size, a, b, c, 0.5, bounds)}

    def memory_rates(self, timings, arrays=COUNTED):
        """Return bandwidths of `memory_calls`, and the highest one.

        They follow from timings. The highest is memory_bytes_per_s.
        """
        size = 8 * self.memory_calls["read"].args[0]
        rates = {f"{name}_bytes_per_s": count * size / (1e-3 * timings[name]["time_ms"])
                 for name, count in arrays.items()}
        return {**rates, "memory_bytes_per_s": max(rates.values())}

    def dense_limits(self, repeats, seed):
        """Measure the flops per second of square matrix products.

        They are measured in float32 and in float64.
        """
        n = GEMM_SIZE
        rng = np.random.default_rng(seed)
        calls = {}
        for dtype in ("float32", "float64"):
            a, b, out = (rng.standard_normal((n, n)).astype(dtype) for _ in range(3))
            calls[dtype] = partial(self.kernels.matmul, a, b, out)
        rates = {f"gemm_{dtype}_flops_per_s": 2 * n**3 / (1e-3 * timing["time_ms"])
                 for dtype, timing in in_turns(self, calls, repeats, "gemm").items()}
        return {**rates, "gemm_size": n}

    def need(self, size, purpose):
        """Raise UsageError if `size` bytes exceed the memory of the host."""
        budget = memory_budget()
        if size > budget:
            raise UsageError(f"bench: {purpose} needs {size} bytes of memory, but the limit "
                             f"is {budget}; use --scale-down")

    def seconds(self, call):
        """Run `call` on all ranks.

        Return the seconds of the slowest rank, a tuple of one number.
        """
        if self.comm is not None:
            self.comm.barrier()
        begin = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - begin
        del result
        if self.comm is not None:
            seconds = float(self.comm.max([seconds])[0])
        return (seconds,)


# Loops index a part from 0 on. Numba makes no vector code for an index that may be
# negative.


@Threaded
def fill_array(counters, a, value, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        part = a[bounds[chunk]:bounds[chunk + 1]]
        for i in range(part.size):
            part[i] = value


@partial(Threaded, fastmath=True)
def read_array(counters, a, sums, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        part = a[bounds[chunk]:bounds[chunk + 1]]
        total = 0.0
        for i in range(part.size):
            total += part[i]
        sums[chunk] = total


@Threaded
def copy_array(counters, a, b, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        first, last = bounds[chunk], bounds[chunk + 1]
        target, source = a[first:last], b[first:last]
        for i in range(target.size):
            target[i] = source[i]


@Threaded
def triad_arrays(counters, a, b, c, s, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        first, last = bounds[chunk], bounds[chunk + 1]
        target, left, right = a[first:last], b[first:last], c[first:last]
        for i in range(target.size):
            target[i] = left[i] + s * right[i]


def cpu_model():
    """Return the name of the processor, as the system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores(cpus, root=CPUS):
    """Count the physical cores of some logical CPUs.

    If the system has no list of cores, each CPU counts as one.
    """
    names = ("physical_package_id", "core_id")
    folders = [root / f"cpu{cpu}" / "topology" for cpu in cpus]
    try:
        return len({tuple((folder / name).read_text() for name in names) for folder in folders})
    except OSError:
        return len(cpus)


def caches(cpus, root=CPUS):
    """List the caches of some logical CPUs.

    An entry has level, type, size_bytes of one cache, line_bytes and instances.
    """
    files = ("level", "type", "size", "coherency_line_size", "shared_cpu_list")
    sharers = {}
    for cpu in cpus:
        for folder in sorted((root / f"cpu{cpu}" / "cache").glob("index[0-9]*")):
            try:
                level, kind, size, line, users = (
                    (folder / name).read_text().strip() for name in files)
                size = int(size.rstrip("KMG")) * UNITS.get(size[-1:], 1)
                sharers.setdefault((int(level), kind, size, int(line)), set()).add(users)
            except (OSError, ValueError):  # not every system has all of these files
                continue

    keys = ("level", "type", "size_bytes", "line_bytes")
    return [dict(zip(keys, cache), instances=len(users))
            for cache, users in sorted(sharers.items())]


def last_level(listed):
    """Return the total bytes of the highest-level caches.

    `listed` is the list of `caches`.
    """
    data = [cache for cache in listed if cache["type"] != "Instruction"]
    top = max((cache["level"] for cache in data), default=0)
    size = sum(cache["size_bytes"] * cache["instances"] for cache in data if cache["level"] == top)
    return size or ASSUMED_CACHE
