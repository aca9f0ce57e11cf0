"""Compiled passes over blocks of rows: cluster vertices, contract clusters, assign vertices.

A block is (start, indptr, indices, values): rows of a matrix from `start` on, `indptr`
from 0, columns, and weights of entries, (0,) if all are 1. Passes that move vertices
visit rows in order on one thread, so neither threads nor the size of blocks change a
result. `rows.group_passes` has the passes over large matrices.
"""
import numpy as np

from hpgcn.kernels.cpu.chunks import by_nonzeros
from hpgcn.kernels.cpu.emit.entry_prefetch import fetch_element, fetch_entries, fetch_later
from hpgcn.kernels.entries import mix
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import Threaded, chunks

VISIT = 16  # scalar operations to look at an entry
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@jit(forceinline=True)
def hash_pair(a, b):
    """Hash two numbers to 64 bits."""
    return mix(np.uint64(a) * MULTIPLIER + np.uint64(b))


@jit(inner=True)
def table_size(indptr, first, last):
    """Return the size of a hash table for the neighbors of any of the rows [first, last)."""
    most = np.int64(1)
    for i in range(first, last):
        most = max(most, np.int64(indptr[i + 1] - indptr[i]))
    size = 4
    while size < 2 * most:
        size *= 2
    return size


@jit(inner=True)
def choose_cluster(v, own, degree, near, first, values, weight, size, cap, seed, keys, shared,
                   met):
    """Return the cluster with most entries of a vertex that has room for it.

    Its own cluster wins ties, unless the vertex shares nothing with it. Draws decide
    other ties.

    `near` has the clusters of its `degree` neighbors, -1 for a loop. Their entries have
    the `values` from `first` on, if there are any. `keys`, all -1, and `shared`, all 0,
    are a hash table, and `met` lists its places.
    """
    # entries shared with each cluster
    mask = 4
    while mask < 2 * degree:
        mask *= 2
    mask -= 1
    count = 0
    for t in range(degree):
        c = near[t]
        if c < 0:
            continue
        slot = np.int64((np.uint64(c) * MULTIPLIER >> np.uint64(32)) & np.uint64(mask))
        while keys[slot] >= 0 and keys[slot] != c:
            slot = (slot + 1) & mask
        if keys[slot] < 0:
            keys[slot] = c
            met[count] = slot
            count += 1
        shared[slot] += values[first + t] if values.size else 1

    # the cluster with most
    best = own
    most = np.int64(0)
    for at in range(count):
        if keys[met[at]] == own:
            most = shared[met[at]]
    tie = np.uint64(0) if most == 0 else ~np.uint64(0)
    for at in range(count):
        c, entries = keys[met[at]], shared[met[at]]
        if c != own and entries >= most:
            draw = hash_pair(c, v + seed)
            if (entries > most or draw > tie) and size[c] + weight <= cap:
                best = c
                most = entries
                tie = draw
    for at in range(count):
        keys[met[at]] = -1
        shared[met[at]] = 0
    return best


@jit()
def cluster_rows(start, indptr, indices, values, weights, label, size, cap, seed):
    """Move each vertex of a block to the cluster with most of its entries; count the moves.

    A cluster weighs at most `cap`. Draws keyed by (seed, cluster, vertex) decide ties.
    `label` and `size` (n,) are changed.
    """
    # a hash table of the clusters of one vertex
    keys = np.full(table_size(indptr, 0, indptr.size - 1), -1, np.int32)
    shared = np.zeros(keys.size, np.int64)
    near = np.empty(keys.size, np.int32)
    met = np.empty(keys.size, np.int32)
    moved = 0

    for i in range(indptr.size - 1):
        v = start + i
        own = label[v]

        # the clusters of its neighbors
        degree = indptr[i + 1] - indptr[i]
        for t in range(degree):
            fetch_later(label, indices, indptr[i] + t)
            u = indices[indptr[i] + t]
            near[t] = -1 if u == v else label[u]

        # move it at once, so that later vertices see it
        best = choose_cluster(v, own, degree, near, indptr[i], values, weights[v], size, cap, seed,
                              keys, shared, met)
        if best != own:
            size[own] -= weights[v]
            size[best] += weights[v]
            label[v] = best
            moved += 1
    return moved


@jit(inner=True)
def choose_part(p, weight, shared, load, filled, cap, price):
    """Return the part with the best score that has room for a vertex; -1 if none has.

    `load` and `filled` (k,) are without the vertex, which is in part p. `shared` (k,) has
    the weight of the entries that it shares with each part; it is 0 afterwards.
    """
    best = -1
    most = -np.inf
    for q in range(load.size):
        if load[q] + weight <= cap:
            score = shared[q] - price * weight * filled[q]
            if score > most or (score == most and q == p):
                best = q
                most = score
        shared[q] = 0
    return best


