"""Compiled passes over blocks of rows for `rows.streaming`: cluster vertices, assign
them, merge counts.

A block is (start, indptr, indices, values): rows `start` and on of a matrix, `indptr`
from 0, columns, and weights of entries, (0,) if all are 1. Each pass visits rows in
order on one thread, so that neither threads nor the size of blocks change a result.
"""
import numpy as np

from hpgcn.kernels.jit import jit

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
FIRST_MIX, SECOND_MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@jit(forceinline=True)
def mixed(a, b):
    """Hash two numbers to 64 bits, the finalizer of splitmix64."""
    x = np.uint64(a) * MULTIPLIER + np.uint64(b)
    x = (x ^ (x >> np.uint64(30))) * FIRST_MIX
    x = (x ^ (x >> np.uint64(27))) * SECOND_MIX
    return x ^ (x >> np.uint64(31))


@jit()
def cluster_rows(start, indptr, indices, values, weights, label, size, cap, seed, shared, met):
    """Move each vertex of a block to the cluster with most of its entries; return the
    number of moves.

    A cluster weighs at most `cap`. Draws keyed by (seed, cluster, vertex) decide ties.
    `label` and `size` (n,) are changed. `shared`, zeros (n,), and `met` (n,) are work
    arrays.
    """
    moved = 0
    for i in range(indptr.size - 1):
        v = start + i
        own = label[v]
        count = 0

        # entries shared with each cluster
        for t in range(indptr[i], indptr[i + 1]):
            u = indices[t]
            if u != v:
                c = label[u]
                if shared[c] == 0:
                    met[count] = c
                    count += 1
                shared[c] += values[t] if values.size else 1

        # the cluster with most; its own wins ties, unless it shares nothing with it
        best = own
        most = shared[own]
        tie = np.uint64(0) if most == 0 else ~np.uint64(0)
        for at in range(count):
            c = met[at]
            if c != own and shared[c] >= most and size[c] + weights[v] <= cap:
                draw = mixed(c, v + seed)
                if shared[c] > most or draw > tie:
                    best = c
                    most = shared[c]
                    tie = draw
        for at in range(count):
            shared[met[at]] = 0

        if best != own:
            size[own] -= weights[v]
            size[best] += weights[v]
            label[v] = best
            moved += 1
    return moved


@jit()
def assign_rows(start, indptr, indices, values, order, weights, part, load, cap, price):
    """Assign each vertex of a block to the part with the best score; return the number
    of changes.

    The score is the weight of the entries that it shares with a part, minus price x
    weight x sqrt(load / cap): Fennel with gamma 1.5. Parts without room for the vertex
    are left out; if none has room, the lightest is taken. `order` has the rows of the
    block. `part` (n,), -1 before the first assignment, and `load` (k,) are changed.
    """
    k = load.size
    shared = np.zeros(k, np.int64)
    filled = np.sqrt(load / cap)
    changed = 0
    for i in order:
        v = start + i
        p = part[v]
        weight = weights[v]
        for t in range(indptr[i], indptr[i + 1]):
            u = indices[t]
            if u != v and part[u] >= 0:
                shared[part[u]] += values[t] if values.size else 1

        # the vertex leaves its part, and takes the best one that has room
        if p >= 0:
            load[p] -= weight
            filled[p] = np.sqrt(load[p] / cap)
        best = -1
        most = -np.inf
        for q in range(k):
            if load[q] + weight <= cap:
                score = shared[q] - price * weight * filled[q]
                if score > most or (score == most and q == p):
                    best = q
                    most = score
            shared[q] = 0
        if best < 0:
            best = np.argmin(load)

        load[best] += weight
        filled[best] = np.sqrt(load[best] / cap)
        if best != p:
            part[v] = best
            changed += 1
    return changed


@jit()
def merge_counts(first_keys, first_counts, second_keys, second_counts):
    """Merge two lists of ascending keys; counts of equal keys are added. Return keys
    and counts.
    """
    keys = np.empty(first_keys.size + second_keys.size, np.int64)
    counts = np.empty(keys.size, np.int64)
    i = j = size = 0
    while i < first_keys.size or j < second_keys.size:
        ahead = j == second_keys.size or (i < first_keys.size and first_keys[i] <= second_keys[j])
        key = first_keys[i] if ahead else second_keys[j]
        count = 0
        if ahead:
            count += first_counts[i]
            i += 1
        if j < second_keys.size and second_keys[j] == key:
            count += second_counts[j]
            j += 1
        keys[size] = key
        counts[size] = count
        size += 1
    return keys[:size], counts[:size]
