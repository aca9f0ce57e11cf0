"""Partitioning methods that give each row an owner with all of its nonzeros."""
import logging
from dataclasses import replace

import numpy as np

from hpgcn.errors import InternalError, MissingError
from hpgcn.graphs.reordering import random_order
from hpgcn.parallel.layout import cut_evenly
from hpgcn.partition.effort import COARSE, DEFAULT, FAST, PINS, is_sparse
from hpgcn.partition.partition_request import Parts, is_quick, run
from hpgcn.partition.rows.partition_model import (
    both_directions,
    cluster_nets,
    column_nets,
    neighbors,
)
from hpgcn.partition.rows.stochastic import nets_wanted, parse_sampling, stochastic_nets

log = logging.getLogger("hpgcn")
HYPERGRAPH_ENGINES = ("mtkahypar", "kahypar")
GRAPH_ENGINES = ("metis", "kaminpar")
QUICK = ("random", "block")  # methods that need neither an engine nor the pattern


def random(rows, weights, request):
    """Assign equally many rows to each part by keyed random draws: the baseline."""
    return Parts(random_parts(weights.size, request.k, request.seed))


def block(rows, weights, request):
    """Give each part contiguous rows, balanced by weight."""
    return Parts(cut_evenly(weights, request.k))


def quick_parts(method, weights, k, seed=0):
    """Return the parts, (n,) int32, of one of the QUICK methods.

    `weights` (n,) are those of the vertices in their ORIGINAL order.
    """
    return cut_evenly(weights, k) if method == "block" else random_parts(weights.size, k, seed)


def hypergraph(rows, weights, request):
    """Seek the least communication volume: column nets, objective km1 (demirci-2022, 4.3.2).

    The engine begins from scratch. Effort DEFAULT divides clusters of a large matrix.
    """
    if _is_streamed(rows, request):
        return stream(rows, weights, request)
    if _is_coarse(rows, request):
        return _refine_parts(rows, weights, request, divide_columns(rows, rows, weights, request))
    return _refine_parts(rows, weights, request, partition_columns(rows, weights, request))


def divide_columns(rows, block, weights, request):
    """Divide clusters of a square `block` of `rows` by their column nets in `rows`.

    The vertices then move in two ways: to parts with most of their neighbors, or to
    lower the volume. The way with the least volume is taken.
    """
    def divide(level, number):
        nets = cluster_nets(rows, number, level.weights.size, PINS, request.seed)
        return run(nets, level.weights, request, sparse=is_sparse(np.diff(nets["offsets"])))

    def choose(moved, divided):
        lowered = _refine(block, divided, weights, request, passes=0)
        return min(lowered, moved, key=_volume(block, request))

    return _divide(block, weights, request, divide, choose)


def divide_edges(rows, weights, request):
    """Divide clusters of a square matrix by the edges between them."""
    def divide(level, number):
        return run(both_directions(*next(level.blocks())[1:]), level.weights, request)

    return _divide(rows, weights, request, divide, lambda moved, divided: moved)


def _divide(rows, weights, request, divide, choose):
    """Return the Parts of `divide_clusters`.

    `divide(level, number)` returns the Parts of clusters. `choose` takes both results
    of `divide_clusters`, and returns parts.
    """
    if parts := _trivial(rows, weights, request.k):
        return parts

    from hpgcn.partition.rows.streaming import divide_clusters, memory_level

    found = None

    def parts_of(level, number):
        nonlocal found
        found = divide(level, number)
        if level.weights.size < weights.size and found.engine:
            found = replace(found, divided=f"{level.weights.size:,} clusters")
        return found.part

    part = choose(*divide_clusters(memory_level(rows, weights), request.k, request.epsilon,
                                   request.seed, parts_of))
    # the engine counted clusters
    return replace(found, part=part, epsilon=request.epsilon, statistics={})


def _volume(rows, request):
    """Return a function that counts the rows that parts send."""
    from hpgcn.partition.part_counts import count_parts

    symmetric = not request.graph.header.directed
    return lambda part: int(count_parts(rows, part, request.k, symmetric=symmetric).sent.sum())


