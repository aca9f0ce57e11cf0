"""Partition a graph: `make_partition` runs a method, and orders the vertices of the parts."""
import logging
import math
import time
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.adjacency import LARGE
from hpgcn.graphs.partition import Partition, check_parts
from hpgcn.graphs.reordering import profile, rcm_within_parts
from hpgcn.partition.effort import WORTH_SAYING, announced
from hpgcn.partition.engines.engine_process import engine_version
from hpgcn.partition.method_table import (
    METHODS,
    STOCHASTIC,
    PartitionOptions,
    check_whole,
    integer,
)
from hpgcn.partition.partition_request import ROWS, Parts
from hpgcn.partition.quality import (
    COMPARED,
    count,
    explain_imbalance,
    node_volumes,
    touched,
    train_mask,
)
from hpgcn.partition.rows.nested import nested_numbers, nested_parts
from hpgcn.partition.rows.node_parts import (
    grouped_parts,
    node_sizes,
    parts_by_node,
)
from hpgcn.partition.rows.partition_model import (
    deal_isolated,
    entry_rows,
    isolated,
    pattern,
    stored_holders,
)
from hpgcn.partition.rows.pipeline import dealt_parts
from hpgcn.partition.rows.row_methods import random_parts

log = logging.getLogger("hpgcn")


def make_partition(graph, k, **options):
    """Partition the vertices of a graph into k parts.

    The same arguments give the same partition, whatever the number of threads.

    Parameters
    ----------
    graph : hpgcn.graphs.graph.Graph
        All rows, in memory.
    k : int
        Number of parts, at most n. Parts may come out empty.
    **options
        The attributes of `PartitionOptions`: method, effort, engine, epsilon, w0, seed,
        rcm, refine, baseline, time_limit, memory, threads, balance_train, nested,
        batch, theta, delta, pipeline_batches, nodes.

    Returns
    -------
    Partition
        With `statistics` filled in.

    Raises
    ------
    UsageError
        An argument is unknown or out of range; nested parts of an odd number; nodes that
        do not divide k.
    DataError
        k exceeds n, or the graph is a slab, or `balance_train` finds no split.
    MissingError
        The engine is not installed.
    InternalError
        The engine crashed, or ran out of time or memory.

    Examples
    --------
    >>> from hpgcn.partition import make_partition
    >>> A = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))  # two triangles
    >>> graph = hpgcn.Graph.from_scipy(A)
    >>> partition = make_partition(graph, 2, method="block")
    >>> partition.part, partition.statistics["volume"]
    (array([0, 0, 0, 1, 1, 1], dtype=int32), 0)
    """
    # validate the options, also for this graph and k
    options = PartitionOptions(**options)
    request = options.request(graph, k)
    check_whole(graph)
    if options.balance_train and graph.masks is None:
        raise DataError(f"{graph.header.name}: no split, so there are no training vertices to "
                        "balance")
    sizes = node_sizes(options.nodes, k)
    if sizes and options.nested:
        raise UsageError("nodes: excludes nested parts")
    if options.nested and k % 2:
        raise UsageError(f"k = {k}: nested parts are merged in pairs, expected an even number")
    if batches := integer("pipeline_batches", options.pipeline_batches, 0, graph.num_rows):
        return _deal(graph, request, options, batches,
                     excluded=options.nested or options.balance_train or sizes)

    # find parts, balance training vertices, then number the parts
    method = METHODS[options.method]
    rows = pattern(graph)
    weights = np.diff(rows.indptr).astype(np.int64) + request.w0
    effort = options.effort if method.effort else ""
    with announced(graph.header.name, request, effort, rows.indices, holders=method.holders,
                   nets=options.method == "hypergraph") as statistics:
        begun = time.perf_counter()
        parts, groups = _find_parts(rows, weights, options, request, sizes)
        if options.balance_train:
            parts = _balance(rows, weights, parts, request, train_mask(graph))
        if options.nested:
            parts = _nest(rows, parts, k, groups)

        # order the vertices within the parts
        partition = _to_partition(graph, rows, parts, k, options.rcm, options.baseline,
                                  method=options.method, seed=request.seed, effort=effort,
                                  nested=bool(options.nested), node_sizes=sizes,
                                  seconds=time.perf_counter() - begun)
        statistics |= partition.statistics
    if partition.engine:
        level = logging.INFO if partition.seconds >= WORTH_SAYING else logging.DEBUG
        log.log(level, "%s: parts of method %s found %s", graph.header.name, partition.title,
                partition.work)
    if sizes:
        log.info("%s: %s rows sent between %d nodes, %s within them", graph.header.name,
                 f"{statistics['volume_between']:,}", len(sizes),
                 f"{statistics['volume_within']:,}")
    _warn_of_rows(partition, graph, parts.unrefined is not None)
    return partition


