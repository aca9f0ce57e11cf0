"""`hpgcn bench tune`: measure and store the best prefetch distances of sparse products.

The distance is an argument of a compiled product, but the number of lines of a row is
compiled in. Therefore only a few numbers of lines are tried, with many distances.
"""

from contextlib import contextmanager
from functools import partial

import numpy as np

from hpgcn.bench.timing import in_turns
from hpgcn.errors import OutputError
from hpgcn.kernels.cpu import trusted, tuning
from hpgcn.kernels.cpu.column_blocks import IN_BLOCK
from hpgcn.kernels.cpu.tuning import LEVELS, PrefetchDistance
from hpgcn.runtime.device import HOST

ROWS = {"one line": 16, "few lines": 64, "more": 128}  # columns of x, float32, by ROW_BYTES
WORK = 1 << 27  # bytes of rows of x that a product reads
PER_ROW = 16  # nonzeros of a row
FEW = 4  # nonzeros of a row for timing stores: results are then a large share of the traffic
BEYOND = 6  # size of an x in memory, in multiples of the last cache,
ENOUGH = 1 << 30  # but no larger than this, unless two last caches are
MANY = 1 << 20  # rows of the product that times entries: they lie in memory
CACHES = 8  # second caches that a blocked x fills
LONG = CACHES * IN_BLOCK  # nonzeros of a row of its matrix
TURNS = 2  # factor of --repeats, because the calls here are short
SPARE = 0.03  # share by which a choice must be faster than the default
ALL = 16  # lines of a row, at least
# nonzeros ahead, and lines of a row
FAR = ((0, 0), (64, 1), (128, 1), (32, ALL), (64, ALL), (128, ALL))
NEAR = ((0, 0), (6, 1), (12, 1), (24, 1), (32, 1), (64, 1), (16, 2), (16, ALL))


