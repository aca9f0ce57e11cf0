"""Rows of H and partial sums of A H in one message for each pair of ranks, in one phase.

That works where a rank forms sums for others from rows that it owns: nothing need arrive first. Two
halves make the transfer: one pulls rows while the other pushes sums, and in the transpose the two swap.
Source: demirci-2022's exchange of rows; Kayaaslan, Aykanat and Ucar, SIAM J. Sci. Comput. 40(4), 2018.
"""
from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpgcn import kernels
from hpgcn.parallel.csr import rows_of
from hpgcn.parallel.halo_exchange import HaloExchange
from hpgcn.parallel.transfers import OWN


@dataclass(frozen=True, eq=False)
class MergedSizes:
    """What one half of a merged exchange sends, by rank; `messages` (P,) if it pushes: one for each pair.

    Attributes
    ----------
    own, other : hpgcn.parallel.halo_plan.HaloPlanSizes
        Of this half, and of the one that pulls when it pushes.
    """

    own: object
    other: object
    messages: np.ndarray

    @property
    def buffer_rows(self):
        """Rows of the two buffers of messages, (P,), counted with the first half."""
        return self.own.buffer_rows

    def pull(self, row_bytes):
        """Yield nothing: the rows go with the sums that the other half pushes."""
        return iter(())

    def push(self, row_bytes):
        """Yield (bytes, messages) of each rank."""
        yield (self.own.received + self.other.sent) * row_bytes, self.messages


class MergedExchange(HaloExchange):
    """The messages of two halo plans: rows by `pull`, sums by the transpose of `push`.

    To rank q goes, in one message, what q reads of this rank's rows, then what this rank sums up of q's rows.

    Parameters
    ----------
    pull, push : hpgcn.parallel.halo_plan.HaloPlan
    comm : hpgcn.comm.SerialComm or MpiComm
    buffers : hpgcn.parallel.halo_exchange.HaloBuffers

    Attributes
    ----------
    halves : (Half, Half)
        The one that pulls, and the one that pushes, of a product with A.
    """

    def __init__(self, pull, push, comm, buffers):
        super().__init__(pull, comm, buffers)
        self.ends = (pull.send_offsets + push.recv_offsets, pull.recv_offsets + push.send_offsets)
        owned, ghost = self.ends
        read, summed = np.diff(pull.send_offsets), np.diff(pull.recv_offsets)
        self.halves = (
            Half(self, pull, False, (owned[:-1], owned[:-1] + read), (ghost[:-1], ghost[:-1] + summed)),
            Half(self, push, True, (ghost[:-1] + summed, ghost[1:]), (owned[:-1] + read, owned[1:])))

    def begin(self, width, adjoint):
        """Make the channel of a product the one that is filled next."""
        self.filling = self._channel(width, adjoint)
        return self.filling

    def launch(self):
        """Send what was filled."""
        with self.comm.clock("comm"):
            self._start(self.filling)
        self.channel = self.filling

    def landed(self, source, what):
        """Wait for the message of a rank, which sends one."""
        self._wait_for(self.channel, source, what)

    def finish(self, what):
        """Wait until all is sent and received; yield ranks in increasing order as their messages are there."""
        for source, _ in self._arrived(self.channel, what):
            yield source


class Half:
    """Rows one way, and sums the other, as a transfer (see hpgcn.parallel.transfers).

    Parameters
    ----------
    exchange : MergedExchange
    plan : hpgcn.parallel.halo_plan.HaloPlan
    adjoint : bool
        It pulls in a product with A^T.
    rows, ghosts : pairs of (P,) int64
        Where, by rank, own rows stand in the buffer that is sent when it pulls, and ghosts in the other.
    """

    adds = True

    def __init__(self, exchange, plan, adjoint, rows, ghosts):
        self.exchange = exchange
        self.comm = exchange.comm
        self.plan = plan
        self.adjoint = adjoint
        put = self.comm.device.put
        send_rows = put(plan.send_rows)
        parts = [rows_of(send_rows, *ends) for ends in pairwise(plan.send_offsets.tolist())]
        self.send_rows = {q: parts[q] for q in plan.destinations.tolist()}
        self.rows = {q: slice(int(rows[0][q]), int(rows[1][q])) for q in self.send_rows}
        self.ghosts = {q: slice(int(ghosts[0][q]), int(ghosts[1][q])) for q in plan.sources.tolist()}

    def reserve(self, width):
        """Make the buffers for rows of this width."""
        self.exchange.reserve(width)

    @property
    def nbytes(self):
        """Bytes of the buffers, which both halves share."""
        return self.exchange.nbytes

    @property
    def pending(self):
        """Whether messages are under way."""
        return self.exchange.pending

    def progress(self):
        """Let messages move."""
        self.exchange.progress()

    def start(self, H, what):
        """Put own rows into the messages; they leave once the sums are there, too."""
        self.H = H
        outgoing = self.exchange.begin(H.shape[1], self.adjoint).outgoing
        gather = kernels.backend(H).gather
        with self.comm.clock("comm"):
            for q, place in self.rows.items():
                gather(H, self.send_rows[q], outgoing[place])

    def arrivals(self, wanted, what):
        """Yield (OWN, own rows), then (source, its rows) in increasing order of those wanted."""
        if OWN in wanted:
            yield OWN, self.H
        for source, place in self.ghosts.items():
            if source in wanted:
                self.exchange.landed(source, what)
                yield source, self.exchange.channel.incoming[place]

    def slots(self, out, what):
        """Yield (rank, room for partial sums of its rows), send all, then yield (OWN, out).

        What others send is added to `out` in the order of ranks.
        """
        outgoing = self.exchange.begin(out.shape[1], not self.adjoint).outgoing
        for q, place in self.ghosts.items():
            yield q, outgoing[place]
        self.exchange.launch()
        yield OWN, out

        scatter_add = kernels.backend(out).scatter_add
        incoming = self.exchange.channel.incoming
        for source in self.exchange.finish(what):
            if source in self.rows:
                with self.comm.clock("comm"):
                    scatter_add(incoming[self.rows[source]], self.send_rows[source], out)

    def close(self):
        """Free the requests; afterwards neither half can be used."""
        self.exchange.close()
