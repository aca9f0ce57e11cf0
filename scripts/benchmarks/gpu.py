"""The GPU of a benchmark: description, bandwidth and timing of calls."""

import sys
from functools import cached_property, partial
from importlib import import_module

import numpy as np

from benchmarks import peers
from benchmarks.processors import Processors
from hpgcn.bench.timing import in_turns
from hpgcn.errors import MissingError, UsageError, require

BUFFER = 1 << 30  # bytes that copies are measured with, and that clear the cache
AHEAD = 4  # such copies: while they run, the host queues the call that is timed


class Gpu(Processors):
    """CuPy's current GPU (`xp`) and the host's processors.

    Raises MissingError without a GPU.
    """

    torch_device = "cuda"

    def __init__(self):
        super().__init__()
        self.xp = require("cupy", "cuda12",
                          "bench cuda (extra cuda12, or cuda13 if the driver supports CUDA 13)")
        runtime = self.xp.cuda.runtime
        try:
            count = runtime.getDeviceCount()
        except Exception as error:  # CuPy raises the same of no driver and of an old one
            raise MissingError("bench cuda needs a GPU, and CuPy for its driver (extra cuda12 or "
                               f"cuda13): {error}") from error
        if not count:
            raise MissingError("bench cuda needs a GPU: CuPy (extra cuda12 or cuda13) finds none")
        self.kernels = import_module("hpgcn.kernels.cuda").trusted
        self.properties = runtime.getDeviceProperties(self.xp.cuda.Device().id)
        self.cache_bytes = self.properties["l2CacheSize"]

    def describe(self):
        runtime = self.xp.cuda.runtime
        return {
            **super().describe(), "gpu": self.properties["name"].decode(),
            "compute_capability": self.xp.cuda.Device().compute_capability,
            "multiprocessors": self.properties["multiProcessorCount"],
            "gpu_l2_bytes": self.properties["l2CacheSize"],
            "gpu_memory_bytes": self.properties["totalGlobalMem"],
            "cuda_driver": str(runtime.driverGetVersion()),
            "cuda_runtime": str(runtime.runtimeGetVersion())}

    def memory_limits(self, repeats):
        """Measure a copy.

        Return memory_bytes_per_s, for bytes read plus written, and array_bytes.
        """
        copy = {"copy": partial(self.copy, *self.buffers)}
        milliseconds = in_turns(self, copy, 2 * repeats, "copy")["copy"]["time_ms"]
        size = self.buffers[0].nbytes
        return {"memory_bytes_per_s": 2 * size / (1e-3 * milliseconds), "array_bytes": size}

    def allocates(self, size):
        return False

    def product_peers(self, A, threads, absent):
        return peers.products_on_gpu(A, self, absent)

    def need(self, size, purpose, gpu_size=0):
        super().need(size, purpose)
        free = self.free_bytes()
        if gpu_size > free:
            raise UsageError(f"bench: {purpose} needs {gpu_size} bytes of GPU memory, but {free} "
                             "are free; use --scale-down")

    def free_bytes(self):
        pool = self.xp.get_default_memory_pool()
        return self.xp.cuda.Device().mem_info[0] + pool.free_bytes()

    def put(self, array):
        return self.xp.asarray(array)

    def get(self, array):
        """Return a CuPy or torch array as a NumPy array."""
        return array.get() if isinstance(array, self.xp.ndarray) else array.cpu().numpy()

    @cached_property
    def buffers(self):
        """Two arrays of BUFFER bytes, or of an eighth of the free memory.

        They contain no zeros, which might be faster to copy.
        """
        numbers = self.xp.arange(min(BUFFER, self.free_bytes() // 8) // 4, dtype=np.uint32)
        numbers *= np.uint32(2654435761)
        return self.xp.empty_like(numbers), numbers

    def copy(self, target, source):
        self.xp.copyto(target, source)
        return target

    def seconds(self, call):
        """Time a call with a cold cache.

        Return the seconds of the GPU, and those that the host needs to queue it.
        """
        for _ in range(AHEAD):
            self.copy(*self.buffers)
        start = self.xp.cuda.Event()
        stop = self.xp.cuda.Event()
        start.record()
        host_seconds = super().seconds(call)
        stop.record()
        stop.synchronize()
        return (1e-3 * self.xp.cuda.get_elapsed_time(start, stop), *host_seconds)

    def release(self):
        """Free the unused memory in the pools of CuPy and torch."""
        self.xp.get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()
