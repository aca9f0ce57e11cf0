"""Passes that move nonzeros between parts by simulated annealing."""
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
    move,
    pins_of,
    record_range,
    touches,
)

TRIES = 4  # random parts to try for a unit whose nets share no part
HALF = np.uint64(32)


@jit()
def empty_small_parts(s, seed, turn, temperature, most):
    """Try to move each net out of the parts in which it has few units; count the successes.

    A unit may move to a part that both of its nets touch, or to the last unit of its
    other net. It may also move to a part of one net, which the other net then enters.
    All units move with probability exp(-nets that parts gain / temperature), or none of
    them. No part grows beyond its capacity. A net leaves a part in which it has at most
    `most` units.
    """
    key = mix(mix(np.uint64(seed)) + np.uint64(turn))
    chosen = np.empty(most, np.int64)
    targets = np.empty(most, np.int64)
    inside = np.empty(s.part_bits.shape[1], np.uint64)  # parts that the net touches, or will enter
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
                q = _part_of_both(s, other, p, weight, owner, inside, bits)
                if q < 0:
                    cost += 1
                    q = _part_of_one(s, net, other, p, weight, owner, bits)
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


@jit(inner=True, counted=False)
def _weigh(s, at, chosen):
    """List the links of the units of a record; return their weight and number of owners."""
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


@jit(inner=True, counted=False)
def _fits(s, q, p, weight, owner):
    return (q != p and s.load[q] + weight <= s.capacity[0]
            and (not owner or s.rows[q] + owner <= s.capacity[1]))


@jit(inner=True, counted=False)
def _part_of_both(s, other, p, weight, owner, inside, bits):
    """Return a part in `inside` other than p, with room, that touches net `other`, or -1."""
    words = inside.size
    word = np.int64((bits >> HALF) * np.uint64(words) >> HALF)
    turned = bits & np.uint64(63)  # the first bit to test
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


@jit(inner=True, counted=False)
def _part_of_one(s, net, other, p, weight, owner, bits):
    """Draw a part other than p, with room, that one of two nets touches; -1 after TRIES."""
    for _ in range(TRIES):
        bits = mix(bits)
        some = net if bits & np.uint64(1) or s.nets[other, LAM] == 1 else other
        q = _random_part(s, some, bits)
        if _fits(s, q, p, weight, owner):
            return q
    return np.int64(-1)


@jit(inner=True, counted=False)
def _random_part(s, net, bits):
    """Return the part of a random unit of a net; `bits` are the random bits."""
    size = np.uint64(s.start[net + 1] - s.start[net])
    return np.int64(s.part[s.members[s.start[net] + np.int64((bits >> HALF) * size >> HALF)]])


@jit()
def rebalance_owners(s, sent, order, both):
    """Move owners between parts with entries of their row or column, to lower the maximum.

    The maximum is that of `sent`, (k,) int64, the rows that each part sends, which is
    updated. `both` says whether the row and the column of a vertex are one net. Return
    the number of owners that changed.
    """
    n = s.part.size - s.owners
    changed = 0
    for v in order:
        # a move must not take the last unit out of a net
        p = np.int64(s.part[s.owners + v])
        shift = s.nets[v, LAM] - 2  # rows that the owner sends, less the sum that other parts send
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