def partition_columns(rows, weights, request, first=None, block=None):
    """Return the Parts of column nets by an engine that divides all vertices.

    With `block`, the square part of `rows`, effort DEFAULT improves parts with few cut
    edges, `first` if given. In a sparse pattern such parts are too far from the best
    ones, and the engine begins anew.
    """
    offsets, pins = column_nets(rows)
    sparse = is_sparse(np.diff(offsets))

    def start():
        return first or _first_parts(block, weights, request)

    return run({"offsets": offsets, "pins": pins}, weights, request,
               None if sparse or block is None else start, sparse=sparse)


def best_columns(rows, weights, request, first=None):
    """Return the Parts that method best begins with, not refined; `first` as above.

    They are those of `stream` if effort is FAST. Effort DEFAULT divides clusters of a
    large matrix: by METIS, or by the nets of clusters if the caller named an engine.
    """
    request = request._replace(refine=False)
    if _is_streamed(rows, request):
        return stream(rows, weights, request)
    if not _is_coarse(rows, request):
        square = rows.shape[0] == rows.shape[1]
        return partition_columns(rows, weights, request, first, rows if square else None)
    if request.named:
        return divide_columns(rows, rows, weights, request)
    return stream_clusters(rows, weights, request)


def _first_parts(rows, weights, request):
    """Return Parts with few cut edges, or those of `stream` without an engine for them."""
    try:
        return _cut_edges(rows, weights, request._replace(engine=GRAPH_ENGINES[0]))
    except (MissingError, InternalError) as error:
        log.warning("the first parts are those of method stream: %s", error)
        return stream(rows, weights, request._replace(refine=False))


def _cut_edges(rows, weights, request):
    offsets, adjacent = neighbors(rows)
    return run({"offsets": offsets, "adjacent": adjacent}, weights, request)


def stream_clusters(rows, weights, request):
    """Return the Parts of `stream`, or better ones if METIS divides clusters better."""
    engine = GRAPH_ENGINES[0]
    found = None

    def cut(level):
        """Return the parts of clusters; None without METIS if another engine was chosen."""
        nonlocal found
        try:
            found = run(both_directions(*next(level.blocks())[1:]), level.weights,
                        request._replace(engine=engine))
            return found.part
        except (MissingError, InternalError) as error:
            log.warning("the first parts are those of method stream: %s", error)
            return None

    # name the engine if its parts, the second ones, were taken
    volumes = []
    volume = _volume(rows, request)

    def cost(part):
        volumes.append(volume(part))
        return volumes[-1]

    parts = stream(rows, weights, request, cut, cost)
    if found is None or not found.engine or volumes[1] >= volumes[0]:
        return parts
    return replace(parts, engine=engine, divided=f"{found.part.size:,} clusters", start="scratch")


def _is_coarse(rows, request):
    """Return `takes_clusters` for a square matrix; the engine divides other pieces itself."""
    return rows.shape[0] == rows.shape[1] and takes_clusters(rows.nnz, request)


def takes_clusters(entries, request):
    """Return whether the engine gets clusters instead of vertices.

    It does with effort DEFAULT and COARSE entries or more.
    """
    return request.effort == DEFAULT and entries >= COARSE


def _is_streamed(rows, request):
    """Return whether parts are streamed instead, as only those of square matrices are."""
    return request.effort == FAST and rows.shape[0] == rows.shape[1]


def best(rows, weights, request):
    """Return the parts of "hypergraph", or those of "graph" if their busiest part sends less.

    The parts of "hypergraph" are first refined further, until the busiest part sends no
    more than that of "graph". Without refinement they are not compared. Nor are parts
    of sparse patterns by a quick engine, because those of "graph" send far more there.
    """
    if _is_streamed(rows, request):
        return replace(stream(rows, weights, request), winner="stream")
    if _is_coarse(rows, request) and request.named:
        return replace(hypergraph(rows, weights, request), winner="hypergraph")
    if _is_coarse(rows, request):
        parts = stream_clusters(rows, weights, request)
        return replace(parts, winner="graph" if parts.engine else "stream")

    # parts with few cut edges, if there is an engine for them
    cut_request = request._replace(engine=GRAPH_ENGINES[0])
    first = None
    sizes = np.bincount(rows.indices)
    if request.refine and not (is_quick(request, sizes[sizes > 1].sum()) and is_sparse(sizes)):
        try:
            first = _cut_edges(rows, weights, cut_request)
        except (MissingError, InternalError) as error:
            log.warning("the parts of %s were not compared with those of method graph: %s",
                        request.engine, error)

    # parts by hypergraph; effort DEFAULT begins with the others
    parts = best_columns(rows, weights, request, first)
    parts = replace(_refine_parts(rows, weights, request, parts), winner="hypergraph")
    if not parts.engine or first is None:
        return parts
    rival = _refine_parts(rows, weights, cut_request, first)

    from hpgcn.partition.rows.refine import match_rival_maximum

    part = match_rival_maximum(rows, parts.part, rival.part, request.k, weights, parts.epsilon,
                               request.seed)
    return replace(rival, winner="graph") if part is rival.part else replace(parts, part=part)


