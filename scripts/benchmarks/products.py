"""Benchmark of SpMM and masked SpMM, on CPU or GPU.

They are compared with their rooflines and other libraries.
"""

from contextlib import nullcontext
from functools import partial

import numpy as np
import scipy.sparse as sp

from benchmarks import contended
from benchmarks.benchmark_graphs import matrices
from benchmarks.checks import OURS, checked_turns, tolerated
from benchmarks.roofline import spmm_bytes, stores_past

HOST_BYTES = 52  # bytes of an element of x on the host: x, out, and results in float64
GPU_BYTES = 28  # bytes of one on a GPU: x and out by rows and by columns, and the result of torch
SCALED = f"{OURS}_scaled"
MASKED = f"{OURS}_masked"
UNMASKED = f"{OURS}_spmm"


def measure(settings, device, limits):
    """Time each kernel on each graph at each width.

    rows : graph, vertices, nonzeros, width, kernel, the entries of `checked_turns` (errors are
        relative to SciPy in float64), least_bytes, floor_ms (their time at the bandwidth of
        memory), share_of_floor, traffic_bytes and share_of_traffic; see `roofline.spmm_bytes`. A
        kernel without values has fewer bytes. With --starved also those of
        `contended.contended_row`.
    absent : libraries that are missing or fail (name: reason).
    """
    rows = []
    absent = {}
    with contended.stream(device) if settings.starved else nullcontext() as stream:
        for name, A in matrices(settings):
            arrays = [device.put(array) for array in A[:4]]
            peers = {}
            if settings.command != "sspmm":
                peers = device.product_peers(A, settings.threads, absent)
            for width in settings.widths:
                rows += [{"graph": name, "vertices": A.scale.size, "nonzeros": A.indices.size,
                          "width": width, **row}
                         for row in rows_of(A, arrays, width, settings, device, peers, absent,
                                            limits, stream)]
            device.release()
    return {"rows": rows, "absent": absent}


def rows_of(A, arrays, width, settings, device, peers, absent, limits, stream):
    """Time all kernels at one width, with half of a mask's bits set.

    Yield the fields of each report row.
    """
    command = settings.command
    n = A.scale.size
    label = f"{command}, {n} x {width}"
    device.need(HOST_BYTES * n * width, label, GPU_BYTES * n * width)
    x = np.random.default_rng(settings.seed).standard_normal((n, width), np.float32)
    keep = np.random.default_rng(settings.seed + 1).integers(0, 2, (n, width), np.uint8)
    mask = device.put(np.packbits(keep, axis=1, bitorder="little"))
    out = device.put(np.empty_like(x))

    on_device = device.put(x)
    calls = our_calls(command, device.kernels, arrays, on_device, mask, out)
    for name, bind in peers.items():
        with tolerated(name, absent):
            calls[name] = bind(on_device, out)
    if command == "sspmm":
        calls["scipy"] = lambda: (A.matrix @ x) * keep

    exact = sp.csr_array((A.values.astype(float), A.indices, A.indptr), shape=(n, n)) @ x
    masked = exact * keep
    expected = {name: masked if kind(command, name) == "masked" else exact for name in calls}
    timings = checked_turns(device, calls, settings.repeats, label, expected=expected,
                            prepare=partial(out.fill, np.nan), absent=absent)
    if stream:
        hard = contended.time_contended(stream, device, {name: calls[name] for name in timings},
                              settings.repeats, label)
        left = device.memory_rates(hard)["memory_bytes_per_s"]

    allocated = device.allocates(out.nbytes)
    past = allocated and stores_past(A.indptr, A.indices, A.values, on_device, out)
    for name, timing in timings.items():
        allocate = allocated and not (past and name.startswith(OURS))
        least, traffic = bytes_of(A, width, kind(command, name), device, allocate)
        floor_ms = 1e3 * least / limits["memory_bytes_per_s"]
        share = floor_ms / timing["time_ms"]
        row = {"kernel": name, **timing, "least_bytes": least, "floor_ms": floor_ms,
               "share_of_floor": share, "traffic_bytes": traffic,
               "share_of_traffic": share * traffic / least}
        if stream:
            row |= contended.contended_row(stream, timing["time_ms"], hard[name], left, least)
        yield row


def our_calls(command, kernels, arrays, x, mask, out):
    indptr, indices, values, scale = arrays
    spmm = partial(kernels.spmm, indptr, indices, values, x, out)
    sspmm = partial(kernels.sspmm, indptr, indices, values, x, mask, out)
    if command == "sspmm":
        return {OURS: sspmm, UNMASKED: spmm,
                f"{OURS}_two_passes": lambda: kernels.apply_mask(spmm(), mask)}
    scaled = partial(kernels.spmm, indptr, indices, None, x, out, row_scale=scale, col_scale=scale)
    return {OURS: spmm, SCALED: scaled, **({MASKED: sspmm} if command == "cuda" else {})}


def kind(command, kernel):
    """Return how a kernel multiplies: "plain", "scaled" (without values) or "masked"."""
    if command == "sspmm":
        return "plain" if kernel == UNMASKED else "masked"
    return {MASKED: "masked", SCALED: "scaled"}.get(kernel, "plain")


def bytes_of(A, width, product, device, allocate=False):
    n = A.scale.size
    options = {"plain": {}, "scaled": {"value": 0, "extra": 2 * A.scale.nbytes},
               "masked": {"extra": n * -(-width // 8)}}  # bits, rows padded to a byte
    return spmm_bytes(n, n, A.indices.size, width, cache_bytes=device.cache_bytes,
                      pointer=A.indptr.itemsize, index=A.indices.itemsize, allocate=allocate,
                      **options[product])
