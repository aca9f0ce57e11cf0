"""Benchmark of every public CPU kernel, compared with the bytes that it must move."""

from contextlib import nullcontext
from functools import partial

from benchmarks import contended
from benchmarks.benchmark_graphs import make, normalized
from benchmarks.kernel_cases import CALLS, CASES, Arrays, bytes_of, numbers_of
from hpgcn.bench.timing import in_turns

GRAPH = "prod"  # a graph of benchmark_graphs; the arrays have a row for each vertex
ARRAYS = 16  # float32 arrays of n rows that exist at once, about
PER_ENTRY = 80  # bytes of an entry: the matrix, and three arrays of all heads
MOVED = {"read": 1, "triad": 4}  # arrays that are moved, with the lines that stores read first


def measure(settings, host, limits):
    """Time all kernels of kernel_cases.CASES at each width.

    A row has

    kernel, width : the kernel and how it is called; the width of its arrays.
    bound : memory or arithmetic, whichever is expected to take its time.
    time_ms, median_ms : least and median time.
    bytes : those that must move, with each pulled row once; floor_ms is their time at
        memory_bytes_per_s, share_of_floor this time over time_ms.
    traffic_bytes, share_of_traffic : the same if no pulled row is found in the cache again.
    memory_bytes_per_s : the higher rate of a read and of a triad in the same turns as the kernel,
        with the lines that stores read first.
    numbers_per_s : numbers made or taken in; for matmul each is 2 f operations.

    With --starved a row also has the entries of `contended.contended_row`.
    """
    A = normalized(make(GRAPH, settings.scale_down, settings.seed))
    rows = []
    with contended.stream(host) if settings.starved else nullcontext() as stream:
        for width in settings.widths:
            size = 4 * ARRAYS * A.scale.size * width + PER_ENTRY * A.indices.size
            host.need(size, f"kernels at width {width}")
            arrays = Arrays(A.indptr, A.indices, A.values, width, settings.seed)
            rows += [time_case(name, arrays, settings, host, stream) for name in CASES]
    return {"rows": rows}


def time_case(name, arrays, settings, host, stream):
    """Time a kernel; return its row of the report."""
    case = CASES[name]
    label = f"{name}, {arrays.n} x {arrays.width}"
    moved, traffic = bytes_of(case, arrays, host.cache_bytes)
    calls = {name: partial(CALLS[name], host.kernels, arrays)}
    timings = in_turns(host, calls | host.memory_calls, settings.repeats, label)

    timing = timings[name]
    rate = host.memory_rates(timings, MOVED)["memory_bytes_per_s"]
    floor_ms = 1e3 * moved / rate
    share = floor_ms / timing["time_ms"]
    row = {"kernel": name, "width": arrays.width,
           "bound": "arithmetic" if case.arithmetic else "memory", **timing, "bytes": moved,
           "floor_ms": floor_ms, "share_of_floor": share, "traffic_bytes": traffic,
           "share_of_traffic": share * traffic / moved, "memory_bytes_per_s": rate,
           "numbers_per_s": 1e3 * numbers_of(case, arrays) / timing["time_ms"]}
    if stream:
        hard = contended.time_contended(stream, host, calls, settings.repeats, label)
        left = host.memory_rates(hard, MOVED)["memory_bytes_per_s"]
        row |= contended.contended_row(stream, timing["time_ms"], hard[name], left, moved)
    return row
