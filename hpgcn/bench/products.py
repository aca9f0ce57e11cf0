"""SpMM and S-SpMM against their floors and their peers."""
from __future__ import annotations

import numpy as np

from hpgcn.bench import peers
from hpgcn.bench.floors import mask_bytes, spmm_bytes
from hpgcn.bench.graphs import make, operator
from hpgcn.bench.timing import compare, need
from hpgcn.kernels.cpu import trusted as cpu

ARRAYS = 7  # of the size of x at once: x, out, what is expected, a peer's result and its copies, a difference


def measure(command, settings, bytes_per_s, cache_bytes):
    """Time each kernel on each graph at each width.

    floor_ms is hpgcn.bench.floors.spmm_bytes' least over the bandwidth, traffic_ms its traffic; shares are these over
    time_ms. A kernel that stores no values has fewer bytes; masking after the product is held against the floor of
    masking within it.

    Returns
    -------
    dict
        "rows": graph, vertices, nonzeros, width, kernel, time_ms, least_bytes, floor_ms, share_of_floor, traffic_bytes,
        traffic_ms, share_of_traffic, relative_error (against SciPy). "absent": peers that are not installed.
    """
    rows, absent = [], {}
    for name in settings.graphs:
        A = operator(make(name, settings.scale_down, settings.seed))
        others = {}
        if command == "spmm":
            others, absent = peers.products(A, settings.threads)
        for width in settings.widths:
            n, nnz = A.scale.size, A.indices.size
            need(ARRAYS * 4 * n * width, f"{command} on {name} at width {width}:")
            x = np.random.default_rng(settings.seed).standard_normal((n, width), np.float32)
            if command == "spmm":
                calls, expected, sizes = spmm_calls(A, x, others)
            else:
                calls, expected, sizes = sspmm_calls(A, x, settings.seed)
            took = compare(calls, expected, settings.repeats, f"{command} {name} {width}")
            for kernel, (seconds, error) in took.items():
                least, traffic = spmm_bytes(n, n, nnz, width, cache_bytes=cache_bytes, pointer=A.indptr.itemsize,
                                            index=A.indices.itemsize, **sizes.get(kernel, sizes[None]))
                floors = {key: 1e3 * size / bytes_per_s for key, size in (("floor", least), ("traffic", traffic))}
                rows.append({
                    "graph": name, "vertices": n, "nonzeros": nnz, "width": width, "kernel": kernel,
                    "time_ms": 1e3 * seconds, "least_bytes": least, "floor_ms": floors["floor"],
                    "share_of_floor": floors["floor"] / (1e3 * seconds), "traffic_bytes": traffic,
                    "traffic_ms": floors["traffic"], "share_of_traffic": floors["traffic"] / (1e3 * seconds),
                    "relative_error": error})
    return {"rows": rows, "absent": absent}


def spmm_calls(A, x, others):
    """SpMM with values, SpMM without (rows and columns scaled), and the peers.

    Returns
    -------
    calls : dict of name to callable
    expected : dict of name (None: the others) to (n, f)
    sizes : dict of name (None: the others) to arguments of `spmm_bytes`
    """
    out = np.full_like(x, np.nan)
    calls = {
        "hpgcn": lambda: cpu.spmm(A.indptr, A.indices, A.values, x, out),
        "hpgcn_scaled": lambda: cpu.spmm(A.indptr, A.indices, None, x, out, row_scale=A.scale, col_scale=A.scale),
        **{name: lambda multiply=multiply: multiply(x, out) for name, multiply in others.items()}}
    scaled = {"value": 0, "extra": 2 * A.scale.nbytes}
    return calls, {None: A.matrix @ x}, {None: {}, "hpgcn_scaled": scaled, "dgl_scaled": scaled}


def sspmm_calls(A, x, seed):
    """S-SpMM, the same in two passes, by SciPy, and SpMM without a mask for comparison; returns as `spmm_calls`.

    Each bit of the mask is 1 with probability 1/2.
    """
    out = np.full_like(x, np.nan)
    keep = np.random.default_rng(seed + 1).integers(0, 2, x.shape, np.uint8)
    mask = np.packbits(keep, axis=1, bitorder="little")
    calls = {
        "hpgcn": lambda: cpu.sspmm(A.indptr, A.indices, A.values, x, mask, out),
        "hpgcn_two_passes": lambda: cpu.apply_mask(cpu.spmm(A.indptr, A.indices, A.values, x, out), mask),
        "hpgcn_spmm": lambda: cpu.spmm(A.indptr, A.indices, A.values, x, out),
        "scipy": lambda: (A.matrix @ x) * keep}
    product = A.matrix @ x
    sizes = {None: {"extra": mask_bytes(*x.shape)}, "hpgcn_spmm": {}}
    return calls, {None: product * keep, "hpgcn_spmm": product}, sizes
