"""Refinement by moves of single vertices: less volume, then less for the busiest part.

Partitioners minimise only the total, but an exchange waits for its slowest rank. In
cagnet-2020, section IV-A, METIS saved 72% of the total of a graph and 29% of the maximum.
"""
from collections import namedtuple

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.reordering import random_order
from hpgcn.kernels.jit import jit
from hpgcn.partition.quality import count

GAIN_PASSES = 6  # at most, for the total only
PASSES = 60  # at most, for the maximum
PATIENCE = 4  # passes without a better partition before the last word
STEP = 0.95  # each pass aims at this share of the largest volume
STEEPNESS = 2.0  # additional cost of a row of the busiest part, in rows of the total
STEEPER = (2.0, 8.0, 32.0, 128.0)  # the same, in turn, where a rival's largest volume is the goal
MESSAGE = 0.5  # what a message costs, in rows
MAX_PARTS = 8192  # beyond, messages are not tracked: the table of pairs would be too large

# Nets are the columns of the pattern. Net j is owned by the part of vertex j. From
# first[j] on it lists the lam[j] parts that it touches, and its pins in each. totals:
# volume and messages.
State = namedtuple(
    "State", "indptr indices weight part first touched pins lam sent load pairs totals")


def refine(rows, part, k, weights, epsilon, seed=0, *, limits=None, goal=None, steepness=STEEPNESS):
    """Lower the volume of a partition, then the largest volume and the number of
    messages. No total rises.

    A vertex moves to a part that it already shares a net with, if that lowers

        sum over parts of (sent + max(0, sent - T)^2 steepness / (2 (M - T))) + MESSAGE x messages

    where `sent` are the rows that a part sends and M is the largest of them. T falls
    behind M from pass to pass (at first it is infinite). No part grows beyond (1 +
    epsilon) of the mean weight. The best partition seen is kept: the least maximum,
    then messages, then volume.

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
        Volume and messages that are not exceeded: by default those of `part`.
    goal : int, optional
        Lower the largest volume alone, and stop once it is no more than this.
    steepness : float
        As in the formula.

    Returns
    -------
    (n,) int32
        The same input gives the same output; one thread.
    """
    # limits, and the best partition so far
    state = _state(rows, part, k, weights)
    cap = int((1 + epsilon) * state.load.sum() / k)
    max_volume, max_messages = state.totals.copy() if limits is None else limits
    best = _score(state)
    best_part = state.part.copy()
    waited = 0

    # one pass: for the total first, then for the busiest part
    volume = state.totals[0]
    for turn in range(0 if goal is None else GAIN_PASSES, GAIN_PASSES + PASSES):
        gaining = turn < GAIN_PASSES
        if gaining and turn and state.totals[0] > 0.998 * volume:
            continue  # little is left to gain

        volume = state.totals[0]
        largest = state.sent.max()
        target = np.inf
        slope = 0.0
        if not gaining:
            target = max(state.sent.mean(), STEP * largest)
            slope = steepness / max(1.0, largest - target)

        # visit all vertices
        order = random_order(part.size, seed + turn)
        moved = _sweep(state, order, cap, target, slope, max_volume, max_messages)

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
        if not gaining and (not moved or waited == PATIENCE or even):
            break
    return best_part


