"""The methods of partitioning, and `make_partition`, which runs one of them.

A method is a function (rows, weights, request) -> Parts: it gets the pattern of A + I, the vertex
weights, and what the caller asked for.
"""
from __future__ import annotations

import difflib
import logging
import math
import operator
import os
from collections import namedtuple
from dataclasses import dataclass, field, replace

import numpy as np

from hpgcn.errors import DataError, InternalError, MissingError, UsageError
from hpgcn.graphs.partition import Partition, check_parts
from hpgcn.graphs.reordering import profile, random_order, rcm_within_parts
from hpgcn.parallel.layout import cut_evenly
from hpgcn.partition.model import column_nets, neighbours, pattern
from hpgcn.partition.process import engine_version, run_engine
from hpgcn.partition.quality import COMPARED, count
from hpgcn.partition.stochastic import stochastic_nets

log = logging.getLogger("hpgcn")
MAX_TOTAL_WEIGHT = 2**30  # engines add weights in 32 bits
MAX_SEED = 2**63 - 1
MAX_ENGINE_SEED = 2**31 - 1


# what `make_partition` was asked for, checked
Request = namedtuple("Request", "graph k engine epsilon seed time_limit memory threads refine")


@dataclass(frozen=True, eq=False)
class Parts:
    """What a method returns."""

    part: np.ndarray  # (n,) int32
    engine: str | None = None  # that found it; None where none was needed
    epsilon: float = 0.0  # imbalance that the engine was allowed
    statistics: dict = field(default_factory=dict)  # what it counted itself
    edge_part: np.ndarray | None = None  # (nnz,) int32, of a vertex cut


def make_partition(graph, k, *, method="hypergraph", engine=None, epsilon=0.01, w0=0, seed=0,
                   rcm=True, refine=True, baseline=False, time_limit=3600.0, memory=None,
                   threads=None):
    """Partition the vertices of a graph into k parts.

    The same arguments give the same partition, whatever the number of threads.

    Parameters
    ----------
    graph : hpgcn.graphs.graph.Graph
        All rows, in memory.
    k : int
        Number of parts, at most n. Parts may come out empty.
    method : str
        Key of METHODS: "hypergraph" (least communication volume), "graph" (least edge cut),
        "stochastic" (least expected volume of mini-batches), "vertex-cut" (Libra: edges are dealt,
        `part` is that of each vertex' root), "block" (contiguous rows, balanced by nonzeros) or
        "random" (balanced by rows).
    engine : str, optional
        Partitioner behind the method, by default the first of METHOD_ENGINES[method].
    epsilon : float
        Imbalance allowed: a part weighs at most (1 + epsilon) times the mean, save where a vertex
        alone is heavier, or rounding forbids it.
    w0 : int
        Added to the weight of each vertex, which is otherwise the nonzeros of its row, the diagonal
        counted.
    seed : int
    rcm : bool
        Order each part by reverse Cuthill-McKee; else by vertex number.
    refine : bool
        Lower what the busiest part sends after an engine has lowered the total
        (`hpgcn.partition.refine`); of "hypergraph" to what the busiest of "graph" sends at most.
    baseline : bool
        Also count random partitions, and put their mean into the statistics (`over_random`), to be
        compared with.
    time_limit : float
        Seconds that the engine may take.
    memory : int, optional
        Bytes of address space that the engine may take; by default 80% of the memory available.
    threads : int, optional
        Threads of the engine (mtkahypar); by default all cores this process may use.

    Returns
    -------
    Partition
        With `statistics` filled in.

    Raises
    ------
    UsageError
        An argument is unknown or out of range.
    DataError
        k exceeds n, or the graph is a slab.
    MissingError
        The engine is not installed.
    InternalError
        The engine crashed, or ran out of time or memory.
    """
    cores = len(os.sched_getaffinity(0))
    request = Request(
        graph, _integer("k", k, 1), _choose(method, engine), _number("epsilon", epsilon),
        _integer("seed", seed, 0, MAX_SEED), _number("time_limit", time_limit, above=True),
        memory=None if memory is None else _integer("memory", memory, 1),
        threads=_integer("threads", cores if threads is None else threads, 1),
        refine=bool(refine))
    w0 = _integer("w0", w0, 0, 2**31 - 1)
    n = _check_whole(graph)
    if k > n:
        raise DataError(f"{graph.header.name}: cannot make {k} parts of {n} vertices, "
                        f"expected 1..{n}")

    rows = pattern(graph)
    parts = METHODS[method](rows, np.diff(rows.indptr).astype(np.int64) + w0, request)
    return _ordered(graph, rows, parts, k, rcm, baseline, method=method, seed=request.seed)


