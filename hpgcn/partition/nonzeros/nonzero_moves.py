"""Passes that move nonzeros between parts by simulated annealing."""
import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from hpgcn.kernels.entries import bit_in_word, mix
from hpgcn.kernels.jit import jit
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

TRIES = 4  # parts that are looked at for a unit whose nets share none
LARGE = 8  # units: larger groups are tried in proportion less often
HALF = np.uint64(32)


@jit()
def empty_small_parts(s, seed, turn, temperature, most):
    """Try to move each net out of the parts in which it has few units; return the
    number of successes.

    A unit may move to a part that both of its nets touch, or to its other net's last
    unit. It may also move to a part of one net, which the other net then enters. All of
    it happens with probability exp(-nets that parts gain / temperature), or not at all.
    No part grows beyond its capacity.

    most : int
        Units that a net may have in a part that it leaves.
    """
    key = mix(mix(np.uint64(seed)) + np.uint64(turn))
    chosen = np.empty(most, np.int64)
    targets = np.empty(most, np.int64)
    inside = np.empty(s.part_bits.shape[1], np.uint64)  # parts that the net touches, or is to enter
    left = 0
    for net in range(s.part_bits.shape[0]):
        if s.nets[net, LAM] == 1:
            continue
        first, end, _ = record_range(s, net)
        for at in range(end - 1, first - 1, -1):
            # a part with few units of the net
            pins = np.int64(s.records[at, PINS])
            if not 0 < pins <= most:
                continue
            p = np.int64(s.records[at, PART])

            # draw what the move may cost at this temperature
            bits = mix(key + np.uint64(at))
            rise = np.int64(0)
            if temperature > 0:
                chance = np.float64(bits >> np.uint64(11)) * 2.0**-53
                rise = np.int64(-temperature * np.log(1 - chance))

            # find a target for each unit, and stop when they cost too much
            weight, owner = _weigh(s, at, chosen)
            for word in range(inside.size):
                inside[word] = s.part_bits[net, word]
            cost = np.int64(-1)
            for i in range(pins):
                link = chosen[i]
                other = np.int64(s.ends[link >> 1, 1 - (link & 1)])
                bits = mix(bits)
                q = _shared(s, other, p, weight, owner, inside, bits)
                if q < 0:
                    cost += 1
                    q = _either(s, net, other, p, weight, owner, bits)
                    if q < 0:
                        cost = rise + 1
                        break
                    inside[q >> 6] |= bit_in_word(q)
                cost -= s.records[s.nets[other, 0] + s.links[link ^ 1, AT], PINS] == 1
                if cost > rise + 1:
                    break
                targets[i] = q

            # move all units, or none
            if cost > rise:
                continue
            for i in range(pins):
                move(s, chosen[i] >> 1, targets[i])
            left += 1
    return left


@jit(inner=True)
def _weigh(s, at, chosen):
    """List the links of the units of a record; return the units' weight and the number
    of owners.
    """
    weight = owner = np.int64(0)
    size = 0
    link = s.records[at, HEAD]
    while link >= 0:
        e = link >> 1
        chosen[size] = link
        size += 1
        weight += s.weight[e]
        owner += e >= s.owners
        link = s.links[link, AFTER]
    return weight, owner


@jit(inner=True)
def _fits(s, q, p, weight, owner):
    return (q != p and s.load[q] + weight <= s.capacity[0]
            and (not owner or s.rows[q] + owner <= s.capacity[1]))


@jit(inner=True)
def _shared(s, other, p, weight, owner, inside, bits):
    """Return a part with room, other than p, in the set `inside` and touched by net
    `other`; else -1.
    """
    words = inside.size
    word = np.int64((bits >> HALF) * np.uint64(words) >> HALF)
    turned = bits & np.uint64(63)  # the first bit to look at
    for _ in range(words):
        both = inside[word] & s.part_bits[other, word]
        both = both >> turned | both << (np.uint64(64) - turned & np.uint64(63))
        while both:
            q = 64 * word + np.int64(np.uint64(trailing_zeros(both)) + turned & np.uint64(63))
            if _fits(s, q, p, weight, owner):
                return q
            both &= both - np.uint64(1)
        word = word + 1 if word + 1 < words else 0
    return np.int64(-1)


@jit(inner=True)
def _either(s, net, other, p, weight, owner, bits):
    """Draw a part with room, other than p, that one of two nets touches; -1 if no try
    finds one.
    """
    for _ in range(TRIES):
        bits = mix(bits)
        some = net if bits & np.uint64(1) or s.nets[other, LAM] == 1 else other
        q = _drawn(s, some, bits)
        if _fits(s, q, p, weight, owner):
            return q
    return np.int64(-1)


@jit(inner=True)
def _drawn(s, net, bits):
    """Return the part of a random unit of a net; `bits` are the random bits."""
    size = np.uint64(s.start[net + 1] - s.start[net])
    return np.int64(s.part[s.members[s.start[net] + np.int64((bits >> HALF) * size >> HALF)]])


@jit(inner=True)
def _gather(s, net, p, q, near, chosen):
    """Collect the units of a net in part p in `chosen`; return how many. With `near`,
    only units whose other net touches part q.
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


@jit(inner=True)
def _follows(s, net, p, q, entering, leaving):
    """Decide whether the owner of a net's vertex should move along from part p to part
    q.

    The owner is the net's last unit in p. Return the decision, and the new counts of
    nets that enter q and that leave p.
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


