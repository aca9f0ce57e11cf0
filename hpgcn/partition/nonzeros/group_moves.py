"""Passes that move the nonzeros of a net in a part together, to the cheapest part.

Each part has a counter of the units of a group that are near to it. Digit d of the
counters of 64 parts is one word, as in `rows.miss_counters`. So an entry counts for all
parts of its other net at once.
"""
import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from hpgcn.kernels.entries import bit_in_word, mix
from hpgcn.kernels.host.jit import jit
from hpgcn.partition.nonzeros.nonzero_state import (
    AFTER,
    AT,
    HEAD,
    LAM,
    PART,
    PINS,
    find_record,
    move,
    pins_of,
    record_range,
    touches,
)

LARGE = 8  # units: larger groups are tried less often, in proportion
HALF = np.uint64(32)


@jit()
def move_groups(s, seed, turn, temperature, price, limit):
    """Try to move the units of each net in each part to the part where that costs least.

    Either all of these units move, or only those whose other net touches the target.
    The move is made with probability exp(-cost / temperature). The cost is the number
    of nets that parts gain, less `price` times the excess that a part loses. No part
    grows beyond its capacity. Nor does it grow beyond a weight of `limit`, unless all
    units of the move are owners.
    """
    k = s.load.size
    words = s.part_bits.shape[1]
    key = mix(mix(~np.uint64(seed)) + np.uint64(turn))

    # work arrays: units of the largest net with an owner of each, and counters of parts
    largest = np.int64(0)
    for net in range(s.start.size - 1):
        largest = max(largest, s.start[net + 1] - s.start[net])
    chosen = np.empty(2 * (1 + largest), np.int64)
    digits = _digits_of(largest)
    shared = np.empty((digits, words), np.uint64)  # units whose other net touches a part
    freed = np.empty((digits, words), np.uint64)  # units whose other net leaves the old part
    allowed = np.empty((2, words), np.uint64)
    picked = np.empty((2, words), np.uint64)
    room = np.zeros(words, np.uint64)  # parts below their capacity
    for q in range(k):
        _note_room(s, room, q)

    for net in range(s.part_bits.shape[0]):
        # skip nets inside a part, unless that part is too large
        first, end, _ = record_range(s, net)
        if s.inside[net]:
            p = np.int64(s.part[s.members[s.start[net]]])
            if s.load[p] <= s.capacity[0] and s.rows[p] <= s.capacity[1]:
                continue
        for at in range(end - 1, first - 1, -1):
            # large groups are tried less often, in proportion
            pins = np.int64(s.records[at, PINS])
            p = np.int64(s.records[at, PART])
            if pins == 0:
                continue
            bits = mix(key + np.uint64(at))
            chance = np.float64(bits >> np.uint64(11)) * 2.0**-53 * max(1.0, pins / LARGE)
            if chance > 1:
                continue

            # draw what the move may cost at this temperature
            excess = max(0, s.load[p] - s.capacity[0])
            excess_rows = max(0, s.rows[p] - s.capacity[1])
            rise = -temperature * np.log(chance) if temperature > 0 else 0.0

            # find the target, and whether all units move there
            q, near, least = find_target(s, net, at, p, pins, bits, shared, freed, allowed, picked,
                                     room)
            if q < 0 or least > rise + price * (excess + excess_rows):
                continue
            size = _gather(s, net, p, q, near, chosen)

            # the target must have room
            entering, leaving, size, owners = _change(s, net, p, q, chosen, size)
            weight = np.int64(0)
            for i in range(size):
                weight += s.weight[chosen[i]]
            full = s.capacity[0] if owners == size else limit
            if s.load[q] + weight > full or (owners and s.rows[q] + owners > s.capacity[1]):
                continue

            # move all of them if the cost is low enough
            cost = entering - leaving - price * (min(weight, excess) + min(owners, excess_rows))
            if cost <= rise:
                for i in range(size):
                    move(s, chosen[i], q)
                _note_room(s, room, p)
                _note_room(s, room, q)


@jit(inner=True, counted=False)
def _note_room(s, room, q):
    """Set or clear the bit of part q in `room`."""
    if s.load[q] < s.capacity[0]:
        room[q >> 6] |= bit_in_word(q)
    else:
        room[q >> 6] &= ~bit_in_word(q)


@jit(inner=True, counted=False)
def _digits_of(pins):
    """Return the binary digits of counters that count a net itself and its units."""
    digits = 1
    while (pins + 1) >> digits:
        digits += 1
    return digits


@jit(inner=True, counted=False)
def _count(counters, word, parts):
    """Add 1 to the counters of the parts whose bits are set, in a word of parts."""
    digit = 0
    while parts:
        rest = counters[digit, word] & parts
        counters[digit, word] ^= parts
        parts = rest
        digit += 1


