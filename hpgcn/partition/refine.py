"""Refinement of a partition: less volume first, then less for the part that sends most, by moves of single vertices.

Partitioners minimise the total alone, but an exchange waits for its slowest rank (cagnet-2020, section VI: METIS saved
72% of the total of a graph and 29% of the maximum).
"""
from __future__ import annotations

from collections import namedtuple

import numpy as np

from hpgcn.kernels.jit import jit
from hpgcn.partition.quality import count
from hpgcn.reorder import random_order

GAIN_PASSES = 6  # at most, for the total alone
PASSES = 60  # at most, for the maximum
PATIENCE = 4  # passes without a better partition before the last word
STEP = 0.95  # each pass aims at this share of the largest volume
STEEPNESS = 2.0  # what a row more costs the part that sends most, in rows of the total, beside the row itself
STEEPER = (2.0, 8.0, 32.0, 128.0)  # the same, one after the other, where a rival's largest volume is the goal
MESSAGE = 0.5  # what a message costs, in rows
MAX_PARTS = 8192  # beyond, messages are not tracked: the table of pairs would be too large

# nets are the columns of the pattern; net j is owned by the part of vertex j, and lists the parts that it touches
State = namedtuple("State", "indptr indices weight part first touched pins lam sent load pairs totals")


def refine(rows, part, k, weights, epsilon, seed=0, *, limits=None, goal=None,
           steepness=STEEPNESS):
    """Lower the volume, then the largest volume and the number of messages; never raise the volume or the messages.

    A vertex moves to a part that it already shares a net with, if that lowers

        sum over parts of (sent + max(0, sent - T)^2 steepness / (2 (M - T))) + MESSAGE x messages

    where `sent` are the rows that a part sends, M is the largest, and T falls behind it from pass to pass (at first it
    is infinite). No part grows beyond (1 + epsilon) of the mean weight. The best partition seen is kept: the least
    maximum, then messages, then volume.

    Parameters
    ----------
    rows : csr_array (n, n)
        Pattern with a full diagonal, as `hpgcn.partition.model.pattern`.
    part : (n,) int32
    k : int
    weights : (n,) int64
        Of the vertices.
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
    state = _state(rows, part, k, weights)
    cap = int((1 + epsilon) * state.load.sum() / k)
    limit, messages = state.totals.copy() if limits is None else limits
    best, kept, waited = _score(state), state.part.copy(), 0
    volume = state.totals[0]
    for turn in range(GAIN_PASSES if goal is not None else 0, GAIN_PASSES + PASSES):
        gaining = turn < GAIN_PASSES
        if gaining and turn and state.totals[0] > 0.998 * volume:
            continue  # little is left to gain
        volume, largest = state.totals[0], state.sent.max()
        target = np.inf if gaining else max(state.sent.mean(), STEP * largest)
        slope = steepness / max(1.0, largest - target) if np.isfinite(target) else 0.0
        moved = _sweep(state, random_order(part.size, seed + turn), cap, target, slope, limit, messages)
        score = _score(state)
        waited = 0 if score < best or gaining else waited + 1
        if score < best and state.totals[0] <= limit and state.totals[1] <= messages:
            best, kept = score, state.part.copy()
        if goal is not None and best[0] <= goal:
            break
        if not gaining and (not moved or waited == PATIENCE or largest <= np.ceil(state.sent.mean())):
            break
    return kept


def no_busier(rows, part, rival, k, weights, epsilon, seed=0):
    """Lower the largest volume of a refined partition to that of another one, if it is larger.

    Rows are priced higher and higher (STEEPER) until the goal is reached; the total may grow to that of the other one,
    and so may the messages. Where no price will do, the other partition is taken, unless its heaviest part exceeds what
    epsilon allows and the heaviest of `part`: then the try with the least maximum.

    Parameters
    ----------
    part, rival : (n,) int32
        Both refined.
    rows, k, weights, epsilon, seed
        As `refine`.

    Returns
    -------
    (n,) int32
        `part` itself, `rival` itself, or a new one.
    """
    own, other = count(rows, part, k), count(rows, rival, k)
    goal = other["volume_max"]
    if own["volume_max"] <= goal:
        return part

    limits = tuple(max(own[key], other[key]) for key in ("volume", "messages"))
    tries = []
    for steepness in STEEPER:
        found = refine(rows, part, k, weights, epsilon, seed, limits=limits, goal=goal, steepness=steepness)
        counted = count(rows, found, k)
        if counted["volume_max"] <= goal:
            return found
        tries.append((counted["volume_max"], counted["volume"], found))

    heaviest, of_rival = (np.bincount(each, weights, k).max() for each in (part, rival))
    if of_rival <= max((1 + epsilon) * np.sum(weights) / k, heaviest):
        return rival
    return min(tries, key=lambda each: each[:2])[2]


def _score(state):
    return int(state.sent.max()), int(state.totals[1]), int(state.totals[0])


def _state(rows, part, k, weights):
    """The pins of every net in every part it touches, and what each part sends."""
    indptr, n = rows.indptr.astype(np.int64), part.size
    part = part.astype(np.int32)  # a copy
    room = np.minimum(np.bincount(rows.indices, minlength=n), k) + 1  # a move adds a part before it takes one away
    first = np.concatenate([[0], np.cumsum(room)])
    touched, pins, lam = np.empty(first[-1], np.int32), np.empty(first[-1], np.int32), np.zeros(n, np.int32)
    _fill(indptr, rows.indices, part, first, touched, pins, lam)
    pairs = np.zeros((k, k) if k <= MAX_PARTS else (0, 0), np.int32)
    _count_pairs(part, first, touched, lam, pairs)
    sent = np.bincount(part, lam - 1, k).astype(np.int64)
    return State(indptr, rows.indices, np.asarray(weights, np.int64), part, first, touched, pins, lam, sent,
                 np.bincount(part, weights, k).astype(np.int64), pairs,
                 np.array([sent.sum(), np.count_nonzero(pairs)], np.int64))


@jit()
def _add(net, p, first, touched, pins, lam):
    """Give a net one pin more in part p; return whether it is the first."""
    low, high = first[net], first[net] + lam[net]
    for at in range(low, high):
        if touched[at] == p:
            pins[at] += 1
            return False
    touched[high], pins[high] = p, 1
    lam[net] += 1
    return True


@jit()
def _take(net, p, first, touched, pins, lam):
    """Take one pin in part p from a net; return whether it was the last."""
    low, high = first[net], first[net] + lam[net]
    for at in range(low, high):
        if touched[at] == p:
            pins[at] -= 1
            if pins[at] == 0:
                touched[at], pins[at] = touched[high - 1], pins[high - 1]
                lam[net] -= 1
                return True
            break
    return False


@jit()
def _fill(indptr, indices, part, first, touched, pins, lam):
    for v in range(part.size):
        for t in range(indptr[v], indptr[v + 1]):
            _add(indices[t], part[v], first, touched, pins, lam)


@jit()
def _count_pairs(part, first, touched, lam, pairs):
    if pairs.size:
        for net in range(part.size):
            for at in range(first[net], first[net] + lam[net]):
                if touched[at] != part[net]:
                    pairs[part[net], touched[at]] += 1


@jit()
def _send(s, source, target, change):
    """Let part `source` send a row more (change 1) or less (-1) to another part."""
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
    for at in range(s.first[v], s.first[v] + s.lam[v]):
        if s.touched[at] != p:
            _send(s, p, s.touched[at], -1)
    for t in range(s.indptr[v], s.indptr[v + 1]):
        net = s.indices[t]
        added = _add(net, q, s.first, s.touched, s.pins, s.lam)
        taken = _take(net, p, s.first, s.touched, s.pins, s.lam)
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
def _survey(s, v, target, steepness, priced, counted, seen):
    """List the parts that share a net with v, with the price and the number of the nets that they share."""
    p, found, price, last_price, last, alone = s.part[v], 0, 0.0, 0.0, 0, False
    for t in range(s.indptr[v], s.indptr[v + 1]):
        net = s.indices[t]
        cost = 0.0 if net == v else 1 + steepness * _excess(s.sent[s.part[net]], target)
        price += cost
        for at in range(s.first[net], s.first[net] + s.lam[net]):
            q = s.touched[at]
            if counted[q] == 0:
                seen[found] = q
                found += 1
            counted[q] += 1
            priced[q] += cost
            if q == p and s.pins[at] == 1:
                if net == v:
                    alone = True
                else:
                    last_price += cost
                    last += 1
                    if s.pairs.size and s.pairs[s.part[net], p] == 1:
                        last_price += MESSAGE
    return found, price, last_price, last, alone


@jit()
def _best(s, v, cap, target, steepness, limit, priced, counted, seen):
    """Part to which a move of v would lower the objective most, messages aside (or its own), and the change."""
    p, nets = s.part[v], s.indptr[v + 1] - s.indptr[v] - 1  # v's own net is not among them
    found, price, last_price, last, alone = _survey(s, v, target, steepness, priced, counted, seen)
    own = s.lam[v] - 1
    for at in range(s.first[v], s.first[v] + s.lam[v]):  # the vertex' own net moves with it: it is not shared
        counted[s.touched[at]] += nets + 1  # marks, until the end of this function, the parts that it touches
    best, change = p, -1e-9
    for i in range(found):
        q = seen[i]
        touches = counted[q] > nets + 1
        shared = counted[q] - (nets + 2 if touches else 0)
        if q != p and s.load[q] + s.weight[v] <= cap:
            then = own - alone + (not touches)
            rows = nets - shared - last + then - own
            if s.totals[0] + rows <= limit:
                gain = price - priced[q] - last_price + then - own + 0.5 * steepness * (
                    _excess(s.sent[p] - own, target) ** 2 - _excess(s.sent[p], target) ** 2
                    + _excess(s.sent[q] + then, target) ** 2 - _excess(s.sent[q], target) ** 2)
                if gain < change or (gain == change and q < best):
                    best, change = q, gain
    for i in range(found):
        counted[seen[i]], priced[seen[i]] = 0, 0.0
    return best, change


@jit()
def _sweep(s, order, cap, target, steepness, limit, max_messages):
    """Move every vertex that should, in this order; return how many did."""
    k, moved = s.sent.size, 0
    priced, counted, seen = np.zeros(k), np.zeros(k, np.int64), np.empty(k, np.int32)
    for v in order:
        p = s.part[v]
        q, change = _best(s, v, cap, target, steepness, limit, priced, counted, seen)
        if q != p:
            messages = s.totals[1]
            _move(s, v, q)
            more = s.totals[1] - messages
            if s.totals[1] > max_messages or (more > 0 and change + MESSAGE * more >= 0):
                _move(s, v, p)
            else:
                moved += 1
    return moved
