"""Partition rows in a few passes over blocks of them, which may be read from a file.

Sources: each pass assigns one vertex after the other, by the parts of its neighbors and
a price of full parts: I. Stanton, G. Kliot, Streaming Graph Partitioning for Large
Distributed Graphs, KDD 2012 (LDG); C. Tsourakakis et al., FENNEL, WSDM 2014. Further
passes start from the parts of the last one: J. Nishimura, J. Ugander, Restreaming Graph
Partitioning, KDD 2013.

Passes over single vertices stop in poor local minima of meshes and roads. So clusters
are sought first, with the same passes and a limit on their weight, and are assigned
before their vertices are: H. Meyerhenke, P. Sanders, C. Schulz, Partitioning Complex
Networks via Size-Constrained Clustering, SEA 2014. Clusters are clustered again until
few are left.
"""
from collections import namedtuple

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.reordering import random_order
from hpgcn.partition.rows.stream_kernels import assign_rows, cluster_rows, merge_counts

BLOCK = 1 << 22  # entries of a block
CLUSTERS = 32  # clusters of a part, if all are as heavy as they may be
ROUNDS = 5  # passes that seek clusters, at most
FEW = 0.05  # share of the vertices that must move for another pass
SHRINKS = 0.95  # clusters are clustered again if they are at most this share of the vertices
TRIES = 8  # orders in which the last clusters are assigned, of which the best is taken
PASSES = 10  # passes over the last clusters, at most
FINER_PASSES = 5  # passes over their vertices, at most
REPAIRS = 10  # further passes while a part is too heavy, at most
SETTLED = 0.002  # share of the vertices that must move for another pass
PRICE = 0.75  # what a full part costs, as a share of a vertex's entries: Fennel's alpha

# A matrix that is read in blocks, the weight of each row, and that of all entries off the
# diagonal. `blocks` is a function without arguments: an iterator of blocks as in
# `stream_kernels`.
Level = namedtuple("Level", "blocks weights entries")


def stream_parts(level, k, epsilon, seed=0):
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

    Returns
    -------
    (n,) int32
        It depends on the order of the rows, but not on the size of blocks.
    """
    # clusters, and clusters of clusters
    total = int(level.weights.sum())
    cap = int((1 + epsilon) * total / k)
    levels = [level]
    numbers = []
    while levels[-1].weights.size > 2 * CLUSTERS * k:
        finer = levels[-1]
        number, size = _numbered(_clusters(finer, total // (CLUSTERS * k), seed))
        if size > SHRINKS * finer.weights.size:
            break
        levels.append(_contracted(finer, number, size))
        numbers.append(number)

    # assign the last clusters in several orders; loads are even within half a cluster
    room = [cap + int(each.weights.max()) // 2 for each in levels]
    room[0] = cap
    last = levels[-1]
    tries = []
    for attempt in range(TRIES if numbers else 1):
        order = random_order(last.weights.size, seed + attempt) if numbers else None
        part = np.full(last.weights.size, -1, np.int32)
        _assign(last, part, k, room[-1], PASSES, order)
        tries.append((_entries_cut(last, part) if numbers else 0, attempt, part))
    part = min(tries)[2]

    # their vertices follow, and move
    for depth in reversed(range(len(numbers))):
        part = part[numbers[depth]]
        _assign(levels[depth], part, k, room[depth], FINER_PASSES)
    return part


def memory_level(rows, weights, block=BLOCK):
    """Return the Level of a `pattern` in memory, with about `block` entries in a block."""
    indptr = rows.indptr
    ones = np.empty(0, np.int64)

    def blocks():
        for start, stop in _bounds(indptr, block):
            first, last = indptr[start], indptr[stop]
            yield (start, (indptr[start:stop + 1] - first).astype(np.int64),
                   rows.indices[first:last], ones)

    return Level(blocks, np.asarray(weights, np.int64), rows.nnz - weights.size)


def stored_level(source, w0=0, block=BLOCK):
    """Return the Level of a GraphSource, whose blocks are read again in each pass.

    A row weighs its entries, the diagonal counted, and w0. Rows are in the order of
    the source.
    """
    pointers = source.pointers(0, source.header.num_nodes)
    ones = np.empty(0, np.int64)

    def blocks():
        for start, stop in _bounds(pointers, block):
            indptr, indices, _ = source.adjacency_rows(start, stop)
            yield start, indptr, indices, ones

    # a loop that is stored is not counted twice
    weights = np.diff(pointers) + (1 + w0)
    for start, indptr, indices, _ in blocks():
        rows = start + np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
        weights[rows[rows == indices]] -= 1
    return Level(blocks, weights, int(weights.sum()) - (1 + w0) * weights.size)


def _bounds(indptr, block):
    """Yield the bounds of blocks of whole rows, with about `block` entries."""
    start = 0
    while start < indptr.size - 1:
        stop = int(np.searchsorted(indptr, indptr[start] + block, side="right")) - 1
        stop = max(stop, start + 1)
        yield start, stop
        start = stop


def _clusters(level, cap, seed):
    """Return the cluster of each vertex, (n,) int32: the number of one of the vertices."""
    n = level.weights.size
    label = np.arange(n, dtype=np.int32)
    size = level.weights.copy()
    shared = np.zeros(n, np.int64)
    met = np.empty(n, np.int32)
    for turn in range(ROUNDS):
        moved = sum(cluster_rows(*block, level.weights, label, size, cap, seed + turn, shared, met)
                    for block in level.blocks())
        if moved < FEW * n:
            break
    return label


def _numbered(label):
    """Return the number of each vertex's cluster, counted from 0, and their count."""
    used = np.zeros(label.size, bool)
    used[label] = True
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return number[label], int(np.count_nonzero(used))