@jit(inner=True)
def _change(s, net, p, q, chosen, size):
    """Count the nets that enter part q, and that leave p, if the chosen units of a net move.

    Owners that would stay behind without nonzeros are chosen as well, while q may own
    more. Returns nets entering and leaving, how many units are chosen, and how many of
    them are owners.
    """
    n = s.part.size - s.owners

    # what is known of the net itself
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


@jit()
def move_groups(s, seed, turn, temperature, price, limit):
    """Try to move the units of each net in each part to the part where that costs least.

    Either all of these units move, or those alone whose other net touches the target. The
    move is made with probability exp(-cost / temperature). Its cost are the nets that
    parts gain less `price` times the excess that a part loses. No part grows beyond its
    capacity, nor beyond a weight of `limit` unless all units of the move are owners.
    """
    k = s.load.size
    key = mix(mix(~np.uint64(seed)) + np.uint64(turn))
    shared = np.zeros(k, np.int64)  # units whose other net touches a part
    freed = np.zeros(k, np.int64)  # those of them whose other net then leaves the old part

    # room for the units of the largest net, and an owner of each
    largest = np.int64(0)
    for net in range(s.start.size - 1):
        largest = max(largest, s.start[net + 1] - s.start[net])
    chosen = np.empty(2 * (1 + largest), np.int64)
    for net in range(s.part_bits.shape[0]):
        first, end, _ = record_range(s, net)
        for at in range(end - 1, first - 1, -1):
            # large groups are tried in proportion less often
            pins = np.int64(s.records[at, PINS])
            p = np.int64(s.records[at, PART])
            if pins == 0:
                continue
            excess = max(0, s.load[p] - s.capacity[0])
            excess_rows = max(0, s.rows[p] - s.capacity[1])
            bits = mix(key + np.uint64(at))
            chance = np.float64(bits >> np.uint64(11)) * 2.0**-53 * max(1.0, pins / LARGE)
            if chance > 1:
                continue

            # find the target, and whether all units move there
            q, near = _target(s, net, at, p, pins, bits, shared, freed)
            if q < 0:
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

            # accept by cost and temperature
            cost = entering - leaving - price * (min(weight, excess) + min(owners, excess_rows))
            if cost <= 0 or (temperature > 0 and chance < np.exp(-cost / temperature)):
                for i in range(size):
                    move(s, chosen[i], q)


@jit(inner=True)
def _target(s, net, at, p, pins, bits, shared, freed):
    """Return the part with room to which the units of a record move at least cost.

    It is -1 if no part has room. The second result is whether only those units should
    move whose other net touches the part. Ties are broken by `bits`.
    """
    k = s.load.size

    # count the units that each part is near to
    leaving = np.int64(0)
    link = s.records[at, HEAD]
    while link >= 0:
        other = np.int64(s.ends[link >> 1, 1 - (link & 1)])
        last = s.records[s.nets[other, 0] + s.links[link ^ 1, AT], PINS] == 1
        leaving += last
        for word in range(s.part_bits.shape[1]):
            rest = s.part_bits[other, word]
            while rest:
                q = 64 * word + np.int64(trailing_zeros(rest))
                rest &= rest - np.uint64(1)
                shared[q] += 1
                freed[q] += last
        link = s.links[link, AFTER]

    # compare the parts, from one drawn on
    best = np.int64(-1)
    least = pins + 2
    near = False
    q = np.int64((bits >> HALF) * np.uint64(k) >> HALF)
    for _ in range(k):
        q = q + 1 if q + 1 < k else 0
        if q != p and s.load[q] < s.capacity[0]:
            enters = np.int64(not touches(s, net, q))
            cost = enters - 1 + pins - shared[q] - leaving
            some = enters - freed[q]
            if shared[q] and some < min(cost, least):
                best, least, near = q, some, True
            elif cost < least:
                best, least, near = q, cost, False
    shared[:] = 0
    freed[:] = 0
    return best, near


@jit()
def rebalance_owners(s, sent, order, both):
    """Move owners between parts with entries of their rows and columns, to lower the
    largest traffic.

    `sent`: (k,) int64, rows that each part sends; updated. `both`: whether the row and
    the column of a vertex are one net. Return the number of owners that changed.
    """
    n = s.part.size - s.owners
    changed = 0
    for v in order:
        # a move must not take the last unit out of a net
        p = np.int64(s.part[s.owners + v])
        shift = s.nets[v, LAM] - 2  # rows sent by the owner, less the sum that others send
        if shift <= 0 or pins_of(s, v, p) == 1 or (not both and pins_of(s, n + v, p) == 1):
            continue

        # find the part that lowers the larger of the two
        best = p
        least = sent[p]
        first, end, _ = record_range(s, v)
        for at in range(first, end):
            q = np.int64(s.records[at, PART])
            if q == p or s.records[at, PINS] == 0 or s.rows[q] >= s.capacity[1]:
                continue
            if s.load[q] + s.weight[s.owners + v] > s.capacity[0]:
                continue
            if not both and not touches(s, n + v, q):
                continue
            if max(sent[q] + shift, sent[p] - shift) < least:
                best = q
                least = max(sent[q] + shift, sent[p] - shift)

        # move the owner
        if best != p:
            move(s, s.owners + v, best)
            sent[p] -= shift
            sent[best] += shift
            changed += 1
    return changed
