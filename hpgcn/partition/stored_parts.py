"""Partition a graph file in passes over its blocks, with some bytes of memory a vertex."""
import logging

import numpy as np

from hpgcn.graphs.partition import Partition
from hpgcn.partition.effort import FAST
from hpgcn.partition.method_table import METHODS, PartitionOptions
from hpgcn.partition.partition_memory import level_room, refining_bytes
from hpgcn.partition.quality import COMPARED, explain_imbalance
from hpgcn.partition.rows.net_bits import count_blocks, lower_volume
from hpgcn.partition.rows.partition_model import deal_isolated
from hpgcn.partition.rows.row_methods import QUICK, quick_parts, random_parts
from hpgcn.partition.rows.streaming import stored_level, stream_parts
from hpgcn.runtime.machine import map_large_arrays

CLASSES = 4  # classes of rows, as in `rows.streaming.stream_parts`

log = logging.getLogger("hpgcn")


def partition_stored(source, k, *, method="stream", epsilon=None, w0=0, seed=0, memory=None,
                     refine=True, baseline=False, split=0):
    """Partition the rows of a graph file, whose entries are read again in each pass.

    Memory holds about 60 bytes a vertex, and no entries besides those of clusters
    (`rows.streaming`). Vertices of a part are in the order of the file.

    Parameters
    ----------
    source : hpgcn.store.StoredGraph
        Without parts.
    k, epsilon, w0, seed, refine, baseline
        As of `make_partition`.
    method : str
        "best", "hypergraph", "graph" and "stream" all use "stream"; or "block" or
        "random".
    memory : int, optional
        Bytes that the process may take. Little memory keeps fewer entries of clusters,
        and may not suffice to refine many parts.
    split : int
        Number of the split whose training vertices are counted.

    Returns
    -------
    hpgcn.partition.Partition

    Raises
    ------
    UsageError, DataError, StorageError
        As `make_partition`; the file is damaged or contradicts itself.
    """
    request = PartitionOptions(method, FAST, epsilon=epsilon, w0=w0, seed=seed, memory=memory,
                               refine=False).request(source, k)
    streams = METHODS[method].streams
    log.info("%s: parts are made in passes over the file%s", source.header.name,
             "" if memory is None else ", because its rows do not fit into "
             f"{memory / 2**20:,.0f}M of memory")
    map_large_arrays()
    source.check_structure()
    n = source.header.num_nodes
    level, alone = stored_level(source, request.w0)
    vertices = source.vertices(0, n) if source.ordered else None

    # the part of each row
    if method in QUICK:
        part = _quick(method, level.weights, vertices, request)
    elif k in (1, n) or not level.entries:
        part = quick_parts("block", level.weights, k)
    else:
        total = level.weights.sum()
        level.weights[alone] = 0  # these are dealt out last
        epsilon = request.epsilon * (total / level.weights.sum())
        part = stream_parts(level, k, epsilon, request.seed,
                            room=level_room(source.header, memory), classes=CLASSES)
        if refine and (memory is None or refining_bytes(source.header, k) <= memory):
            part = lower_volume(level, part, k, epsilon, CLASSES)
        level.weights[alone] = 1 + request.w0
        if alone.any():
            part = deal_isolated(part, alone, level.weights, k, request.epsilon)

    # the statistics, and those of random parts
    train = source.split_masks(split)["train"].astype(bool) if source.header.num_splits else None
    statistics = count_blocks(level, part, k, request.w0, train)
    if baseline:
        random = count_blocks(level, random_parts(n, k, 0), k, request.w0)
        statistics |= {f"random_{key}": float(random[key]) for key in COMPARED}
    for line in explain_imbalance(statistics):
        log.info("%s: %s", source.header.name, line)
    del level

    # vertices in the order of the file
    return Partition.from_parts(
        _by_vertex(part, vertices), k, order=vertices, method=method, seed=request.seed,
        epsilon=request.epsilon if streams else 0.0, statistics=statistics,
        winner="stream" if method == "best" else "",
        effort=FAST if streams and method != "stream" else "")


def _quick(method, weights, vertices, request):
    """Return the parts of rows by block or random, the same as of a graph in memory."""
    part = quick_parts(method, _by_vertex(weights, vertices), request.k, request.seed)
    return part if vertices is None else part[vertices]


def _by_vertex(values, vertices):
    """Return values of rows in the ORIGINAL order of their vertices."""
    if vertices is None:
        return values
    ordered = np.empty_like(values)
    ordered[vertices] = values
    return ordered
