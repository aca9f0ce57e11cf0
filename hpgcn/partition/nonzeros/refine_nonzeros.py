"""Refine holders of nonzeros and owners of rows by simulated annealing: fewer rows and sums.

Every nonzero touches two nets. One is its column, whose row of H each holder needs. The
other is its row, whose partial sums all holders send to the owner. A net that lies in
lam parts costs lam - 1 rows, if its owner is among them. In a symmetric pattern (i, j)
and (j, i) stay together. They touch the same two vertices, so a column and its row are
one net, at twice the price.

A single move of a nonzero rarely saves anything, because other units of its nets stay
behind. So a move takes all units of a net in a part. If they are few, each goes to a
part of its two nets. Otherwise all of them, or those whose other net touches the
target, go to the cheapest part. Then the net has left its part. Counts of each net's
units in each part give the cost of all targets at once, and a move updates only its own
nets.

If moves only improve, they soon end. So moves are random, and less and less often
uphill (Kirkpatrick, Gelatt and Vecchi, Optimization by simulated annealing, Science
220, 1983).
"""
import numpy as np

from hpgcn.graphs.reordering import random_order
from hpgcn.partition.effort import is_sparse
from hpgcn.partition.nonzeros.group_moves import move_groups
from hpgcn.partition.nonzeros.nonzero_limits import keep_limits, part_capacity
from hpgcn.partition.nonzeros.nonzero_moves import empty_small_parts, rebalance_owners
from hpgcn.partition.nonzeros.nonzero_state import LAM, state_of
from hpgcn.partition.quality import touched
from hpgcn.partition.rows.partition_model import entry_rows

# by effort: cooling turns, at most, and visits of units in all of these turns
TURNS = {"fast": 0, "default": 240, "best": 300}
WORK = {"fast": 0, "default": 60_000_000, "best": 600_000_000}
SPARSE_TURNS = 0.5  # share of these turns in sparse patterns, which gain less ("default")
FEWEST = 4  # cooling turns on large patterns, at least
LAST = {"fast": 2, "default": 4, "best": 4}  # turns that only go downhill
PATIENCE = 40  # further turns while a part is too large, at most
# price, in rows, of a nonzero or a row above capacity, and its growth from turn to turn
PRICE, DEARER = 0.05, 1.2
SLACK = 0.5  # share of the room above the mean that nonzeros may take while a part is too large
LARGEST = 16  # units of a net that leave a part together
SPREADS = 20  # passes over owners, at most
PAIRED = 1.5  # mean entries of a pair: with more, pairs move first
# temperature of the first turn: usually, and after pairs or for good parts
HOT, WARM = 0.5, 0.25
COLD = 0.1  # temperature of the last cooling turn; below, hardly any move goes uphill
COOLER = 0.3  # temperature of groups, as a share of that of nets that leave a part


def refine_nonzeros(rows, holder, owner, k, epsilon, w0=0, seed=0, effort="default",
                    rival=None, by_engine=False):
    """Lower the rows and partial sums that a product sends; return holders and owners.

    Parameters
    ----------
    rows : csr_array (n, n)
        Pattern with a full diagonal, as `hpgcn.partition.rows.partition_model.pattern`.
    holder : (nnz,) integers
        Part of each entry; on the diagonal `owner` counts.
    owner : (n,) integers
    k : int
    epsilon : float
        As in `nonzero_limits.part_capacity`. Parts that begin with more than they may hold
        lose the excess, at any cost in rows and sums.
    w0, seed : int
    effort : str
        "fast", "default" or "best", which sets the number of turns. Turns of "fast" only
        improve.
    rival : (holder, owner), optional
        A second start. Both are refined in half of the turns. The other half of the turns
        refine the one that sends less by then.
    by_engine : bool
        An engine made the parts. Those of sparse patterns are then near the best, so the
        first turn is at WARM, which keeps most of them.

    Returns
    -------
    holder : (nnz,) int32
    owner : (n,) int32
        The same input gives the same output; one thread. If the given parts keep within
        the limits, the result sends no more rows and sums than they do.
    """
    owner = np.asarray(owner, np.int32)
    if k == 1:
        return np.zeros(rows.nnz, np.int32), owner

    # entries of the diagonal belong to the owner of their row
    holder = np.where(entry_rows(rows) == rows.indices, owner[rows.indices], holder)
    holder = holder.astype(np.int32, copy=False)

    capacity = part_capacity(rows, k, epsilon, w0)
    sparse = is_sparse(np.bincount(rows.indices))

    # refine in stages, then enforce the limits
    starts = [(holder, owner)] if rival is None else [(holder, owner), rival]
    for nets, temperature, share in _stages(rows, WARM if by_engine and sparse else HOT):
        weight = nets.weight.copy()
        weight[-owner.size:] += w0
        most = TURNS[effort]
        if effort == "default":
            most = round(most * temperature / HOT * (SPARSE_TURNS if sparse else 1))
        turns = min(most, max(FEWEST, int(share * WORK[effort] / weight.size)))
        states = [state_of(nets.ends, nets.units(*start), owner.size, k, weight, capacity)
                  for start in starts]
        state = _anneal_best(states, seed, temperature, turns, LAST[effort])
        starts = [nets.entries(state.part)]
    keep_limits(state)
    _even_out(state, nets, seed)
    refined = nets.entries(state.part)

    # keep the given parts if they were better and within the limits
    owned = np.bincount(owner, minlength=k)
    fits = np.array([np.bincount(holder, minlength=k) + w0 * owned, owned]).max(axis=1) <= capacity
    if fits.all() and _traffic(rows, *refined, k) > _traffic(rows, holder, owner, k):
        return holder, owner
    return refined


