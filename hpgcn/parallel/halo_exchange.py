"""Halo exchange by a HaloPlan: rows go to their readers (pull), partial sums to their
owners (push).

An Exchange has the messages, a HaloExchange is the transfer of one HaloPlan in them. Two
transfers may share their messages (`joined_transfers`): one pulls rows while the other
pushes sums. That works if partial sums for other ranks read only own rows of H: they can
be formed before anything arrives. In the transpose the two swap.

Requests are persistent and bound to two buffers. Received rows are handed out in a
fixed order, those of this node first, so sums have a fixed order (same command, same
bits). The transpose of a copy is an accumulate: a push sends along the swapped lists,
and its receiver adds. A GPU packs its rows itself; if MPI takes no GPU memory, requests
are bound to pinned host views of the buffers.

Sources: demirci-2022, Algorithms 1 and 2; Kayaaslan, Aykanat and Ucar, SIAM J. Sci.
Comput. 40(4), 2018.
"""
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from hpgcn import kernels
from hpgcn.comm import collectives
from hpgcn.comm.staging import RECEIVE, SEND, Messages, StagedCopy
from hpgcn.parallel.csr import rows_of
from hpgcn.parallel.transfers import LOCAL, Transfer
from hpgcn.parallel.workspace import HaloBuffers
from hpgcn.runtime import faults
from hpgcn.runtime.device import address


@dataclass(eq=False)
class Channel:
    """Persistent requests for one width and direction."""

    outgoing: np.ndarray  # (rows, width): send buffer, sorted by destination
    incoming: np.ndarray  # (rows, width): receive buffer, sorted by source
    pieces: dict  # numbers of the requests of each rank that sends here, increasing
    cuts: np.ndarray  # (P + 1,): rows of `incoming` by source
    sends: dict  # numbers of the requests to each rank, increasing
    ends: np.ndarray  # (P + 1,): rows of `outgoing` by destination
    requests: list  # receives first, then sends; hpgcn.comm.staging.Messages of a GPU's rows
    others: list  # the rank at the far end of each request
    received: list  # bytes that each request receives
    messages: int  # number of messages sent
    to: list  # (rank, bytes) of each destination
    sums: list  # (rank, bytes) of partial sums to each destination
    near: dict  # rows of each rank that sends by shared memory: (rows, width), in its memory
    readers: list  # ranks that read `outgoing` in shared memory
    pending: set  # numbers of the requests under way


