"""What this machine can do at most: memory bandwidth and the rate of a dense product."""
from __future__ import annotations

from functools import partial

import numpy as np
from numba import prange

from hpgcn.bench.timing import best_of
from hpgcn.kernels.cpu import trusted as cpu
from hpgcn.kernels.jit import jit
from hpgcn.machine import memory_budget

GEMM_SIZE = 2048
CACHES = 4  # an array is so many times the last-level cache
SMALLEST = 32 << 20  # bytes of an array at least


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


def copy(a, b):
    """Copy b to a, contiguous arrays of one shape, by all threads; return a."""
    _copy(a.reshape(-1), b.reshape(-1))
    return a


@jit(parallel=True)
def _triad(a, b, c, s):
    for i in prange(a.size):
        a[i] = b[i] + s * c[i]


def memory(cache_bytes, settings):
    """Memory bandwidth of all threads, float64 arrays several times the last-level cache (less if memory is short).

    read is a sum of an array, copy is a = b (2 arrays), triad is a = b + s c (3 arrays). Bytes read plus bytes written
    are counted; the read of a line that a store needs first (write-allocate) is not.

    Returns
    -------
    dict
        read_bytes_per_s, copy_bytes_per_s, triad_bytes_per_s; memory_bytes_per_s, the highest of the three, which
        floors are taken from; array_bytes.
    """
    size = min(max(CACHES * cache_bytes, SMALLEST), memory_budget() // 4) // 8
    a, b, c = (np.empty(size) for _ in range(3))
    for array in (a, b, c):  # each thread touches its pages first, so that they lie near it
        _fill(array, 1.0)
    seconds = best_of({"read": lambda: _read(b), "copy": lambda: copy(a, b), "triad": lambda: _triad(a, b, c, 0.5)},
                      settings.repeats, "memory")
    found = {f"{name}_bytes_per_s": arrays * b.nbytes / seconds[name]
             for name, arrays in (("read", 1), ("copy", 2), ("triad", 3))}
    return {**found, "memory_bytes_per_s": max(found.values()), "array_bytes": b.nbytes}


def gemm(settings):
    """Rate of a dense product: 2 n^3 operations over its seconds.

    Returns
    -------
    dict
        gemm_float32_flops_per_s, gemm_float64_flops_per_s, gemm_size (n).
    """
    n = GEMM_SIZE
    rng = np.random.default_rng(settings.seed)
    calls = {}
    for dtype in (np.float32, np.float64):
        a, b, out = (rng.standard_normal((n, n)).astype(dtype) for _ in range(3))
        calls[np.dtype(dtype).name] = partial(cpu.matmul, a, b, out)
    seconds = best_of(calls, settings.repeats, "gemm")
    return {**{f"gemm_{name}_flops_per_s": 2 * n**3 / took for name, took in seconds.items()}, "gemm_size": n}