def _deal(graph, request, options, batches, *, excluded):
    """Return the Partition in which each part has a piece of every batch of rows."""
    asked = f"pipeline_batches = {batches}"
    if options.method != "block":
        raise UsageError(f"{asked}: does not apply to method {options.method}, expected block")
    if excluded:
        raise UsageError(f"{asked}: excludes nested, nodes and balance_train")
    n, k = graph.num_rows, request.k
    order = rcm_within_parts(graph, np.zeros(n, np.int32), 1) if options.rcm else np.arange(n)
    rows = pattern(graph)
    parts = dealt_parts(rows, order, k, batches)
    return _to_partition(graph, rows, parts, k, options.rcm, options.baseline, order,
                         method=options.method)


def _find_parts(rows, weights, options, request, sizes):
    """Return the Parts of a method, and the number of nested groups."""
    deals = METHODS[options.method].streams or options.method == STOCHASTIC
    alone = isolated(rows) if deals else np.zeros(1, bool)
    if not alone.any() or alone.all():
        return _parts_by_method(rows, weights, options, request, sizes)

    # leave out isolated vertices, which are dealt last
    light = np.where(alone, 0, weights)
    wider = request._replace(epsilon=request.epsilon * (weights.sum() / light.sum()))
    parts, groups = _parts_by_method(rows, light, options, wider, sizes)
    part = deal_isolated(parts.part, alone, weights, request.k, request.epsilon)
    return replace(parts, part=part, epsilon=parts.epsilon and request.epsilon), groups


def _parts_by_method(rows, weights, options, request, sizes):
    method = METHODS[options.method]
    if options.nested and method.cut:
        part, groups, first = nested_parts(method.find, method.cut, rows, weights, request)
        winner = "hypergraph" if options.method == "best" else ""  # nested parts are not refined
        made = Parts(part, request.engine, request.epsilon, winner=winner)
        return replace(made, divided=first.divided, start=first.start) if first else made, groups
    if sizes and method.streams:
        return parts_by_node(method.find, options.method, rows, weights, request, sizes), 1
    parts = method.find(rows, weights, request)
    if sizes:
        parts = grouped_parts(parts, _lines(rows, parts, request.k), sizes)
    return parts, 1


def _warn_of_rows(partition, graph, refined):
    """Log each large imbalance; warn of parts with too many rows.

    Only methods of nonzeros can own more rows than refinement allows.
    """
    for line in explain_imbalance(partition.statistics):
        log.info("%s: %s", graph.header.name, line)
    share = 1 + partition.statistics["imbalance_rows"]
    mean = graph.num_rows / partition.k
    if partition.edge_part is None or share * mean <= max((1 + ROWS) * mean, math.ceil(mean)):
        return
    way = "a larger epsilon may help" if refined else "refinement would keep this limit"
    log.warning("%s: one part has %.2f times the mean number of rows, above %g: %s",
                graph.header.name, share, 1 + ROWS, way)


