"""The state of a refinement of rows, and its compiled moves of single vertices.

`rows.refine` has the objective. A sweep moves vertices on one thread. It first bounds
the gain of a move, by bit masks of the parts that each net touches. Most vertices are
skipped because of this bound.
"""
from collections import namedtuple

import numpy as np

from hpgcn.graphs.adjacency import LARGE
from hpgcn.graphs.partition import run_offsets
from hpgcn.kernels.cpu.emit.entry_prefetch import fetch_element, fetch_later
from hpgcn.kernels.entries import bit_in_word
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import Threaded, chunks
from hpgcn.partition.part_counts import column_pins, fill_nets
from hpgcn.partition.partition_request import MAX_PARTS
from hpgcn.partition.rows.miss_counters import count_misses, counted_misses, start_counters

MESSAGE = 0.5  # cost of a message, in rows
GROUP = 1 << 14  # vertices whose gains all threads bound before some of them move
LOOKED = 1 << 8  # vertices that a thread bounds at a time
LOOK = 16  # scalar operations to look at an entry
NEAR = 8  # entries between the prefetch of a list of parts and its use

# Nets are the columns of the pattern. The part of vertex j owns net j. From first[j] on,
# `touched` has the lam[j] parts that net j touches, and `pins` its pins in each. masks[j]
# has a bit for each of these parts, and one for each with a single pin; part q has bit q
# mod 64. totals: volume and messages. Vertices move only between parts of equal `group`, (k,).
State = namedtuple(
    "State",
    "indptr indices weight part first touched pins lam masks sent load pairs totals group")


def refinement_state(rows, part, k, weights, group=None, *, symmetric=False):
    """Count the pins of every net in every part it touches, and the rows that each part sends.

    `group` (k,) integers are as in State; by default all parts are of one group. The
    nets of a `symmetric` pattern are its rows.
    """
    pointers, members = column_pins(rows, symmetric)
    indptr = rows.indptr.astype(np.int64)
    n = part.size
    part = part.astype(np.int32)  # a copy
    # a move adds a part to a net before it takes one away
    room = np.minimum(np.diff(pointers), k) + 1
    first = run_offsets(room)
    touched = np.empty(first[-1], np.int32)
    pins = np.empty(first[-1], np.int32)
    lam = np.zeros(n, np.int32)
    masks = np.zeros((n, 2), np.uint64)
    # messages of more parts are not counted
    pairs = np.zeros((k, k) if k <= MAX_PARTS else (0, 0), np.int32)
    fill_nets(pointers, members, part, k, first, touched, pins, lam, masks)
    if pairs.size:
        _count_pairs(part, first, touched, lam, pairs)
    sent = np.bincount(part, lam - 1, k).astype(np.int64)
    load = np.bincount(part, weights, k).astype(np.int64)
    totals = np.array([sent.sum(), np.count_nonzero(pairs)], np.int64)
    group = np.zeros(k, np.int32) if group is None else np.asarray(group, np.int32)
    return State(indptr, rows.indices, np.asarray(weights, np.int64), part, first, touched, pins,
                 lam, masks, sent, load, pairs, totals, group)


@jit(inner=True)
def add_pin(net, p, first, touched, pins, lam):
    """Give a net one more pin in part p; return whether it is the first there."""
    end = first[net] + lam[net]
    for at in range(first[net], end):
        if touched[at] == p:
            pins[at] += 1
            return False
    touched[end] = p
    pins[end] = 1
    lam[net] += 1
    return True


@jit(inner=True)
def take_pin(net, p, first, touched, pins, lam):
    """Take one pin in part p from a net; return whether it was the last there."""
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


@jit(inner=True)
def _mark(net, first, touched, pins, lam, masks):
    """Set the masks of a net by its list."""
    masks[net] = 0
    for at in range(first[net], first[net] + lam[net]):
        masks[net, 0] |= bit_in_word(touched[at])
        if pins[at] == 1:
            masks[net, 1] |= bit_in_word(touched[at])


@jit()
def _count_pairs(part, first, touched, lam, pairs):
    """Count the rows that each part sends to each other one."""
    for net in range(part.size):
        for at in range(first[net], first[net] + lam[net]):
            if touched[at] != part[net]:
                pairs[part[net], touched[at]] += 1


@jit(inner=True)
def _send(s, source, target, change):
    """Change by 1 or -1 the count of rows that part `source` sends to part `target`."""
    s.sent[source] += change
    s.totals[0] += change
    if s.pairs.size:
        before = s.pairs[source, target]
        s.pairs[source, target] = before + change
        s.totals[1] += (before + change > 0) - np.int64(before > 0)


@jit(inner=True)
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
        _mark(net, s.first, s.touched, s.pins, s.lam, s.masks)
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


@jit(inner=True)
def _excess(sent, target):
    return max(0.0, sent - target)


@jit(inner=True)
def _shares_bit(s, v):
    """Return whether a net of v touches another part with the bit of v's own part."""
    p = s.part[v]
    bit = bit_in_word(p)
    for t in range(s.indptr[v], s.indptr[v + 1]):
        net = s.indices[t]
        for at in range(s.first[net], s.first[net] + s.lam[net]):
            q = s.touched[at]
            if q != p and bit_in_word(q) == bit:
                return True
    return False


