"""Rows that several ranks have copies of: sums over the copies of a vertex, now or steps later.

The root of a vertex is the copy of its owner; the others are its clones. Each rank has the rows
that it owns, then its clones by number. Partial sums go up from clones to roots, totals down.
Source: distgnn-2021, section 5.3 and Algorithm 4.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hpgcn import kernels
from hpgcn.parallel.csr import rows_of
from hpgcn.parallel.halo_exchange import HaloBuffers, HaloExchange
from hpgcn.parallel.halo_plan import HaloPlan

SLICE_BYTES = 1 << 10  # of a row, that are sent to clones at a time


class CloneExchange(HaloExchange):
    """Messages between the roots and the clones of a HaloPlan, whose ghosts are the clones.

    clones: (c,) int64, their numbers among the rows of this rank, on the device.
    """

    def __init__(self, plan, clones, comm, dtype):
        super().__init__(plan, comm, HaloBuffers(comm.device, comm.relay, dtype))
        self.clones = clones

    def begin(self, width, up):
        """Take the channel of messages of this width, up to the roots or down to the clones."""
        self.channel = self._channel(width, adjoint=up)

    def fill(self, Z, up):
        """Put the rows of Z (m, f) into the messages that go up, or down; return them, (rows, f).

        Messages of before that are still under way the same way were waited for.
        """
        self.begin(Z.shape[1], up)
        with self.comm.clock("comm"):
            rows = self.clones if up else self.send_rows
            return kernels.backend(Z).gather(Z, rows, self.channel.outgoing)

    def send(self):
        """Start what was filled."""
        with self.comm.clock("comm"):
            self._start(self.channel)

    def arrived(self, what):
        """Yield (rank, its rows) in increasing order of ranks; then wait for all sends."""
        return self._arrived(self.channel, what)

    def landed(self, what):
        """Wait for all messages; return what came, (rows, f), by rank."""
        for _ in self.arrived(what):
            pass
        return self.channel.incoming


class WholeSum:
    """Sums over all copies of a vertex, given to all of them: exact, in two phases."""

    def __init__(self, exchange):
        self.exchange = exchange

    def reserve(self, width):
        """Make the buffers for rows of this width."""
        self.exchange.reserve(width)

    def add(self, Z, what):
        """Replace the partial sums Z (m, f) by the totals, which are added in rank order."""
        exchange = self.exchange
        exchange.fill(Z, up=True)
        exchange.send()
        for rank, rows in exchange.arrived(what):
            with exchange.comm.clock("comm"):
                kernels.backend(Z).scatter_add(rows, exchange.returned[rank], Z)
        exchange.fill(Z, up=False)
        exchange.send()
        Z[exchange.clones] = exchange.landed(what)

    def settle(self):
        """Nothing is left of a step, an empty list."""
        return []

    @property
    def nbytes(self):
        """Bytes of buffers."""
        return self.exchange.nbytes

    def close(self):
        """Free the requests."""
        self.exchange.close()


@dataclass(frozen=True, eq=False)
class Bin:
    """Some of the vertices that have clones: their messages, and their rows on this rank."""

    plan: HaloPlan
    numbers: np.ndarray  # of their rows on this rank: roots with clones, then clones; on the device
    places: list  # by rank: which of the roots the partial sums are of that come from it
    roots: int  # how many they are

    @property
    def clones(self):
        """Numbers of the clones."""
        return self.numbers[self.roots:]


def deal(plan, count, comm):
    """Deal the vertices that have clones to bins; all ranks call this together.

    Vertex t of those with clones, counted in the distributed order, goes to bin t mod `count`: bins
    differ by one vertex at most, and so do the shares of each owner in them.

    Parameters
    ----------
    plan : HaloPlan
        Of all clones.

    Returns
    -------
    list of Bin
    """
    layout = plan.layout
    marks = np.zeros(int(layout.offsets[-1]), np.uint8)
    marks[plan.ghosts] = 1
    comm.allreduce(marks, "plan", op="max")
    bin_of = (np.cumsum(marks, dtype=np.int64) - 1) % count
    ghosts, sent = bin_of[plan.ghosts], bin_of[layout.start + plan.send_rows]
    put = comm.device.put
    bins = []
    for number in range(count):
        part = plan.part(ghosts == number, sent == number)
        roots = np.unique(part.send_rows)
        numbers = np.concatenate([roots, layout.num_rows + np.flatnonzero(ghosts == number)])
        places = put(np.searchsorted(roots, part.send_rows))
        cuts = pairwise(part.send_offsets.tolist())
        bins.append(Bin(part, put(numbers), [rows_of(places, *cut) for cut in cuts], roots.size))
    return bins


class DelayedSum:
    """Sums over the copies of a vertex, of which others' shares are those of some steps before.

    Of r bins one takes its turn in each step: its clones send their partial sums, which the roots
    take r steps later; the roots then send the totals, which the clones take another r steps later.
    What has arrived is used in every step until it is replaced, r steps later. A copy's own share
    is always that of the step itself: what a clone is sent is the total less what it gave. Before
    anything has arrived others' shares are 0.
    """

    def __init__(self, bins, width, comm, dtype):
        self.bins = bins
        self.comm = comm
        self.step = 0
        self.kept = []  # by bin: (rows, f), what others gave to the roots, then to the clones
        self.legs = []  # by bin: up, down
        for each in bins:
            kept = comm.device.empty((each.numbers.size, width), dtype)
            kept[:] = 0
            legs = [CloneExchange(each.plan, each.clones, comm, dtype) for _ in range(2)]
            for leg, up in zip(legs, (True, False)):
                leg.begin(width, up)
                leg.channel.incoming[:] = 0
            self.kept.append(kept)
            self.legs.append(legs)

    def add(self, Z, what):
        """Add to the partial sums Z (m, f) of this step what is known of the other copies'."""
        scatter_add = kernels.backend(Z).scatter_add
        clock = self.comm.clock
        rounds, turn = divmod(self.step, len(self.bins))
        each, kept, (up, down) = self.bins[turn], self.kept[turn], self.legs[turn]
        given = up.channel.incoming
        if rounds > 1:
            kept[each.roots:] = down.landed(what)
        if rounds:
            kept[:each.roots] = 0
            for rank, rows in up.arrived(what):
                with clock("comm"):
                    scatter_add(rows, each.places[rank], kept[:each.roots])
        up.fill(Z, up=True)  # before others' shares are added
        with clock("comm"):
            for one, shares in zip(self.bins, self.kept):
                scatter_add(shares, one.numbers, Z)
        if rounds:
            totals = down.fill(Z, up=False)
            totals -= given
            down.send()
        up.send()
        self.step += 1

    def settle(self):
        """Wait for all that is under way; return what later steps read, a list of arrays."""
        return self.kept + [leg.landed("the end of a step") for legs in self.legs for leg in legs]

    @property
    def nbytes(self):
        """Bytes of buffers, and of what is kept."""
        return (sum(kept.nbytes for kept in self.kept)
                + sum(leg.nbytes for legs in self.legs for leg in legs))

    def close(self):
        """Free the requests, once all messages have arrived."""
        self.settle()
        for legs in self.legs:
            for leg in legs:
                leg.close()