def _contracted(level, number, size):
    """Return the Level of clusters: its values count the entries between two of them."""
    # count in each block; lists of about the same length are merged
    lists = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for block in level.blocks():
        lists.append(_counted(*block, number, size))
        while len(lists) > 1 and 2 * lists[-1][0].size > lists[-2][0].size:
            lists.append(merge_counts(*lists.pop(), *lists.pop()))
    while len(lists) > 1:
        lists.append(merge_counts(*lists.pop(), *lists.pop()))
    keys, counts = lists.pop()

    # the lists are the entries of a CSR matrix
    rows, columns = np.divmod(keys, size)
    indptr = run_offsets(np.bincount(rows, minlength=size))
    weights = np.bincount(number, level.weights, size).astype(np.int64)
    block = 0, indptr, columns.astype(np.int32), counts
    return Level(lambda: iter([block]), weights, int(counts.sum()))


def _counted(start, indptr, indices, values, number, size):
    """Return keys row x size + column of the clusters of a block's entries, ascending,
    and the sum of each.
    """
    rows = np.repeat(number[start:start + indptr.size - 1], np.diff(indptr))
    columns = number[indices]
    between = rows != columns
    keys = rows[between].astype(np.int64) * size + columns[between]
    if values.size:
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[between][order]
    else:
        keys.sort()
        values = np.ones(keys.size, np.int64)
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.add.reduceat(values, first) if first.size else values


def _assign(level, part, k, cap, passes, order=None):
    """Assign vertices in passes until few of them move and no part is too heavy;
    changes `part`.
    """
    weights = level.weights
    held = part >= 0
    load = np.bincount(part[held], weights[held], k).astype(np.int64)
    price = PRICE * level.entries / max(1, int(weights.sum()))
    for turn in range(passes + REPAIRS):
        if turn >= passes and load.max() <= cap:
            break
        moved = 0
        for block in level.blocks():
            rows = np.arange(block[1].size - 1) if order is None else order
            moved += assign_rows(*block, rows, weights, part, load, cap, price)
        if moved == 0 or (moved < SETTLED * weights.size and load.max() <= cap):
            break


def _entries_cut(level, part):
    """Return the weight of the entries between parts."""
    cut = 0
    for start, indptr, indices, values in level.blocks():
        rows = np.repeat(part[start:start + indptr.size - 1], np.diff(indptr))
        cut += int(values[rows != part[indices]].sum())
    return cut