def stochastic(rows, weights, request):
    """Seek the least expected volume of a mini-batch (demirci-2022, Algorithm 3), unrefined."""
    sampling = request.sampling or parse_sampling(weights.size)
    part = None
    if sampling.sampler == "parts":
        part = hypergraph(rows, weights, request._replace(k=sampling.numbers[1])).part
    nets = stochastic_nets(rows, request.k, sampling, part, seed=request.seed,
                           memory=request.memory)
    count = int(nets["costs"].sum())
    wanted = nets_wanted(request.k, sampling.theta, sampling.delta)
    if sampling.asked and count < wanted:
        log.warning("stochastic: %s nets drawn, theta %g and delta %g need %s (equation 14): these "
                    "are the most that rounds and memory allow", f"{count:,}", sampling.theta,
                    sampling.delta, f"{wanted:,}")

    # the engine counted the drawn nets, not an exchange
    parts = run(nets, weights, request)
    facts = {"theta": sampling.theta, "delta": sampling.delta, "nets": count}
    return replace(parts, statistics=facts, batch=sampling.name)


def stream(rows, weights, request, cut=None, cost=None):
    """Lower the volume without an engine: by passes over the rows, then by moves.

    The passes are those of `rows.streaming`; `cut` and `cost` are arguments of
    `stream_parts`.
    """
    k = request.k
    if parts := _trivial(rows, weights, k):
        return parts

    from hpgcn.partition.rows.streaming import memory_level, stream_parts

    part = stream_parts(memory_level(rows, weights), k, request.epsilon, request.seed, cut,
                        cost)
    if not request.refine:
        return Parts(part, epsilon=request.epsilon)

    from hpgcn.partition.rows.refine import FAST_LITTLE, FAST_PASSES

    less = request.effort == FAST
    work = {"passes": FAST_PASSES, "large_little": FAST_LITTLE} if less else {}
    refined = _refine(rows, part, weights, request, **work)
    return Parts(refined, epsilon=request.epsilon, unrefined=(part, None))


def _trivial(rows, weights, k):
    """Return the Parts of trivial cases: one part, one vertex each, or no edges; else None."""
    n = weights.size
    if k == n:
        return Parts(np.arange(n, dtype=np.int32))
    if k == 1 or rows.nnz == n:
        return Parts(cut_evenly(np.maximum(weights, 1), k))  # without edges, only balance counts
    return None


def graph(rows, weights, request):
    """Seek the least edge cut of the undirected graph behind the pattern."""
    if _is_streamed(rows, request):
        return stream(rows, weights, request)
    find = divide_edges if _is_coarse(rows, request) else _cut_edges
    return _refine_parts(rows, weights, request, find(rows, weights, request))


def random_parts(n, k, seed):
    """Assign vertices to parts of equal size by keyed draws; return parts, (n,) int32."""
    part = np.empty(n, np.int32)
    part[random_order(n, seed)] = cut_evenly(np.ones(n, np.int64), k)
    return part


def _refine_parts(rows, weights, request, parts):
    """Refine the parts of an engine, if requested."""
    if not (request.refine and parts.engine):
        return parts
    part = _refine(rows, parts.part, weights, request)
    return replace(parts, part=part, unrefined=(parts.part, None))


def _refine(rows, part, weights, request, **work):
    """Return refined parts, (n,) int32; `work` has arguments of `refine`."""
    from hpgcn.partition.rows.refine import refine

    return refine(rows, part, request.k, weights, request.epsilon, request.seed, **work,
                  symmetric=not request.graph.header.directed)