def of_undirected_edges(rows, holder, owner):
    """Give both entries of an edge the holder of the first one if the pattern is symmetric.

    Return holders, (nnz,) int32.
    """
    paired = Nets(rows, True)
    if paired.off.size != 2 * paired.first.size:
        return holder
    return paired.entries(paired.units(holder, owner))[0]


def _traffic(rows, holder, owner, k):
    """Count pairs of a part and a column or row with entries in it: the traffic + a constant."""
    return sum(each.nnz for each in touched(rows, owner, k, holder))


class Nets:
    """Units that are assigned to parts, and the nets that they touch (nonzero_state `ends`).

    A unit is an entry off the diagonal or, if paired, the entries at (i, j) and (j, i).
    After these there is one unit for each vertex; its part owns the vertex. Nets are n
    columns and n rows or, if paired, n vertices and n nets of a single owner.
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
        """Return the part of each unit, (u,) int32, from holders of entries and owners of rows."""
        return np.concatenate([holder[self.off[self.first]], owner]).astype(np.int32)

    def entries(self, part):
        """Return holders of entries and owners of rows, int32, from parts of units."""
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
        pulled = np.bincount(owner, state.nets[:n, LAM] - 1, k).astype(np.int64)
        lines = state.ends if self.paired else state.ends[:, 1:]
        keys = lines.astype(np.int64) * k + state.part[:, None]
        keys = np.unique(keys[lines < n] if self.paired else keys)
        return pulled + np.bincount(keys % k, minlength=k) - state.rows


def _stages(rows, hot):
    """Yield for each stage its Nets, the first temperature, and its share of the work.

    If most entries (i, j) have a counterpart (j, i), both move together first, even if
    the pattern is not symmetric. That halves the number of units, and keeps the row and
    the column of a vertex together.
    """
    paired = Nets(rows, True)
    arcs, pairs = paired.off.size, paired.first.size
    if arcs == 2 * pairs:
        yield paired, hot, 1
    elif arcs > PAIRED * pairs:
        yield paired, hot, 0.5
        yield Nets(rows, False), WARM, 0.5
    else:
        yield Nets(rows, False), hot, 1


def _anneal_best(states, seed, hot, turns, last):
    """Run all turns of the state that sends least after half of them; return it."""
    runs = [_anneal(state, seed, hot, turns, last) for state in states]
    if len(runs) > 1:
        for _ in range(turns // 2):
            for run in runs:
                next(run)
    sent = [state.nets[:, LAM].sum() for state in states]
    chosen = int(np.argmin(sent))
    for _ in runs[chosen]:
        pass
    return states[chosen]


def _anneal(state, seed, hot, turns, last):
    """Run passes at falling temperature, then more while a part is too large; yield after each."""
    capacity = state.capacity.copy()
    mean = state.load.mean()
    tight = np.array([max(mean + SLACK * (capacity[0] - mean), np.ceil(mean)), capacity[1]],
                     np.int64)
    price = PRICE

    # cool down; continue while a part is too large
    for turn in range(turns + last + PATIENCE):
        over = state.load.max() > capacity[0] or state.rows.max() > capacity[1]
        if turn >= turns + last and not over:
            break
        temperature = hot + (COLD - hot) * turn / turns if turn < turns else 0.0
        state.capacity[:] = tight if over else capacity  # owners must find room
        empty_small_parts(state, seed, turn, temperature, LARGEST)
        state.capacity[:] = capacity
        limit = tight[0] if over else capacity[0]
        move_groups(state, seed, turn, COOLER * temperature, price, limit)
        price = price * DEARER if over else PRICE
        yield


def _even_out(state, nets, seed):
    """Move owners at no cost, so that the busiest part sends less."""
    n = state.part.size - state.owners
    sent = nets.sent(state)
    for turn in range(SPREADS):
        if not rebalance_owners(state, sent, random_order(n, seed + turn), nets.paired):
            break
