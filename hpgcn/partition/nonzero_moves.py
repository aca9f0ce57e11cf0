"""Moves of nonzeros between parts: what they change, and sweeps that accept or refuse them."""
from __future__ import annotations

from collections import namedtuple

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.kernels.entries import mix
from hpgcn.kernels.jit import jit

RARELY = np.uint64(5)  # of 16 offers, those to a part that the larger net touches
LARGE = 8  # units: larger groups are tried in proportion less often, a sweep costs the same

# Units are dealt to parts. Each lies in two nets, ends[e]; units from `owners` on say who owns a
# vertex, and unit owners + v lies in the nets v and n + v, n being their number.
# From first[net] on a net lists the lam[net] parts that it touches, its units in each (pins), and
# the head of a list of these, linked by after and before; a net of k units or more has a place for
# every part instead. Link 2 e + s is unit e in the net ends[e, s]. members[start[net]:] are the
# units of a net. weight: of each unit. load, rows and copies: weight, owners and touched nets of
# each part; room: weight and owners that a part may hold.
State = namedtuple(
    "State", "ends part owners first lam touched pins head after before start members weight load "
    "rows copies room")


def state_of(ends, part, n, k, weight, room):
    """Count who touches what.

    Parameters
    ----------
    ends : (u, 2) int32
        Nets of each unit, below 2 n; the last n units are (v, n + v).
    part : (u,) int32
        Part of each unit; moves change it in place.
    n : int
        Vertices.
    k : int
    weight : (u,) int64
        Of each unit.
    room : (2,) int64
        Weight and owners that a part may hold.
    """
    owners = part.size - n
    sizes = np.bincount(ends.ravel(), minlength=2 * n)
    start = run_offsets(sizes)
    members = (np.argsort(ends.ravel(), kind="stable") // 2).astype(np.int32)
    first = run_offsets(np.minimum(sizes, k))
    touched, pins, head = (np.zeros(first[-1], np.int32) for _ in range(3))
    after, before = (np.empty(2 * part.size, np.int32) for _ in range(2))
    load = np.bincount(part, weight, k).astype(np.int64)
    rows = np.bincount(part[owners:], minlength=k)
    state = State(ends, part, owners, first, np.zeros(2 * n, np.int32), touched, pins, head, after,
                  before, start, members, weight, load, rows, np.zeros(k, np.int64), room)
    _fill(state)
    return state


@jit()
def _fill(s):
    for e in range(s.part.size):
        for side in range(2):
            _put(s, 2 * e + side, s.ends[e, side], s.part[e])


@jit()
def _place(s, net, p):
    """Return where a net keeps its units in part p; -1 if there are none."""
    first = s.first[net]
    if s.first[net + 1] - first == s.load.size:
        return first + p if s.pins[first + p] else -1
    for at in range(first, first + s.lam[net]):
        if s.touched[at] == p:
            return at
    return -1


@jit()
def pins_of(s, net, p):
    """Count the units of a net in part p."""
    at = _place(s, net, p)
    return s.pins[at] if at >= 0 else 0


@jit()
def _put(s, link, net, p):
    at = _place(s, net, p)
    if at < 0:
        first = s.first[net]
        direct = s.first[net + 1] - first == s.load.size
        at = first + p if direct else first + s.lam[net]
        s.touched[at] = p
        s.head[at] = -1
        s.lam[net] += 1
        s.copies[p] += 1
    then = s.head[at]
    if then >= 0:
        s.before[then] = link
    s.after[link] = then
    s.before[link] = -1
    s.head[at] = link
    s.pins[at] += 1


@jit()
def _take(s, link, net, p):
    at = _place(s, net, p)
    then = s.after[link]
    previous = s.before[link]
    if previous >= 0:
        s.after[previous] = then
    else:
        s.head[at] = then
    if then >= 0:
        s.before[then] = previous
    s.pins[at] -= 1
    if s.pins[at] == 0:
        s.lam[net] -= 1
        s.copies[p] -= 1
        first = s.first[net]
        if s.first[net + 1] - first < s.load.size:
            last = first + s.lam[net]
            s.touched[at] = s.touched[last]
            s.pins[at] = s.pins[last]
            s.head[at] = s.head[last]
            s.pins[last] = 0


@jit()
def move(s, e, q):
    """Move a unit to part q."""
    p = s.part[e]
    for side in range(2):
        _take(s, 2 * e + side, s.ends[e, side], p)
        _put(s, 2 * e + side, s.ends[e, side], q)
    owner = np.int64(e >= s.owners)
    s.part[e] = q
    s.load[p] -= s.weight[e]
    s.load[q] += s.weight[e]
    s.rows[p] -= owner
    s.rows[q] += owner


@jit()
def _gather(s, net, p, q, near, chosen):
    """Take the units of a net in part p, or those alone whose other net is near q; count them."""
    size = 0
    link = s.head[_place(s, net, p)]
    while link >= 0:
        e = link >> 1
        if not near or pins_of(s, s.ends[e, 1 - (link & 1)], q):
            chosen[size] = e
            size += 1
        link = s.after[link]
    return size


@jit()
def _follows(s, net, p, q, entering, leaving):
    """Whether the owner of a net's vertex, its last unit in p, had better go along to part q."""
    n = s.part.size - s.owners
    v = net if net < n else net - n
    if s.part[s.owners + v] != p:
        return False, entering, leaving
    twin = v if net != v else n + v
    enters = pins_of(s, twin, q) == 0
    leaves = 1 + np.int64(pins_of(s, twin, p) == 1)
    if enters >= leaves:
        return False, entering, leaving
    return True, entering + enters, leaving + leaves


@jit()
def _change(s, net, p, q, chosen, size):
    """Count the nets that enter part q, and that leave p, if the chosen units of a net move.

    Owners that would stay behind alone are chosen, too, as long as q may own more.
    Returns nets entering and leaving, how many units are chosen, and how many of them are owners.
    """
    n = s.part.size - s.owners
    entering = np.int64(pins_of(s, net, q) == 0)
    leaving = np.int64(0)
    total = size
    owners = np.int64(0)
    for i in range(size):
        owners += chosen[i] >= s.owners
    own = owners > 0
    room = s.room[1] - s.rows[q]
    for i in range(size):
        e = chosen[i]
        other = s.ends[e, 0] if s.ends[e, 1] == net else s.ends[e, 1]
        entering += pins_of(s, other, q) == 0
        pins = pins_of(s, other, p)
        leaving += pins == 1
        if pins == 2 and e < s.owners and owners < room:
            along, entering, leaving = _follows(s, other, p, q, entering, leaving)
            if along:
                chosen[total] = s.owners + (other if other < n else other - n)
                total += 1
                owners += 1
    left = pins_of(s, net, p) - size
    leaving += left == 0
    if left == 1 and not own and owners < room:
        along, entering, leaving = _follows(s, net, p, q, entering, leaving)
        if along:
            chosen[total] = s.owners + (net if net < n else net - n)
            total += 1
            owners += 1
    return entering, leaving, total, owners


@jit()
def sweep(s, order, seed, turn, heat, price, steep, target):
    """Offer every unit a move, alone or with others of a net; return how many moves were made.

    A move is accepted with probability exp(-cost / heat), where the cost is

        entering (1 + steep x_q) - leaving (1 + steep x_p) - price x (excess that p loses),

    x the share by which a part's touched nets exceed `target`. No part grows beyond its room.
    """
    k = np.uint64(s.load.size)
    key = mix(mix(np.uint64(seed)) + np.uint64(turn))
    moves = 0
    chosen = np.empty(2 * (1 + np.diff(s.start).max()), np.int32)
    half = np.uint64(32)
    for e in order:
        p = s.part[e]
        excess = s.load[p] - s.room[0]
        excess_rows = s.rows[p] - s.room[1]
        over = excess > 0 or excess_rows > 0
        if not over and s.lam[s.ends[e, 0]] == 1 and s.lam[s.ends[e, 1]] == 1:
            continue
        bits = mix(key + np.uint64(e))
        more = mix(bits)
        side = np.int64(bits & np.uint64(1))
        kind = np.int64(bits >> np.uint64(1) & np.uint64(3))  # 0, 1: alone; 2: all; 3: near ones
        net = s.ends[e, side]
        place = bits >> half
        if over and more >> np.uint64(4) & np.uint64(7) < 2:
            q = np.int64(place * k >> half)
        else:
            # where the smaller net lies the larger one mostly does, too
            seen, other = s.ends[e]
            smaller = s.start[seen + 1] - s.start[seen] <= s.start[other + 1] - s.start[other]
            if smaller == (more & np.uint64(15) < RARELY):
                seen, other = other, seen
            if s.lam[seen] == 1:
                seen = other
            first = s.start[seen]
            size = np.uint64(s.start[seen + 1] - first)
            q = np.int64(s.part[s.members[first + np.int64(place * size >> half)]])
        if q == p or s.load[q] >= s.room[0]:
            continue
        chance = np.float64(more >> np.uint64(11)) * 2.0**-53
        size = 1
        chosen[0] = e
        if kind >= 2:
            pins = pins_of(s, net, p)
            if pins > LARGE:
                if chance * pins > LARGE:
                    continue
                chance *= pins / LARGE
            if kind == 2 and s.load[q] + pins > s.room[0]:
                continue
            size = _gather(s, net, p, q, kind == 3, chosen)
            if size == 0:
                continue
        entering, leaving, size, owners = _change(s, net, p, q, chosen, size)
        weight = np.int64(0)
        for i in range(size):
            weight += s.weight[chosen[i]]
        if s.load[q] + weight > s.room[0] or (owners and s.rows[q] + owners > s.room[1]):
            continue
        cost = (entering * (1 + steep * max(0.0, s.copies[q] / target - 1))
                - leaving * (1 + steep * max(0.0, s.copies[p] / target - 1)))
        if over:
            cost -= price * (min(weight, max(0, excess)) + min(owners, max(0, excess_rows)))
        if cost <= 0 or (heat > 0 and chance < np.exp(-cost / heat)):
            for i in range(size):
                move(s, chosen[i], q)
            moves += 1
    return moves


@jit()
def spread(s, sent, order, both):
    """Deal owners anew among parts that hold their rows and columns, so that the busier sends less.

    sent : (k,) int64, rows that each part sends; kept up to date. both: rows and columns of a
    vertex are one net. Returns how many changed.
    """
    n = s.part.size - s.owners
    changed = 0
    for v in order:
        p = s.part[s.owners + v]
        shift = s.lam[v] - 2  # rows sent by the owner, less the sum that others send
        if shift <= 0 or pins_of(s, v, p) == 1 or (not both and pins_of(s, n + v, p) == 1):
            continue
        best = p
        least = sent[p]
        for at in range(s.first[v], s.first[v + 1]):
            q = np.int64(s.touched[at])
            if q == p or s.pins[at] == 0 or s.rows[q] >= s.room[1]:
                continue
            if s.load[q] + s.weight[s.owners + v] > s.room[0]:
                continue
            if not both and pins_of(s, n + v, q) == 0:
                continue
            if max(sent[q] + shift, sent[p] - shift) < least:
                best = q
                least = max(sent[q] + shift, sent[p] - shift)
        if best != p:
            move(s, s.owners + v, best)
            sent[p] -= shift
            sent[best] += shift
            changed += 1
    return changed
