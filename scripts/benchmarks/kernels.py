"""Every public kernel on the processors, held against the bytes that it must move."""

from contextlib import nullcontext
from functools import partial

from benchmarks import contended
from benchmarks.benchmark_graphs import make, normalized
from hpgcn.bench.host import MOVED
from benchmarks.kernel_cases import CASES, Arrays, bytes_of, numbers_of
from hpgcn.bench.timing import in_turns

GRAPH = "prod"  # of benchmarks.benchmark_graphs: its vertices are the rows of all arrays
ARRAYS = 16  # of n rows, float32, at once: about
PER_ENTRY = 80  # bytes of an entry: the matrix, and three arrays of all heads


def measure(settings, host, limits):
    """Time the kernels of benchmarks.kernel_cases.CASES; UNTIMED there says which are not.

    "rows": kernel (and how it is called), width, bound (what is expected to take its time: memory
    or arithmetic), time_ms, median_ms, bytes (that must move, each row that is pulled once),
    floor_ms (these over memory_bytes_per_s), share_of_floor, traffic_bytes (no row that is pulled
    found in the cache again), share_of_traffic, memory_bytes_per_s, numbers_per_s (made or taken
    in; of matmul each is 2 f operations). The bandwidth is the higher one of a read and of a triad
    in the same turns as the kernel, the lines that stores read first counted, as they are in bytes.
    Starved, those of benchmarks.contended.compared, too.
    """
    A = normalized(make(GRAPH, settings.scale_down, settings.seed))
    rows = []
    with contended.stream(host) if settings.starved else nullcontext() as stream:
        for width in settings.widths:
            size = 4 * ARRAYS * A.scale.size * width + PER_ENTRY * A.indices.size
            host.need(size, 0, f"kernels at width {width}")
            arrays = Arrays(A, width, settings.seed)
            rows += [time_case(name, arrays, settings, host, stream) for name in CASES]
    return {"rows": rows}


def time_case(name, arrays, settings, host, stream):
    """Time a kernel; return its row."""
    case = CASES[name]
    label = f"{name}, {arrays.n} x {arrays.width}"
    moved, traffic = bytes_of(case, arrays, host.cache_bytes)
    calls = {name: partial(case.call, host.kernels, arrays)}
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
        hard = contended.beside(stream, host, calls, settings.repeats, label)
        left = host.memory_rates(hard, MOVED)["memory_bytes_per_s"]
        row |= contended.compared(stream, timing["time_ms"], hard[name], left, moved)
    return row
