"""Rows of H and partial sums of A H in one message for each pair of ranks, in one
phase.

That works if partial sums for other ranks read only own rows of H: they can be formed
before anything arrives. Two transfers share the messages: one pulls rows while the
other pushes sums. In the transpose the two swap. Source: Kayaaslan, Aykanat and Ucar,
SIAM J. Sci. Comput. 40(4), 2018.
"""
from functools import cached_property
from itertools import pairwise

import numpy as np

from hpgcn import kernels
from hpgcn.parallel.csr import rows_of
from hpgcn.parallel.halo_exchange import Exchange, HaloExchange, nearest_first
from hpgcn.parallel.transfers import LOCAL, Transfer
from hpgcn.parallel.workspace import HaloBuffers


class MergedExchange(Exchange):
    """The messages of two HaloPlans: rows by `pull`, sums by the transpose of `push`.

    One message goes to rank q: first this rank's rows that q reads, then this rank's
    sums for rows of q. `transfers` are the one that pulls, and the one that pushes, in
    a product with A.
    """

    def __init__(self, pull, push, comm, buffers):
        owned = pull.send_offsets + push.recv_offsets
        ghost = pull.recv_offsets + push.send_offsets
        read, summed = np.diff(pull.send_offsets), np.diff(pull.recv_offsets)
        sums = np.diff(push.recv_offsets), summed
        super().__init__((owned, ghost), sums, comm, buffers)
        to, between = owned[:-1], owned[:-1] + read
        come, among = ghost[:-1], ghost[:-1] + summed
        self.transfers = (
            OneWayTransfer(self, pull, False, (to, between), (come, among)),
            OneWayTransfer(self, push, True, (among, ghost[1:]), (between, owned[1:])))

    def begin(self, width, adjoint):
        """Return the channel for rows of a width and a direction; its send buffer is
        filled next.
        """
        self.filling = self._channel(width, adjoint)
        return self.filling

    def launch(self):
        """Send the filled buffers."""
        with self.comm.clock("comm"):
            self._start(self.filling)
        self.channel = self.filling

    def wait_for(self, source, what):
        """Wait for the message of rank `source`, which must send one."""
        self._wait_for(self.channel, source, what)

    def received(self, source, place):
        """Return the rows (slice `place` of the receive buffer) that rank `source` sent."""
        channel = self.channel
        if source in channel.near:
            first = int(channel.cuts[source])
            return channel.near[source][place.start - first:place.stop - first]
        return channel.incoming[place]

    def received_from(self, what):
        """Yield ranks in increasing order as their messages arrive; then wait for all sends."""
        for source, _ in self._received(self.channel, what):
            yield source


class OneWayTransfer(Transfer):
    """Transfer of one HaloPlan in a merged exchange: rows in one direction, sums in the
    other.

    `adjoint`: whether it pulls in a product with A^T. `rows`, `ghosts`: pairs of (P,)
    int64, the positions by rank of own rows and ghosts in the two buffers. When it
    pulls, the first buffer is sent.
    """

    def __init__(self, exchange, plan, adjoint, rows, ghosts):
        self.exchange = exchange
        self.buffers = exchange.buffers
        self.comm = exchange.comm
        self.plan = plan
        self.adjoint = adjoint
        put = self.comm.device.put
        send_rows = put(plan.send_rows)
        parts = [rows_of(send_rows, *ends) for ends in pairwise(plan.send_offsets.tolist())]
        self.send_rows = dict(enumerate(parts))  # by destination
        self.rows, self.ghosts = (
            {q: slice(int(first[q]), int(last[q])) for q in ranks.tolist()}
            for (first, last), ranks in ((rows, plan.destinations), (ghosts, plan.sources)))

    @property
    def sources(self):
        return self.plan.sources.tolist()

    @property
    def ghost_counts(self):
        """Number of rows of each source, a dict in the order of ghosts."""
        return {q: place.stop - place.start for q, place in self.ghosts.items()}

    @property
    def incoming(self):
        """Receive buffer of the messages under way, (rows, width)."""
        return self.exchange.channel.incoming

    @property
    def outgoing(self):
        """Send buffer of the messages that are filled, (rows, width)."""
        return self.exchange.filling.outgoing

    @property
    def ghost_positions(self):
        """Row of these two buffers that each ghost has, (g,) int64."""
        places = [np.arange(place.start, place.stop) for place in self.ghosts.values()]
        return np.concatenate([np.empty(0, np.int64), *places])

    def reserve(self, width):
        """Allocate the buffers for rows of `width` columns."""
        self.exchange.reserve(width)

    @property
    def nbytes(self):
        """Bytes of the buffers, which both transfers share."""
        return self.exchange.nbytes

    @property
    def pending(self):
        """Whether messages are under way."""
        return self.exchange.pending

    def multiplied(self, source):
        """Drop the rows of a source; its sums stay."""
        if source != LOCAL:
            self.buffers.device.discard(self.exchange.channel.incoming[self.ghosts[source]])

    def discard(self):
        self.buffers.discard()

    def progress(self):
        """Let messages progress."""
        self.exchange.progress()

    def start(self, H, what):
        """Copy own rows into the messages, which are sent once the sums are filled in
        as well.
        """
        self.H = H
        outgoing = self.exchange.begin(H.shape[1], self.adjoint).outgoing
        gather = kernels.backend(H).gather
        with self.comm.clock("comm"):
            for q, place in self.rows.items():
                gather(H, self.send_rows[q], outgoing[place])

    def received_rows(self, wanted, what):
        """Yield (LOCAL, own rows), then (source, rows from it) for the sources in `wanted`,
        in the order of `nearest_first`.
        """
        if LOCAL in wanted:
            yield LOCAL, self.H
        for source in nearest_first(self.comm, self.ghosts):
            if source in wanted:
                self.exchange.wait_for(source, what)
                yield source, self.exchange.received(source, self.ghosts[source])

    def partial_sums(self, out, what):
        """Return pairs (rank, buffer for partial sums of that rank's rows), then
        (LOCAL, out).
        """
        outgoing = self.exchange.begin(out.shape[1], not self.adjoint).outgoing
        self.unsent = set(self.ghosts)
        if not self.unsent:
            self.exchange.launch()
        return [*((q, outgoing[place]) for q, place in self.ghosts.items()), (LOCAL, out)]

    def send(self, target):
        """Mark the sums for rank `target` as filled; all messages are sent once the
        last one is filled.
        """
        if target != LOCAL:
            self.unsent.remove(target)
            if not self.unsent:
                self.exchange.launch()

    def finish(self, out, what):
        """Add the received partial sums to `out`, in the order of ranks."""
        scatter_add = kernels.backend(out).scatter_add
        for source in self.exchange.received_from(what):
            if source in self.rows:
                with self.comm.clock("comm"):
                    rows = self.exchange.received(source, self.rows[source])
                    scatter_add(rows, self.send_rows[source], out)
        self.exchange.release()

    @cached_property
    def message_transfer(self):
        # One of the two takes the buffers that they share.
        buffers = self.buffers
        if self.adjoint:
            buffers = HaloBuffers(buffers.device, self.comm.stager, buffers.dtype, buffers.sums)
        return HaloExchange(self.plan, self.comm, buffers)

    def close(self):
        """Free the requests; afterwards neither transfer can be used."""
        self.exchange.close()
        if "message_transfer" in vars(self):
            self.message_transfer.close()
