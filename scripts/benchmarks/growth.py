"""Benchmark of SpMM on growing graphs, compared with a model of the caches."""

from functools import partial

import numpy as np

from benchmarks.benchmark_graphs import normalized, scaled
from benchmarks.roofline import LINE, cache_misses
from hpgcn.bench.timing import in_turns
from hpgcn.datasets.generators.generate import generate

SCALES = (16, 18, 20, 22)  # R-MAT of 1.6 to 109 million nonzeros
EDGE_FACTOR = 13
SAMPLE = 1 << 22  # nonzeros of a matrix that rates are measured with
LEVELS = ("l2", "last", "memory")  # a core's own cache, the last-level cache, memory
FILL = (0.5, 0.5, 16)  # x of a rate's matrix, over the L2, the last-level cache, that again


def measure(settings, host, limits):
    """Time SpMM on R-MAT graphs that quadruple in size; predict the times.

    predicted_ms = nonzeros (share_l2 c_l2 + share_last c_last + share_memory c_memory). The shares
    come from `cache_misses`, once with a core's L2 and once with that and the last-level cache. c_*
    are the seconds per nonzero of the same kernel over the first rows of the graph. Columns are
    drawn evenly from an x that half fills the L2 or the last-level cache, or far exceeds it. So c_*
    is the cost of a row at each level, with its part of indices and of out.

    "rows": vertices, nonzeros, width, time_ms, predicted_ms, ratio (time over predicted), of each
    of LEVELS LEVEL_share (of the reads of x) and LEVEL_ns (per nonzero).
    """
    private = [cache["size_bytes"] for cache in host.caches if cache["level"] == 2]
    sizes = (max(private, default=1 << 20), host.cache_bytes)
    rows = []
    for scale in SCALES:
        scale = scaled(scale, settings.scale_down)
        A = normalized(generate("rmat", scale=scale, edge_factor=EDGE_FACTOR, features=0,
                                classes=0, seed=settings.seed))
        for width in settings.widths:
            milliseconds, costs = time_levels(A, width, sizes, settings, host)
            shares = read_shares(A, width, sizes)
            predicted = 1e-6 * A.indices.size * np.dot(shares, costs)
            rows.append({
                "vertices": A.scale.size, "nonzeros": A.indices.size, "width": width,
                "time_ms": milliseconds, "predicted_ms": predicted,
                "ratio": milliseconds / predicted,
                **{f"{level}_share": share for level, share in zip(LEVELS, shares)},
                **{f"{level}_ns": cost for level, cost in zip(LEVELS, costs)}})
    return {"rows": rows}


def time_levels(A, width, sizes, settings, host):
    """Return the time of the product in ms, and of a nonzero in ns.

    The latter is for each cache level that holds x.
    """
    n = A.scale.size
    label = f"growth, {n} x {width}"
    host.need(4 * 4 * n * width + FILL[-1] * sizes[-1], label)
    x = np.ones((n, width), np.float32)
    calls = {"all": partial(host.kernels.spmm, A.indptr, A.indices, A.values, x, np.ones_like(x))}

    last = max(1, int(np.searchsorted(A.indptr, SAMPLE, "right")) - 1)
    sampled = int(A.indptr[last])
    rng = np.random.default_rng(settings.seed)
    out = np.ones((last, width), np.float32)
    for level, size, fill in zip(LEVELS, (*sizes, sizes[-1]), FILL):
        columns = max(1, int(fill * size) // (4 * width))
        indices = rng.integers(0, columns, sampled, np.int32)
        calls[level] = partial(host.kernels.spmm, A.indptr[:last + 1], indices, A.values[:sampled],
                               np.ones((columns, width), np.float32), out)

    timings = in_turns(host, calls, settings.repeats, label)
    costs = [1e6 * timings[level]["time_ms"] / sampled for level in LEVELS]
    return timings["all"]["time_ms"], costs


def read_shares(A, width, sizes):
    """Estimate which share of the reads of x each cache level of LEVELS serves."""
    n = A.scale.size
    nnz = A.indices.size
    private, shared = sizes
    counts = np.bincount(A.indices, minlength=n)
    # a row of x that does not begin a cache line takes one more, most of the time
    lines = 4 * width / LINE + (0.75 if 4 * n * width > shared // 2 else 0)
    entry_bytes = A.indices.itemsize + A.values.itemsize
    passing = entry_bytes / LINE + lines * n / nnz

    beyond_l2 = cache_misses(counts, lines, passing, private // LINE)
    beyond_last = min(beyond_l2, cache_misses(counts, lines, passing, (private + shared) // LINE))
    if nnz * entry_bytes + 8 * n * width <= shared:
        beyond_last = 0.0  # everything stays from one call to the next
    return 1 - beyond_l2, beyond_l2 - beyond_last, beyond_last
