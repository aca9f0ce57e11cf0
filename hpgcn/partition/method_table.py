"""The table of partitioning methods, and the options of a partition.

A method is a function (rows, weights, request) -> Parts. It gets the pattern of A + I,
the vertex weights, and the caller's request.
"""
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hpgcn.errors import DataError, UsageError, suggestion
from hpgcn.kernels.host.cgroups import usable_cores
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


class Method(NamedTuple):
    """A partitioning method: its function, and its properties."""

    find: Callable  # (rows, weights, request) -> Parts
    engines: tuple[str, ...] = ()  # valid engines; the first is the default
    holders: bool = False  # whether the method also gives each nonzero a holder
    streams: bool = False  # whether effort FAST, and passes over a file, stream its rows
    effort: bool = True  # whether the work depends on the effort
    cut: Callable | None = None  # (rows, own) -> the rows of a piece, if pieces are divided anew


def _all_columns(rows, own):
    return rows[own]


def _own_columns(rows, own):
    return rows[own][:, own]


METHODS = {
    "best": Method(best, HYPERGRAPH_ENGINES, streams=True, cut=_all_columns),
    "hypergraph": Method(hypergraph, HYPERGRAPH_ENGINES, streams=True, cut=_all_columns),
    "graph": Method(graph, GRAPH_ENGINES, streams=True, cut=_own_columns),
    "stream": Method(stream, streams=True, effort=False),
    "stochastic": Method(stochastic, HYPERGRAPH_ENGINES),
    "cover": Method(cover, HYPERGRAPH_ENGINES, holders=True),
    "medium-grain": Method(medium_grain, HYPERGRAPH_ENGINES, holders=True),
    "fine-grain": Method(fine_grain, HYPERGRAPH_ENGINES, holders=True),
    "vertex-cut": Method(vertex_cut, holders=True),
    "distgnn": Method(distgnn, holders=True, effort=False),
    "expansion": Method(expansion, holders=True),
    "block": Method(block, effort=False),
    "random": Method(random, effort=False),
}
NONZERO_METHODS = tuple(name for name, method in METHODS.items() if method.holders)
EPSILON, EPSILON_NONZEROS = 0.01, 0.05  # the defaults


