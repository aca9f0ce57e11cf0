"""Rows gathered and rows added, against the copy bandwidth and their peers."""
from __future__ import annotations

import numpy as np

from hpgcn.bench import peers
from hpgcn.bench.floors import gather_bytes, scatter_add_bytes
from hpgcn.bench.timing import compare, need
from hpgcn.kernels import cpu

ROWS = 1 << 20  # rows of the larger matrix; half of them, each once, are gathered or added to
ORDERS = ("random", "sorted")
ARRAYS = 4  # of the larger matrix' size at once


def measure(settings, copy_bytes_per_s):
    """Time gather and scatter_add over half of the rows of a matrix, in random and in increasing order.

    bytes are those of hpgcn.bench.floors; share_of_copy is bytes_per_s over the copy bandwidth.

    Returns
    -------
    dict
        "rows": operation, order, rows, width, kernel, time_ms, bytes, bytes_per_s, share_of_copy, relative_error
        (against NumPy). "absent": peers that are not installed.
    """
    n = max(64, ROWS // settings.scale_down)
    chosen = np.random.default_rng(settings.seed).permutation(n)[:n // 2]
    gathers, scatters, absent = peers.copies(settings.threads)
    rows = []
    for width in settings.widths:
        need(ARRAYS * 4 * n * width, f"gather at width {width}:")
        x = np.random.default_rng(settings.seed).standard_normal((n, width), np.float32)
        for order in ORDERS:
            index = chosen if order == "random" else np.sort(chosen)
            label = f"{order} {width}"
            for operation, size, took in (
                    ("gather", gather_bytes(index.size, width), time_gather(x, index, gathers, settings, label)),
                    ("scatter_add", scatter_add_bytes(index.size, width),
                     time_scatter_add(x, index, scatters, settings, label))):
                rows += [{"operation": operation, "order": order, "rows": index.size, "width": width, "kernel": kernel,
                          "time_ms": 1e3 * seconds, "bytes": size, "bytes_per_s": size / seconds,
                          "share_of_copy": size / seconds / copy_bytes_per_s, "relative_error": error}
                         for kernel, (seconds, error) in took.items()]
    return {"rows": rows, "absent": absent}


def time_gather(x, index, others, settings, label):
    """Seconds and error of each gather of x (n, f) at index (r,), as `compare`."""
    out = np.full((index.size, x.shape[1]), np.nan, np.float32)
    calls = {"hpgcn": lambda: cpu.gather(x, index, out),
             **{name: lambda take=take: take(x, index, out) for name, take in others.items()}}
    return compare(calls, {None: x[index]}, settings.repeats, f"gather {label}")


def time_scatter_add(x, index, others, settings, label):
    """Seconds and error of adding the first r rows of x (n, f) to the rows index (r,), as `compare`."""
    part, out, expected = x[:index.size], np.empty_like(x), np.zeros_like(x)
    expected[index] = part
    calls = {"hpgcn": lambda: cpu.scatter_add(part, index, out),
             **{name: lambda add=add: add(part, index, out) for name, add in others.items()}}
    return compare(calls, {None: expected}, settings.repeats, f"scatter_add {label}", prepare=lambda: out.fill(0))
