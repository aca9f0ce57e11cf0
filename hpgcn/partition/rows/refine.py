"""Refine parts by moves of single vertices: less volume, then less for the busiest part.

Partitioners minimize only the total, but an exchange waits for its slowest rank. In
cagnet-2020, section IV-A, METIS saved 72% of the total of a graph, but 29% of the
maximum.
"""
import numpy as np

from hpgcn.graphs.reordering import random_order
from hpgcn.partition.partition_request import largest_load
from hpgcn.partition.quality import count
from hpgcn.partition.rows.row_moves import refinement_state, sweep

GAIN_PASSES = 6  # passes for the total only, at most
PASSES = 60  # passes for the maximum, at most
FAST_PASSES = 4  # the same for effort fast
PATIENCE = 4  # passes without a better partition after which to stop
LITTLE = 0.002  # share of the volume that a pass must save for another one
LARGE_PATTERN = 1 << 22  # entries of a large pattern
# The same for large patterns, by default and for effort fast. It is also the share of the largest
# volume that a pass for the maximum must save.
LARGE_LITTLE, FAST_LITTLE = 0.005, 0.02
RUN = 1 << 8  # successive vertices that are visited together in large patterns
STEP = 0.95  # each pass aims at this share of the largest volume
STEEPNESS = 2.0  # additional cost of a row of the busiest part, in rows of the total
STEEPER = (2.0, 8.0, 32.0, 128.0)  # values to try in turn if the goal is a rival's volume


def refine(rows, part, k, weights, epsilon, seed=0, *, limits=None, goal=None, steepness=STEEPNESS,
           passes=PASSES, large_little=LARGE_LITTLE, group=None, symmetric=False):
    """Lower the volume, then the largest volume and the messages, without raising any total.

    A vertex moves to a part that it already shares a net with, if that lowers

        sum over parts of (sent + max(0, sent - T)^2 steepness / (2 (M - T))) + MESSAGE x messages

    `sent` are the rows that a part sends, and M is the largest of them. T is infinite
    at first, then falls behind M from pass to pass. No part grows beyond (1 + epsilon)
    of the mean weight. The result is the best partition of all passes: that with the
    least maximum, then messages, then volume.

    Parameters
    ----------
    rows : csr_array (n, n)
        Pattern with a full diagonal, as `hpgcn.partition.rows.partition_model.pattern`.
    part : (n,) int32
    k : int
    weights : (n,) int64
        Weights of the vertices.
    epsilon : float
    seed : int
        Keys the order in which vertices are visited.
    limits : (int, int), optional
        Largest allowed volume and messages; by default those of `part`.
    goal : int, optional
        Lower the largest volume alone, and stop once it is no more than this.
    steepness : float
        As in the formula.
    passes : int
        Passes for the largest volume, at most.
    large_little : float
        Share of the volume, or of the largest volume, that a pass on a large graph must
        save for another one.
    group : (k,) integers, optional
        Group of each part: vertices stay in their group.
    symmetric : bool
        The pattern is known to be symmetric, which saves memory and time.

    Returns
    -------
    (n,) int32
        The same input gives the same output; one thread.
    """
    # limits, and the best partition so far
    state = refinement_state(rows, part, k, weights, group, symmetric=symmetric)
    cap = largest_load(state.load, k, epsilon)
    max_volume, max_messages = state.totals.copy() if limits is None else limits
    best = _score(state)
    best_part = state.part.copy()
    waited = 0

    # one pass: for the total first, then for the busiest part
    volume = state.totals[0]
    large = rows.nnz >= LARGE_PATTERN
    little = large_little if large else LITTLE
    for turn in range(0 if goal is None else GAIN_PASSES, GAIN_PASSES + passes):
        gaining = turn < GAIN_PASSES
        if gaining and turn and state.totals[0] > (1 - little) * volume:
            continue  # little is left to gain

        volume = state.totals[0]
        largest = state.sent.max()
        target = np.inf
        slope = 0.0
        if not gaining:
            target = max(state.sent.mean(), STEP * largest)
            slope = steepness / max(1.0, largest - target)

        # visit all vertices
        order = _visit_order(part.size, seed + turn, RUN if large else 1)
        moved = sweep(state, order, cap, target, slope, max_volume, max_messages)

        # keep the best partition within the limits
        score = _score(state)
        waited = 0 if score < best or gaining else waited + 1
        if score < best and state.totals[0] <= max_volume and state.totals[1] <= max_messages:
            best = score
            best_part = state.part.copy()

        # stop at the goal, or when nothing improves
        if goal is not None and best[0] <= goal:
            break
        even = largest <= np.ceil(state.sent.mean())
        slow = large and state.sent.max() > (1 - little) * largest
        if not gaining and (not moved or waited == PATIENCE or even or slow):
            break
    return best_part


def match_rival_maximum(rows, part, rival, k, weights, epsilon, seed=0):
    """Refine parts until their largest volume is no larger than that of a rival partition.

    The price of rows rises (STEEPER) until the goal is reached. The total, and the
    messages, may grow to those of the rival. If no price reaches the goal, the rival is
    taken, unless its heaviest part exceeds the limit of epsilon and the heaviest of
    `part`. In that case the try with the least maximum is taken.

    Arguments are those of `refine`; `rival`, (n,) int32, is refined as `part` is.
    Return `part` itself, `rival` itself, or new parts.
    """
    # nothing to do if it is no larger
    own = count(rows, part, k)
    other = count(rows, rival, k)
    goal = other["volume_max"]
    if own["volume_max"] <= goal:
        return part

    # try higher and higher prices of the busiest part
    limits = tuple(max(own[key], other[key]) for key in ("volume", "messages"))
    tries = []
    for steepness in STEEPER:
        lowered = refine(rows, part, k, weights, epsilon, seed, limits=limits, goal=goal,
                         steepness=steepness)
        counted = count(rows, lowered, k)
        if counted["volume_max"] <= goal:
            return lowered
        tries.append((counted["volume_max"], counted["volume"], lowered))

    # take the rival unless it is out of balance
    heaviest, of_rival = (np.bincount(parts, weights, k).max() for parts in (part, rival))
    if of_rival <= max((1 + epsilon) * np.sum(weights) / k, heaviest):
        return rival
    return min(tries, key=lambda attempt: attempt[:2])[2]


def _visit_order(n, seed, run):
    """Return a random order of n vertices in which `run` successive ones stay together."""
    if run == 1:
        return random_order(n, seed)
    order = (random_order(-(-n // run), seed)[:, None] * run + np.arange(run)).ravel()
    return order[order < n]


def _score(state):
    return int(state.sent.max()), int(state.totals[1]), int(state.totals[0])
