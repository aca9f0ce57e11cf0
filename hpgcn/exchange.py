"""Replays a plan: rows out to those who need them (forward), partial sums back to those who own them (adjoint).

Requests are persistent and bound to two buffers made once: `forward` and `adjoint` start them, `arrivals` hands out
what came in increasing order of the other rank, so that sums are taken in a fixed order (same command, same bits).
The transpose of a copy is an accumulate: the adjoint sends along the swapped lists, and its receiver adds.
Source: demirci-2022, Algorithms 1 and 2.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpgcn import collectives, faults, kernels


@dataclass(eq=False)
class Channel:
    """Persistent requests for one width and direction.

    Attributes
    ----------
    outgoing : (rows, width)
        Send buffer, sorted by destination.
    incoming : (rows, width)
        Receive buffer, sorted by source.
    sources : list of int
        Ranks that send here, increasing.
    pieces : list of lists of int
        Requests of each source.
    cuts : (P + 1,)
        Rows of `incoming` by source.
    requests : list
        Receives first, then sends; `others` names the rank at the far end of each.
    """

    outgoing: np.ndarray
    incoming: np.ndarray
    sources: list
    pieces: list
    cuts: np.ndarray
    requests: list
    others: list
    messages: int
    to: list
    pending: set


class Exchange:
    """Messages of a plan, for rows of at most `max_width` columns of one dtype.

    Parameters
    ----------
    plan : hpgcn.plan.Plan
    comm : hpgcn.comm.SerialComm or MpiComm
    dtype : numpy dtype
    max_width : int
    lender : Exchange, optional
        Of a plan that this one is part of: both then use its buffers, one at a time.
    """

    def __init__(self, plan, comm, dtype, max_width, lender=None):
        self.plan, self.comm, self.dtype = plan, comm, np.dtype(dtype)
        if lender is None:
            self.owned = np.empty(plan.send_rows.size * max_width, dtype)  # rows of mine that others read
            self.ghost = np.empty(plan.ghosts.size * max_width, dtype)  # rows of others that I read
        else:
            self.owned, self.ghost = lender.owned, lender.ghost
        self.channels = {}

    def forward(self, H):
        """Start sending rows of H (m, f) to those who need them; `arrivals` yields their rows."""
        channel = self._channel(H.shape[1], adjoint=False)
        with self.comm.clock("comm"):
            kernels.backend(H).gather(H, self.plan.send_rows, channel.outgoing)
            self._start(channel)
        return channel

    def partials(self, width):
        """(g, f) buffer for the partial sums that `adjoint` sends: one row a ghost."""
        return self._channel(width, adjoint=True).outgoing

    def adjoint(self, width):
        """Start returning what `partials` holds to the owners of its rows."""
        channel = self._channel(width, adjoint=True)
        with self.comm.clock("comm"):
            self._start(channel)
        return channel

    def progress(self, channel):
        """Let messages move while this rank computes: MPI does so only within its calls."""
        if channel.pending:
            with self.comm.clock("comm"):
                self.comm.test(channel.requests, channel.pending)

    def arrivals(self, channel, what):
        """Yield (source, its rows) in increasing order of source; then wait until all sends are done.

        Parameters
        ----------
        what : str
            For the message if a deadline passes, e.g. "layer 1 forward".
        """

        def describe(pending):
            return f"rank(s) {', '.join(map(str, sorted({channel.others[i] for i in pending})))} in {what}"

        for source, pieces in zip(channel.sources, channel.pieces):
            self._wait(channel, channel.pending.intersection(pieces), describe)
            yield source, channel.incoming[channel.cuts[source]:channel.cuts[source + 1]]
        self._wait(channel, set(channel.pending), describe)

    def _wait(self, channel, numbers, describe):
        if numbers:
            waited = set(numbers)
            self.comm.wait(channel.requests, describe, waited)
            channel.pending -= numbers

    def _start(self, channel):
        faults.point("exchange")
        if channel.requests:
            self.comm.MPI.Prequest.Startall(channel.requests)
            channel.pending = set(range(len(channel.requests)))
        self.comm.counters.add("aggregation", channel.outgoing.nbytes, channel.messages, channel.to)

    def _channel(self, width, adjoint):
        if (width, adjoint) not in self.channels:
            plan = self.plan
            owned = self.owned[:plan.send_rows.size * width].reshape(-1, width)
            ghost = self.ghost[:plan.ghosts.size * width].reshape(-1, width)
            ends = (owned, plan.send_offsets), (ghost, plan.recv_offsets)
            (outgoing, to), (incoming, cuts) = reversed(ends) if adjoint else ends
            receives, others, pieces = self._requests("Recv_init", incoming, cuts, tag=1 + adjoint)
            sends, destinations, per_destination = self._requests("Send_init", outgoing, to, tag=1 + adjoint)
            self.channels[width, adjoint] = Channel(
                outgoing, incoming, sorted(set(others)), pieces, cuts, receives + sends, others + destinations,
                len(per_destination),
                [(q, rows * width * self.dtype.itemsize)
                 for q, rows in zip(self.comm.ranks, np.diff(to).tolist()) if rows], set())
        return self.channels[width, adjoint]

    def _requests(self, kind, buffer, cuts, tag):
        """Persistent requests for each rank's rows, in pieces of at most collectives.MAX_MESSAGE_BYTES."""
        requests, others, pieces = [], [], []
        flat = buffer.reshape(-1)
        step = max(1, collectives.MAX_MESSAGE_BYTES // self.dtype.itemsize)
        for other in np.flatnonzero(np.diff(cuts)).tolist() if buffer.shape[1] else []:
            first, last = int(cuts[other]) * buffer.shape[1], int(cuts[other + 1]) * buffer.shape[1]
            begins = range(first, last, step)
            pieces.append(list(range(len(requests), len(requests) + len(begins))))
            for begin in begins:
                requests.append(getattr(self.comm.mpi, kind)(flat[begin:min(begin + step, last)], other, tag))
                others.append(other)
        return requests, others, pieces

    def close(self):
        """Free the requests; afterwards the exchange cannot be used."""
        for channel in self.channels.values():
            for request in channel.requests:
                request.Free()
        self.channels = {}