def given_partition(graph, part, k, *, rcm=True, baseline=False):
    """Make a partition, of method "given", from parts found elsewhere, as `make_partition` does.

    Parameters
    ----------
    graph : hpgcn.graphs.graph.Graph
        All rows, in memory.
    part : (n,) integers in [0, k)

    Raises
    ------
    DataError
        The part vector does not fit the graph, or the graph is a slab.
    """
    part = check_parts(part, k, n=_check_whole(graph))
    return _ordered(graph, pattern(graph), Parts(part), k, rcm, baseline, method="given")


def random(rows, weights, request):
    """Give parts equally many rows, at random: the baseline. Keyed draws say who is dealt when."""
    return Parts(random_parts(weights.size, request.k, request.seed))


def block(rows, weights, request):
    """Give each part contiguous rows, balanced by weight."""
    return Parts(cut_evenly(weights, request.k))


def hypergraph(rows, weights, request):
    """Seek the least communication volume: column nets, objective km1 (demirci-2022, 4.3.2).

    No part sends more than the busiest of method "graph": its edges spread over parts more evenly.
    """
    offsets, pins = column_nets(rows)
    parts = _refined(rows, weights, request, {"offsets": offsets, "pins": pins})
    if not (request.refine and parts.engine):
        return parts

    try:
        rival = graph(rows, weights, request._replace(engine=METHOD_ENGINES["graph"][0]))
    except (MissingError, InternalError) as error:
        log.warning("the parts of %s were not held against those of method graph: %s",
                    parts.engine, error)
        return parts

    from hpgcn.partition.refine import no_busier

    part = no_busier(rows, parts.part, rival.part, request.k, weights, parts.epsilon, request.seed)
    return rival if part is rival.part else replace(parts, part=part)


def stochastic(rows, weights, request):
    """Seek the least expected volume of a mini-batch (demirci-2022, section 4.3.3). Not refined."""
    nets = stochastic_nets(rows, request.k, seed=request.seed, memory=request.memory)
    parts = _engine(nets, weights, request)
    return replace(parts, statistics={})  # the engine counted the drawn nets, not an exchange


def graph(rows, weights, request):
    """Seek the least edge cut of the undirected graph behind the pattern."""
    offsets, adjacent = neighbours(rows)
    return _refined(rows, weights, request, {"offsets": offsets, "adjacent": adjacent})


def vertex_cut(rows, weights, request):
    """Deal edges to parts: vertices are held by several (Libra); the parts are of the roots."""
    from hpgcn.partition import vertex_cut as libra  # brings Numba

    edge_part, owner = libra.vertex_cut(request.graph, request.k, seed=request.seed)
    counted = libra.vertex_cut_statistics(request.graph, edge_part, owner, request.k)
    return Parts(owner, statistics=counted, edge_part=edge_part)


METHODS = {
    "hypergraph": hypergraph, "graph": graph, "stochastic": stochastic, "vertex-cut": vertex_cut,
    "block": block, "random": random,
}
NONZERO_METHODS = ("vertex-cut",)  # they say who holds each nonzero, too
METHOD_ENGINES = {
    "hypergraph": ("mtkahypar", "kahypar"), "graph": ("metis",),
    "stochastic": ("mtkahypar", "kahypar"), "vertex-cut": (), "block": (), "random": (),
}


