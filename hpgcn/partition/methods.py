"""The methods of partitioning, and `make_partition`, which runs one of them.

A method is a function (rows, weights, request) -> Found: it gets the pattern of A + I, the vertex weights, and what
the caller asked for.
"""
from __future__ import annotations

import difflib
import logging
import math
import operator
import os
from dataclasses import dataclass, field, replace

import numpy as np

from hpgcn.errors import DataError, InternalError, MissingError, UsageError
from hpgcn.graph import Graph
from hpgcn.layout import cut_evenly
from hpgcn.partition.model import column_nets, neighbours, pattern
from hpgcn.partition.partition import Partition, check_parts
from hpgcn.partition.process import engine_version, run_engine
from hpgcn.partition.quality import COMPARED, count
from hpgcn.partition.stochastic import stochastic_nets
from hpgcn.reorder import profile, random_order, rcm_within_parts

log = logging.getLogger("hpgcn")
MAX_TOTAL_WEIGHT = 2**30  # engines add weights in 32 bits
MAX_SEED = 2**63 - 1
MAX_ENGINE_SEED = 2**31 - 1


@dataclass(frozen=True)
class Request:
    """What `make_partition` was asked for, checked."""

    k: int
    engine: str | None
    epsilon: float
    seed: int
    time_limit: float
    memory: int | None
    threads: int
    refine: bool
    graph: Graph


@dataclass(frozen=True, eq=False)
class Found:
    """What a method found.

    Attributes
    ----------
    part : (n,) int32
    engine : str or None
        Partitioner that found it; None where none was needed.
    epsilon : float
        Imbalance that it was allowed.
    statistics : dict
        What it counted itself.
    edge_part : (nnz,) int32, optional
        Part of each stored entry: a vertex cut.
    """

    part: np.ndarray
    engine: str | None = None
    epsilon: float = 0.0
    statistics: dict = field(default_factory=dict)
    edge_part: np.ndarray | None = None


