"""Choose the nonzeros that the owner of the column sums, by minimum vertex covers of
blocks.

A nonzero in the rows of rank p and the columns of rank q is held by p or by q. Rank p
receives its row of H; q sends a partial sum for its row of the product. The fewest rows
and sums that pass from q to p are a minimum vertex cover of the bipartite graph of the
block (Koenig). It comes from a maximum matching. A partial sum reads rows of H that q
owns: it is formed before anything arrives, and travels in the message of the rows.
Source: Kayaaslan, Aykanat and Ucar, SIAM J. Sci. Comput. 40(4), 2018.

All functions take the nonzeros of one rank's rows, or of all ranks'. Blocks do not
depend on each other, and ranks need only sums over all others.
"""
import numpy as np
import scipy.sparse as sp

from hpgcn.kernels.jit import jit

PATIENT_ROUNDS = 10  # rounds in which no rank takes back more than its room
BINS = 64  # prices are compared over ranks by their bin
FINEST = 2.0**-16  # price of a nonzero, in rows, below which all are in the first bin but one


def balanced_cover(rows, cols, reader, owner, loads, limit, total=lambda array: array):
    """Return the nonzeros that the owner of the column sums, (e,) bool, so that few
    rows and sums are sent.

    The choice is a minimum cover of each block, by its coarse Dulmage-Mendelsohn
    decomposition. It does not depend on the other blocks. But no rank may take nonzeros
    beyond a limit. If one would, the original ranks take back the sums of least cost
    for each nonzero. The cost of a sum is the number of rows of H sent in its place,
    less one. No block sends more rows and sums than it has columns, which are sent if
    nothing is summed.

    Parameters
    ----------
    rows, cols : (e,) integers
        Rows and columns of nonzeros; the row and the column have different owners.
    reader, owner : (e,) integers
        Ranks that own the row, and the column.
    loads : (P,) int64
        Nonzeros in the rows that each rank owns, over all ranks.
    limit : int
        Most nonzeros that a rank may hold. A rank whose own rows have more takes none.
    total : function of an integer array, optional
        Sums it over ranks, where each gives the nonzeros of its own rows.
    """
    # begin with the smallest cover
    if not total(np.array([rows.size])).any():
        return np.zeros(rows.size, bool)
    left, right, shape = _blocks(rows, cols, reader, owner)
    pushed = _cover(left, right, shape)

    # each sum relieves one rank, and loads another
    giver = np.zeros(shape[0], np.int64)
    taker = np.zeros(shape[0], np.int64)
    giver[left] = reader
    taker[left] = owner
    k = loads.size
    turn = 0

    while True:
        # nonzeros of a sum whose column passes in any case count for the row's owner
        moved = np.bincount(left[pushed], minlength=shape[0])
        change = np.bincount(taker, moved, k) - np.bincount(giver, moved, k)
        held = loads + total(change.astype(np.int64))
        excess = np.maximum(0, held - np.maximum(limit, loads))
        if not excess.any():
            return pushed

        # price each sum by the rows that would pass in its place
        needed = np.bincount(right[~pushed], minlength=shape[1])  # by others of the same reader
        fresh = np.bincount(left[pushed], needed[right[pushed]] == 0, shape[0])
        price = (fresh - 1) / np.maximum(moved, 1)
        bins = 1 + 3 * np.log2(np.maximum(price, FINEST / 2) / FINEST)
        bins = np.clip(bins, 0, BINS - 1).astype(np.int64)

        # take back sums that cost least, but load no giver beyond its limit
        offered = (excess[taker] > 0) & (moved > 0)
        back = _accepted(offered, bins, price, giver, taker, moved, excess, total, k)
        if turn < PATIENT_ROUNDS:
            room = np.maximum(limit, loads) - held
            fits = _fitting(back, price, giver, moved, room)
            if total(np.array([fits.sum()])).any():
                back = fits
        pushed = _trimmed(left, right, shape, pushed & ~back[left])
        turn += 1


def trimmed_cover(rows, cols, reader, owner, pushed):
    """Give up the partial sums that cost more than the rows sent in their place.

    Parameters
    ----------
    pushed : (e,) bool
        The choice, of `balanced_cover` for example, of which some nonzeros may be left
        out by now.

    The others are those of `balanced_cover`.

    Returns
    -------
    (e,) bool
        Some of `pushed`. No block passes more rows and sums than it has columns, nor than it
        passes by `pushed`.
    """
    left, right, shape = _blocks(rows, cols, reader, owner)
    return _trimmed(left, right, shape, pushed)


