"""State of a refinement of nonzeros: the part of each unit, and the parts of each net.

An example has n = 3 vertices and 2 parts: a_01 and a_12 off the diagonal, vertex 0 in
part 0, vertices 1 and 2 in part 1.

    unit           nets (column, 3 + row)    part
    0: a_01        1, 3                      0
    1: a_12        2, 4                      1
    2: owner of 0  0, 3                      0
    3: owner of 1  1, 4                      1
    4: owner of 2  2, 5                      1

Net 1 touches both parts, by units 0 and 3, so row 1 of H is sent to part 0. All other
nets touch one part, so the cost is 1. If unit 0 moves to part 1, net 1 touches one
part. But net 3 then touches two, so part 1 sends a partial sum of row 0. The cost is
still 1.
"""
from collections import namedtuple

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.kernels.entries import bit_in_word
from hpgcn.kernels.host.jit import jit

PART, PINS, HEAD = range(3)  # columns of State.records
AFTER, BEFORE, AT = range(3)  # columns of State.links
LAM = 1  # column of State.nets, beside its first record

# Units are assigned to parts. Unit e lies in two nets, ends[e]. Units from `owners` on own a
# vertex: unit owners + v lies in the nets v and n + v, for n vertices.
#
# nets[net] has the net's first record, and the number lam of parts that it touches. A record
# has a part, the net's units in that part (pins), and the head of a list of these units. A
# net of k units or more has a record for every part, and others one for each touched part.
# part_bits[net] is the bit set of touched parts.
#
# Link 2 e + s is unit e in the net ends[e, s]. It has the next and the previous link of its
# list, and the number of its record among those of the net. members[start[net]:] are the
# units of a net.
#
# weight: of each unit. load and rows: weight and owners of each part. capacity: the most
# weight and owners of a part. inside: whether a net and the other nets of its units touch
# one part only, as moves have noted.
State = namedtuple(
    "State", "ends part owners nets records part_bits links start members weight load rows "
             "capacity inside")


def state_of(ends, part, n, k, weight, capacity):
    """Build the State: the parts that each net touches, and its number of units in each.

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
        Weight of each unit.
    capacity : (2,) int64
        Weight and owners that a part may hold.
    """
    owners = part.size - n

    # units of each net, and where its records begin
    sizes = np.bincount(ends.ravel(), minlength=2 * n)
    members = (np.argsort(ends.ravel(), kind="stable") // 2).astype(np.int32)
    nets = np.zeros((2 * n + 1, 2), np.int64)
    nets[:, 0] = run_offsets(np.minimum(sizes, k))

    # empty lists, to which _fill adds the units
    state = State(ends, part, owners, nets, np.zeros((nets[-1, 0], 3), np.int32),
                  np.zeros((2 * n, -(-k // 64)), np.uint64), np.empty((2 * part.size, 3), np.int32),
                  run_offsets(sizes), members, weight,
                  np.bincount(part, weight, k).astype(np.int64),
                  np.bincount(part[owners:], minlength=k), capacity, np.zeros(2 * n, np.bool_))
    _fill(state)
    return state


@jit()
def _fill(s):
    k = s.load.size
    for net in range(s.part_bits.shape[0]):
        first, _, direct = record_range(s, net)
        if direct:
            for p in range(k):
                s.records[first + p, PART] = p
    for e in range(s.part.size):
        for side in range(2):
            _put(s, 2 * e + side, np.int64(s.ends[e, side]), np.int64(s.part[e]))


@jit(inner=True, counted=False)
def record_range(s, net):
    """Return first and end of a net's used records, and whether every part has a record."""
    first, lam = s.nets[net]
    size = s.nets[net + 1, 0] - first
    direct = size == s.load.size
    return first, first + (size if direct else lam), direct


@jit(inner=True, counted=False)
def touches(s, net, p):
    """Return whether a net has units in part p."""
    return s.part_bits[net, p >> 6] >> np.uint64(p & 63) & np.uint64(1) != 0


@jit(inner=True, counted=False)
def find_record(s, net, p):
    """Return the index of the record of a net's units in part p."""
    at, _, direct = record_range(s, net)
    if direct:
        return at + p
    while s.records[at, PART] != p:
        at += 1
    return at


@jit()
def pins_of(s, net, p):
    """Count the units of a net in part p."""
    return s.records[find_record(s, net, p), PINS] if touches(s, net, p) else 0


@jit(inner=True, counted=False)
def _open(s, net):
    """Note that a net and the other nets of its units no longer lie inside a part."""
    for at in range(s.start[net], s.start[net + 1]):
        for side in range(2):
            s.inside[s.ends[s.members[at], side]] = False


@jit(inner=True, counted=False)
def _put(s, link, net, p):
    # find or make the record of the part in the net's list
    if touches(s, net, p):
        at = find_record(s, net, p)
    else:
        first, end, direct = record_range(s, net)
        at = first + p if direct else end
        s.records[at, PART] = p
        s.records[at, HEAD] = -1
        s.nets[net, LAM] += 1
        s.part_bits[net, p >> 6] |= bit_in_word(p)
        if s.nets[net, LAM] == 2:
            _open(s, net)

    # put the link at its head
    then = s.records[at, HEAD]
    if then >= 0:
        s.links[then, BEFORE] = link
    s.links[link, AFTER] = then
    s.links[link, BEFORE] = -1
    s.links[link, AT] = at - s.nets[net, 0]
    s.records[at, HEAD] = link
    s.records[at, PINS] += 1


@jit(inner=True, counted=False)
def _take(s, link, net, p):
    then = s.links[link, AFTER]
    previous = s.links[link, BEFORE]

    # take the link out of its list
    at = s.nets[net, 0] + s.links[link, AT]
    if previous >= 0:
        s.links[previous, AFTER] = then
    else:
        s.records[at, HEAD] = then
    if then >= 0:
        s.links[then, BEFORE] = previous

    # a part without units leaves the net's list; the last record moves to its own
    s.records[at, PINS] -= 1
    if s.records[at, PINS] == 0:
        s.part_bits[net, p >> 6] ^= bit_in_word(p)
        first, end, direct = record_range(s, net)
        s.nets[net, LAM] -= 1
        if not direct and at != end - 1:
            for column in range(3):  # Numba compiles the assignment of a row for seconds
                s.records[at, column] = s.records[end - 1, column]
            s.records[end - 1, PINS] = 0
            link = s.records[at, HEAD]
            while link >= 0:
                s.links[link, AT] = at - first
                link = s.links[link, AFTER]


@jit(inner=True, counted=False)
def move(s, e, q):
    """Move a unit to part q."""
    p = np.int64(s.part[e])
    for side in range(2):
        net = np.int64(s.ends[e, side])
        _take(s, 2 * e + side, net, p)
        _put(s, 2 * e + side, net, q)
    owner = np.int64(e >= s.owners)
    s.part[e] = q
    s.load[p] -= s.weight[e]
    s.load[q] += s.weight[e]
    s.rows[p] -= owner
    s.rows[q] += owner