def with_clones(array, plan, comm):
    """Put the clones' rows behind an array (m, ...) of own rows; all ranks call this together.

    A csr_array keeps its kind. Rows travel as bits, some columns at a time.
    """
    if sp.issparse(array):
        return _sparse_with_clones(array, plan, comm)
    m, clones = len(array), plan.ghosts.size
    out = np.empty((m + clones, *array.shape[1:]), array.dtype)
    out[:m] = array
    columns = out.reshape(m + clones, math.prod(array.shape[1:]))
    step = max(1, SLICE_BYTES // array.itemsize)
    for first in range(0, columns.shape[1], step):
        part = np.ascontiguousarray(columns[:m, first:first + step]).view(np.uint8)
        words = np.zeros((m, -(-part.shape[1] // 8)), np.int64)  # only integers are sent like this
        words.view(np.uint8)[:, :part.shape[1]] = part
        found = _sent([words[rows].ravel() for rows in _by_rank(plan)], comm)
        found = found.reshape(clones, words.shape[1]).view(np.uint8)[:, :part.shape[1]]
        columns[m:, first:first + step] = np.ascontiguousarray(found).view(array.dtype)
    return out


def _sparse_with_clones(array, plan, comm):
    counts = with_clones(np.diff(array.indptr), plan, comm)
    parts = [array[rows] for rows in _by_rank(plan)]
    indices = _sent([part.indices for part in parts], comm)
    bits = _sent([part.data.view(f"i{array.dtype.itemsize}") for part in parts], comm)
    data = bits.astype(f"i{array.dtype.itemsize}").view(array.dtype)
    indices = np.concatenate([array.indices, indices.astype(array.indices.dtype)])
    pointers = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_array((np.concatenate([array.data, data]), indices, pointers),
                        shape=(counts.size, array.shape[1]))


def _by_rank(plan):
    return [plan.send_rows[first:last] for first, last in pairwise(plan.send_offsets.tolist())]


def _sent(arrays, comm):
    return np.concatenate(comm.alltoallv(arrays))