class Exchange:
    """Messages of an exchange: at most one each way for a pair of ranks, in two buffers.

    `ends`: offsets by rank of the rows in the owned and in the ghost buffer; two (P +
    1,). `sums`: number of rows to each rank that are partial sums, in pulls and in
    pushes; two (P,). `tags`: of messages in pulls and in pushes. They differ between
    exchanges that are under way at the same time.
    """

    tags = 1, 2

    def __init__(self, ends, sums, comm, buffers):
        self.ends = ends
        self.sums = sums
        self.comm = comm
        self.stager = comm.stager
        self.buffers = buffers
        self.channels = {}
        self.channel = None  # the one under way
        self.filling = None  # the one whose send buffer is filled
        self.memory = buffers.memory
        if self.memory is not None:
            # first row for this rank in the two buffers of each rank of the node
            self.places = self.memory.starts(*ends)

    def reserve(self, width):
        """Allocate the buffers for rows of `width` columns."""
        self._reserve(width * (self.buffers.words if self.buffers.pushes else 1))

    def _reserve(self, words):
        self.buffers.reserve(*(int(offsets[-1]) * words for offsets in self.ends))

    @property
    def nbytes(self):
        """Bytes of the buffers."""
        return self.buffers.owned.nbytes + self.buffers.ghost.nbytes

    @property
    def pending(self):
        """Whether messages are under way."""
        return self.channel is not None and bool(self.channel.pending)

    def progress(self):
        """Let messages progress: MPI moves them only within its calls."""
        if self.pending:
            with self.comm.clock("comm"):
                self.comm.test(self.channel.requests, self.channel.pending)

    def begin(self, width, adjoint):
        """Return the channel for rows of a width and a direction; its send buffer is
        filled next.
        """
        self.filling = self._channel(width, adjoint)
        return self.filling

    def launch(self):
        """Send the filled buffers."""
        self._start(self.filling)
        self.channel = self.filling

    def wait_for(self, source, what):
        """Wait for the message of rank `source`, which must send one."""
        pieces = self.channel.pieces.get(source, ())
        self._wait(self.channel, self.channel.pending.intersection(pieces), what)
        if self.stager is not None:
            self.channel.requests.wait_for_copies()

    def received(self, source, place=None):
        """Return rows that rank `source` sent: a slice of the receive buffer; None: all."""
        channel = self.channel
        first, last = channel.cuts[source:source + 2].tolist()
        place = place or slice(first, last)
        if source in channel.near:
            return channel.near[source][place.start - first:place.stop - first]
        return channel.incoming[place]

    def arriving(self, what):
        """Yield ranks in increasing order as their messages arrive; then wait for all sends."""
        channel = self.channel
        for source in channel.pieces:
            self.wait_for(source, what)
            yield source
        self.wait_for_all(what)

    def wait_for_all(self, what):
        """Wait for all messages, those that are sent as well."""
        self._wait(self.channel, set(self.channel.pending), what)

    def release(self):
        """Let ranks of the node overwrite their rows; else the next exchange does so."""
        if self.memory is not None:
            self.memory.release()

    def _wait(self, channel, numbers, what):
        def describe(pending):
            ranks = sorted({channel.others[number] for number in pending})
            return f"rank(s) {', '.join(map(str, ranks))} in {what}"

        if numbers:
            waited = set(numbers)
            self.comm.wait(channel.requests, describe, waited)
            channel.pending -= numbers

    def _start(self, channel):
        faults.point("exchange")
        if self.buffers.device.in_files:
            self.buffers.device.read_ahead(channel.outgoing, False)
            self.buffers.device.read_ahead(channel.incoming, True)
        if channel.requests:
            if self.memory is not None:
                self.memory.begin(channel.near, channel.readers)
            if self.stager is None:
                self.comm.MPI.Prequest.Startall(channel.requests)
                if self.comm.network is not None:
                    self.comm.network.begin(channel.requests, channel.received)
            else:
                self.stager.launch(self.comm, channel.requests)
            channel.pending = set(range(len(channel.requests)))
        self.comm.counters.add("aggregation", channel.outgoing.nbytes, channel.messages,
                               channel.to, channel.sums)

    def _channel(self, width, adjoint):
        """Return the Channel for a width and a direction; its buffers may be filled next."""
        if self.memory is not None:
            self.memory.wait_for_readers()
        if (width, adjoint) not in self.channels:
            # views of the buffers, as high as there are rows to send and to receive
            buffers = self.buffers
            self._reserve(width * (buffers.words if adjoint else 1))
            rows = [int(offsets[-1]) for offsets in self.ends]
            dtype = buffers.sums if adjoint else buffers.dtype
            owned, ghost = (flat.view(dtype)[:height * width].reshape(height, width)
                            for flat, height in zip((buffers.owned, buffers.ghost), rows))
            host_views = (flat.view(dtype) for flat in buffers.host_views)
            ends = list(zip((owned, ghost), host_views, self.ends))
            (outgoing, sent, to), (incoming, received, cuts) = reversed(ends) if adjoint else ends

            # persistent requests, which each exchange starts again
            requests = []
            if self.stager is not None:
                requests = Messages(self.stager, blocks=buffers.pinned)
            tag = self.tags[adjoint]
            others, pieces = self._requests("Recv_init", incoming, received, cuts, tag, requests)
            destinations, per_destination = self._requests(
                "Send_init", outgoing, sent, to, tag, requests)

            # ranks of the node read each other's memory
            shared = buffers.near[adjoint]
            near = {}
            for source in pieces.keys() & shared.keys():
                first = self.places[adjoint][source] * width
                size = int(cuts[source + 1] - cuts[source]) * width
                near[source] = shared[source].view(dtype)[first:first + size].reshape(-1, width)
            readers = sorted(per_destination.keys() & shared.keys())

            # bytes for the counters, and what a slow network delays
            row_bytes = width * dtype.itemsize
            bytes_received = [0] * len(requests)
            for source, numbers in pieces.items():
                size = int(cuts[source + 1] - cuts[source]) * row_bytes
                for number in numbers:
                    bytes_received[number] = size // len(numbers)
            sizes, sums = ([(q, rows * row_bytes)
                         for q, rows in zip(self.comm.ranks, counts.tolist()) if rows]
                        for counts in (np.diff(to), self.sums[adjoint]))

            self.channels[width, adjoint] = Channel(
                outgoing, incoming, pieces, cuts, per_destination, to, requests,
                others + destinations, bytes_received, len(per_destination), sizes, sums, near,
                readers, set())
        return self.channels[width, adjoint]

    def _requests(self, kind, buffer, host_view, cuts, tag, requests):
        """Add persistent requests for each rank's rows, in pieces that MPI and a stager support.

        Messages between ranks that share memory are empty: the rows are there already.
        """
        others, pieces, limit = [], {}, collectives.MAX_MESSAGE_BYTES
        if self.stager is not None:
            limit = self.stager.most("message", limit)

        flat = buffer.reshape(-1)
        step = max(1, limit // buffer.dtype.itemsize)

        # a message for each rank, in pieces that MPI can count
        for other in np.flatnonzero(np.diff(cuts) * buffer.shape[1]).tolist():
            first, last = (cuts[other:other + 2] * buffer.shape[1]).tolist()
            if other in self.buffers.near[0]:
                last = first
            begins = range(first, max(last, first + 1), step)
            pieces[other] = range(len(requests), len(requests) + len(begins))
            for begin in begins:
                piece = slice(begin, min(begin + step, last))
                request = getattr(self.comm.mpi, kind)(host_view[piece], other, tag)
                if kind == "Send_init" and self.buffers.device.in_files:
                    request.copied = self.buffers.device.discarder(flat[piece])
                if self.stager is not None:
                    host = address(host_view[piece]) if self.buffers.pinned else 0
                    way = RECEIVE if kind == "Recv_init" else SEND
                    device = address(flat[piece])
                    size = flat[piece].nbytes
                    requests.copies.append(StagedCopy(request.Start, device, host, size, way))
                requests.append(request)
                others.append(other)

        return others, pieces

    def close(self):
        """Free the requests; afterwards the exchange cannot be used."""
        for channel in self.channels.values():
            for request in channel.requests:
                request.Free()
        self.channels = {}
        self.channel = self.filling = None


def nearest_first(comm, ranks):
    """Return the list of ranks in the order in which their rows are used.

    Ranks of this node come first, because their rows arrive sooner. Both ranks of this node
    and those of other nodes are increasing.
    """
    nodes = comm.nodes
    return sorted(ranks, key=lambda rank: (nodes[rank] != nodes[comm.rank], rank))


class HaloExchange(Transfer):
    """The transfer of a HaloPlan (see hpgcn.parallel.transfers): rows to their readers, sums back.

    All rows, and `send_rows` of the plan, lie on the device of `comm`. By default it has
    messages of its own.

    Parameters
    ----------
    shared : Exchange, optional
        Messages that it shares with another transfer; they are sent once that has filled
        in its partial sums.
    adjoint : bool
        Whether it pulls in the direction in which the exchange pushes.
    places : pair of (P,) int64, optional
        First own row, and first ghost, for each rank in the shared buffers.
    """

    def __init__(self, plan, comm, buffers, shared=None, adjoint=False, places=None):
        returned = np.diff(plan.recv_offsets)
        self.alone = shared is None
        self.exchange = shared or Exchange((plan.send_offsets, plan.recv_offsets),
                                           (0 * returned, returned), comm, buffers)
        self.plan = plan
        self.comm = comm
        self.buffers = buffers
        self.adjoint = adjoint

        # rows of each rank, and their slices of the two buffers
        rows, ghosts = places or (plan.send_offsets, plan.recv_offsets)
        self.rows = slices_of(rows, np.diff(plan.send_offsets))
        self.ghosts = slices_of(ghosts, returned)
        self.send_rows = comm.device.put(plan.send_rows)

    def reserve(self, width):
        """Allocate the buffers for rows of `width` columns."""
        self.exchange.reserve(width)

    @property
    def nbytes(self):
        """Bytes of the buffers."""
        return self.exchange.nbytes

    @property
    def pending(self):
        """Whether messages are under way."""
        return self.exchange.pending

    def progress(self):
        """Let messages progress."""
        self.exchange.progress()

    def start(self, H, what):
        """Start sending rows of H (m, f) to their readers; shared messages follow once the
        sums are filled in as well.
        """
        self.H = H
        outgoing = self.exchange.begin(H.shape[1], self.adjoint).outgoing
        gather = kernels.backend(H).gather
        with self.comm.clock("comm"):
            if self.alone:
                gather(H, self.send_rows, outgoing)
                self.exchange.launch()
                return
            for q, place in self.rows.items():
                gather(H, self.returned[q], outgoing[place])

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
        if self.alone:
            self.exchange.wait_for_all(what)

    def multiplied(self, source):
        """Drop the rows of a source."""
        if source != LOCAL:
            self.buffers.device.discard(self.incoming[self.ghosts[source]])

    def partial_sums(self, out, what):
        """Return pairs (source, buffer for partial sums of the source's rows), then
        (LOCAL, out).
        """
        return [*self.send_buffers(out.shape[1]), (LOCAL, out)]

    def send_buffers(self, width):
        """Return (source, buffer (rows, width) of the partial sums to return to it) for
        each source.
        """
        outgoing = self.exchange.begin(width, not self.adjoint).outgoing
        self.unsent = set(self.ghosts)
        self._launch_if_filled()
        return [(source, outgoing[place]) for source, place in self.ghosts.items()]

    def send(self, target):
        """Mark the buffer for rank `target` as filled; all buffers are sent once the
        last one is filled.
        """
        if target != LOCAL:
            self.unsent.remove(target)
            self._launch_if_filled()

    def _launch_if_filled(self):
        if not self.unsent:
            with self.comm.clock("comm"):
                self.exchange.launch()

    def finish(self, out, what):
        """Add the returned partial sums to `out`, in the order of ranks."""
        scatter_add = kernels.backend(out).scatter_add
        for numbers, rows in self.received_sums(what):
            with self.comm.clock("comm"):
                scatter_add(rows, numbers, out)
        self.exchange.release()

    def received_sums(self, what):
        """Yield (numbers of own rows, partial sums received for them), rank after rank."""
        for source in self.exchange.arriving(what):
            if source in self.rows:
                rows = self.exchange.received(source, self.rows[source])
                yield self.returned[source], rows
                if self.alone and source not in self.exchange.channel.near:
                    self.buffers.device.discard(rows)

    def release(self):
        """Let ranks of the node overwrite their rows, unless sums are among them."""
        if self.alone:
            self.exchange.release()

    def discard(self):
        self.buffers.discard()

    @property
    def sources(self):
        return [*self.ghosts]

    @property
    def ghost_counts(self):
        """Number of rows of each source, a dict in the order of ghosts."""
        return {source: place.stop - place.start for source, place in self.ghosts.items()}

    @property
    def incoming(self):
        """Receive buffer of the messages under way, (rows, width)."""
        return self.exchange.channel.incoming

    @property
    def outgoing(self):
        """Send buffer that is filled, (rows, width)."""
        return self.exchange.filling.outgoing

    @property
    def ghost_positions(self):
        """Row of these two buffers that each ghost has, (g,) int64."""
        places = [np.arange(place.start, place.stop) for place in self.ghosts.values()]
        return np.concatenate([np.empty(0, np.int64), *places])

    @cached_property
    def returned(self):
        """Own rows that each rank reads, and for which it returns partial sums: their
        numbers, in a list by rank.
        """
        cuts = pairwise(self.plan.send_offsets.tolist())
        return [rows_of(self.send_rows, first, last) for first, last in cuts]

    @cached_property
    def message_transfer(self):
        # Of two that share messages, one takes their buffers.
        if self.alone:
            return self
        buffers = self.buffers
        if self.adjoint:
            buffers = HaloBuffers(buffers.device, self.comm.stager, buffers.dtype, buffers.sums)
        return HaloExchange(self.plan, self.comm, buffers)

    def close(self):
        """Free the requests; afterwards neither transfer of the exchange can be used."""
        self.exchange.close()
        if not self.alone and "message_transfer" in vars(self):
            self.message_transfer.close()


def slices_of(first, counts):
    """Return a slice of `counts` rows from `first` on for each rank that has some, a dict."""
    return {q: slice(int(first[q]), int(first[q] + counts[q]))
            for q in np.flatnonzero(counts).tolist()}


def joined_transfers(pull, push, comm, buffers):
    """Return the transfers of two HaloPlans in common messages: rows by `pull`, sums by the
    transpose of `push`.

    One message goes to rank q: first this rank's rows that q reads, then this rank's
    sums for rows of q. The first transfer pulls, and the second pushes, in a product
    with A.
    """
    owned = pull.send_offsets + push.recv_offsets
    ghost = pull.recv_offsets + push.send_offsets
    read, summed = np.diff(pull.send_offsets), np.diff(pull.recv_offsets)
    exchange = Exchange((owned, ghost), (np.diff(push.recv_offsets), summed), comm, buffers)
    return (HaloExchange(pull, comm, buffers, exchange, False, (owned, ghost)),
            HaloExchange(push, comm, buffers, exchange, True,
                         (ghost[:-1] + summed, owned[:-1] + read)))
