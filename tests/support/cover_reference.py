"""Covers of blocks by NumPy and SciPy, slow and simple.

They are the oracle of `hpgcn.parallel.covers.vertex_covers`.
"""
import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, maximum_bipartite_matching

PATIENT_ROUNDS, BINS, FINEST = 10, 64, 2.0**-16


def balanced_cover(matrix, reader, owner, loads, limit):
    """Return the choice of `hpgcn.parallel.covers.vertex_covers.balanced_cover` on one process."""
    across, left, right, shape, giver, taker = blocks(matrix, reader, owner)
    pushed = cover(left, right, shape)
    k, turn = loads.size, 0
    while True:
        moved = np.bincount(left[pushed], minlength=shape[0])
        held = loads + (np.bincount(taker, moved, k) - np.bincount(giver, moved, k)).astype(int)
        excess = np.maximum(0, held - np.maximum(limit, loads))
        if not excess.any():
            break
        needed = np.bincount(right[~pushed], minlength=shape[1])
        fresh = np.bincount(left[pushed], needed[right[pushed]] == 0, shape[0])
        price = (fresh - 1) / np.maximum(moved, 1)
        bins = 1 + 3 * np.log2(np.maximum(price, FINEST / 2) / FINEST)
        bins = np.clip(bins, 0, BINS - 1).astype(int)

        # each giver takes back its share of each bin, cheapest first
        back = np.zeros(shape[0], bool)
        for q in np.flatnonzero(excess):
            rest = excess[q]
            sums = np.flatnonzero((taker == q) & (moved > 0))
            sums = sums[np.argsort(price[sums], kind="stable")]
            for number in np.unique(bins[sums]):
                chosen = sums[bins[sums] == number]
                every = moved[chosen].sum()
                for p in np.unique(giver[chosen]) if rest else ():
                    own = chosen[giver[chosen] == p]
                    before = np.cumsum(moved[own]) - moved[own]
                    back[own[before < min(rest, every) / every * moved[own].sum()]] = True
                rest = max(0, rest - every)

        # but only what it has room for
        if turn < PATIENT_ROUNDS:
            fits = np.zeros(shape[0], bool)
            for p in range(k):
                own = np.flatnonzero(back & (giver == p))
                own = own[np.argsort(price[own], kind="stable")]
                fits[own[np.cumsum(moved[own]) <= max(limit, loads[p]) - held[p]]] = True
            back = fits if fits.any() else back
        pushed = trimmed(left, right, shape, pushed & ~back[left])
        turn += 1
    result = np.zeros(matrix.nnz, bool)
    result[across] = pushed
    return result


def trimmed_cover(matrix, reader, owner, pushed):
    """Return the choice of `hpgcn.parallel.covers.vertex_covers.trimmed_cover`."""
    across, left, right, shape, *_ = blocks(matrix, reader, owner)
    result = np.zeros(matrix.nnz, bool)
    result[across] = trimmed(left, right, shape, pushed[across])
    return result


def blocks(matrix, reader, owner):
    """Return the nonzeros between ranks, (e,), with their sums and ghosts.

    Return also the numbers of sums and ghosts, and the two ranks of each sum.
    """
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    across = np.flatnonzero(reader[rows] != owner[matrix.indices])
    rows, columns = rows[across], matrix.indices[across].astype(int)
    k = 1 + max(reader.max(initial=0), owner.max(initial=0))
    sums, left = np.unique(rows * k + owner[columns], return_inverse=True)
    ghosts, right = np.unique(columns * k + reader[rows], return_inverse=True)
    return across, left, right, (sums.size, ghosts.size), reader[sums // k], sums % k


def cover(left, right, shape):
    """Return the nonzeros that only sums cover: none on a path from an unmatched sum."""
    if not left.size:
        return np.zeros(0, bool)
    graph = sp.csr_array((np.ones(left.size, bool), (left, right)), shape=shape)
    partner = maximum_bipartite_matching(graph, perm_type="column")

    # arcs from sums to all columns, from columns to their sums, and from a root to free sums
    first, count = shape[0], sum(shape)
    free, matched = np.flatnonzero(partner < 0), np.flatnonzero(partner >= 0)
    tails = np.concatenate([left, first + partner[matched], np.full(free.size, count)])
    heads = np.concatenate([first + right, matched, free])
    arcs = sp.csr_array((np.ones(tails.size), (tails, heads)), shape=(count + 1,) * 2)
    seen = np.zeros(count + 1, bool)
    seen[breadth_first_order(arcs, count, return_predecessors=False)] = True
    return ~seen[left] & ~seen[first + right]


def trimmed(left, right, shape, pushed):
    """Restrict `pushed` to a minimum cover of the columns without other nonzeros."""
    passing = np.zeros(shape[1], bool)
    passing[right[~pushed]] = True
    rest = ~passing[right]
    summed = np.zeros(shape[0], bool)
    summed[left[rest][cover(left[rest], right[rest], shape)]] = True
    return pushed & summed[left]