@dataclass(frozen=True)
class PartitionOptions:
    """Keywords of `make_partition`: the method, its work, balance and order.

    Attributes
    ----------
    method : str
        Key of METHODS: "best" (of "hypergraph" and "graph"), "hypergraph" (least
        communication volume), "graph" (least edge cut), "stream" (fast; needs no
        engine), "stochastic" (least expected volume of mini-batches), "block"
        (contiguous rows, balanced by nonzeros) or "random" (balanced by rows). Or one
        of NONZERO_METHODS, which give every nonzero a holder of its own: "cover" (rows
        by hypergraph, then rows or sums), "medium-grain" and "fine-grain" (hypergraphs
        of rows and columns), "vertex-cut" (Libra: edges are dealt), "distgnn" (the same
        with roots at random) or "expansion" (edges by parts that grow around few
        vertices).
    effort : str
        "fast": parts by "stream", without an engine, and few passes over nonzeros.
        "default": the engine does less work. Method "best" improves parts by METIS in
        patterns that are not sparse; other methods begin from scratch. In large graphs
        engines divide clusters, those of "best" by METIS. "best": all work of the
        engine. Small graphs take the work of "best" by default.
    engine : str, optional
        Partitioner behind the method, by default the first of METHODS[method].engines.
        UsageError if the method does not take it, or effort "fast" does not run it.
    epsilon : float, optional
        Allowed imbalance: a part weighs at most (1 + epsilon) times the mean, unless
        a single vertex is heavier, or rounding forbids it. The default is .01, and
        .05 for NONZERO_METHODS.
    w0 : int
        Added to the weight of each vertex, which is otherwise the nonzeros of its row,
        the diagonal counted.
    seed : int
    rcm : bool
        Order each part by reverse Cuthill-McKee; else by vertex number.
    refine : bool
        After an engine has lowered the total volume, lower that of the busiest part
        (`rows.refine`). For "best", it becomes at most that of the busiest part of
        "graph". For NONZERO_METHODS lower the total, and keep rows balanced
        (`hpgcn.partition.nonzeros.refine_nonzeros`).
    baseline : bool
        Also count partitions to compare with: random ones, whose mean is put into the
        statistics (`over_random`), and the parts before refinement.
    time_limit : float
        Seconds that the engine may take.
    memory : int, optional
        Bytes of address space that the engine may take; by default 80% of the memory
        available.
    threads : int, optional
        Threads of the engine (mtkahypar); by default all cores this process may use.
    balance_train : bool
        Let no part own more training vertices than 1.1 times the mean, or the mean
        plus one.
    nested : bool
        Number parts so that 2 p and 2 p + 1 merge to part p of half as many
        (`Partition.merged`).
    batch : str, optional
        For "stochastic" only: mini-batches whose expected volume is minimized, as for
        training: "vertices:B", "parts:Q:K" or "neighbors:K:B". By default vertices, B
        20,000 or a tenth of all vertices.
    theta, delta : float, optional
        For "stochastic" only: nets are drawn until their mean connectivity is within
        theta of the expected one with probability 1 - delta (demirci-2022, equation
        14). By default .5 and .1.
    pipeline_batches : int
        For "block": order all rows by reverse Cuthill-McKee (or by vertex number, not
        `rcm`), cut them into this number of batches, and give each part a piece of each
        batch (strategy mop). 0: contiguous parts.
    nodes : int or sequence of int, optional
        Number of nodes, which divides k, or the parts of each node. Parts of a node have
        consecutive numbers. They are chosen together: few rows between nodes first, each
        counted once for every other node that reads it, then few within nodes
        (`rows.node_parts`).
    """

    method: str = "best"
    effort: str = "default"
    engine: str | None = None
    epsilon: float | None = None
    w0: int = 0
    seed: int = 0
    rcm: bool = True
    refine: bool = True
    baseline: bool = False
    time_limit: float = 3600.0
    memory: int | None = None
    threads: int | None = None
    balance_train: bool = False
    nested: bool = False
    batch: str | None = None
    theta: float | None = None
    delta: float | None = None
    pipeline_batches: int = 0
    nodes: int | Sequence[int] | None = None

    def request(self, graph, k):
        """Return the PartitionRequest for k parts of a graph; refuse invalid options."""
        engine = _choose(self.method, self.engine)
        method = METHODS[self.method]
        if self.effort not in EFFORTS:
            raise UsageError(f"effort = {self.effort!r}: expected one of {', '.join(EFFORTS)}")
        if self.engine is not None and self.effort == FAST and (
                method.streams or method.find is cover):
            raise UsageError(f"engine = {engine!r}: method {self.method} of effort {FAST} runs no "
                             "engine, expected none")
        epsilon = self.epsilon
        if epsilon is None:
            epsilon = EPSILON_NONZEROS if method.holders else EPSILON
        threads = usable_cores() if self.threads is None else self.threads
        request = PartitionRequest(
            graph, integer("k", k, 1), engine, _number("epsilon", epsilon),
            integer("w0", self.w0, 0, 2**31 - 1), integer("seed", self.seed, 0, MAX_SEED),
            _number("time_limit", self.time_limit, above=True),
            memory=None if self.memory is None else integer("memory", self.memory, 1),
            threads=integer("threads", threads, 1), refine=bool(self.refine), effort=self.effort,
            named=self.engine is not None)

        n = graph.header.num_nodes
        if k > n:
            raise DataError(f"{graph.header.name}: cannot make {k} parts of {n} vertices, "
                            f"expected 1..{n}")
        return request._replace(sampling=self._sampling(n))

    def _sampling(self, n):
        """Return the NetSampling of method stochastic; refuse its options with another method."""
        given = {"batch": self.batch, "theta": self.theta, "delta": self.delta}
        if self.method != STOCHASTIC:
            check_sampled((self.method,), given)
            return None
        return parse_sampling(
            n, self.batch, *(None if value is None else _number(name, value, above=True)
                             for name, value in given.items() if name != "batch"))


def check_whole(graph):
    """Return the number of vertices of a graph; refuse one with only some rows in memory."""
    n = graph.header.num_nodes
    if graph.num_rows != n:
        raise DataError(f"{graph.header.name}: {graph.num_rows} of {n} rows in memory, expected "
                        "all")
    return n


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
    known = METHODS[method].engines
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
