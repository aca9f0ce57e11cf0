"""Messages of an exchange between single ranks.

Requests are persistent, and bound to two buffers. A GPU packs its rows itself; if MPI
takes no GPU memory, requests are bound to pinned host views of the buffers. Ranks of a
node may read each other's rows in shared memory.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.comm import collectives
from hpgcn.comm.repeated import repeated
from hpgcn.comm.staging import RECEIVE, SEND, Messages, StagedCopy
from hpgcn.runtime.device import address

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.comm.local_mpi import Prequest
    from hpgcn.parallel.workspace import HaloBuffers


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
    """Messages of an exchange, in two buffers.

    There is at most one each way for a pair of ranks. `ends` has the offsets by rank of
    the rows in the owned and in the ghost buffer; two (P + 1,). `sums[d][q]`: how many
    of the rows sent to rank q are partial sums; d = 0 in pulls, 1 in pushes. `tags` are
    those of messages in pulls and in pushes. They differ between exchanges that are
    under way at the same time.
    """

    tags = 1, 2

    def __init__(self, ends: tuple[np.ndarray, np.ndarray], sums: tuple[np.ndarray, np.ndarray],
                 comm: SerialComm, buffers: HaloBuffers) -> None:
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

    def reserve(self, width: int) -> None:
        """Allocate the buffers for rows of `width` columns."""
        self._reserve(width * (self.buffers.words if self.buffers.pushes else 1))

    def _reserve(self, words: int) -> None:
        self.buffers.reserve(*(int(offsets[-1]) * words for offsets in self.ends))

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return self.buffers.owned.nbytes + self.buffers.ghost.nbytes

    @property
    def pending(self) -> bool:
        """Whether messages are under way."""
        return self.channel is not None and bool(self.channel.pending)

    @repeated
    def progress(self) -> None:
        """Let messages progress: MPI moves them only within its calls."""
        if self.pending:
            with self.comm.clock("comm"):
                self.comm.test(self.channel.requests, self.channel.pending)

    @repeated
    def begin(self, width: int, adjoint: bool) -> Channel:
        """Return the channel of a width and a direction, to fill it."""
        self.filling = self._channel(width, adjoint)
        return self.filling

    @repeated
    def launch(self) -> None:
        """Send the filled buffers."""
        self._start(self.filling)
        self.channel = self.filling

    @repeated
    def wait_for(self, source: int, what: str) -> None:
        """Wait for the message of rank `source`, which must send one."""
        pieces = self.channel.pieces.get(source, ())
        self._wait(self.channel, self.channel.pending.intersection(pieces), what)
        if self.stager is not None:
            self.channel.requests.wait_for_copies()

    def received(self, source: int, place: slice | None = None) -> np.ndarray:
        """Return the rows that rank `source` sent.

        `place` is their slice of the receive buffer, None for all rows.
        """
        channel = self.channel
        first, last = channel.cuts[source:source + 2].tolist()
        place = place or slice(first, last)
        if source in channel.near:
            return channel.near[source][place.start - first:place.stop - first]
        return channel.incoming[place]

    def arriving(self, what: str) -> Iterator[int]:
        """Yield ranks as their messages arrive; then wait for all sends."""
        channel = self.channel
        for source in channel.pieces:
            self.wait_for(source, what)
            yield source
        self.wait_for_all(what)

    @repeated
    def wait_for_all(self, what: str) -> None:
        """Wait for all messages, received and sent ones."""
        self._wait(self.channel, set(self.channel.pending), what)

    @repeated
    def release(self) -> None:
        """Let ranks of the node overwrite their rows; else the next exchange does so."""
        if self.memory is not None:
            self.memory.release()

    def _wait(self, channel: Channel, numbers: set[int], what: str) -> None:
        def describe(pending: list[int]) -> str:
            ranks = sorted({channel.others[number] for number in pending})
            return f"rank(s) {', '.join(map(str, ranks))} in {what}"

        if numbers:
            waited = set(numbers)
            self.comm.wait(channel.requests, describe, waited)
            channel.pending -= numbers

    def _start(self, channel: Channel) -> None:
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

    def _channel(self, width: int, adjoint: bool) -> Channel:
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

    def _requests(self, kind: str, buffer: np.ndarray, host_view: np.ndarray, cuts: np.ndarray,
                  tag: int, requests: list[Prequest]) -> tuple[list, dict]:
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
                    request.copied = partial(self.buffers.device.discard, flat[piece])
                if self.stager is not None:
                    host = address(host_view[piece]) if self.buffers.pinned else 0
                    way = RECEIVE if kind == "Recv_init" else SEND
                    device = address(flat[piece])
                    size = flat[piece].nbytes
                    requests.copies.append(StagedCopy(request.Start, device, host, size, way))
                requests.append(request)
                others.append(other)

        return others, pieces

    def close(self) -> None:
        """Free the requests; afterwards the exchange cannot be used."""
        for channel in self.channels.values():
            for request in channel.requests:
                request.Free()
        self.channels = {}
        self.channel = self.filling = None
