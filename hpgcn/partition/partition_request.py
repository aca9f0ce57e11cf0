"""Request, result and engine run of a partitioning method."""
from collections import namedtuple
from dataclasses import dataclass, field, replace

import numpy as np

from hpgcn.parallel.layout import cut_evenly
from hpgcn.partition.effort import BEST, DEFAULT, SMALL
from hpgcn.partition.engines.engine_process import run_engine

MAX_TOTAL_WEIGHT = 2**30  # engines add weights in 32 bits
MAX_ENGINE_SEED = 2**31 - 1
QUICK_ENGINE = "mtkahypar"  # the only engine that can do less work
MAX_PARTS = 8192  # pairs of more parts are not counted in a table
ROWS = 0.1  # share of rows above the mean that a part may own if nonzeros have holders


# the checked arguments of `make_partition`
PartitionRequest = namedtuple(
    "PartitionRequest",
    "graph k engine epsilon w0 seed time_limit memory threads refine effort sampling piece named",
    # piece: the rows are a part of a large graph; named: the caller named the engine
    defaults=(DEFAULT, None, False, False))


@dataclass(frozen=True, eq=False)
class Parts:
    """Result of a partitioning method."""

    part: np.ndarray  # (n,) int32
    engine: str | None = None  # engine that found the parts; None if no engine was needed
    epsilon: float = 0.0  # imbalance that was allowed
    statistics: dict = field(default_factory=dict)  # numbers that the method counted itself
    holder: np.ndarray | None = None  # (nnz,) int32, of the entries of A + I
    unrefined: tuple | None = None  # (part, holder) before refinement; None if not refined
    winner: str = ""  # the method whose parts these are, if a method compares several
    batch: str = ""  # mini-batches whose traffic was minimized, e.g. "vertices:20000"
    divided: str = ""  # what the engine divided: "vertices" or "78,493 clusters"
    start: str = ""  # what the engine began with: "scratch", or the maker of parts, e.g. "metis"


def largest_load(weights, k, epsilon):
    """Return the most weight that one of k parts may have: (1 + epsilon) times the mean."""
    total = int(weights.sum())
    return int(min((1 + epsilon) * total / k, total))


def is_quick(request, pins):
    """Return whether the engine does less than all work for nets with this number of pins."""
    return (request.effort != BEST and request.engine == QUICK_ENGINE
            and (request.piece or pins > SMALL))


def run(arrays, weights, request, start=None, *, sparse=False):
    """Run the engine of a request; return its Parts. Trivial cases need no engine.

    Vertices without weight, which are isolated, are not passed to the engine. `start`
    is a function without arguments that returns first Parts, for an effort below BEST.
    `sparse` says that nets are small, so that a first partition is cheap and worth more
    tries.
    """
    k = request.k
    n = weights.size
    if k == 1:
        return Parts(np.zeros(n, np.int32))
    heavy = np.flatnonzero(weights)
    if k >= heavy.size:
        part = np.zeros(n, np.int32)
        part[heavy] = np.arange(heavy.size)
        return Parts(part)
    if arrays["offsets"][-1] == 0:
        return Parts(cut_evenly(weights, k))  # without edges, only balance counts
    if heavy.size < n:
        return _without_weightless(arrays, weights, heavy, request, start, sparse)

    # the engine that can be quick takes parts to begin with
    quick = is_quick(request, len(arrays.get("pins", ())))
    begun = "scratch"
    if quick and start is not None:
        first = start()
        begun = first.engine or "stream"
        arrays = {**arrays, "start": first.part}

    # weights and settings
    divisor = -(-int(weights.sum()) // MAX_TOTAL_WEIGHT)
    arrays = {**arrays, "weights": -(-weights // divisor)}  # keeps their sum far from 2^31
    epsilon = min(request.epsilon, k - 1.0)  # k - 1 allows all in one part
    settings = {"k": k, "epsilon": epsilon, "seed": request.seed % MAX_ENGINE_SEED,
                "threads": request.threads, "quick": quick, "sparse": sparse}
    part, volume = run_engine(request.engine, arrays, settings, time_limit=request.time_limit,
                              memory=request.memory)
    counted = {} if volume is None else {"engine_volume": volume}
    return Parts(part, request.engine, epsilon, counted, divided="vertices", start=begun)


def _without_weightless(arrays, weights, heavy, request, start, sparse):
    """Run the engine on the vertices `heavy`; return Parts in which part 0 has the others."""
    number = np.zeros(weights.size, np.int32)
    number[heavy] = np.arange(heavy.size)
    if "pins" in arrays:
        arrays = {**arrays, "pins": number[arrays["pins"]]}
    else:
        offsets = arrays["offsets"]
        arrays = {**arrays, "offsets": np.append(offsets[heavy], offsets[-1]),
                  "adjacent": number[arrays["adjacent"]]}

    def start_of_heavy():
        first = start()
        return replace(first, part=first.part[heavy])

    found = run(arrays, weights[heavy], request, start and start_of_heavy, sparse=sparse)
    part = np.zeros(weights.size, np.int32)
    part[heavy] = found.part
    return replace(found, part=part)
