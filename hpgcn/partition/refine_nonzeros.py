"""Refinement of nonzeros' holders and rows' owners by simulated annealing: fewer rows and sums.

Every nonzero touches two nets: its column, whose row of H each holder must have, and its row, whose
partial sums all holders send to the owner. A net that lies in lam parts costs lam - 1 rows, if its
owner is among them. Of a symmetric pattern (i, j) and (j, i) stay together: they touch the same two
vertices, so a column and its row are one net, at twice the price.

Greedy moves end at once: what lies in a part keeps its neighbours there. So groups and single
nonzeros move at random, downhill more often than uphill, and ever less often uphill (Kirkpatrick,
Gelatt and Vecchi, Optimization by simulated annealing, Science 220, 1983).
"""
from __future__ import annotations

import numpy as np

from hpgcn.graphs.reordering import random_order
from hpgcn.partition.model import entry_rows
from hpgcn.partition.nonzero_moves import spread, state_of, sweep
from hpgcn.partition.quality import touched
from hpgcn.partition.request import ROWS

WORK = 150_000_000  # offers of moves in all
MOST, FEWEST = 400, 4  # sweeps that cool down
LAST = 4  # sweeps downhill alone
PATIENCE = 40  # more, at most, while a part is too large
PRICE, DEARER = 0.05, 1.2  # of a nonzero or a row too many, in rows; its growth while there are any
STEEP, SLACK = 2.0, 1.05  # price of the nets that a part touches beyond a share of the mean
SPREADS = 20  # passes over owners, at most
PAIRED = 1.5  # entries of a pair, on average, from which on pairs move first
HOT, WARM, COLD = 0.3, 0.2, 0.08  # heat of the first sweep, after pairs, and of the last but LAST


