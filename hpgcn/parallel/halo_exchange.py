"""Halo exchange: a pull sends rows to their readers, a push sends partial sums to their owners.

An Exchange has the messages; a HaloExchange is the transfer of one HaloPlan in them.
Two transfers may share their messages (`joined_transfers`): one pulls rows while the
other pushes sums. That works if partial sums for other ranks read only own rows of H,
because they are then computed before anything arrives. In the transpose the two swap.

Received rows are used in a fixed order, those of the same node first. So sums have a
fixed order, and the same command gives the same bits. The transpose of a copy is an
accumulation: a push sends along the swapped lists, and its receiver adds.

Sources: demirci-2022, Algorithms 1 and 2; Kayaaslan, Aykanat and Ucar, SIAM J. Sci.
Comput. 40(4), 2018.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

import numpy as np

from hpgcn import kernels
from hpgcn.parallel.csr import rows_of
from hpgcn.parallel.exchange import Exchange
from hpgcn.parallel.halo_plan import HaloPlan
from hpgcn.parallel.transfers import LOCAL, Transfer
from hpgcn.parallel.workspace import HaloBuffers

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.parallel.csr import Csr


def nearest_first(comm: SerialComm, ranks: Iterable[int]) -> list[int]:
    """Return the list of ranks in the order in which their rows are used.

    Ranks of this node come first, because their rows arrive sooner. Both ranks of this node
    and those of other nodes are increasing.
    """
    nodes = comm.nodes
    return sorted(ranks, key=lambda rank: (nodes[rank] != nodes[comm.rank], rank))


def come_first(comm: SerialComm, sources: Iterable[int]) -> list[int]:
    """Return the first of some ranks, those of this process that run before this rank.

    Their rows have arrived once it has the turn.
    """
    own = comm.ranks[comm.rank]
    return [*takewhile(lambda source: own - comm.turn <= comm.ranks[source] < own, sources)]


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

    def __init__(self, plan: HaloPlan, comm: SerialComm, buffers: HaloBuffers,
                 shared: Exchange | None = None, adjoint: bool = False,
                 places: tuple | None = None) -> None:
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

    def reserve(self, width: int) -> None:
        """Allocate the buffers for rows of `width` columns."""
        self.exchange.reserve(width)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return self.exchange.nbytes

    @property
    def pending(self) -> bool:
        """Whether messages are under way."""
        return self.exchange.pending

    def progress(self) -> None:
        """Let messages progress."""
        self.exchange.progress()

    def start(self, H: np.ndarray, what: str) -> None:
        """Start sending rows of H (m, f) to their readers.

        Messages shared with another transfer are sent once its sums are filled in.
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

    def received_rows(self, wanted: Iterable[int],
                      what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (LOCAL, own rows), then (source, rows from it).

        Sources are those in `wanted`, in the order of `nearest_first`.
        """
        if LOCAL in wanted:
            yield LOCAL, self.H
        for source in nearest_first(self.comm, self.ghosts):
            if source in wanted:
                self.exchange.wait_for(source, what)
                yield source, self.exchange.received(source, self.ghosts[source])
        if self.alone:
            self.exchange.wait_for_all(what)

    def rows_for(self, target: int, wanted: dict[int, Csr], what: str) -> Iterable[tuple]:
        # Sums for another rank wait for nothing if they read own rows only.
        if target != LOCAL and wanted.keys() == {LOCAL}:
            return [(LOCAL, self.H)]
        return self.received_rows(wanted, what)

    def multiplied(self, source: int) -> None:
        """Drop the rows of a source."""
        if source != LOCAL:
            self.buffers.device.discard(self.incoming[self.ghosts[source]])

    def partial_sums(self, out: np.ndarray, what: str) -> list[tuple]:
        """Return pairs (source, buffer for partial sums of its rows).

        The last pair is (LOCAL, out).
        """
        return [*self.send_buffers(out.shape[1]), (LOCAL, out)]

    def send_buffers(self, width: int) -> list[tuple]:
        """Return (source, buffer of the partial sums to return) for each source.

        A buffer is (rows, width).
        """
        outgoing = self.exchange.begin(width, not self.adjoint).outgoing
        self.unsent = set(self.ghosts)
        self._launch_if_filled()
        return [(source, outgoing[place]) for source, place in self.ghosts.items()]

    def send(self, target: int) -> None:
        """Mark the buffer for rank `target` as filled.

        All buffers are sent once the last one is filled.
        """
        if target != LOCAL:
            self.unsent.remove(target)
            self._launch_if_filled()

    def _launch_if_filled(self) -> None:
        if not self.unsent:
            with self.comm.clock("comm"):
                self.exchange.launch()

    def finish(self, out: np.ndarray, what: str) -> None:
        """Add the returned partial sums to `out`, in the order of ranks."""
        scatter_add = kernels.backend(out).scatter_add
        for numbers, rows in self.received_sums(what):
            with self.comm.clock("comm"):
                scatter_add(rows, numbers, out)
        self.exchange.release()

    def received_sums(self, what: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (numbers of own rows, partial sums received for them), rank after rank."""
        for source in self.exchange.arriving(what):
            if source in self.rows:
                rows = self.exchange.received(source, self.rows[source])
                yield self.returned[source], rows
                if self.alone and source not in self.exchange.channel.near:
                    self.buffers.device.discard(rows)

    def release(self) -> None:
        """Let ranks of the node overwrite rows, unless sums follow."""
        if self.alone:
            self.exchange.release()

    def discard(self) -> None:
        self.buffers.discard()

    @property
    def sources(self) -> list[int]:
        return [*self.ghosts]

    @property
    def ghost_counts(self) -> dict[int, int]:
        """Number of rows of each source, a dict in the order of ghosts."""
        return {source: place.stop - place.start for source, place in self.ghosts.items()}

    @property
    def incoming(self) -> np.ndarray:
        """Receive buffer of the messages under way, (rows, width)."""
        return self.exchange.channel.incoming

    @property
    def outgoing(self) -> np.ndarray:
        """Send buffer that is filled, (rows, width)."""
        return self.exchange.filling.outgoing

    @property
    def ghost_positions(self) -> np.ndarray:
        """Row of these two buffers that each ghost has, (g,) int64."""
        places = [np.arange(place.start, place.stop) for place in self.ghosts.values()]
        return np.concatenate([np.empty(0, np.int64), *places])

    @cached_property
    def returned(self) -> list[np.ndarray]:
        """Numbers of the own rows that each rank reads and returns sums for, by rank."""
        cuts = pairwise(self.plan.send_offsets.tolist())
        return [rows_of(self.send_rows, first, last) for first, last in cuts]

    @cached_property
    def message_transfer(self) -> HaloExchange:
        # If two share messages, one takes their buffers.
        if self.alone:
            return self
        buffers = self.buffers
        if self.adjoint:
            buffers = HaloBuffers(buffers.device, self.comm.stager, buffers.dtype, buffers.sums)
        return HaloExchange(self.plan, self.comm, buffers)

    def close(self) -> None:
        """Free the requests; afterwards neither transfer of the exchange can be used."""
        self.exchange.close()
        if not self.alone and "message_transfer" in vars(self):
            self.message_transfer.close()


def slices_of(first: np.ndarray, counts: np.ndarray) -> dict[int, slice]:
    """Return the slices of `counts` rows from `first` on, by rank; leave out empty ones."""
    return {q: slice(int(first[q]), int(first[q] + counts[q]))
            for q in np.flatnonzero(counts).tolist()}


def joined_transfers(pull: HaloPlan, push: HaloPlan, comm: SerialComm,
                     buffers: HaloBuffers) -> tuple[HaloExchange, HaloExchange]:
    """Return the transfers of two HaloPlans that share messages.

    They send rows by `pull`, and sums by the transpose of `push`. One message goes to
    rank q: first this rank's rows that q reads, then this rank's sums for rows of q.
    The first transfer pulls, and the second pushes, in a product with A.
    """
    owned = pull.send_offsets + push.recv_offsets
    ghost = pull.recv_offsets + push.send_offsets
    read, summed = np.diff(pull.send_offsets), np.diff(pull.recv_offsets)
    exchange = Exchange((owned, ghost), (np.diff(push.recv_offsets), summed), comm, buffers)
    return (HaloExchange(pull, comm, buffers, exchange, False, (owned, ghost)),
            HaloExchange(push, comm, buffers, exchange, True,
                         (ghost[:-1] + summed, owned[:-1] + read)))
