"""A halo exchange whose rows pass through a Spool, one rank after another."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hpgcn import kernels
from hpgcn.parallel.halo_exchange import HaloExchange, nearest_first
from hpgcn.parallel.transfers import LOCAL

if TYPE_CHECKING:
    from hpgcn.comm.spool import Message


class SpooledExchange(HaloExchange):
    """The HaloExchange of ranks that have a Spool (hpgcn.comm.spool).

    It has no buffers. Rows for a rank are sent before those for the next one are
    gathered. Received rows are in memory until the next ones are needed.
    """

    pending = False
    width = 0

    def reserve(self, width: int) -> None:
        """Note the width of attention's buffers; other messages have memory while they move."""
        self.width = width

    @cached_property
    def message_transfer(self) -> HaloExchange:
        # attention keeps the rows of several ranks
        transfer = HaloExchange(self.plan, self.comm, self.buffers)
        transfer.reserve(self.width)
        return transfer

    def start(self, H: np.ndarray, what: str) -> None:
        """Send rows of H (m, f) to their readers."""
        self.H = H
        self.sent = []
        gather = kernels.backend(H).gather
        for reader in self.rows:
            message = self._message(self.rows, reader, H.shape[1], H.dtype)
            with self.comm.clock("comm"):
                gather(H, self.returned[reader], message.array)
            self._put(reader, message)
        self._count(())

    def received_rows(self, wanted: Iterable[int],
                      what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (LOCAL, own rows), then (source, rows from it), which are valid until the next."""
        if LOCAL in wanted:
            yield LOCAL, self.H
        sources = nearest_first(self.comm, self.ghosts)
        for source, rows in self._arriving(sources, what):
            if source in wanted:
                yield source, rows

    def multiplied(self, source: int) -> None:
        """Do nothing: the rows go with the next ones."""

    def partial_sums(self, out: np.ndarray, what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (source, array for partial sums of its rows), then (LOCAL, out)."""
        self.sent = []
        for source in self.ghosts:
            self.filled = self._message(self.ghosts, source, out.shape[1], self.buffers.sums)
            yield source, self.filled.array
        self._count(self.sent)
        yield LOCAL, out

    def send(self, target: int) -> None:
        """Send the array that was yielded last to rank `target`."""
        if target != LOCAL:
            self._put(target, self.filled)

    def finish(self, out: np.ndarray, what: str) -> None:
        """Add the returned partial sums to `out`, in the order of ranks."""
        scatter_add = kernels.backend(out).scatter_add
        for source, rows in self._arriving([*self.rows], what):
            with self.comm.clock("comm"):
                scatter_add(rows, self.returned[source], out)

    def _message(self, places: dict[int, slice], rank: int, width: int,
                 dtype: np.dtype) -> Message:
        place = places[rank]
        return self.comm.spool.message(place.stop - place.start, width, dtype)

    def _put(self, target: int, message: Message) -> None:
        ranks = self.comm.ranks
        with self.comm.clock("comm"):
            self.comm.spool.put(ranks[self.comm.rank], ranks[target], message)
        self.sent.append((ranks[target], message.nbytes))

    def _count(self, sums: Sequence) -> None:
        self.comm.counters.add("aggregation", sum(nbytes for _, nbytes in self.sent),
                               len(self.sent), self.sent, sums)

    def _arriving(self, sources: list[int], what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (source, rows from it) in order; the next ones are read in the meantime."""
        comm, spool = self.comm, self.comm.spool
        pairs = [(comm.ranks[source], comm.ranks[comm.rank]) for source in sources]
        for source, pair, following in zip(sources, pairs, [*pairs[1:], None]):
            comm.wait([spool.arrival(*pair)], lambda _, pair=pair: f"rank {pair[0]} in {what}")
            with comm.clock("comm"):
                spool.read_ahead(*pair)
                if following:
                    spool.read_ahead(*following)
                message = spool.take(*pair)
            yield source, message.array
            spool.release(message)
