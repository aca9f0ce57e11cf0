"""The table of partitioning methods, and the checks of a caller's arguments.

A method is a function (rows, weights, request) -> Parts. It gets the pattern of A + I,
the vertex weights, and the caller's request.
"""
import math
import operator

import numpy as np

from hpgcn.errors import DataError, UsageError, suggestion
from hpgcn.kernels.cgroups import usable_cores
from hpgcn.partition.effort import EFFORTS, FAST
from hpgcn.partition.nonzeros.nonzero_methods import (
    cover,
    distgnn,
    expansion,
    fine_grain,
    medium_grain,
    vertex_cut,
)
from hpgcn.partition.partition_request import PartitionRequest
from hpgcn.partition.rows.row_methods import (
    GRAPH_ENGINES,
    HYPERGRAPH_ENGINES,
    STREAMED,
    best,
    block,
    graph,
    hypergraph,
    random,
    stochastic,
    stream,
)
from hpgcn.partition.rows.stochastic import parse_sampling

MAX_SEED = 2**63 - 1
STOCHASTIC = "stochastic"

METHODS = {
    "best": best, "hypergraph": hypergraph, "graph": graph, "stream": stream,
    "stochastic": stochastic, "cover": cover, "medium-grain": medium_grain,
    "fine-grain": fine_grain, "vertex-cut": vertex_cut, "distgnn": distgnn, "expansion": expansion,
    "block": block, "random": random,
}
# methods that also give each nonzero a holder
NONZERO_METHODS = ("cover", "medium-grain", "fine-grain", "vertex-cut", "distgnn", "expansion")
METHOD_ENGINES = dict.fromkeys(METHODS, ()) | {"graph": GRAPH_ENGINES} | dict.fromkeys(
    ("best", "hypergraph", "stochastic", "cover", "medium-grain", "fine-grain"),
    HYPERGRAPH_ENGINES)
# columns that they are given for some vertices: all of a column-net hypergraph, or only
# their own
CUTS = dict.fromkeys(("best", "hypergraph"), lambda rows, own: rows[own]) | {
    "graph": lambda rows, own: rows[own][:, own]}
# vertices without entries are dealt out last; others balance rows, or keep their order
DEALING = (*STREAMED, STOCHASTIC)
WITHOUT_EFFORT = ("block", "random", "stream", "distgnn")  # they do the same work at any effort
FAST_WITHOUT_ENGINE = (*STREAMED, "cover")  # methods that effort FAST makes without an engine
EPSILON, EPSILON_NONZEROS = 0.01, 0.05  # where none is given


def check_request(graph, k, method, engine, epsilon, *, w0, seed, time_limit, memory, threads,
                  refine, effort, sampled):
    """Return the PartitionRequest of arguments of `make_partition`; refuse invalid ones."""
    cores = usable_cores()
    named = engine is not None
    engine = _choose(method, engine)
    if effort not in EFFORTS:
        raise UsageError(f"effort = {effort!r}: expected one of {', '.join(EFFORTS)}")
    if named and effort == FAST and method in FAST_WITHOUT_ENGINE:
        raise UsageError(f"engine = {engine!r}: method {method} of effort {FAST} runs no engine, "
                         "expected none")
    if epsilon is None:
        epsilon = EPSILON_NONZEROS if method in NONZERO_METHODS else EPSILON
    request = PartitionRequest(
        graph, integer("k", k, 1), engine, _number("epsilon", epsilon),
        integer("w0", w0, 0, 2**31 - 1), integer("seed", seed, 0, MAX_SEED),
        _number("time_limit", time_limit, above=True),
        memory=None if memory is None else integer("memory", memory, 1),
        threads=integer("threads", cores if threads is None else threads, 1),
        refine=bool(refine), effort=effort, named=named)

    n = graph.header.num_nodes
    if k > n:
        raise DataError(f"{graph.header.name}: cannot make {k} parts of {n} vertices, "
                        f"expected 1..{n}")
    return request._replace(sampling=_net_sampling(method, n, *sampled))


def check_whole(graph):
    """Return the number of vertices of a graph.

    Refuse one with only some rows in memory.
    """
    n = graph.header.num_nodes
    if graph.num_rows != n:
        raise DataError(f"{graph.header.name}: {graph.num_rows} of {n} rows in memory, expected "
                        "all")
    return n


def _net_sampling(method, n, batch, theta, delta):
    """Return the NetSampling of method stochastic; refuse its arguments with another method."""
    given = {"batch": batch, "theta": theta, "delta": delta}
    if method != STOCHASTIC:
        check_sampled((method,), given)
        return None
    return parse_sampling(
        n, batch, *(None if value is None else _number(name, value, above=True)
                    for name, value in (("theta", theta), ("delta", delta))))


def check_sampled(methods, given):
    """Refuse (UsageError) arguments of method stochastic if it is not among the methods.

    `given` has batch, theta and delta; None if not given.
    """
    for name, value in given.items():
        if value is not None and STOCHASTIC not in methods:
            raise UsageError(f"{name} = {value}: only for method {STOCHASTIC}, not for "
                             f"{', '.join(methods)}")


def _choose(method, engine):
    """Return the engine of a method, given or default; refuse unknown names."""
    if method not in METHODS:
        raise UsageError(f"method = {method!r}: expected one of {', '.join(METHODS)}"
                         f"{suggestion(method, METHODS)}")
    known = METHOD_ENGINES[method]
    if engine not in (None, *known):
        expected = f"one of {', '.join(known)}" if known else "none"
        raise UsageError(f"engine = {engine!r}: method {method} takes {expected}")
    return engine or next(iter(known), None)


def integer(name, value, low, high=math.inf):
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