def measure(settings, host, comm):
    """Time products with each PrefetchDistance; store the best ones.

    x lies in each of LEVELS.

    rows : a dict for each level and row length, with level, row (its cache lines: one, few or
        more), near, near_lines, far, far_lines, time_ms of the choice, default_ms, and
        ratio (default over choice). Then one for stores past the last cache, one for
        the blocks that x is read in, and one for the entries of A.
    kept : the file of this CPU model (hpgcn.kernels.cpu.tuning.path), which later runs read. No bit
        of any result depends on it.
    removed : with `reset`, which times nothing, the path of the removed file or a text if there is
        none.

    OutputError if the file cannot be written.
    """
    # check the file before any time is spent
    if settings.reset:
        with writable():
            return {"removed": str(tuning.forget() or f"nothing: no file {tuning.path()}")}
    with writable():  # before any time is spent
        tuning.path().parent.mkdir(parents=True, exist_ok=True)

    # the prefetch distance for each level and each kind of rows
    reach = {}
    rows = []
    for level in LEVELS:
        kinds = []
        for name, width in ROWS.items():
            size = max(4 * width, size_of(level) // settings.scale_down)
            host.need(4 * size, f"tune, {level}")
            m = max(1, WORK // settings.scale_down // (4 * width * PER_ROW))
            product = make_product(m, size // (4 * width), width, PER_ROW, settings.seed)
            best, took = choose(level, len(kinds), product, settings, host)
            default = took[tuning.default().reach[level][len(kinds)]]
            rows.append({"level": level, "row": name, **best._asdict(), "time_ms": took[best],
                         "default_ms": default, "ratio": default / took[best]})
            kinds.append(best)
        reach[level] = tuple(kinds)

    # the settings that apply to all levels
    prefetch = tuning.default()._replace(reach=reach)
    for field, (level, words, values, make) in OTHERS.items():
        best, took = choose_other(prefetch, field, values, make(settings), settings, host)
        default = took[getattr(tuning.default(), field)]
        rows.append({"level": level, "row": words(best), **dict.fromkeys(PrefetchDistance._fields),
                     "time_ms": took[best], "default_ms": default, "ratio": default / took[best]})
        prefetch = prefetch._replace(**{field: best})
    with writable():
        return {"rows": rows, "kept": str(tuning.save(prefetch))}


def choose(level, place, product, settings, host):
    """Return the best PrefetchDistance of a level, and all times in ms.

    x lies in this cache level, for one kind of rows. The distance into the second cache
    is chosen first, then that into the first cache. Finally the best is compared with
    the default; it must be faster by SPARE.
    """
    default = tuning.default().reach[level][place]
    lines = list(ROWS.values())[place] // 16
    every = ALL if lines > 1 else 1

    def timed(*reaches):
        calls = {reach: partial(run, with_reach(level, place, reach), product)
                 for reach in dict.fromkeys(reaches)}
        label = f"tune, x in {level}, {list(ROWS)[place]}"
        timings = in_turns(host, calls, TURNS * settings.repeats, label)
        return {reach: timing["time_ms"] for reach, timing in timings.items()}

    def of(candidates):
        """Merge the candidates that prefetch the same lines of a row.

        Return the candidates that differ.
        """
        return dict.fromkeys((ahead, count if count < lines else every)
                             for ahead, count in candidates)

    # choose the far distance, then the near one, then compare with the default
    took = timed(default, *(PrefetchDistance(*default[:2], *far) for far in of(FAR)))
    best = min(took, key=took.get)
    took = timed(default, best, *(PrefetchDistance(*near, *best[2:]) for near in of(NEAR)))
    best = min(took, key=took.get)
    took |= timed(default, best)
    if took[best] > (1 - SPARE) * took[default]:
        best = default
    return best, took


def choose_other(found, field, values, product, settings, host):
    """Return the best value of one `field` of Tuning, and the ms of all values.

    `found` are the fields that are tuned already.
    """
    calls = {value: partial(run, found._replace(**{field: value}), product) for value in values}
    timings = in_turns(host, calls, settings.repeats, f"tune, {field}")
    took = {value: timing["time_ms"] for value, timing in timings.items()}
    best = min(took, key=took.get)
    default = getattr(tuning.default(), field)
    if took[best] > (1 - SPARE) * took[default]:
        best = default
    return best, took


def of_stores(settings):
    """Return a product that mostly writes.

    Its results lie in memory, outside of all caches.
    """
    width = ROWS["more"]
    rows = max(1, size_of("memory") // settings.scale_down // (4 * width))
    return make_product(rows, rows, width, FEW, settings.seed)


def of_blocks(settings):
    """Return a product of long rows with an x larger than the second cache.

    x is several times larger.
    """
    width = ROWS["more"]
    rows = max(1, CACHES * tuning.second_cache() // settings.scale_down // (4 * width))
    return make_product(rows, rows, width, LONG, settings.seed)


def of_entries(settings):
    """Return a product that mostly reads its matrix.

    Rows of x are one cache line, and x fits the last cache.
    """
    width = ROWS["one line"]
    rows = max(1, size_of("last") // settings.scale_down // (4 * width))
    return make_product(max(1, MANY // settings.scale_down), rows, width, PER_ROW, settings.seed)


def size_of(level):
    """Return the bytes of an x that fits this level of the memory, but no faster level."""
    last = tuning.last_level_cache()
    memory = max(2 * last, min(BEYOND * last, ENOUGH))
    return {"second": tuning.second_cache() // 2, "last": last // 3, "memory": memory}[level]


def make_product(m, rows, width, per_row, seed):
    """Return the arguments of a sparse product with m rows.

    Its nonzeros lie in uniformly drawn columns.
    """
    columns = np.random.default_rng(seed).integers(0, rows, (m, per_row), np.int32)
    columns.sort(axis=1)
    x = HOST.empty((rows, width), np.float32)
    x[...] = 1
    out = HOST.empty((m, width), np.float32)
    out[...] = 0
    return np.arange(m + 1) * per_row, columns.ravel(), None, x, out


# the other fields of Tuning: (name in the report, field, values, product that is timed)
OTHERS = {
    "streamed": ("stores", {True: "past the cache", False: "into it"}.get, (True, False),
                 of_stores),
    "blocks": ("blocks", lambda count: f"{count} x second cache" if count else "none", (0, 1, 2, 4),
               of_blocks),
    "entries": ("entries", {True: "ahead", False: "as they come"}.get, (True, False), of_entries)}


@contextmanager
def writable():
    """Turn an error in writing or removing the tuning file into an OutputError.

    This is a context manager.
    """
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"bench tune: the distances cannot be stored: {error}; set "
                          "XDG_CACHE_HOME to another cache folder") from error


def with_reach(level, place, reach):
    """Return the default Tuning with another PrefetchDistance.

    The distance is for one level and one kind of rows.
    """
    default = tuning.default()
    kinds = list(default.reach[level])
    kinds[place] = reach
    return default._replace(reach={**default.reach, level: tuple(kinds)})


def run(candidate, product):
    """Compute a product with the settings of a candidate Tuning."""
    with tuning.using(candidate):
        return trusted.spmm(*product)
