"""Benchmark of gathers and scatters of rows.

They are compared with a copy of the same rows and with NumPy.
"""

from functools import partial

import numpy as np

from benchmarks.checks import OURS, checked_turns
from hpgcn import store
from hpgcn.errors import DataError

ROWS = 1 << 20  # rows of the larger matrix; half, each once, are gathered or added to
PASSES = {"gather": 2, "scatter_add": 3}  # rows that are read or written for an index
ARRAYS = 5  # arrays of the larger matrix' size at once


def measure(settings, device, limits):
    """Time gather and scatter_add for random rows, or for rows sent.

    Rows sent are those of a graph's first part.

    Without a partition, the first half of the vertices is that part.

    rows : operation, order (of the index), rows, width, kernel, the entries of `checked_turns`
        (errors are relative to NumPy), bytes (of the index and of each row read and written),
        bytes_per_s, and share_of_copy (over the rate of a copy of the same rows in the same turns).
    """
    rng = np.random.default_rng(settings.seed)
    if settings.graph:
        n, chosen = sent_rows(settings.graph)
        chosen = rng.permutation(chosen)
    else:
        n = max(64, ROWS // settings.scale_down)
        chosen = rng.permutation(n)[:n // 2]
    rows = []
    for width in settings.widths:
        size = ARRAYS * 4 * n * width
        device.need(size, f"gather at width {width}", size)
        x = np.random.default_rng(settings.seed).standard_normal((n, width), np.float32)
        for order, index in (("random", chosen), ("sorted", np.sort(chosen))):
            for operation in PASSES:
                row = {"operation": operation, "order": order, "rows": index.size, "width": width}
                for timing in time_rows(operation, x, index, settings, device):
                    rows.append({**row, **timing})
    return {"rows": rows}


def sent_rows(path):
    """Return the vertices of a stored graph, and the rows of its first part.

    The rows are those that the part sends.
    """
    with store.load(path) as stored:
        graph = stored.read()
    n = graph.num_rows
    end = n // 2 if graph.offsets is None else int(graph.offsets[1])
    read = np.unique(graph.indices[graph.indptr[end]:])  # by the vertices of others
    sent = read[read < end].astype(np.int64)
    if not sent.size:
        raise DataError(f"{path}: the other vertices read no row of the first {end}")
    return n, sent


def time_rows(operation, x, index, settings, device):
    """Time the gather of rows `index` of x, or the addition to them.

    Yield a dict for each kernel.
    """
    part = x[:index.size]
    if operation == "gather":
        source = device.put(x)
        out = device.put(np.empty_like(part))
        result = x[index]
    else:
        source = device.put(part)
        out = device.put(np.empty_like(x))
        result = np.zeros_like(x)
        result[index] = part
    target = device.put(np.empty_like(part))
    place = device.put(index)
    calls = {OURS: partial(getattr(device.kernels, operation), source, place, out),
             "copy": partial(device.copy, target, device.put(part))}
    if device.xp is np:
        calls["numpy"] = partial(by_numpy, operation, source, place, out)
    timings = checked_turns(device, calls, settings.repeats, f"{operation} at width {x.shape[1]}",
                            prepare=partial(out.fill, 0),
                            expected={OURS: result, "numpy": result, "copy": part})

    copied = 2 * part.nbytes
    for kernel, timing in timings.items():
        moved = copied if kernel == "copy" else index.nbytes + PASSES[operation] * part.nbytes
        rate = moved / timing["time_ms"]
        yield {"kernel": kernel, **timing, "bytes": moved, "bytes_per_s": 1e3 * rate,
               "share_of_copy": rate / (copied / timings["copy"]["time_ms"])}


def by_numpy(operation, x, index, out):
    """Gather or add rows with NumPy, for an `index` without repetitions."""
    if operation == "gather":
        return np.take(x, index, axis=0, out=out, mode="clip")
    out[index] += x
    return out