@jit()
def assign_rows(start, indptr, indices, values, order, weights, part, load, cap, price):
    """Assign each vertex of a block to the part with the best score; count the changes.

    The score is the weight of the entries that the vertex shares with a part, minus
    price x weight x sqrt(load / cap): Fennel with gamma 1.5. Parts without room for the
    vertex are left out; if no part has room, the lightest is taken. `order` has the
    rows of the block. `part` (n,), -1 before the first assignment, and `load` (k,) are
    changed.
    """
    shared = np.zeros(load.size, np.int64)
    filled = np.sqrt(load / cap)
    changed = 0
    for at in range(order.size):
        # prefetch the reads of the next rows, at three distances
        if at + 4 < order.size:
            fetch_element(indptr, order[at + 4])
            fetch_element(indices, indptr[order[at + 2]])
            fetch_entries(part, indptr, indices, order[at + 1])
        i = order[at]
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
        best = choose_part(p, weight, shared, load, filled, cap, price)
        if best < 0:
            best = np.argmin(load)

        load[best] += weight
        filled[best] = np.sqrt(load[best] / cap)
        if best != p:
            part[v] = best
            changed += 1
    return changed


def weight_between(start, indptr, indices, values, number):
    """Return the weight of a block's entries between two clusters or parts; `number` (n,)."""
    bounds = by_nonzeros(indptr)
    sums = np.zeros(bounds.size - 1, np.int64)
    _weigh_between(VISIT * indices.size, start, indptr, indices, values, bounds, number, sums)
    return int(sums.sum())


@Threaded
def _weigh_between(counters, start, indptr, indices, values, bounds, number, sums):
    for chunk in chunks(counters, sums.size):
        weight = np.int64(0)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            own = number[start + i]
            for t in range(indptr[i], indptr[i + 1]):
                fetch_later(number, indices, t)
                if number[indices[t]] != own:
                    weight += values[t] if values.size else 1
        sums[chunk] = weight


def keep_between(start, indptr, indices, values, number, threshold, seed, rows, columns, kept):
    """Copy entries of a block between clusters; return their number.

    An entry lighter than `threshold` is kept with probability weight / threshold, and
    then weighs `threshold`. Draws are keyed by (seed, vertices), and equal for both
    directions of an edge. The last three arguments receive clusters and weights, and
    are as long as the block.
    """
    bounds = by_nonzeros(indptr)
    counts = np.zeros(bounds.size - 1, np.int64)
    _keep_between(VISIT * indices.size, start, indptr, indices, values, bounds, number, threshold,
                  seed, rows, columns, kept, counts)

    # close the gaps between chunks
    count = 0
    for begin, more in zip(indptr[bounds[:-1]].tolist(), counts.tolist()):
        for array in (rows, columns, kept):
            array[count:count + more] = array[begin:begin + more]
        count += more
    return count


@Threaded
def _keep_between(counters, start, indptr, indices, values, bounds, number, threshold, seed,
                  rows, columns, kept, counts):
    """Copy entries of chunks of rows to the place of the chunk's first entry."""
    for chunk in chunks(counters, counts.size):
        count = indptr[bounds[chunk]]
        for i in range(bounds[chunk], bounds[chunk + 1]):
            v = start + i
            own = number[v]
            for t in range(indptr[i], indptr[i + 1]):
                fetch_later(number, indices, t)
                u = indices[t]
                if number[u] == own:
                    continue

                # a light entry is drawn
                weight = values[t] if values.size else 1
                if weight < threshold:
                    draw = hash_pair(min(u, v),
                                     np.uint64(max(u, v)) + (np.uint64(seed) << np.uint64(32)))
                    if draw % np.uint64(threshold) >= np.uint64(weight):
                        continue
                    weight = threshold
                rows[count] = own
                columns[count] = number[u]
                kept[count] = weight
                count += 1
        counts[chunk] = count - indptr[bounds[chunk]]


@jit()
def merge_entries(rows, columns, weights, size):
    """Make CSR arrays (size, size) of entries in any order; equal ones are added.

    Return indptr (size + 1,) int64, columns and sums. Columns are in order of their
    first entry.
    """
    # sort entries by row
    starts = np.zeros(size + 1, np.int64)
    for t in range(rows.size):
        fetch_later(starts, rows, t)
        starts[rows[t] + 1] += 1
    for row in range(size):
        starts[row + 1] += starts[row]
    free = starts.copy()
    sorted_columns = np.empty_like(columns)
    sums = np.empty_like(weights)
    for t in range(rows.size):
        fetch_later(free, rows, t)
        at = free[rows[t]]
        free[rows[t]] += 1
        sorted_columns[at] = columns[t]
        sums[at] = weights[t]

    # add equal columns of a row, in place
    indptr = np.zeros(size + 1, np.int64)
    place = np.full(size, -1, np.int64)
    count = 0
    for row in range(size):
        for t in range(starts[row], starts[row + 1]):
            fetch_later(place, sorted_columns, t)
            column = sorted_columns[t]
            if place[column] < indptr[row]:
                place[column] = count
                sorted_columns[count] = column
                sums[count] = sums[t]
                count += 1
            else:
                sums[place[column]] += sums[t]
        indptr[row + 1] = count
    return indptr, sorted_columns[:count].copy(), sums[:count].copy()