def refine_nonzeros(rows, holder, owner, k, epsilon, w0=0, seed=0):
    """Lower the rows and partial sums that a product sends; return holders and owners.

    Parameters
    ----------
    rows : csr_array (n, n)
        Pattern with a full diagonal, as `hpgcn.partition.model.pattern`.
    holder : (nnz,) integers
        Part of each entry; on the diagonal `owner` counts.
    owner : (n,) integers
    k : int
    epsilon : float
        A part may hold (1 + epsilon) times the mean of nonzeros and w0 for each row that it owns,
        and own (1 + ROWS) times the mean of rows. Parts that begin with more lose it, where no
        limit forbids.
    w0, seed : int

    Returns
    -------
    holder : (nnz,) int32
    owner : (n,) int32
        The same input gives the same output; one thread. Never more rows and sums than given,
        where what is given keeps within the limits.
    """
    owner = np.asarray(owner, np.int32)
    if k == 1:
        return np.zeros(rows.nnz, np.int32), owner
    holder = np.where(entry_rows(rows) == rows.indices, owner[rows.indices], holder)
    holder = holder.astype(np.int32, copy=False)
    total = rows.nnz + w0 * owner.size
    epsilon = min(epsilon, k - 1.0)  # which allows all in one part
    room = np.array([max((1 + epsilon) * total / k, -(-total // k)),
                     max((1 + ROWS) * owner.size / k, -(-owner.size // k))], np.int64)
    refined = holder, owner
    for nets, heat, work in _stages(rows):
        weight = nets.weight.copy()
        weight[-owner.size:] += w0
        state = state_of(nets.ends, nets.units(*refined), owner.size, k, weight, room)
        _anneal(state, seed, heat, work)
        refined = nets.entries(state.part)
    _even_out(state, nets, seed)
    refined = nets.entries(state.part)

    owned = np.bincount(owner, minlength=k)
    fits = np.array([np.bincount(holder, minlength=k) + w0 * owned, owned]).max(axis=1) <= room
    if fits.all() and _held(rows, *refined, k) > _held(rows, holder, owner, k):
        return holder, owner
    return refined


def _held(rows, holder, owner, k):
    """Count the columns and rows that parts hold entries of: what is sent, but for a constant."""
    return sum(each.nnz for each in touched(rows, owner, k, holder))


class Nets:
    """Units that are dealt to parts, and the nets that they touch: `ends` of nonzero_moves.State.

    A unit is an entry off the diagonal or, paired, those at (i, j) and (j, i); then one for each
    vertex, whose part owns it. Nets are n columns, or vertices, and n rows, or nets of an owner
    alone.
    """

    def __init__(self, rows, paired):
        n, _ = rows.shape
        self.paired = paired
        self.rows, self.columns = entry_rows(rows), rows.indices
        self.off = np.flatnonzero(self.rows != self.columns)
        i, j = self.rows[self.off], self.columns[self.off]
        if paired:
            keys = np.minimum(i, j).astype(np.int64) * n + np.maximum(i, j)
            _, self.first, self.unit, weight = np.unique(
                keys, return_index=True, return_inverse=True, return_counts=True)
        else:
            self.first = self.unit = np.arange(self.off.size)
            weight = np.ones(self.off.size, np.int64)
        vertices = np.arange(n)
        ends = [np.concatenate([j[self.first], vertices]),
                np.concatenate([i[self.first] + (0 if paired else n), n + vertices])]
        self.ends = np.stack(ends, axis=1).astype(np.int32)
        self.weight = np.concatenate([weight, np.ones(n, np.int64)])

    def units(self, holder, owner):
        """Return the part of each unit, (u,) int32, of holders of entries and owners of rows."""
        return np.concatenate([holder[self.off[self.first]], owner]).astype(np.int32)

    def entries(self, part):
        """Return the holder of each entry and the owner of each row, int32, of parts of units."""
        split = self.first.size
        owner = part[split:].copy()
        holder = owner[self.rows]
        holder[self.off] = part[:split][self.unit]
        return holder, owner

    def sent(self, state):
        """Count the rows and sums that each part sends in a product, (k,) int64."""
        k = state.load.size
        owner = state.part[state.owners:]
        n = owner.size
        pulled = np.bincount(owner, state.lam[:n] - 1, k).astype(np.int64)
        lines = state.ends if self.paired else state.ends[:, 1:]
        keys = lines.astype(np.int64) * k + state.part[:, None]
        keys = np.unique(keys[lines < n] if self.paired else keys)
        return pulled + np.bincount(keys % k, minlength=k) - state.rows


def _stages(rows):
    """Yield nets, how hot the first sweep over their units is, and how many offers are made.

    Where most entries have one across the diagonal, both move together first, even if the pattern
    is not symmetric: half as many units, and a vertex' row and column stay together.
    """
    paired = Nets(rows, True)
    arcs, pairs = paired.off.size, paired.first.size
    if arcs == 2 * pairs:
        yield paired, HOT, WORK
    elif arcs > PAIRED * pairs:
        yield paired, HOT, WORK // 2
        yield Nets(rows, False), WARM, WORK // 2
    else:
        yield Nets(rows, False), HOT, WORK


def _anneal(state, seed, hot, work):
    """Sweep over all units, ever colder; then until no part is too large."""
    units = state.part.size
    sweeps = int(np.clip(work // units, FEWEST, MOST))
    order = np.arange(units)
    price = PRICE
    for turn in range(sweeps + LAST + PATIENCE):
        cooling = turn < sweeps
        over = _too_large(state)
        if not cooling and turn >= sweeps + LAST and not over:
            break
        price = price * DEARER if over else PRICE
        heat = hot * (COLD / hot) ** (turn / sweeps) if cooling else 0.0
        sweep(state, order, seed, turn, heat, price, STEEP, SLACK * state.copies.mean())


def _too_large(state):
    return state.load.max() > state.room[0] or state.rows.max() > state.room[1]


def _even_out(state, nets, seed):
    """Deal owners anew where that costs nothing, so that the busiest part sends less."""
    n = state.part.size - state.owners
    sent = nets.sent(state)
    for turn in range(SPREADS):
        if not spread(state, sent, random_order(n, seed + turn), nets.paired):
            break
