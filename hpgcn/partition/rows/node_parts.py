"""Make parts for ranks on several nodes: few rows between nodes first, then few within.

A node-aware exchange sends a row once to every other node that reads it, and within
that node to all parts that read it. So the rows between nodes are the volume of a
partition into nodes. The rest of the volume is within nodes.
"""
import math
from dataclasses import replace

import numpy as np

from hpgcn.errors import UsageError
from hpgcn.graphs.partition import run_offsets
from hpgcn.partition.effort import FAST, SMALL
from hpgcn.partition.quality import touched
from hpgcn.partition.rows.row_methods import (
    divide_columns,
    divide_edges,
    partition_columns,
    stream_clusters,
    takes_clusters,
)

HYPERGRAPHS = ("best", "hypergraph")  # methods whose pieces keep the columns of other nodes


def node_sizes(nodes, k):
    """Return the number of parts of each node, a tuple of int; () for None.

    `nodes` is a number of nodes, which divides k, or the parts of each node, whose sum
    is k. Other values raise UsageError.
    """
    if nodes is None:
        return ()
    if isinstance(nodes, (int, np.integer)) and not isinstance(nodes, bool):
        if not 1 <= nodes <= k:
            raise UsageError(f"nodes = {nodes}: expected 1 to {k}, the number of parts")
        if k % nodes:
            raise UsageError(f"nodes = {nodes}: does not divide {k} parts; for nodes of several "
                             "sizes list the ranks of each (ranks per node)")
        return (k // int(nodes),) * int(nodes)
    given = np.asarray(nodes)
    if given.ndim != 1 or given.dtype.kind not in "ui" or given.size == 0 or given.min() < 1:
        raise UsageError(f"ranks per node = {nodes!r:.80}: expected whole numbers of at least 1")
    if given.sum() != k:
        raise UsageError(f"ranks per node: their sum is {given.sum()}, but there are {k} parts")
    return tuple(given.tolist())


def parts_by_node(find, method, rows, weights, request, sizes):
    """Partition into nodes, then each node into its parts; refine within nodes.

    Partitions into nodes and within them share epsilon, so that all parts together are
    balanced.

    Parameters
    ----------
    find : callable
        A method that streams; its name is `method`. Parts of other methods are grouped.
    rows, weights, request
        Arguments of `find`.
    sizes : tuple of int
        Parts of each node.

    Returns
    -------
    Parts
        Part p of node m has number sum(sizes[:m]) + p.
    """
    # nodes of several sizes are groups of equal units
    unit = math.gcd(*sizes)
    units = request.k // unit
    levels = (units > 1) + (max(sizes) > 1)
    share = (1 + request.epsilon) ** (1 / max(1, levels)) - 1
    found = find(rows, weights, request._replace(k=units, epsilon=share))
    part = found.part
    if len(sizes) < units:
        numbers = group_parts(touched(rows, part, units, None)[0], np.array(sizes) // unit)
        part = numbers[part]
    node = np.repeat(np.arange(len(sizes)), np.array(sizes) // unit)[part]

    # parts within each node
    part = np.empty(weights.size, np.int32)
    first = run_offsets(sizes)
    for m, size in enumerate(sizes):
        own = np.flatnonzero(node == m)
        inner = np.arange(own.size) % size
        if 1 < size < own.size:
            piece = _within(find, method, rows, own, weights,
                            request._replace(k=size, epsilon=share, refine=False,
                                             piece=rows.nnz > SMALL))
            inner = piece.part
            found = found if found.engine else piece
        part[own] = first[m] + inner

    # moves within nodes leave the rows between nodes as they are
    unrefined = None
    if request.refine and max(sizes) > 1:
        from hpgcn.partition.rows.refine import refine

        unrefined = part, None
        part = refine(rows, part, request.k, weights, request.epsilon, request.seed,
                      group=np.repeat(np.arange(len(sizes)), sizes))
    return replace(found, part=part, epsilon=request.epsilon, statistics={},
                   unrefined=unrefined)


def _within(find, method, rows, own, weights, request):
    """Return the Parts of the vertices `own` of one node.

    Hypergraphs have the columns of other nodes as well, because parts of a node that
    read the same column receive it once. If the nodes were found by clusters, so are
    their parts.
    """
    lines = rows[own]
    block = lines[:, own]
    weights = weights[own]
    if method == "stream" or request.effort == FAST:
        return find(block, weights, request)
    if takes_clusters(rows.nnz, request):
        if method == "graph":
            return divide_edges(block, weights, request)
        if method == "hypergraph" or request.named:
            return divide_columns(lines, block, weights, request)
        return stream_clusters(block, weights, request)
    if method in HYPERGRAPHS:
        return partition_columns(lines, weights, request,
                                 block=block if method == "best" else None)
    return find(block, weights, request)


def group_parts(lines, sizes):
    """Group parts into nodes, so that few rows go between nodes.

    A node takes the first free part. Then it takes, one after the other, the part that
    shares most nets with its parts. If consecutive parts do better, they are taken.

    Parameters
    ----------
    lines : csr_array (k, nets)
        Entries where a part touches a net.
    sizes : sequence of int
        Parts of each node.

    Returns
    -------
    (k,) int32
        New number of each part.
    """
    # integers, whose products count common nets
    lines = lines.astype(np.int64)
    lines.data[:] = 1
    free = np.ones(lines.shape[0], bool)
    members = []

    # fill one node after the other
    for size in sizes:
        taken = [int(np.argmax(free))]
        free[taken] = False
        reached = np.zeros(lines.shape[1], np.int64)
        for _ in range(size - 1):
            reached[lines[[taken[-1]]].indices] = 1
            shared = np.where(free, lines @ reached, -1)
            taken.append(int(np.argmax(shared)))
            free[taken[-1]] = False
        members += sorted(taken)

    # compare with the order as it is
    orders = [np.arange(lines.shape[0]), np.array(members)]
    volumes = [_node_volume(lines[order], sizes) for order in orders]
    best = int(volumes[1] < volumes[0])
    numbers = np.empty(lines.shape[0], np.int32)
    numbers[orders[best]] = np.arange(numbers.size)
    return numbers


def _node_volume(lines, sizes):
    """Count the nodes that touch a net, minus one, summed over all nets that are touched."""
    node = np.repeat(np.arange(len(sizes)), sizes)
    reader = np.repeat(node, np.diff(lines.indptr))
    pairs = np.unique(lines.indices.astype(np.int64) * len(sizes) + reader)
    return int(pairs.size - np.unique(lines.indices).size)


def grouped_parts(parts, lines, sizes):
    """Return Parts with the numbers of `group_parts`, which has the same arguments."""
    numbers = group_parts(lines, sizes)
    holder = None if parts.holder is None else numbers[parts.holder]
    unrefined = parts.unrefined
    if unrefined is not None:
        unrefined = tuple(None if each is None else numbers[each] for each in unrefined)
    return replace(parts, part=numbers[parts.part], holder=holder, unrefined=unrefined)