def make_partition(graph, k, *, method="hypergraph", engine=None, epsilon=0.01, w0=0, seed=0, rcm=True,
                   refine=True, baseline=False, time_limit=3600.0, memory=None, threads=None):
    """Partition the vertices of a graph into k parts.

    The same arguments give the same partition, whatever the number of threads.

    Parameters
    ----------
    graph : hpgcn.graph.Graph
        All rows, in memory.
    k : int
        Number of parts, at most n. Parts may come out empty.
    method : str
        Key of METHODS: "hypergraph" (least communication volume), "graph" (least edge cut), "stochastic" (least
        expected volume of mini-batches), "vertex-cut" (Libra:
        edges are dealt, `part` is that of each vertex' root), "block" (contiguous rows, balanced by nonzeros) or
        "random" (balanced by rows).
    engine : str, optional
        Partitioner behind the method, by default the first of METHOD_ENGINES[method].
    epsilon : float
        Imbalance allowed: a part weighs at most (1 + epsilon) times the mean, save where a vertex alone is heavier,
        or rounding forbids it.
    w0 : int
        Added to the weight of each vertex, which is otherwise the nonzeros of its row, the diagonal counted.
    seed : int
    rcm : bool
        Order each part by reverse Cuthill-McKee; else by vertex number.
    refine : bool
        Lower what the busiest part sends after an engine has lowered the total (`hpgcn.partition.refine`); of
        "hypergraph" to what the busiest of "graph" sends at most.
    baseline : bool
        Also count random partitions, and put their mean into the statistics (`over_random`), to be compared with.
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
    engine = _choose(method, engine)
    request = Request(_integer("k", k, 1), engine, _number("epsilon", epsilon, 0), _integer("seed", seed, 0, MAX_SEED),
                      _number("time_limit", time_limit, 0, open_low=True),
                      None if memory is None else _integer("memory", memory, 1),
                      len(os.sched_getaffinity(0)) if threads is None else _integer("threads", threads, 1),
                      bool(refine), graph)
    w0 = _integer("w0", w0, 0, 2**31 - 1)
    n = graph.header.num_nodes
    _check_whole(graph)
    if k > n:
        raise DataError(f"{graph.header.name}: cannot make {k} parts of {n} vertices, expected 1..{n}")
    rows = pattern(graph)
    weights = np.diff(rows.indptr).astype(np.int64) + w0
    found = METHODS[method](rows, weights, request)
    compared = over_random(rows, k) if baseline else {}
    return _finished(graph, rows, found.part, k, rcm, {**found.statistics, **compared}, method=method,
                     engine=found.engine or "", seed=request.seed, epsilon=found.epsilon, edge_part=found.edge_part,
                     engine_version=engine_version(found.engine) if found.engine else "")


def given_partition(graph, part, k, *, rcm=True, baseline=False):
    """Make a partition, of method "given", from parts found elsewhere: ordered and counted as by `make_partition`.

    Parameters
    ----------
    graph : hpgcn.graph.Graph
        All rows, in memory.
    part : (n,) integers in [0, k)

    Raises
    ------
    DataError
        The part vector does not fit the graph, or the graph is a slab.
    """
    _check_whole(graph)
    part = check_parts(part, k, n=graph.header.num_nodes)
    rows = pattern(graph)
    return _finished(graph, rows, part, k, rcm, over_random(rows, k) if baseline else {}, method="given")


def random(rows, weights, request):
    """Parts of equally many rows, at random: the baseline. Vertices are dealt in the order of keyed draws."""
    return Found(random_parts(weights.size, request.k, request.seed))


def block(rows, weights, request):
    """Contiguous rows, balanced by weight."""
    return Found(cut_evenly(weights, request.k))


def hypergraph(rows, weights, request):
    """Least communication volume: the column-net model, objective km1 (demirci-2022, section 4.3.2)."""
    offsets, pins = column_nets(rows)
    found = _refined(rows, weights, request, _engine({"offsets": offsets, "pins": pins}, weights, request))
    return _held_against_graph(rows, weights, request, found)


def stochastic(rows, weights, request):
    """Least expected volume of a mini-batch: the stochastic hypergraph (demirci-2022, section 4.3.3). Not refined."""
    nets = stochastic_nets(rows, request.k, seed=request.seed, memory=request.memory)
    found = _engine(nets, weights, request)
    return replace(found, statistics={})  # the engine counted the drawn nets, not an exchange


def graph(rows, weights, request):
    """Least edge cut of the undirected graph behind the pattern."""
    offsets, adjacent = neighbours(rows)
    return _refined(rows, weights, request, _engine({"offsets": offsets, "adjacent": adjacent}, weights, request))


def vertex_cut(rows, weights, request):
    """Edges dealt to parts, vertices held by several (Libra, distgnn-2021 section 5.1); the parts are of the roots."""
    from hpgcn.partition import vertex_cut as libra  # brings Numba

    cut = libra.vertex_cut(request.graph, request.k, seed=request.seed)
    counted = libra.vertex_cut_statistics(request.graph, cut.edge_part, cut.owner, request.k)
    return Found(cut.owner, statistics=counted, edge_part=cut.edge_part)


METHODS = {"hypergraph": hypergraph, "graph": graph, "stochastic": stochastic, "vertex-cut": vertex_cut,
           "block": block, "random": random}
METHOD_ENGINES = {"hypergraph": ("mtkahypar", "kahypar"), "graph": ("metis",), "stochastic": ("mtkahypar", "kahypar"),
                  "vertex-cut": (), "block": (), "random": ()}


def random_parts(n, k, seed):
    """Parts of equally many vertices, dealt in the order of keyed draws, (n,) int32."""
    part = np.empty(n, np.int32)
    part[random_order(n, seed)] = cut_evenly(np.ones(n, np.int64), k)
    return part


def over_random(rows, k):
    """What random partitions into k parts cost, for `relative`: the mean of the statistics of seeds 0, 1 and 2."""
    found = [count(rows, random_parts(rows.shape[0], k, seed), k) for seed in range(3)]
    return {f"random_{key}": float(np.mean([each[key] for each in found])) for key in COMPARED}


def _finished(graph, rows, part, k, rcm, extra, **attributes):
    order = rcm_within_parts(graph, part, k) if rcm else None
    made = Partition.from_parts(part, k, order=order, **attributes)
    return replace(made, statistics={**count(rows, part, k), **profile(graph, made.iperm), **extra})


def _refined(rows, weights, request, found):
    if not (request.refine and found.engine):
        return found
    from hpgcn.partition.refine import refine

    return replace(found, part=refine(rows, found.part, request.k, weights, found.epsilon, request.seed))


def _held_against_graph(rows, weights, request, found):
    """See to it that no part sends more than the busiest of method "graph": its edges spread over parts more evenly."""
    if not (request.refine and found.engine):
        return found
    try:
        rival = graph(rows, weights, replace(request, engine=METHOD_ENGINES["graph"][0]))
    except (MissingError, InternalError) as error:
        log.warning("the parts of %s were not held against those of method graph: %s", found.engine, error)
        return found

    from hpgcn.partition.refine import no_busier

    part = no_busier(rows, found.part, rival.part, request.k, weights, found.epsilon, request.seed)
    return rival if part is rival.part else replace(found, part=part)


def _check_whole(graph):
    n = graph.header.num_nodes
    if graph.num_rows != n:
        raise DataError(f"{graph.header.name}: {graph.num_rows} of {n} rows given, expected all")


def _engine(arrays, weights, request):
    k, n = request.k, weights.size
    if k == 1:
        return Found(np.zeros(n, np.int32))
    if k == n:
        return Found(np.arange(n, dtype=np.int32))
    if arrays["offsets"][-1] == 0:
        return Found(cut_evenly(weights, k))  # nothing to cut: balance alone
    weights = _scaled(weights)
    epsilon = min(request.epsilon, k - 1.0)  # k - 1 allows all in one part
    settings = {"k": k, "epsilon": epsilon, "seed": request.seed % MAX_ENGINE_SEED, "threads": request.threads}
    part, volume = run_engine(request.engine, {**arrays, "weights": weights}, settings, time_limit=request.time_limit,
                              memory=request.memory)
    return Found(part, request.engine, epsilon, {} if volume is None else {"engine_volume": volume})


def _scaled(weights):
    """The weights, divided so that their sum stays far from 2^31, and rounded up."""
    divisor = -(-int(weights.sum()) // MAX_TOTAL_WEIGHT)
    return -(-weights // divisor)


def _choose(method, engine):
    """The engine of a method, given or default; unknown names are refused."""
    if method not in METHODS:
        near = difflib.get_close_matches(str(method), METHODS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"method = {method!r}: expected one of {', '.join(METHODS)}{hint}")
    known = METHOD_ENGINES[method]
    if engine is None:
        return known[0] if known else None
    if engine not in known:
        expected = f"one of {', '.join(known)}" if known else "none"
        raise UsageError(f"engine = {engine!r}: method {method} takes {expected}")
    return engine


def _integer(name, value, low, high=None):
    try:
        value = operator.index(value)
    except TypeError:
        raise UsageError(f"{name} = {value!r}: expected an integer") from None
    if value < low or (high is not None and value > high):
        raise UsageError(f"{name} = {value}: expected " + (f"at least {low}" if high is None else f"{low} to {high}"))
    return value


def _number(name, value, low, *, open_low=False):
    number = float(value) if isinstance(value, (int, float, np.number)) else math.nan
    if not math.isfinite(number) or number < low or (open_low and number == low):
        raise UsageError(f"{name} = {value!r}: expected a number {'above' if open_low else 'of at least'} {low}")
    return number