def given_partition(graph, part, k, *, rcm=True, baseline=False, nodes=None):
    """Make a partition (method "given") from parts found elsewhere, like `make_partition`.

    Parameters
    ----------
    graph : hpgcn.graphs.graph.Graph
        All rows, in memory.
    part : (n,) integers in [0, k)
    nodes : optional
        As of `make_partition`; the numbers of the parts are kept.

    Raises
    ------
    DataError
        The part vector does not fit the graph, or the graph is a slab.
    UsageError
        The nodes do not fit k.
    """
    part = check_parts(part, k, n=check_whole(graph))
    return _to_partition(graph, pattern(graph), Parts(part), k, rcm, baseline, method="given",
                         node_sizes=node_sizes(nodes, k))


def over_random(rows, k, *, symmetric=False):
    """Return the mean statistics of random partitions, for `relative`.

    Their seeds are 0, 1 and 2. Large graphs, whose random partitions differ little, take
    seed 0 alone.
    """
    seeds = range(1 if rows.nnz >= LARGE else 3)
    counted = [count(rows, random_parts(rows.shape[0], k, seed), k, symmetric=symmetric)
               for seed in seeds]
    return {f"random_{key}": float(np.mean([numbers[key] for numbers in counted]))
            for key in COMPARED}


def unrefined(rows, parts, k, *, symmetric=False):
    """Return the volumes and messages of Parts before refinement; {} if they are not refined."""
    if parts.unrefined is None:
        return {}
    counted = count(rows, parts.unrefined[0], k, parts.unrefined[1], symmetric=symmetric)
    return {f"unrefined_{key}": counted[key] for key in ("volume", "volume_max", "messages")}


def _to_partition(graph, rows, parts, k, rcm, baseline, dealt=None, **attributes):
    """Make the Partition of a method's Parts: order the vertices, and count the statistics.

    `dealt` is the order of all rows from which the parts were dealt, if there is one.
    """
    order = dealt
    if order is None and rcm:
        order = rcm_within_parts(graph, parts.part, k)
    version = engine_version(parts.engine) if parts.engine else ""
    edge_part = None if parts.holder is None else stored_holders(graph, rows, parts.holder)
    partition = Partition.from_parts(
        parts.part, k, order=order, edge_part=edge_part, engine=parts.engine or "",
        engine_version=version, epsilon=parts.epsilon, batch=parts.batch, winner=parts.winner,
        divided=parts.divided, start=parts.start, **attributes)
    symmetric = {"symmetric": not graph.header.directed}
    counted = count(rows, parts.part, k, parts.holder, train_mask(graph), **symmetric)
    partition.statistics.update(
        counted | node_volumes(rows, parts.part, partition.node_sizes, counted, parts.holder)
        | profile(graph, partition.iperm if dealt is None else np.argsort(dealt)) | parts.statistics
        | ({**unrefined(rows, parts, k, **symmetric), **over_random(rows, k, **symmetric)}
           if baseline else {}))
    return partition


def _balance(rows, weights, parts, request, train):
    """Return Parts in which the training vertices are balanced as well."""
    from hpgcn.partition.rows.balance_train import balance_train  # brings Numba

    if parts.holder is None:
        allowed = weights, request.epsilon
    else:
        allowed = np.ones_like(weights), ROWS
    part = balance_train(rows, parts.part, parts.holder, request.k, *allowed, train, request.seed)
    holder = parts.holder
    if holder is not None:
        number = entry_rows(rows)
        holder = np.where(number == rows.indices, part[number], holder)
    return replace(parts, part=part, holder=holder)


def _lines(rows, parts, k):
    """Return the columns and rows of which each part has entries, csr_array (k, 2 n)."""
    return sp.hstack(touched(rows, parts.part, k, parts.holder), "csr")


def _nest(rows, parts, k, groups):
    """Renumber the parts of each group, so that parts 2 p and 2 p + 1 merge well."""
    lines = _lines(rows, parts, k)
    size = k // groups
    numbers = np.concatenate([first + nested_numbers(lines[first:first + size])
                              for first in range(0, k, size)]).astype(np.int32)
    holder = None if parts.holder is None else numbers[parts.holder]
    return replace(parts, part=numbers[parts.part], holder=holder)