def match_rival_maximum(rows, part, rival, k, weights, epsilon, seed=0):
    """Lower the largest volume of a refined partition to that of a rival partition, if
    it is larger.

    The price of rows rises (STEEPER) until the goal is reached. The total may grow to
    that of the rival, and so may the messages. If no price reaches the goal, the rival
    is taken, unless its heaviest part exceeds the limit of epsilon and the heaviest of
    `part`. In that case the try with the least maximum is taken.

    Arguments are those of `refine`; `rival`, (n,) int32, is refined as `part` is.
    Returns `part` itself, `rival` itself, or a new one.
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


def _score(state):
    return int(state.sent.max()), int(state.totals[1]), int(state.totals[0])


def _state(rows, part, k, weights):
    """Count the pins of every net in every part it touches, and the rows that each part sends."""
    indptr = rows.indptr.astype(np.int64)
    n = part.size
    part = part.astype(np.int32)  # a copy
    # a move adds a part to a net before it takes one away
    room = np.minimum(np.bincount(rows.indices, minlength=n), k) + 1
    first = run_offsets(room)
    touched = np.empty(first[-1], np.int32)
    pins = np.empty(first[-1], np.int32)
    lam = np.zeros(n, np.int32)
    pairs = np.zeros((k, k) if k <= MAX_PARTS else (0, 0), np.int32)
    _fill(indptr, rows.indices, part, first, touched, pins, lam, pairs)
    sent = np.bincount(part, lam - 1, k).astype(np.int64)
    load = np.bincount(part, weights, k).astype(np.int64)
    totals = np.array([sent.sum(), np.count_nonzero(pairs)], np.int64)
    return State(indptr, rows.indices, np.asarray(weights, np.int64), part, first, touched, pins,
                 lam, sent, load, pairs, totals)


@jit()
def add_pin(net, p, first, touched, pins, lam):
    """Give a net one pin more in part p; return whether it is the first."""
    end = first[net] + lam[net]
    for at in range(first[net], end):
        if touched[at] == p:
            pins[at] += 1
            return False
    touched[end] = p
    pins[end] = 1
    lam[net] += 1
    return True


@jit()
def take_pin(net, p, first, touched, pins, lam):
    """Take one pin in part p from a net; return whether it was the last."""
    end = first[net] + lam[net]
    for at in range(first[net], end):
        if touched[at] == p:
            pins[at] -= 1
            if pins[at] == 0:
                touched[at] = touched[end - 1]
                pins[at] = pins[end - 1]
                lam[net] -= 1
                return True
            break
    return False


@jit()
def _fill(indptr, indices, part, first, touched, pins, lam, pairs):
    for v in range(part.size):
        for t in range(indptr[v], indptr[v + 1]):
            add_pin(indices[t], part[v], first, touched, pins, lam)
    for net in range(part.size if pairs.size else 0):
        for at in range(first[net], first[net] + lam[net]):
            if touched[at] != part[net]:
                pairs[part[net], touched[at]] += 1


@jit()
def _send(s, source, target, change):
    """Count one row more (change 1) or less (-1) that part `source` sends to part
    `target`.
    """
    s.sent[source] += change
    s.totals[0] += change
    if s.pairs.size:
        before = s.pairs[source, target]
        s.pairs[source, target] = before + change
        s.totals[1] += (before + change > 0) - np.int64(before > 0)


@jit()
def _move(s, v, q):
    """Move a vertex to part q."""
    p = s.part[v]

    # its own row is sent by the new part
    for at in range(s.first[v], s.first[v] + s.lam[v]):
        if s.touched[at] != p:
            _send(s, p, s.touched[at], -1)

    # the rows that it reads
    for t in range(s.indptr[v], s.indptr[v + 1]):
        net = s.indices[t]
        added = add_pin(net, q, s.first, s.touched, s.pins, s.lam)
        taken = take_pin(net, p, s.first, s.touched, s.pins, s.lam)
        if net != v:
            if added:
                _send(s, s.part[net], q, 1)
            if taken:
                _send(s, s.part[net], p, -1)

    for at in range(s.first[v], s.first[v] + s.lam[v]):
        if s.touched[at] != q:
            _send(s, q, s.touched[at], 1)

    s.load[p] -= s.weight[v]
    s.load[q] += s.weight[v]
    s.part[v] = q


@jit()
def _excess(sent, target):
    return max(0.0, sent - target)


@jit()
def _best(s, v, cap, target, steepness, limit, shared_cost, shared_nets, touched_parts):
    """Find the part to which a move of v lowers the objective most (or v's own), and
    the change.

    Messages are left aside. The last three arguments are work arrays, (k,) each. They
    are the cost and number of the nets that v shares with each part, 0 before and
    after, and a list of parts.
    """
    p = s.part[v]
    own = s.lam[v] - 1
    nets = s.indptr[v + 1] - s.indptr[v] - 1  # v's own net is not among them
    parts = 0  # that share a net with v, in `touched_parts`
    total_cost = 0.0  # cost of v's nets
    last_cost = 0.0  # cost of the nets in which v is the last pin of its part
    last = 0  # their number
    alone = False  # whether v is the last pin of its part in its own net

    # count what v shares with each part
    for t in range(s.indptr[v], s.indptr[v + 1]):
        net = s.indices[t]
        cost = 0.0 if net == v else 1 + steepness * _excess(s.sent[s.part[net]], target)
        total_cost += cost
        for at in range(s.first[net], s.first[net] + s.lam[net]):
            q = s.touched[at]
            if shared_nets[q] == 0:
                touched_parts[parts] = q
                parts += 1
            shared_nets[q] += 1
            shared_cost[q] += cost
            if q == p and s.pins[at] == 1:
                if net == v:
                    alone = True
                else:
                    last_cost += cost
                    last += 1
                    if s.pairs.size and s.pairs[s.part[net], p] == 1:
                        last_cost += MESSAGE

    # v's own net moves with it, so it is not shared; the parts that it touches are
    # marked
    for at in range(s.first[v], s.first[v] + s.lam[v]):
        shared_nets[s.touched[at]] += nets + 1

    # compare the parts that have room
    best = p
    best_change = -1e-9
    for i in range(parts):
        q = touched_parts[i]
        touches = shared_nets[q] > nets + 1
        shared = shared_nets[q] - (nets + 2 if touches else 0)
        if q != p and s.load[q] + s.weight[v] <= cap:
            then = own - alone + (not touches)
            rows = nets - shared - last + then - own
            if s.totals[0] + rows <= limit:
                change = (total_cost - shared_cost[q] - last_cost + then - own
                          + 0.5 * steepness * (
                    _excess(s.sent[p] - own, target) ** 2 - _excess(s.sent[p], target) ** 2
                    + _excess(s.sent[q] + then, target) ** 2
                    - _excess(s.sent[q], target) ** 2))
                if change < best_change or (change == best_change and q < best):
                    best = q
                    best_change = change

    # leave the work arrays as they were
    for i in range(parts):
        shared_nets[touched_parts[i]] = 0
        shared_cost[touched_parts[i]] = 0.0
    return best, best_change


@jit()
def _sweep(s, order, cap, target, steepness, limit, max_messages):
    """Visit vertices in this order, and move those whose move pays; return the number
    of moves.
    """
    k = s.sent.size
    shared_cost = np.zeros(k)
    shared_nets = np.zeros(k, np.int64)
    touched_parts = np.empty(k, np.int32)
    moved = 0

    for v in order:
        p = s.part[v]
        q, change = _best(s, v, cap, target, steepness, limit, shared_cost, shared_nets,
                          touched_parts)
        if q != p:
            messages = s.totals[1]
            _move(s, v, q)
            more = s.totals[1] - messages
            if s.totals[1] > max_messages or (more > 0 and change + MESSAGE * more >= 0):
                _move(s, v, p)
            else:
                moved += 1

    return moved
