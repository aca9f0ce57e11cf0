"""Rows gathered and rows added, against the copy bandwidth and their peers."""
from __future__ import annotations

import numpy as np

from hpgcn.bench import peers
from hpgcn.bench.floors import gather_bytes, scatter_add_bytes
from hpgcn.bench.limits import copy
from hpgcn.bench.timing import compare, need
from hpgcn.kernels.cpu import trusted as cpu

ROWS = 1 << 20  # rows of the larger matrix; half of them, each once, are gathered or added to
ORDERS = ("random", "sorted")
ARRAYS = 5  # of the larger matrix' size at once


def measure(settings):
    """Time gather and scatter_add over half of the rows of a matrix, in random and in increasing order.

    bytes are those of hpgcn.bench.floors; share_of_copy is bytes_per_s over that of a copy of as many rows, in turns.

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
            label, copied = f"{order} {width}", 2 * x.itemsize * width * index.size
            for operation, size, took in (
                    ("gather", gather_bytes(index.size, width), time_gather(x, index, gathers, settings, label)),
                    ("scatter_add", scatter_add_bytes(index.size, width),
                     time_scatter_add(x, index, scatters, settings, label))):
                rows += [{"operation": operation, "order": order, "rows": index.size, "width": width, "kernel": kernel,
                          "time_ms": 1e3 * seconds, "bytes": moved, "bytes_per_s": moved / seconds,
                          "share_of_copy": moved / seconds / (copied / took["copy"][0]), "relative_error": error}
                         for kernel, (seconds, error) in took.items()
                         for moved in [copied if kernel == "copy" else size]]
    return {"rows": rows, "absent": absent}


def time_gather(x, index, others, settings, label):
    """Seconds and error of each gather of x (n, f) at index (r,), as `compare`."""
    out = np.full((index.size, x.shape[1]), np.nan, np.float32)
    calls = {"hpgcn": lambda: cpu.gather(x, index, out), "copy": lambda: copy(out, x[:index.size]),
             **{name: lambda take=take: take(x, index, out) for name, take in others.items()}}
    return compare(calls, {None: x[index], "copy": x[:index.size]}, settings.repeats, f"gather {label}")


def time_scatter_add(x, index, others, settings, label):
    """Seconds and error of adding the first r rows of x (n, f) to the rows index (r,), as `compare`."""
    part, out, expected = x[:index.size], np.empty_like(x), np.zeros_like(x)
    expected[index], target = part, np.ones_like(part)
    calls = {"hpgcn": lambda: cpu.scatter_add(part, index, out), "copy": lambda: copy(target, part),
             **{name: lambda add=add: add(part, index, out) for name, add in others.items()}}
    return compare(calls, {None: expected, "copy": part}, settings.repeats, f"scatter_add {label}",
                   prepare=lambda: out.fill(0))
