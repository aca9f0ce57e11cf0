"""Distribute training vertices evenly, because the last layer only computes rows with a loss.

Engines balance one weight. So training vertices move out of parts with too many of
them, each to the part where this adds least to the volume. Then other vertices move out
of parts that have become too heavy.
"""
from collections import namedtuple

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.reordering import random_order
from hpgcn.kernels.host.jit import jit
from hpgcn.partition.rows.partition_model import entry_rows
from hpgcn.partition.rows.row_moves import add_pin, take_pin

SHARE = 0.1  # share of training vertices above the mean that a part may own, at least one
ROUNDS = 32  # in the first, the move of a vertex may cost one row; each next doubles this

# Vertex v lies in the nets indices[indptr[v]:indptr[v + 1]]. From first[j] on, net j
# lists the lam[j] parts that it touches, and its pins in each.
Nets = namedtuple("Nets", "indptr indices first touched pins lam")


def balance_train(rows, part, holder, k, weights, epsilon, train, seed=0):
    """Move vertices until no part owns too many training vertices; return owners, (n,) int32.

    Parameters
    ----------
    rows : csr_array (n, n)
        Pattern with a full diagonal, as `hpgcn.partition.rows.partition_model.pattern`.
    part : (n,) int32
        Owners. They hold their rows whole, unless `holder` says otherwise.
    holder : (nnz,) int32, or None
        Holder of each entry of the pattern; on the diagonal the owner.
    k : int
    weights : (n,) int64
        Weight that moves with an owner. If moves make a part heavier than (1 + epsilon)
        of the mean, and than the heaviest of `part`, other vertices leave the part.
    epsilon : float
    train : (n,) bool
    seed : int
        Keys the order in which vertices are visited.
    """
    part = part.copy()

    # limits of the training vertices and of the weight of a part
    mean = np.count_nonzero(train) / k
    most = int(mean + max(1, SHARE * mean))
    load = np.bincount(part, weights, k).astype(np.int64)
    heaviest = max(int((1 + epsilon) * load.sum() / k), int(load.max()))

    # training vertices first, then others make up for their weight
    nets = _nets(rows, part, holder, k)
    _pass_on(nets, part, train, train.astype(np.int64), most, k, seed)
    _pass_on(nets, part, ~train, np.asarray(weights, np.int64), heaviest, k, seed)
    return part


def _nets(rows, part, holder, k):
    """Count the pins of each part in every net: a column, or also a row if rows are split."""
    n = part.size

    # lines are columns, or rows and columns if nonzeros have holders of their own
    number = entry_rows(rows)
    if holder is None:
        indptr, indices = rows.indptr.astype(np.int64), rows.indices
        lines, parts, total = indices, part[number], n
    else:
        indptr = 2 * np.arange(n + 1)
        indices = np.stack([np.arange(n), np.arange(n, 2 * n)], axis=1).ravel()
        lines, parts, total = np.concatenate([rows.indices, n + number]), np.tile(holder, 2), 2 * n

    # count the pins of each part in each net
    keys, pins = np.unique(lines.astype(np.int64) * k + parts, return_counts=True)
    lam = np.bincount(keys // k, minlength=total).astype(np.int32)
    size = np.bincount(indices, minlength=total)

    first = run_offsets(np.minimum(lam + size, k) + 1)  # a move adds a part before it takes one
    place = np.repeat(first[:-1] - run_offsets(lam)[:-1], lam) + np.arange(keys.size)
    nets = Nets(indptr, indices, first, *np.zeros((2, first[-1]), np.int32), lam)
    nets.touched[place] = keys % k
    nets.pins[place] = pins

    return nets


def _pass_on(nets, part, moving, sizes, limit, k, seed):
    """Move vertices out of parts whose load exceeds a limit, the cheapest moves first."""
    load = np.bincount(part, sizes, k).astype(np.int64)
    for turn in range(ROUNDS):
        if load.max(initial=0) <= limit:
            break
        order = random_order(part.size, seed + turn)
        _sweep(nets, part, order[moving[order]], sizes, load, limit, 2.0**turn,
               np.zeros(k, np.int64))


@jit()
def _sweep(s, part, order, sizes, load, limit, price, counted):
    """Move vertices, in this order, to the part with the least cost, at most `price` x size."""
    for v in order:
        p = part[v]
        size = sizes[v]
        if load[p] <= limit:
            continue

        # nets that v shares with each part
        last = 0  # nets of which v is the last pin in p
        begin, end = s.indptr[v], s.indptr[v + 1]
        for t in range(begin, end):
            net = s.indices[t]
            for at in range(s.first[net], s.first[net] + s.lam[net]):
                counted[s.touched[at]] += 1
                last += s.touched[at] == p and s.pins[at] == 1

        # the cheapest part with room
        best = p
        least = np.inf
        for q in range(load.size):
            cost = end - begin - counted[q] - last
            if q != p and load[q] + size <= limit and (
                    cost < least or (cost == least and load[q] < load[best])):
                best = q
                least = cost
            counted[q] = 0

        # move
        if least <= price * size:
            for t in range(begin, end):
                add_pin(s.indices[t], best, s.first, s.touched, s.pins, s.lam)
                take_pin(s.indices[t], p, s.first, s.touched, s.pins, s.lam)
            part[v] = best
            load[p] -= size
            load[best] += size
