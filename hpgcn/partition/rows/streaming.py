"""Partition rows in a few passes over blocks of them, which may be read from a file.

Each pass assigns one vertex after the other, by the parts of its neighbors and a price
of full parts: I. Stanton, G. Kliot, Streaming Graph Partitioning for Large Distributed
Graphs, KDD 2012 (LDG); C. Tsourakakis et al., FENNEL, WSDM 2014. Further passes start
from the parts of the last one: J. Nishimura, J. Ugander, Restreaming Graph
Partitioning, KDD 2013.

Passes over single vertices stop in poor local minima of meshes and roads. So clusters
are sought first, with the same passes and a limit on their weight, and are assigned
before their vertices are: H. Meyerhenke, P. Sanders, C. Schulz, Partitioning Complex
Networks via Size-Constrained Clustering, SEA 2014. Clusters are clustered again until
few are left.
"""
from collections import namedtuple

import numpy as np

from hpgcn.graphs.adjacency import row_blocks
from hpgcn.graphs.reordering import random_order
from hpgcn.partition.effort import FEWEST
from hpgcn.partition.partition_request import largest_load
from hpgcn.partition.rows.group_passes import assign_pass, cluster_pass, in_groups
from hpgcn.partition.rows.stream_kernels import (
    MULTIPLIER,
    assign_rows,
    cluster_rows,
    keep_between,
    merge_entries,
    weight_between,
)

BLOCK = 1 << 22  # entries of a block in memory
STORED_BLOCK = 1 << 20  # entries of a block in a file
CLUSTERS = 32  # clusters of a part, if all are as heavy as they may be
ROUNDS = 5  # passes that seek clusters, at most
FEW = 0.05  # share of the vertices that must move for another pass over clusters
SHRINKS = 0.95  # largest share of clusters to vertices for clustering the clusters again
DEGREE = 16  # entries of a cluster that are kept, on average
ENTRY_BYTES = 40  # memory of an entry that is kept, while clusters are contracted
CLUSTER_BYTES = 64  # memory of a cluster
TRIES = 8  # orders in which the last clusters are assigned, at most; the best is taken
TRIED = 1 << 18  # clusters of all these orders together; there are at least two orders
PASSES = 10  # passes over the last clusters, at most
FINER_PASSES = 5  # passes over their vertices, at most
REPAIRS = 10  # further passes while a part is too heavy, at most
SETTLED = 0.002  # share of the vertices that must move for another pass over parts
PRICE = 0.75  # cost of a full part, as a share of a vertex's entries: Fennel's alpha

# A matrix that is read in blocks, the weight of each row, and that of all entries off the
# diagonal. `blocks` is a function without arguments: an iterator of blocks as in
# `stream_kernels`.
Level = namedtuple("Level", "blocks weights entries")


