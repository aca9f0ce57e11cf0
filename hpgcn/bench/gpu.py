"""A GPU as a benchmark sees it: what it is, and how long work takes there."""
from __future__ import annotations

import sys
import time
from contextlib import contextmanager, nullcontext
from functools import cached_property
from importlib import import_module

import numpy as np

from hpgcn.bar import bar
from hpgcn.bench.timing import OURS
from hpgcn.errors import MissingError, UsageError, require

BUFFER = 1 << 30  # bytes that a copy is measured with, and that pass through the cache before each call
AHEAD = 4  # copies of that many bytes: while they run, the host queues the call that is timed


class Gpu:
    """The current GPU of CuPy.

    Attributes
    ----------
    xp : module
        CuPy.
    kernels : module
        hpgcn.kernels.cuda.

    Raises
    ------
    MissingError
        If there is no CuPy or no GPU.
    """

    def __init__(self):
        self.xp = require("cupy", "cuda12", "bench cuda (extra cuda12, or cuda13 where the driver knows CUDA 13)")
        try:
            found = self.xp.cuda.runtime.getDeviceCount()
        except Exception as error:  # CuPy's own class, which tells no driver from one that is too old
            raise MissingError(f"bench cuda needs a GPU, and CuPy for its driver (extra cuda12 or cuda13): {error}"
                               ) from error
        if not found:
            raise MissingError("bench cuda needs a GPU: CuPy (extra cuda12 or cuda13) finds none")
        self.kernels = import_module("hpgcn.kernels.cuda").trusted

    def describe(self):
        """What this GPU is: text and numbers, with the versions of CUDA in use."""
        runtime, device = self.xp.cuda.runtime, self.xp.cuda.Device()
        known = runtime.getDeviceProperties(device.id)
        return {"gpu": known["name"].decode(), "compute_capability": device.compute_capability,
                "multiprocessors": known["multiProcessorCount"], "gpu_l2_bytes": known["l2CacheSize"],
                "gpu_memory_bytes": known["totalGlobalMem"], "cuda_driver": str(runtime.driverGetVersion()),
                "cuda_runtime": str(runtime.runtimeGetVersion())}

    def free_bytes(self):
        """Memory that arrays may still take."""
        return self.xp.cuda.Device().mem_info[0] + self.xp.get_default_memory_pool().free_bytes()

    def fits(self, size, what):
        """Refuse to allocate more than the GPU's memory.

        Raises
        ------
        UsageError
        """
        free = self.free_bytes()
        if size > free:
            raise UsageError(f"bench: {what} need {size} bytes of GPU memory, {free} are free; use --scale-down")

    def put(self, array):
        """Copy to the GPU."""
        return self.xp.asarray(array)

    def get(self, array):
        """Copy to the host, from CuPy or torch."""
        return array.get() if isinstance(array, self.xp.ndarray) else array.cpu().numpy()

    def is_cut(self, indptr):
        """Whether SpMM works on pieces of these rows, for one is much longer than others."""
        return _spmm_module().pieces_of(indptr, None) is not None

    @cached_property
    def buffers(self):
        """Two arrays of BUFFER bytes, or of an eighth of what is free; not zeros, which may move faster."""
        numbers = self.xp.arange(min(BUFFER, self.free_bytes() // 8) // 4, dtype=np.uint32)
        numbers *= np.uint32(2654435761)
        return self.xp.empty_like(numbers), numbers

    def copy(self):
        """Queue a copy from one buffer to the other."""
        self.xp.copyto(*self.buffers)

    def seconds(self, call):
        """Time a call: seconds of the GPU, and of the host that queued it.

        Copies are queued before it: the GPU is busy while the host prepares the call, and its cache is cold.
        """
        for _ in range(AHEAD):
            self.copy()
        start, stop = self.xp.cuda.Event(), self.xp.cuda.Event()
        start.record()
        begin = time.perf_counter()
        result = call()
        host = time.perf_counter() - begin
        stop.record()
        stop.synchronize()
        del result
        return 1e-3 * self.xp.cuda.get_elapsed_time(start, stop), host

    def release(self):
        """Give back to the GPU what nobody uses: CuPy and torch have a pool each."""
        self.xp.get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()


def _spmm_module():
    return import_module("hpgcn.kernels.cuda.spmm")


def _no_pieces(indptr, rows):
    return None


def in_whole_rows(call):
    """Return `call` with the rows of SpMM left whole, however long."""
    def plain():
        module = _spmm_module()
        pieces_of, module.pieces_of = module.pieces_of, _no_pieces
        try:
            return call()
        finally:
            module.pieces_of = pieces_of
    return plain


@contextmanager
def tolerated(name, absent):
    """Note in `absent` that a peer is missing or fails, and why, in place of the error; our own kernels must not."""
    try:
        yield
    except Exception as error:
        if name.startswith(OURS):
            raise
        absent[name] = " ".join(f"{type(error).__name__}: {error}".split())


def in_turns(gpu, calls, repeats, label, *, prepare=None, check=None, absent=None):
    """Time calls on a GPU. They take turns, after one that is not timed.

    Parameters
    ----------
    gpu : Gpu
    calls : dict of str to callable
        What comes back may lie on the GPU. Those not named after this package may fail.
    repeats : int
    label : str
        Of the progress bar (on a terminal or in a notebook).
    prepare : callable, optional
        Called before the first call of each.
    check : callable, optional
        Given (name, result) of each first call; returns its error.
    absent : dict of str to str, optional
        Takes the name of a call that fails, and why.

    Returns
    -------
    dict of str to dict
        time_ms (least), median_ms, host_ms (median), relative_error (None without `check`).
    """
    seconds, errors, absent = {}, {}, {} if absent is None else absent
    with bar(total=len(calls) * (repeats + 1), desc=label, unit="call", leave=False) as done:
        for name, call in calls.items():
            with tolerated(name, absent) if check else nullcontext():
                if prepare:
                    prepare()
                result = call()
                errors[name] = check(name, result) if check else None
                seconds[name] = []
            result = None  # its memory is the next one's
            done.update()
        for _ in range(repeats):
            for name, took in seconds.items():
                took.append(gpu.seconds(calls[name]))
                done.update()
    return {name: {"time_ms": 1e3 * max(min(took)[0], 1e-9), "median_ms": 1e3 * max(np.median(took, 0)[0], 1e-9),
                   "host_ms": 1e3 * np.median(took, 0)[1], "relative_error": errors[name]}
            for name, took in seconds.items()}
