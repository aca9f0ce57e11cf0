"""Pass over the rows of a large matrix on all threads, for `rows.streaming`.

Vertices are visited in groups of consecutive numbers. All threads choose a cluster or
part for each vertex of a group. A choice sees earlier moves of the same chunk, a few
rows, and otherwise the state before the group. Then the moves that keep the limits are
made, in the order of vertices. Groups and chunks follow from the numbers of vertices,
so neither threads nor the size of blocks change a result.
"""
import numpy as np

from hpgcn.kernels.cpu.emit.entry_prefetch import fetch_later
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import Threaded, chunks
from hpgcn.partition.rows.stream_kernels import (
    VISIT,
    choose_cluster,
    choose_part,
    table_size,
)

LARGE_LEVEL = 1 << 18  # vertices: passes over at least this number process rows in groups
GROUP = 1 << 14  # vertices of a group
CHUNK = 1 << 8  # vertices of a chunk, which one thread takes


def in_groups(level):
    """Return whether passes over a Level process rows in groups, on all threads."""
    return level.weights.size >= LARGE_LEVEL


def cluster_pass(level, label, size, cap, seed):
    """Move each vertex to the cluster with most of its entries; return the number of moves.

    Arguments are those of `stream_kernels.cluster_rows`; `label` and `size` are changed.
    """
    wanted = np.empty(GROUP, np.int32)
    moved = 0
    for begin, pieces in _groups(level):
        members = slice(begin, begin + GROUP)
        wanted[:label[members].size] = label[members]
        for rows, block in pieces:
            _choose_clusters(VISIT * _entries(block, rows), block, rows, level.weights, label,
                             size, cap, seed, begin, wanted)
        moved += _join_clusters(begin, wanted, level.weights, label, size, cap)
    return moved


def assign_pass(level, part, load, cap, price):
    """Move each vertex to the part with the best score; return the number of moves.

    Arguments are those of `stream_kernels.assign_rows`, but all vertices have a part;
    `part` and `load` are changed.
    """
    # small numbers of parts, which stay in caches
    part_out = part
    if load.size <= np.iinfo(np.int16).max:
        part = part.astype(np.int16)
    wanted = np.empty(GROUP, part.dtype)
    moved = 0
    for begin, pieces in _groups(level):
        members = slice(begin, begin + GROUP)
        wanted[:part[members].size] = part[members]
        before = load.copy()
        for rows, block in pieces:
            _choose_parts(VISIT * _entries(block, rows), block, rows, level.weights, part,
                          before, cap, price, begin, wanted)
        moved += _join_parts(begin, wanted, level.weights, part, load, before, cap)
    part_out[:] = part
    return moved


def _groups(level):
    """Yield the first vertex of each group, and a list of its rows in blocks.

    Items of the list are ((first, last), block); rows of a block count from 0.
    """
    n = level.weights.size
    blocks = level.blocks()
    block = next(blocks)
    for begin in range(0, n, GROUP):
        pieces = []
        at, end = begin, min(begin + GROUP, n)
        while at < end:
            stop = block[0] + block[1].size - 1
            if at == stop:
                block = next(blocks)
                continue
            pieces.append(((at - block[0], min(end, stop) - block[0]), block))
            at = min(end, stop)
        yield begin, pieces


def _entries(block, rows):
    return int(block[1][rows[1]] - block[1][rows[0]])


@Threaded
def _choose_clusters(counters, block, rows, weights, label, size, cap, seed, begin, wanted):
    """Choose clusters for the rows [first, last) of a block; fill in `wanted`.

    `rows` is (first, last). `begin` is the first vertex of the group, `wanted` (GROUP,)
    has its clusters so far.
    """
    start, indptr, indices, values = block
    first, last = rows
    keys = np.full(table_size(indptr, first, last), -1, np.int32)
    shared = np.zeros(keys.size, np.int64)
    near = np.empty(keys.size, np.int32)
    met = np.empty(keys.size, np.int32)
    low = (start + first) // CHUNK
    for chunk in chunks(counters, (start + last - 1) // CHUNK + 1 - low):
        chunk_begin = (low + chunk) * CHUNK
        for v in range(max(chunk_begin, start + first), min(chunk_begin + CHUNK, start + last)):
            # clusters of the neighbors, -1 for a loop
            at = indptr[v - start]
            degree = indptr[v - start + 1] - at
            for t in range(degree):
                fetch_later(label, indices, at + t)
                u = indices[at + t]
                if u == v:
                    near[t] = -1
                elif chunk_begin <= u < chunk_begin + CHUNK:
                    near[t] = wanted[u - begin]
                else:
                    near[t] = label[u]
            wanted[v - begin] = choose_cluster(v, label[v], degree, near, at, values, weights[v],
                                               size, cap, seed, keys, shared, met)


@jit()
def _join_clusters(begin, wanted, weights, label, size, cap):
    """Make the moves of a group that keep the limit; return their number.

    A cluster that all members have left stays empty, so two neighbors do not swap.
    """
    moved = 0
    for v in range(begin, min(begin + wanted.size, label.size)):
        own, best = label[v], wanted[v - begin]
        if best != own and size[best] > 0 and size[best] + weights[v] <= cap:
            size[own] -= weights[v]
            size[best] += weights[v]
            label[v] = best
            moved += 1
    return moved


@Threaded
def _choose_parts(counters, block, rows, weights, part, load, cap, price, begin, wanted):
    """Choose parts for the rows [first, last) of a block; fill in `wanted`.

    `rows` is (first, last). `begin` is the first vertex of the group, `wanted` (GROUP,)
    has its parts so far.
    """
    start, indptr, indices, values = block
    first, last = rows
    shared = np.zeros(load.size, np.int64)
    filled = np.sqrt(load / cap)
    own_load = load.copy()
    low = (start + first) // CHUNK
    for chunk in chunks(counters, (start + last - 1) // CHUNK + 1 - low):
        chunk_begin = (low + chunk) * CHUNK
        for v in range(max(chunk_begin, start + first), min(chunk_begin + CHUNK, start + last)):
            # entries that the vertex shares with each part
            for t in range(indptr[v - start], indptr[v - start + 1]):
                fetch_later(part, indices, t)
                u = indices[t]
                if u != v:
                    q = part[u]
                    if chunk_begin <= u < chunk_begin + CHUNK:
                        q = wanted[u - begin]
                    shared[q] += values[t] if values.size else 1

            # the vertex leaves its part, and takes the best one that has room
            p = part[v]
            own_load[p] -= weights[v]
            full, filled[p] = filled[p], np.sqrt(own_load[p] / cap)
            best = choose_part(p, weights[v], shared, own_load, filled, cap, price)
            own_load[p] += weights[v]
            filled[p] = full
            wanted[v - begin] = p if best < 0 else best


@jit()
def _join_parts(begin, wanted, weights, part, load, before, cap):
    """Make the moves of a group that keep the limit; return their number.

    `before` (k,) has the loads before the group. Vertices leave a part that was too
    heavy until it is within the limit.
    """
    moved = 0
    for v in range(begin, min(begin + wanted.size, part.size)):
        p, q = part[v], wanted[v - begin]
        if p != q and load[q] + weights[v] <= cap and (before[p] <= cap or load[p] > cap):
            load[p] -= weights[v]
            load[q] += weights[v]
            part[v] = q
            moved += 1
    return moved
