"""Replays a plan: rows out to those who need them (forward), partial sums back to those who own them (adjoint).

Requests are persistent and bound to two buffers made once: `forward` and `adjoint` start them, `arrivals` hands out
what came in increasing order of the other rank, so that sums are taken in a fixed order (same command, same bits).
The transpose of a copy is an accumulate: the adjoint sends along the swapped lists, and its receiver adds.
Rows of a GPU are packed there; where MPI takes no GPU memory, requests are bound to pinned twins of the buffers.
Source: demirci-2022, Algorithms 1 and 2.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpgcn import faults, kernels
from hpgcn.comm import collectives
from hpgcn.comm.staging import RECEIVE, SEND, Leg, Messages, Pinned
from hpgcn.device import address


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
    requests : list or hpgcn.comm.staging.Messages
        Receives first, then sends; `others` names the rank at the far end of each. Messages: of a GPU's rows.
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

    Attributes
    ----------
    send_rows : (rows,) int64
        Those of the plan, on the device of `comm`, where all rows lie.
    """

    def __init__(self, plan, comm, dtype, max_width, lender=None):
        self.plan, self.comm, self.dtype = plan, comm, np.dtype(dtype)
        self.relay, device = comm.relay, comm.device
        self.send_rows = device.put(plan.send_rows)
        if lender is None:
            self.owned = device.empty((plan.send_rows.size * max_width,), dtype)  # rows of mine that others read
            self.ghost = device.empty((plan.ghosts.size * max_width,), dtype)  # rows of others that I read
            self.twins = self.owned, self.ghost  # what MPI sees
            self.pinned = []
            if self.relay is not None and "message" not in self.relay.direct:
                self.pinned = [Pinned(device, max(buffer.nbytes, 1)) for buffer in self.twins]
                self.twins = [block.memory[:buffer.nbytes].view(dtype)
                              for block, buffer in zip(self.pinned, self.twins)]
        else:
            self.owned, self.ghost, self.twins, self.pinned = lender.owned, lender.ghost, lender.twins, lender.pinned
        self.channels = {}

    def forward(self, H):
        """Start sending rows of H (m, f) to those who need them; `arrivals` yields their rows."""
        channel = self._channel(H.shape[1], adjoint=False)
        with self.comm.clock("comm"):
            kernels.backend(H).gather(H, self.send_rows, channel.outgoing)
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
            if self.relay is not None:
                channel.requests.settle()
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
            if self.relay is None:
                self.comm.MPI.Prequest.Startall(channel.requests)
            else:
                self.relay.launch(self.comm, channel.requests)
            channel.pending = set(range(len(channel.requests)))
        self.comm.counters.add("aggregation", channel.outgoing.nbytes, channel.messages, channel.to)

    def _channel(self, width, adjoint):
        if (width, adjoint) not in self.channels:
            plan = self.plan
            owned = self.owned[:plan.send_rows.size * width].reshape(-1, width)
            ghost = self.ghost[:plan.ghosts.size * width].reshape(-1, width)
            ends = (owned, plan.send_offsets, self.twins[0]), (ghost, plan.recv_offsets, self.twins[1])
            (outgoing, to, sent), (incoming, cuts, received) = reversed(ends) if adjoint else ends
            requests = Messages(self.relay, blocks=self.pinned) if self.relay is not None else []
            others, pieces = self._requests("Recv_init", incoming, received, cuts, 1 + adjoint, requests)
            destinations, per_destination = self._requests("Send_init", outgoing, sent, to, 1 + adjoint, requests)
            self.channels[width, adjoint] = Channel(
                outgoing, incoming, sorted(set(others)), pieces, cuts, requests, others + destinations,
                len(per_destination),
                [(q, rows * width * self.dtype.itemsize)
                 for q, rows in zip(self.comm.ranks, np.diff(to).tolist()) if rows], set())
        return self.channels[width, adjoint]

    def _requests(self, kind, buffer, twin, cuts, tag, requests):
        """Add persistent requests for each rank's rows, in pieces that MPI and a relay take; see Channel."""
        others, pieces, limit = [], [], collectives.MAX_MESSAGE_BYTES
        if self.relay is not None:
            limit = self.relay.most("message", limit)
        flat, step = buffer.reshape(-1), max(1, limit // self.dtype.itemsize)
        for other in np.flatnonzero(np.diff(cuts)).tolist() if buffer.shape[1] else []:
            first, last = int(cuts[other]) * buffer.shape[1], int(cuts[other + 1]) * buffer.shape[1]
            begins = range(first, last, step)
            pieces.append(list(range(len(requests), len(requests) + len(begins))))
            for begin in begins:
                piece = slice(begin, min(begin + step, last))
                request = getattr(self.comm.mpi, kind)(twin[piece], other, tag)
                if self.relay is not None:
                    host = address(twin[piece]) if self.pinned else 0
                    way = RECEIVE if kind == "Recv_init" else SEND
                    requests.legs.append(Leg(request.Start, address(flat[piece]), host, flat[piece].nbytes, way))
                requests.append(request)
                others.append(other)
        return others, pieces

    def close(self):
        """Free the requests; afterwards the exchange cannot be used."""
        for channel in self.channels.values():
            for request in channel.requests:
                request.Free()
        self.channels = {}