@jit()
def may_gain(s, v, cap, target, steepness, planes):
    """Return False only if `find_best` finds no part, by a bound of the gain.

    A move to q costs at least 1 for each net of v that does not touch q. It saves the
    cost of the nets in which v is the last pin of its part, and the excess of v's own
    row. `planes` is a work array, (64,) uint64.
    """
    # the most that a move may save
    p = s.part[v]
    bit = bit_in_word(p)
    most = 0.0
    for t in range(s.indptr[v], s.indptr[v + 1]):
        fetch_later(s.masks, s.indices, t)
        net = s.indices[t]
        if s.masks[net, 1] & bit:
            most += 1.0 if net == v else 1 + steepness * _excess(s.sent[s.part[net]], target)
            if net != v and s.pairs.size and s.pairs[s.part[net], p] == 1:
                most += MESSAGE
    own = s.lam[v] - 1
    most += 0.5 * steepness * (_excess(s.sent[p], target) ** 2
                               - _excess(s.sent[p] - own, target) ** 2)
    misses = np.int64(np.ceil(most)) - 1 if steepness == 0 else np.int64(most + 1e-6)
    if misses < 0:
        return False

    # parts that miss few enough nets; other parts may share the bit of v's own
    digits, begin = start_counters(misses, planes)
    k = s.sent.size
    open_parts = (~np.uint64(0) >> np.uint64(max(0, 64 - k))) & ~bit
    for t in range(s.indptr[v], s.indptr[v + 1]):
        open_parts &= ~count_misses(~s.masks[s.indices[t], 0], digits, planes)
        if open_parts == 0:
            return k > 64 and _shares_bit(s, v)
    if k > 64:
        return True

    # parts that are left: is there room, and how much more do they send?
    then = own - np.int64(s.masks[v, 1] & bit != 0)
    for q in range(k):
        if open_parts & bit_in_word(q) and s.load[q] + s.weight[v] <= cap:
            missed = counted_misses(q, digits, begin, planes)
            added = 0.5 * steepness * (_excess(s.sent[q] + then, target) ** 2
                                       - _excess(s.sent[q], target) ** 2)
            if missed + added < most + 1e-6:
                return True
    return False


@jit()
def find_best(s, v, cap, target, steepness, limit, shared_cost, shared_nets, touched_parts):
    """Find the part to which a move of v lowers the objective most; return also the change.

    The part may be v's own. Messages are not considered. The last three arguments are
    work arrays, (k,) each. They are the cost and number of the nets that v shares with
    each part, 0 before and after, and a list of parts.
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
        fetch_later(s.first, s.indices, t)
        fetch_later(s.lam, s.indices, t)
        if t + NEAR < s.indices.size:
            begin = s.first[s.indices[t + NEAR]]
            fetch_element(s.touched, begin)
            fetch_element(s.pins, begin)
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

    # v's own net moves with v, so it is not shared; mark the parts that it touches
    for at in range(s.first[v], s.first[v] + s.lam[v]):
        shared_nets[s.touched[at]] += nets + 1

    # compare the parts that have room
    best = p
    best_change = -1e-9
    for i in range(parts):
        q = touched_parts[i]
        touches = shared_nets[q] > nets + 1
        shared = shared_nets[q] - (nets + 2 if touches else 0)
        if q != p and s.group[q] == s.group[p] and s.load[q] + s.weight[v] <= cap:
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


def sweep(s, order, cap, target, steepness, limit, max_messages):
    """Visit vertices in this order, and make the moves that pay; return their number.

    Large graphs are visited in groups. First all threads find the vertices of a group
    that may gain. All others are skipped, even if a move in the group changes that. So
    groups change the result, but threads do not.
    """
    rules = cap, target, steepness, limit, max_messages
    if s.indices.size < LARGE:
        return _visit(s, order, *rules)

    moved = 0
    for start in range(0, order.size, GROUP):
        group = order[start:start + GROUP]
        hopeful = np.empty(group.size, np.bool_)
        _look(s.indices.size // order.size * group.size * LOOK, s, group, cap, target, steepness,
              hopeful)
        moved += _visit(s, group[hopeful], *rules)
    return moved


@Threaded
def _look(counters, s, group, cap, target, steepness, hopeful):
    """Fill `hopeful` with whether each vertex of a group may gain."""
    planes = np.empty(64, np.uint64)
    for chunk in chunks(counters, -(-group.size // LOOKED)):
        for at in range(chunk * LOOKED, min(group.size, (chunk + 1) * LOOKED)):
            hopeful[at] = may_gain(s, group[at], cap, target, steepness, planes)


@jit()
def _visit(s, order, cap, target, steepness, limit, max_messages):
    """Visit vertices in this order on one thread; return the number of moves."""
    k = s.sent.size
    shared_cost = np.zeros(k)
    shared_nets = np.zeros(k, np.int64)
    touched_parts = np.empty(k, np.int32)
    planes = np.empty(64, np.uint64)
    moved = 0

    for v in order:
        if not may_gain(s, v, cap, target, steepness, planes):
            continue
        p = s.part[v]
        q, change = find_best(s, v, cap, target, steepness, limit, shared_cost, shared_nets,
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