@jit(inner=True, counted=False)
def find_target(s, net, at, p, pins, bits, shared, freed, allowed, picked, room):
    """Return the part with room to which the units of a record move at least cost.

    Three results are returned. The first is the part, or -1 if none has room. The
    second says whether only those units should move whose other net touches the part.
    The third is a lower bound of the cost, as owners may come along. `bits` break ties.
    """
    # the net itself counts for all parts that it touches
    words = s.part_bits.shape[1]
    digits = _digits_of(pins)
    for digit in range(digits):
        for word in range(words):
            shared[digit, word] = freed[digit, word] = 0
    for word in range(words):
        shared[0, word] = freed[0, word] = s.part_bits[net, word]
        allowed[0, word] = room[word]
        allowed[1, word] = 0
    allowed[0, p >> 6] &= ~bit_in_word(p)

    # count the units that each part is near to
    leaving = np.int64(0)
    owners = np.int64(0)  # owners that may come along
    link = s.records[at, HEAD]
    while link >= 0:
        other = np.int64(s.ends[link >> 1, 1 - (link & 1)])
        left = s.records[s.nets[other, 0] + s.links[link ^ 1, AT], PINS]
        leaving += left == 1
        owners += left == 2
        for word in range(words):
            parts = s.part_bits[other, word]
            allowed[1, word] |= parts
            _count(shared, word, parts)
            if left == 1:
                _count(freed, word, parts)
        link = s.links[link, AFTER]
    inside = s.nets[net, LAM] == 1
    allowed[1, p >> 6] &= ~bit_in_word(p)
    for word in range(words):
        inside = inside and not allowed[1, word]
        allowed[1, word] &= allowed[0, word]
    s.inside[net] = inside

    # compare the parts for all units, and for those that are near
    most = _pick_most(shared, digits, allowed, picked, 0)
    if most < 0:
        return np.int64(-1), False, np.int64(0)
    cost = pins - leaving - most
    most_freed = _pick_most(freed, digits, allowed, picked, 1)
    near = most_freed >= 0 and 1 - most_freed < cost
    if near:
        cost = 1 - most_freed
    drawn = np.int64((bits >> HALF) * np.uint64(s.load.size) >> HALF)
    return _first_from(picked, np.int64(near), drawn), near, cost - 2 * (owners + near)


@jit(inner=True, counted=False)
def _pick_most(counters, digits, allowed, picked, which):
    """Find the parts with the largest count in the set allowed[which]; return the count.

    It is -1 if the set is empty. picked[which] is filled with the set of these parts.
    """
    words = allowed.shape[1]
    found = np.uint64(0)
    for word in range(words):
        picked[which, word] = allowed[which, word]
        found |= allowed[which, word]
    if not found:
        return np.int64(-1)

    # parts whose highest digits are set have more than all others
    most = np.int64(0)
    for digit in range(digits - 1, -1, -1):
        found = np.uint64(0)
        for word in range(words):
            found |= picked[which, word] & counters[digit, word]
        if found:
            most += np.int64(1) << digit
            for word in range(words):
                picked[which, word] &= counters[digit, word]
    return most


@jit(inner=True, counted=False)
def _first_from(sets, which, drawn):
    """Return the first part from `drawn` on, in a circle, in the non-empty set sets[which]."""
    word = drawn >> 6
    low = np.uint64(drawn & 63)
    rest = sets[which, word] >> low << low
    while not rest:
        word = word + 1 if word + 1 < sets.shape[1] else 0
        rest = sets[which, word]
    return 64 * word + np.int64(trailing_zeros(rest))


@jit(inner=True, counted=False)
def _gather(s, net, p, q, near, chosen):
    """Collect the units of a net in part p in `chosen`; return their number.

    With `near`, only units whose other net touches part q are collected.
    """
    size = 0
    link = s.records[find_record(s, net, p), HEAD]
    while link >= 0:
        e = link >> 1
        if not near or touches(s, np.int64(s.ends[e, 1 - (link & 1)]), q):
            chosen[size] = e
            size += 1
        link = s.links[link, AFTER]
    return size


@jit(inner=True, counted=False)
def _follows(s, net, p, q, entering, leaving):
    """Decide whether the owner of a net's vertex, its last unit in p, moves along to q.

    Return the decision, and the new counts of nets that enter q and that leave p.
    """
    n = s.part.size - s.owners
    v = net if net < n else net - n
    if s.part[s.owners + v] != p:
        return False, entering, leaving
    second = v if net != v else n + v
    enters = not touches(s, second, q)
    leaves = 1 + np.int64(pins_of(s, second, p) == 1)
    if enters >= leaves:
        return False, entering, leaving
    return True, entering + enters, leaving + leaves


@jit(inner=True, counted=False)
def _change(s, net, p, q, chosen, size):
    """Count the nets that enter part q, and that leave p, if the chosen units of a net move.

    Owners that would stay behind without nonzeros are chosen as well, while q may own
    more. Return the nets that enter, those that leave, the number of chosen units, and
    the number of owners among them.
    """
    n = s.part.size - s.owners

    # the net itself
    entering = np.int64(not touches(s, net, q))
    leaving = np.int64(0)
    total = size
    owners = np.int64(0)

    # owners among the chosen units
    for i in range(size):
        owners += chosen[i] >= s.owners
    own = owners > 0
    room = s.capacity[1] - s.rows[q]

    # the other net of each unit; its owner may come along
    for i in range(size):
        e = chosen[i]
        other = np.int64(s.ends[e, 0] if s.ends[e, 1] == net else s.ends[e, 1])
        entering += not touches(s, other, q)
        pins = pins_of(s, other, p)
        leaving += pins == 1
        if pins == 2 and e < s.owners and owners < room:
            along, entering, leaving = _follows(s, other, p, q, entering, leaving)
            if along:
                chosen[total] = s.owners + (other if other < n else other - n)
                total += 1
                owners += 1

    # the owner of this net may come along
    left = pins_of(s, net, p) - size
    leaving += left == 0
    if left == 1 and not own and owners < room:
        along, entering, leaving = _follows(s, net, p, q, entering, leaving)
        if along:
            chosen[total] = s.owners + (net if net < n else net - n)
            total += 1
            owners += 1
    return entering, leaving, total, owners
