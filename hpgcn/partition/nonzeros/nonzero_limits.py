"""Keep parts within their limits of rows and of nonzeros, at the cost of few rows and sums."""
import numpy as np

from hpgcn.kernels.host.jit import jit
from hpgcn.partition.nonzeros.nonzero_state import PART, PINS, move, pins_of, record_range, touches
from hpgcn.partition.partition_request import ROWS

COSTS = 5  # passes, the cheapest moves first; the two nets of a unit cost -2 to 2 rows


def part_capacity(rows, k, epsilon, w0=0):
    """Return the most weight and the most rows of a part, (2,) int64.

    A part may hold (1 + epsilon) times the mean of nonzeros, and w0 for each row that it
    owns. It may own (1 + ROWS) times the mean of rows, or the next whole number above.
    """
    n = rows.shape[0]
    total = rows.nnz + w0 * n
    epsilon = min(epsilon, k - 1.0)  # all in one part
    return np.array([max((1 + epsilon) * total / k, -(-total // k)),
                     max((1 + ROWS) * n / k, -(-n // k))], np.int64)


def keep_limits(state):
    """Move owners, then nonzeros, out of parts that have more of them than their limit.

    Rows come first, and nonzeros follow into the room that is left. If no other part
    has room for a unit, a part stays too large by less than this unit, a pair of
    nonzeros at most.
    """
    for pass_ in range(COSTS + 1):
        if state.rows.max() > state.capacity[1]:
            shed(state, True, min(pass_, COSTS - 1) - 2, pass_ < COSTS)
    for pass_ in range(COSTS):
        if state.load.max() > state.capacity[0]:
            shed(state, False, pass_ - 2, True)


@jit()
def shed(s, owners, most, light):
    """Move units out of parts that are too large, each to the cheapest part with room.

    Parameters
    ----------
    s : State
    owners : bool
        Move owners out of parts with too many rows; else nonzeros out of parts with too
        much weight.
    most : int
        Rows that a move may cost: nets that the new part gains, less those that the old
        one loses.
    light : bool
        Whether owners need room for their weight as well.
    """
    first, end = (s.owners, s.part.size) if owners else (0, s.owners)
    for e in range(first, end):
        # skip units of parts that are within their limit
        p = np.int64(s.part[e])
        over = s.rows[p] > s.capacity[1] if owners else s.load[p] > s.capacity[0]
        if not over:
            continue

        # nets that the old part loses
        leaving = np.int64(0)
        for side in range(2):
            leaving += pins_of(s, np.int64(s.ends[e, side]), p) == 1
        if -leaving > most:
            continue

        # parts that one of the two nets touches
        best = np.int64(-1)
        least = most + 1
        for side in range(2):
            at, last, _ = record_range(s, np.int64(s.ends[e, side]))
            other = np.int64(s.ends[e, 1 - side])
            while at < last:
                q = np.int64(s.records[at, PART])
                if s.records[at, PINS] > 0 and _has_room(s, e, p, q, owners, light):
                    cost = np.int64(not touches(s, other, q)) - leaving
                    if cost < least or (cost == least and best >= 0 and s.load[q] < s.load[best]):
                        best = q
                        least = cost
                at += 1

        # else a part that neither touches
        if best < 0 and 2 - leaving <= most:
            for q in range(s.load.size):
                if _has_room(s, e, p, q, owners, light) and (
                        best < 0 or s.load[q] < s.load[best]):
                    best = q
        if best >= 0:
            move(s, e, best)


@jit(inner=True)
def _has_room(s, e, p, q, owners, light):
    """Return whether part q may get a unit of p: it has room, or stays smaller than p was."""
    if q == p or (owners and s.rows[q] >= s.capacity[1]):
        return False
    load = s.load[q] + s.weight[e]
    return not light or load <= s.capacity[0] or (not owners and load < s.load[p])