def random_parts(n, k, seed):
    """Deal vertices to parts of equal size in the order of keyed draws, (n,) int32."""
    part = np.empty(n, np.int32)
    part[random_order(n, seed)] = cut_evenly(np.ones(n, np.int64), k)
    return part


def over_random(rows, k):
    """Return the mean statistics of random partitions of seeds 0, 1 and 2, for `relative`."""
    counted = [count(rows, random_parts(rows.shape[0], k, seed), k) for seed in range(3)]
    return {f"random_{key}": float(np.mean([numbers[key] for numbers in counted]))
            for key in COMPARED}


def _ordered(graph, rows, parts, k, rcm, baseline, **attributes):
    """Make a Partition of what a method returned, ordered, counted, and compared if asked."""
    order = rcm_within_parts(graph, parts.part, k) if rcm else None
    version = engine_version(parts.engine) if parts.engine else ""
    partition = Partition.from_parts(
        parts.part, k, order=order, edge_part=parts.edge_part, engine=parts.engine or "",
        engine_version=version, epsilon=parts.epsilon, **attributes)
    partition.statistics.update(
        count(rows, parts.part, k) | profile(graph, partition.iperm) | parts.statistics
        | (over_random(rows, k) if baseline else {}))
    return partition


def _refined(rows, weights, request, arrays):
    """Run the engine, and refine its parts if that is asked."""
    parts = _engine(arrays, weights, request)
    if not (request.refine and parts.engine):
        return parts

    from hpgcn.partition.refine import refine

    part = refine(rows, parts.part, request.k, weights, parts.epsilon, request.seed)
    return replace(parts, part=part)


def _check_whole(graph):
    """Return the number of vertices of a graph; refuse one of which only some rows are held."""
    n = graph.header.num_nodes
    if graph.num_rows != n:
        raise DataError(f"{graph.header.name}: {graph.num_rows} of {n} rows given, expected all")
    return n


def _engine(arrays, weights, request):
    """Run the engine of a request, unless there is nothing to decide."""
    k = request.k
    n = weights.size
    if k == 1:
        return Parts(np.zeros(n, np.int32))
    if k == n:
        return Parts(np.arange(n, dtype=np.int32))
    if arrays["offsets"][-1] == 0:
        return Parts(cut_evenly(weights, k))  # nothing to cut: balance alone

    divisor = -(-int(weights.sum()) // MAX_TOTAL_WEIGHT)
    arrays = {**arrays, "weights": -(-weights // divisor)}  # their sum stays far from 2^31
    epsilon = min(request.epsilon, k - 1.0)  # k - 1 allows all in one part
    settings = {"k": k, "epsilon": epsilon, "seed": request.seed % MAX_ENGINE_SEED,
                "threads": request.threads}
    part, volume = run_engine(request.engine, arrays, settings, time_limit=request.time_limit,
                              memory=request.memory)
    counted = {} if volume is None else {"engine_volume": volume}
    return Parts(part, request.engine, epsilon, counted)


def _choose(method, engine):
    """Return the engine of a method, given or default; refuse unknown names."""
    if method not in METHODS:
        near = difflib.get_close_matches(str(method), METHODS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"method = {method!r}: expected one of {', '.join(METHODS)}{hint}")
    known = METHOD_ENGINES[method]
    if engine not in (None, *known):
        expected = f"one of {', '.join(known)}" if known else "none"
        raise UsageError(f"engine = {engine!r}: method {method} takes {expected}")
    return engine or next(iter(known), None)


def _integer(name, value, low, high=math.inf):
    try:
        value = operator.index(value)
    except TypeError:
        raise UsageError(f"{name} = {value!r}: expected an integer") from None
    if not low <= value <= high:
        bounds = f"at least {low}" if high == math.inf else f"{low} to {high}"
        raise UsageError(f"{name} = {value}: expected {bounds}")
    return value


def _number(name, value, *, above=False):
    number = float(value) if isinstance(value, (int, float, np.number)) else math.nan
    if not math.isfinite(number) or number < 0 or (above and number == 0):
        bound = "above" if above else "of at least"
        raise UsageError(f"{name} = {value!r}: expected a number {bound} 0")
    return number
