"""How SpMM's time grows with the graph, held against a model of the caches."""
from __future__ import annotations

from functools import partial

import numpy as np

from hpgcn.bench.floors import cache_misses
from hpgcn.bench.graphs import operator
from hpgcn.bench.timing import best_of, need
from hpgcn.datasets import generate
from hpgcn.kernels.cpu import trusted as cpu

SCALES, EDGE_FACTOR = (16, 18, 20, 22), 13  # R-MAT of 1.6 to 109 million nonzeros
SAMPLE = 1 << 22  # nonzeros of a matrix that rates are measured with
LEVELS = ("l2", "last", "memory")  # a core's own cache, the last-level cache, memory
FILL = (0.5, 0.5, 16)  # size of x in a rate's matrix, over that of the L2, the last-level and the last-level cache
LINE = 64


def measure(settings, caches, cache_bytes):
    """Time SpMM with values over R-MAT graphs that quadruple, and predict the times.

    predicted_ms = nonzeros (share_l2 c_l2 + share_last c_last + share_memory c_memory). The shares come from
    `cache_misses`, once with a core's L2 and once with that and the last-level cache. c_* are the seconds per nonzero
    of the same kernel over the first rows of the graph, at most SAMPLE nonzeros, with columns drawn evenly from an x
    that half fills the L2 or the last-level cache, or far exceeds it: what a row costs at each level, its part of
    indices and of out included. All are timed in turns.

    Parameters
    ----------
    settings : hpgcn.bench.Settings
    caches : list of dict
        hpgcn.bench.hardware.describe()["caches"].
    cache_bytes : int
        Last-level cache.

    Returns
    -------
    dict
        "rows": vertices, nonzeros, width, time_ms, predicted_ms, ratio (time over predicted), l2_share, last_share,
        memory_share (of the reads of x), l2_ns, last_ns, memory_ns (per nonzero).
    """
    private = max((cache["size_bytes"] for cache in caches if cache["level"] == 2), default=LINE << 14)
    sizes = (private, cache_bytes, cache_bytes)
    rows = []
    for scale in SCALES:
        scale = max(6, scale - (settings.scale_down.bit_length() - 1))
        A = operator(generate.generate("rmat", scale=scale, edge_factor=EDGE_FACTOR, features=0, classes=0,
                                       seed=settings.seed))
        for width in settings.widths:
            rows.append(one(A, width, sizes, settings))
    return {"rows": rows}


def one(A, width, sizes, settings):
    """Row of one graph and width."""
    n, nnz, row_bytes = A.scale.size, A.indices.size, 4 * width
    need(4 * n * row_bytes + int(FILL[-1] * sizes[-1]), f"growth at {nnz} nonzeros and width {width}:")
    x, out = np.ones((n, width), np.float32), np.ones((n, width), np.float32)
    calls = {"time": partial(cpu.spmm, A.indptr, A.indices, A.values, x, out)}
    last = max(1, int(np.searchsorted(A.indptr, SAMPLE, "right")) - 1)
    indptr, sampled = A.indptr[:last + 1], int(A.indptr[last])
    rng, part = np.random.default_rng(settings.seed), np.ones((last, width), np.float32)
    for level, size, fill in zip(LEVELS, sizes, FILL):
        columns = max(1, int(fill * size) // row_bytes)
        calls[level] = partial(cpu.spmm, indptr, rng.integers(0, columns, sampled, np.int32), A.values[:sampled],
                               np.ones((columns, width), np.float32), part)
    seconds = best_of(calls, settings.repeats, f"growth {nnz} x {width}")
    counts = np.bincount(A.indices, minlength=n)
    # a row of x that does not begin a cache line takes one more, most of the time
    lines = row_bytes / LINE + (0.75 if n * row_bytes > sizes[1] // 2 else 0)
    passing = (A.indices.itemsize + A.values.itemsize) / LINE + lines * n / nnz
    first = cache_misses(counts, lines, passing, sizes[0] // LINE)
    second = min(first, cache_misses(counts, lines, passing, (sizes[0] + sizes[1]) // LINE))
    if nnz * (A.indices.itemsize + A.values.itemsize) + 2 * n * row_bytes <= sizes[1]:
        second = 0.0  # everything stays from one call to the next
    shares = (1 - first, first - second, second)
    each = {level: seconds[level] / sampled for level in LEVELS}
    predicted = nnz * sum(share * each[level] for share, level in zip(shares, LEVELS))
    return {"vertices": n, "nonzeros": nnz, "width": width, "time_ms": 1e3 * seconds["time"],
            "predicted_ms": 1e3 * predicted, "ratio": seconds["time"] / predicted,
            **{f"{level}_share": share for level, share in zip(LEVELS, shares)},
            **{f"{level}_ns": 1e9 * each[level] for level in LEVELS}}