def _blocks(rows, cols, reader, owner):
    """Index the possible partial sums (row, owner of the column) and ghosts (column,
    reader).

    Return the numbers of each nonzero, (e,) both, and a pair: how many sums and ghosts
    there are.
    """
    keys = np.asarray(rows, np.int64) * (int(np.max(owner, initial=0)) + 1) + owner
    sums, left = np.unique(keys, return_inverse=True)
    keys = np.asarray(cols, np.int64) * (int(np.max(reader, initial=0)) + 1) + reader
    columns, right = np.unique(keys, return_inverse=True)
    return left, right, (sums.size, columns.size)


def _cover(left, right, shape):
    """Return which nonzeros are covered only by sums, not by columns, (e,) bool."""
    if not left.size:
        return np.zeros(0, bool)
    graph = sp.csr_array((np.ones(left.size, bool), (left, right)), shape=shape)
    from scipy.sparse.csgraph import maximum_bipartite_matching  # takes long to import
    column_of = maximum_bipartite_matching(graph, perm_type="column")
    reached = np.zeros(shape[0], bool)
    pulled = np.zeros(shape[1], bool)
    sum_of = np.full(shape[1], -1, np.int64)
    matched = np.flatnonzero(column_of >= 0)
    sum_of[column_of[matched]] = matched
    _reach(graph.indptr, graph.indices, np.flatnonzero(column_of < 0), sum_of, reached, pulled)
    return ~reached[left] & ~pulled[right]


def _trimmed(left, right, shape, pushed):
    """Restrict `pushed` to a minimum cover of the columns that need not be sent for
    other nonzeros.
    """
    passing = np.zeros(shape[1], bool)
    passing[right[~pushed]] = True
    rest = ~passing[right]
    summed = np.zeros(shape[0], bool)
    summed[left[rest][_cover(left[rest], right[rest], shape)]] = True
    return pushed & summed[left]


@jit()
def _reach(indptr, indices, free, sum_of, reached, pulled):
    """Mark rows and columns on alternating paths from unmatched sums."""
    # begin at the free columns
    stack = np.empty(reached.size, np.int64)
    top = 0
    for u in free:
        reached[u] = True
        stack[top] = u
        top += 1

    # follow matched pairs
    while top:
        top -= 1
        u = stack[top]
        for at in range(indptr[u], indptr[u + 1]):
            v = indices[at]
            if not pulled[v]:
                pulled[v] = True
                w = sum_of[v]
                if w >= 0 and not reached[w]:
                    reached[w] = True
                    stack[top] = w
                    top += 1


def _accepted(offered, bins, price, giver, taker, size, excess, total, k):
    """Choose the cheapest sums to take back, until no rank has more than its limit;
    (sums,) bool.
    """
    offers = np.flatnonzero(offered)
    table = np.bincount(taker[offers] * BINS + bins[offers], size[offers], k * BINS)
    every = total(table.astype(np.int64)).reshape(k, BINS)
    before = np.cumsum(every, axis=1) - every
    wanted = np.clip(excess[:, None] - before, 0, every)  # nonzeros of each bin
    share = wanted / np.maximum(every, 1)
    # each giver takes back its share of a bin, rounded up: cheapest first
    order = offers[np.lexsort((offers, price[offers], bins[offers], taker[offers], giver[offers]))]
    group = (giver[order] * k + taker[order]) * BINS + bins[order]
    before, whole = _in_runs(group, size[order])
    back = np.zeros(offered.size, bool)
    back[order[before < share[taker[order], bins[order]] * whole]] = True
    return back


def _fitting(back, price, giver, size, room):
    """Return the cheapest partial sums that the original rank still has capacity to take back."""
    chosen = np.flatnonzero(back)
    order = chosen[np.lexsort((chosen, price[chosen], giver[chosen]))]
    before, _ = _in_runs(giver[order], size[order])
    fits = np.zeros(back.size, bool)
    fits[order[before + size[order] <= room[giver[order]]]] = True
    return fits


def _in_runs(group, size):
    """Return, for each element, the sum of sizes before it in its run of equal groups,
    and that of the whole run.
    """
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    lengths = np.diff(np.append(starts, group.size))
    sums = np.append(0, np.cumsum(size))
    first = np.repeat(sums[starts], lengths)
    return sums[:-1] - first, np.repeat(sums[starts + lengths], lengths) - first