def stream_parts(level, k, epsilon, seed=0, cut=None, cost=None, room=None, classes=1):
    """Partition the rows of a matrix by passes over its blocks; return parts, (n,) int32.

    The volume is lowered by lowering the number of entries between parts. Entries of
    the transpose are not seen, so that rows of directed graphs follow their columns.

    Parameters
    ----------
    level : Level
        Blocks in the order of rows; values (0,), because all are 1.
    k : int
    epsilon : float
        No part weighs more than (1 + epsilon) of the mean, unless single vertices are
        too heavy.
    seed : int
        Keys ties, and the orders in which clusters are assigned.
    cut : callable, optional
        `cut(level)` returns other parts of at most FEWEST clusters; None if it has none.
    cost : callable, optional
        `cost(part)` of parts of the vertices: those of `cut` are taken if it is less.
    room : int, optional
        Bytes that the matrices of clusters may take. They keep fewer entries if it is
        little.
    classes : int
        Classes of vertices that are visited one after the other when clusters are sought.
        With one class, an order of rows in which neighbors follow each other, such as
        RCM, gives worse clusters.

    Returns
    -------
    (n,) int32
        It depends on the order of the rows, but not on the size of blocks.
    """
    # assign the last clusters in several orders
    levels, numbers = _cluster_levels(level, k, seed, room)
    room = _largest_loads(levels, k, epsilon)
    last = levels[-1]
    tries = []
    count = max(2, min(TRIES, TRIED // last.weights.size)) if numbers else 1
    for attempt in range(count):
        order = random_order(last.weights.size, seed + attempt) if numbers else None
        part = np.full(last.weights.size, -1, np.int32)
        _assign(last, part, k, room[-1], PASSES, order)
        tries.append((_weight_cut(last, part), attempt, part))
    part = min(tries)[2]

    # their vertices follow, and move; so do those of other parts of clusters
    few = next((depth for depth, each in enumerate(levels) if each.weights.size <= FEWEST), 0)
    rivals = [part]
    for depth in reversed(range(len(levels))):
        if depth < len(numbers):
            rivals = [part[numbers[depth]] for part in rivals]
            for part in rivals:
                _assign(levels[depth], part, k, room[depth], FINER_PASSES, classes=classes)
        other = cut(levels[depth]) if cut and depth and depth == few else None
        if other is not None:
            _assign(levels[depth], other, k, room[depth], FINER_PASSES)
            rivals.append(other)
    return min(rivals, key=cost) if len(rivals) > 1 else part


def divide_clusters(level, k, epsilon, seed, divide):
    """Divide clusters of the rows, which then move on the way back to rows.

    The clusters are the first ones of at most FEWEST, or the last ones. Without
    clusters the rows themselves are divided.

    Parameters
    ----------
    level, k, epsilon, seed
        As of `stream_parts`.
    divide : callable
        `divide(level, number)` returns the parts of the clusters of a level, (c,)
        int32. `number`, (n,) int32, is the cluster of each row.

    Returns
    -------
    moved, divided : (n,) int32
        The parts after and before the moves.
    """
    levels, numbers = _cluster_levels(level, k, seed)
    few = (depth for depth, each in enumerate(levels) if depth and each.weights.size <= FEWEST)
    top = next(few, len(numbers))
    number = np.arange(level.weights.size, dtype=np.int32)
    for each in numbers[:top]:
        number = each[number]

    # the clusters of each level move, then the rows
    part = divide(levels[top], number)
    divided = part[number]
    room = _largest_loads(levels, k, epsilon)
    for depth in reversed(range(top + 1)):
        part = part[numbers[depth]] if depth < top else part
        _assign(levels[depth], part, k, room[depth], FINER_PASSES)
    return part, divided


def memory_level(rows, weights, block=BLOCK):
    """Return the Level of a `pattern` in memory, with about `block` entries in a block."""
    indptr = rows.indptr
    ones = np.empty(0, np.int64)

    def blocks():
        for start, stop in row_blocks(indptr, block):
            first, last = indptr[start], indptr[stop]
            yield (start, (indptr[start:stop + 1] - first).astype(np.int64),
                   rows.indices[first:last], ones)

    return Level(blocks, np.asarray(weights, np.int64), rows.nnz - weights.size)


def stored_level(source, w0=0, block=STORED_BLOCK):
    """Return the Level of a GraphSource, and which rows are isolated, (n,) bool.

    The blocks are read again in each pass. A row weighs its entries, the diagonal
    counted, and w0. Rows are in the order of the source. Memory holds the weights and a
    block.
    """
    pointers = source.pointers(0, source.header.num_nodes)
    bounds = list(row_blocks(pointers, block))
    weights = np.diff(pointers)
    weights += 1 + w0
    del pointers
    ones = np.empty(0, np.int64)

    def blocks():
        for start, stop in bounds:
            yield start, *source.pattern_rows(start, stop), ones

    # a loop that is stored is not counted twice
    alone = np.ones(weights.size, bool)
    for start, indptr, indices, _ in blocks():
        rows = start + np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
        loops = rows == indices
        weights[rows[loops]] -= 1
        alone[rows[~loops]] = alone[indices[~loops]] = False
    return Level(blocks, weights, int(weights.sum()) - (1 + w0) * weights.size), alone


def _cluster_levels(level, k, seed, room=None):
    """Return a level, clusters of its rows, clusters of these and so on.

    The second result has the cluster of each member, (n,) int32, for each level but the
    last. `room` is as in `stream_parts`.
    """
    cap = int(level.weights.sum()) // (CLUSTERS * k)
    levels = [level]
    numbers = []
    while levels[-1].weights.size > 2 * CLUSTERS * k:
        finer = levels[-1]
        number, size = _number(_clusters(finer, cap, seed))
        limit = DEGREE * size
        if room is not None:
            limit = min(limit, (room - CLUSTER_BYTES * size) // ENTRY_BYTES)
        if size > SHRINKS * finer.weights.size or limit < size:
            break
        levels.append(_contract(finer, number, size, seed, limit))
        numbers.append(number)
        if room is not None:
            room -= CLUSTER_BYTES * size + ENTRY_BYTES // 2 * limit
    return levels, numbers


def _largest_loads(levels, k, epsilon):
    """Return the largest weight of a part at each level; clusters may exceed it by half of one."""
    cap = largest_load(levels[0].weights, k, epsilon)
    return [cap, *(cap + int(each.weights.max()) // 2 for each in levels[1:])]


def _clusters(level, cap, seed):
    """Return the cluster of each vertex, (n,) int32: the number of one of the vertices."""
    n = level.weights.size
    label = np.arange(n, dtype=np.int32)
    size = level.weights.copy()
    for turn in range(ROUNDS):
        key = np.int64((seed + turn) % 2**63)
        if in_groups(level):
            moved = cluster_pass(level, label, size, cap, key)
        else:
            moved = sum(cluster_rows(*block, level.weights, label, size, cap, key)
                        for block in level.blocks())
        if moved < FEW * n:
            break
    return label


def _weight_cut(level, part):
    """Return the weight of entries between parts."""
    return sum(weight_between(*block, part) for block in level.blocks())


def _number(label):
    """Return the number of each vertex's cluster, counted from 0, and their count."""
    used = np.zeros(label.size, bool)
    used[label] = True
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return number[label], int(np.count_nonzero(used))


def _contract(level, number, size, seed, limit):
    """Return the Level of clusters, whose values are the weights of entries between them.

    It keeps about `limit` entries at most. If there are more, they are a sample whose
    expected weights are right.
    """
    between = _weight_cut(level, number)
    threshold = max(1, -(-between // limit))

    # the entries that are kept
    lists = []
    for block in level.blocks():
        room = block[2].size
        arrays = [np.empty(room, kind) for kind in (np.int32, np.int32, np.int64)]
        count = keep_between(*block, number, threshold, seed, *arrays)
        lists.append([array[:count].copy() for array in arrays])
    rows, columns, kept = (np.concatenate([arrays.pop(0) for arrays in lists]) for _ in range(3))

    # clusters are the rows of a matrix
    block = 0, *merge_entries(rows, columns, kept, size)
    weights = np.bincount(number, level.weights, size).astype(np.int64)
    return Level(lambda: iter([block]), weights, int(block[3].sum()))


def _assign(level, part, k, cap, passes, order=None, classes=1):
    """Assign vertices in passes until few of them move and no part is too heavy.

    `part` is changed. A pass visits all rows of one class, then those of the next one.
    """
    weights = level.weights
    load = np.bincount(part + 1, weights, k + 1)[1:].astype(np.int64)
    price = PRICE * level.entries / max(1, int(weights.sum()))
    grouped = classes == 1 and in_groups(level) and part.min() >= 0
    for turn in range(passes + REPAIRS):
        if turn >= passes and load.max() <= cap:
            break
        if grouped:
            moved = assign_pass(level, part, load, cap, price)
        else:
            moved = sum(assign_rows(*block, rows, weights, part, load, cap, price)
                        for block, rows in visits(level, classes, order))
        if moved == 0 or (moved < SETTLED * weights.size and load.max() <= cap):
            break


def visits(level, classes, order=None):
    """Yield each block of a level, and its rows in the order of visits, for each class."""
    for chosen in range(classes):
        for block in level.blocks():
            rows = np.arange(block[1].size - 1) if order is None else order
            if classes > 1:
                rows = rows[row_classes(block[0] + rows, classes) == chosen]
            yield block, rows


def row_classes(rows, classes):
    """Return the class of each row by a hash of its number, (m,) uint64.

    `classes` is a power of two.
    """
    hashed = rows.astype(np.uint64) * MULTIPLIER
    return (hashed >> np.uint64(40)) & np.uint64(classes - 1)
