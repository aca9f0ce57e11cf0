"""Transfers whose rows pass through a Spool (hpgcn.comm.spool), one rank after another.

They have no buffers. Rows for a rank are sent before those for the next one are gathered.
Received rows are in memory until the next ones are needed.
"""
from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn import kernels
from hpgcn.comm.local_mpi import SUM, reduced
from hpgcn.kernels.host.record import ALL, derived, repeat
from hpgcn.parallel.halo_exchange import HaloExchange, come_first, nearest_first
from hpgcn.parallel.transfers import LOCAL, StagedRows, Transfer

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.comm.spool import Arrival, Message
    from hpgcn.kernels import Array
    from hpgcn.parallel.halo_plan import HaloPlan
    from hpgcn.parallel.workspace import HaloBuffers


class SpooledExchange(HaloExchange):
    """The HaloExchange of ranks that have a Spool.

    With a `partner` it counts its sums and the rows of that as one message to each rank.
    """

    pending = False
    partner: SpooledExchange | None = None
    others: Sequence[int] = ()  # see `await_with_rows`

    @property
    def senders(self) -> list[int]:
        """Ranks that send rows."""
        return [*self.ghosts]

    def _others(self) -> Sequence[int]:
        others, self.others = self.others, ()
        return others

    def reserve(self, width: int) -> None:
        """Do nothing: messages have memory while they move."""

    @cached_property
    def message_transfer(self) -> HaloExchange:
        return SpooledExchange(self.plan, self.comm, self.buffers) if self.partner else self

    def start(self, H: np.ndarray, what: str) -> None:
        """Send rows of H (m, f) to their readers."""
        self.H = H
        self.sent: list[tuple[int, int]] = []
        gather = kernels.backend(H).gather
        for reader, place in self.rows.items():
            message = self._message(place, H.shape[1], H.dtype)
            with self.comm.clock("comm"):
                gather(H, self.returned[reader], message.array)
            self.sent.append(send(self.comm, [reader], message))
        if not self.partner:
            count(self.comm, self.sent)

    def received_rows(self, wanted: Iterable[int],
                      what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (LOCAL, own rows), then (source, rows from it), which are valid until the next."""
        if LOCAL in wanted:
            yield LOCAL, self.H
        others = [*self.partner.rows] if self.partner else self._others()
        for source, rows in arriving(self.comm, nearest_first(self.comm, self.ghosts), what,
                                     others):
            if source in wanted:
                yield source, rows

    def multiplied(self, source: int) -> None:
        """Do nothing: the rows go with the next ones."""

    def partial_sums(self, out: np.ndarray, what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (source, array for partial sums of its rows), then (LOCAL, out)."""
        yield from self.send_buffers(out.shape[1])
        yield LOCAL, out

    def send_buffers(self, width: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (source, array for partial sums of its rows)."""
        self.sent = []
        for source, place in self.ghosts.items():
            self.filled = self._to_fill(place, width, self.buffers.sums)
            yield source, self.filled.array
        rows = self.partner.sent if self.partner else []
        count(self.comm, rows + self.sent, self.sent)

    def send(self, target: int) -> None:
        """Send the array that was yielded last to rank `target`."""
        if target != LOCAL:
            self.sent.append(send(self.comm, [target], self.filled))

    def received_sums(self, what: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (numbers of own rows, partial sums received for them), rank after rank."""
        for source, rows in arriving(self.comm, [*self.rows], what):
            yield self.returned[source], rows

    def _message(self, place: slice, width: int, dtype: np.dtype) -> Message:
        return self.comm.spool.message(place.stop - place.start, width, dtype)

    _to_fill = _message


class SpooledBlock(SpooledExchange):
    """A SpooledExchange whose rows of all other ranks are one block under the number `block`."""

    block: int
    received: Message | None = None  # rows of all other ranks

    def __init__(self, plan: HaloPlan, comm: SerialComm, buffers: HaloBuffers) -> None:
        super().__init__(plan, comm, buffers)
        self.parts = self.ghosts
        self.ghosts = {self.block: slice(0, plan.ghosts.size)} if plan.ghosts.size else {}

    @property
    def senders(self) -> list[int]:
        return [*self.parts]

    def collect(self, what: str) -> None:
        """Wait for the rows of all other ranks, then put them together."""
        if not self.ghosts or self.received:
            return
        place, = self.ghosts.values()
        sources = nearest_first(self.comm, self.parts)
        # a block that is begun would be in memory
        await_all(self.comm, [*sources, *self._others()], what)
        for source, rows in arriving(self.comm, sources, what):
            if self.received is None:
                self.received = self._to_fill(place, rows.shape[1], rows.dtype)
            repeat(operator.setitem, self.received.array, self.parts[source], rows)

    def received_rows(self, wanted: Iterable[int],
                      what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (LOCAL, own rows), then (block, rows of all other ranks)."""
        self.collect(what)
        if LOCAL in wanted:
            yield LOCAL, self.H
        if self.received and self.block in wanted:
            yield self.block, self.received.array

    def multiplied(self, source: int) -> None:
        """Let go of the rows of other ranks."""
        if source != LOCAL and self.received:
            self.comm.spool.release(self.received)
            self.received = None

    def send(self, target: int) -> None:
        """Send the parts of the array that was yielded last to their ranks."""
        if target == LOCAL:
            return
        for source, place in self.parts.items():
            part = self._message(place, self.filled.shape[1], self.filled.dtype)
            repeat(operator.setitem, part.array, ALL, self.filled.array[place])
            self.sent.append(send(self.comm, [source], part))
        self.comm.spool.release(self.filled)

    def _to_fill(self, place: slice, width: int, dtype: np.dtype) -> Message:
        return self.comm.spool.block(place.stop - place.start, width, dtype)


class SpooledStages(StagedRows):
    """The StagedRows of ranks that have a Spool; each rank has a stage."""

    pending = False

    def reserve(self, width: int) -> None:
        """Do nothing: messages have memory while they move."""

    def start(self, H: np.ndarray, what: str) -> None:
        """Send H to all other ranks."""
        self.H = H
        if len(H) and self.comm.size > 1:
            readers = [rank for rank in range(self.comm.size) if rank != self.comm.rank]
            message = self.comm.spool.message(*H.shape, H.dtype)
            repeat(operator.setitem, message.array, ALL, H)
            _, nbytes = send(self.comm, readers, message)
            count(self.comm, [(self.comm.ranks[reader], nbytes) for reader in readers])

    def received_rows(self, wanted: Iterable[int], what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (stage, rows of that stage): own rows at once, then the others in order."""
        yield self.own, self.H
        others = [stage for stage in range(len(self.heights)) if stage != self.own]
        found = arriving(self.comm, [stage for stage in others if self.heights[stage]], what)
        for stage in others:
            yield next(found) if self.heights[stage] else (stage, self.H[:0])
        next(found, None)  # lets go of the last one

    def partial_sums(self, out: np.ndarray, what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (stage, array for its partial sums)."""
        sent = []
        for stage, rows in enumerate(self.heights):
            if stage == self.own or not rows:
                yield stage, out if stage == self.own else out[:0]
                continue
            message = self.comm.spool.message(rows, out.shape[1], out.dtype)
            yield stage, message.array
            sent.append(send(self.comm, [stage], message))
        count(self.comm, sent)

    def send(self, target: int) -> None:
        """Do nothing: the sums are sent before the next ones are formed."""

    def finish(self, out: np.ndarray, what: str) -> None:
        """Add the sums of all ranks to `out`, in the order of a reduction by MPI."""
        if not len(out):
            return
        others = [rank for rank in range(self.comm.size) if rank != self.own]
        await_all(self.comm, others, what)  # sums that are begun would be in memory all the time
        with self.comm.device.in_memory():
            own = derived(np.copy, out)

            def parts() -> Iterator[np.ndarray]:
                received = arriving(self.comm, others, what)
                for rank in range(self.comm.size):
                    yield own if rank == self.own else next(received)[1].copy()
                next(received, None)  # lets go of the last one

            repeat(operator.setitem, out, ALL, reduced(parts(), self.comm.size, SUM, self.own))


def joined_by_spool(pull: HaloPlan, push: HaloPlan, comm: SerialComm,
                    buffers: HaloBuffers) -> tuple[SpooledExchange, SpooledExchange]:
    """Return transfers like those of `joined_transfers`, by the Spool."""
    first, second = (SpooledExchange(plan, comm, buffers) for plan in (pull, push))
    first.partner, second.partner = second, first
    return first, second


def send(comm: SerialComm, targets: list[int], message: Message, *,
         soon: bool = True) -> tuple[int, int]:
    """Send a Message to ranks; return the number of the last one, and the bytes.

    `soon` as in `Spool.put`.
    """
    numbers = [comm.ranks[target] for target in targets]
    with comm.clock("comm"):
        comm.spool.put(comm.ranks[comm.rank], numbers, message, soon=soon)
    return numbers[-1], message.nbytes


def send_part(comm: SerialComm, targets: list[int], shape: tuple[int, ...], dtype: DTypeLike,
              fill: Callable) -> None:
    """Send an array that `fill` writes to ranks, which take it once all ranks have sent theirs.

    An empty array is not sent.
    """
    rows, width = shape
    if rows and width:
        message = comm.spool.message(rows, width, dtype)
        fill(message.array)
        send(comm, targets, message, soon=False)


def send_rows(comm: SerialComm, targets: list[int], rows: Array) -> None:
    """Send rows to ranks as `send_part` does."""
    send_part(comm, targets, rows.shape, rows.dtype,
              lambda to: repeat(operator.setitem, to, ALL, rows))


def add_parts(comm: SerialComm, sources: list[int], out: np.ndarray, what: str) -> None:
    """Write the sum of the arrays of ranks to `out`, in their order; it may be empty."""
    if out.size:
        received = arriving(comm, sources, what)
        repeat(operator.setitem, out, ALL, next(received)[1])
        for _, part in received:
            repeat(operator.iadd, out, part)


def count_call(comm: SerialComm, sizes: dict[int, int], *, sums: bool = False,
               kind: str = "aggregation") -> None:
    """Count a collective call; `sizes` has the bytes to each rank, its own ones included."""
    sent = [(comm.ranks[rank], nbytes) for rank, nbytes in sizes.items()
            if nbytes and rank != comm.rank]
    comm.counters.add(kind, sum(nbytes for _, nbytes in sent), len(sent), sent,
                      sent if sums else ())


def count(comm: SerialComm, sent: list[tuple[int, int]], sums: Sequence = ()) -> None:
    """Count messages, (rank, bytes) each, of which some have partial sums; one for each rank."""
    to: dict[int, int] = {}
    for rank, nbytes in sent:
        to[rank] = to.get(rank, 0) + nbytes
    comm.counters.add("aggregation", sum(to.values()), len(to), [*to.items()], sums)


def arriving(comm: SerialComm, sources: list[int], what: str,
             others: Sequence[int] = ()) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (source, rows from it) in order; the next ones are read in the meantime.

    It waits for those that `come_first`, which are there in a pass. Then it waits for all
    other ones, and for a message of each rank in `others`.
    """
    spool = comm.spool
    first = come_first(comm, sources)
    for part, more in (first, ()), (sources[len(first):], others):
        await_all(comm, [*part, *more], what)
        pairs = [(comm.ranks[source], comm.ranks[comm.rank]) for source in part]
        spool.will_take(pairs)
        for place, source in enumerate(part):
            with comm.clock("comm"):
                spool.read_ahead(pairs[place:place + spool.most_ahead])
                message = spool.take(*pairs[place])
            yield source, message.array
            spool.release(message)


def next_turn(comm: SerialComm, sources: list[int], what: str, *ends: Any) -> None:
    """End a segment, and begin the next one once messages of ranks are there.

    A rank that is in the list twice sends two. `ends` as in `SerialComm.end_segment`.
    """
    comm.next_turn(*awaited(comm, sources, what), *ends)


def await_with_rows(transfer: Transfer, others: Callable) -> None:
    """Let the next wait for rows be one for a message of each of `others()` as well.

    Nothing changes without a Spool.
    """
    if isinstance(transfer, SpooledExchange):
        transfer.others = [*others()]


def await_all(comm: SerialComm, sources: list[int], what: str) -> None:
    """Wait for messages of some ranks: two if a rank is in the list twice."""
    comm.wait(*awaited(comm, sources, what))


def awaited(comm: SerialComm, sources: list[int], what: str) -> tuple[list[Arrival], Callable]:
    """Return requests for messages of ranks, and a function that describes pending ones."""
    counts = Counter(sources)
    names = [*counts]
    return ([comm.spool.arrival(comm.ranks[source], comm.ranks[comm.rank], count)
             for source, count in counts.items()],
            lambda pending: f"rank(s) {', '.join(str(names[place]) for place in pending)} "
            f"in {what}")
