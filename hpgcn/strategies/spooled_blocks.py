"""Transfers of big blocks of rows that several ranks own and several multiply, by a Spool.

They do what GatheredRows does (hpgcn.parallel.transfers). But an owner sends its rows once
to all ranks that multiply by them, and each of these sends it one message of sums. Own rows
and sums are messages as well. So nothing but the matrix is read between the two waits.
"""
from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.comm.local_mpi import SUM, reduced
from hpgcn.kernels.host.record import ALL, repeat
from hpgcn.parallel.spooled_exchange import add_parts, arriving, count_call, send_rows
from hpgcn.parallel.transfers import Transfer

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm


class SpooledBlocks(Transfer):
    """The transfer of big blocks of rows, which ranks (group, replica) own in pieces.

    Parameters
    ----------
    heights : (R, c) int64
        Rows of each piece of each big block; rank g c + l owns piece l of block g.
    blocks : dict of int
        Big blocks that this rank multiplies by, by source, in this order.
    readers : list of int
        Ranks that multiply by this rank's own big block.
    comm : hpgcn.comm.SerialComm or MpiComm
    reduces : bool
        Sums are added in the order of a reduction over groups, then of one over replicas.
        Else they are added in the order of replicas.
    """

    pending = False

    def __init__(self, heights: np.ndarray, blocks: dict[int, int], readers: list[int],
                 comm: SerialComm, *, reduces: bool) -> None:
        self.heights = heights
        self.blocks = blocks
        self.readers = readers
        self.comm = comm
        self.reduces = reduces
        self.group, self.replica = divmod(comm.rank, heights.shape[1])
        self.whole: list[tuple[int, np.ndarray]] = []  # the only block that this rank multiplies by

    @property
    def senders(self) -> list[int]:
        """Ranks that send rows, in the order in which they are joined."""
        return [rank for group in self.blocks.values() for rank in self._pieces(group)]

    @property
    def adders(self) -> list[int]:
        """Ranks that send sums for own rows."""
        return self.readers if self.heights[self.group, self.replica] else []

    def reserve(self, width: int) -> None:
        """Do nothing: messages have memory while they move."""

    def start(self, H: np.ndarray, what: str) -> None:
        """Send own rows to their readers."""
        self.row = H[:0]
        send_rows(self.comm, self.readers, H)
        first = self.comm.rank - self.replica
        count_call(self.comm, dict.fromkeys(range(first, first + self.heights.shape[1]), H.nbytes))
        if self.reduces and self.group in self.blocks.values():
            whole = int(self.heights[self.group].sum())
            count_call(self.comm, dict.fromkeys(self.readers, whole * H.shape[1] * H.itemsize))

    def received_rows(self, wanted: Iterable[int], what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (source, rows of its big block), which are valid until the next."""
        yield from self.whole
        if self.whole:
            return
        parts = arriving(self.comm, self.senders, what)
        if self.blocks:
            joined = self._empty([*self.blocks.values()], self.row.shape[1], self.row.dtype)
        for source, group in self.blocks.items():
            rows = joined[:int(self.heights[group].sum())]
            for place in self._pieces(group).values():
                repeat(operator.setitem, rows, place, next(parts)[1])
            if len(self.blocks) == 1:
                self.whole = [(source, rows)]
            yield source, rows
        next(parts, None)  # lets go of the last one

    def release(self) -> None:
        """Note that received rows are not read any more."""
        self.whole = []

    def partial_sums(self, out: np.ndarray, what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (target, array for the partial sums of its big block)."""
        for target, group in self.blocks.items():
            self.filled = self._empty([group], out.shape[1], out.dtype)
            yield target, self.filled
        self.filled = out[:0]
        count_call(self.comm, {other: (place.stop - place.start) * out.shape[1] * out.itemsize
                     for other, place in self._pieces(self.group).items()}, sums=True)

    def send(self, target: int) -> None:
        """Send the sums that were yielded last to the owners of their rows."""
        group = self.blocks[target]
        for rank, place in self._pieces(group).items():
            send_rows(self.comm, [rank], self.filled[place])
        if self.reduces:
            root = group * self.heights.shape[1] + self.replica
            count_call(self.comm, {root: self.filled.nbytes})

    def finish(self, out: np.ndarray, what: str) -> None:
        """Add the sums of all ranks to `out`, in the order of messages without a Spool."""
        if not len(out):
            return
        replicas = self.heights.shape[1]
        if self.reduces:
            received = arriving(self.comm, self.readers, what)
            with self.comm.device.in_memory():
                parts = (part.copy() for _, part in received)
                size = int(self.heights[self.group].sum()) * out.shape[1]
                repeat(operator.setitem, out, ALL,
                       reduced(parts, len(self.readers), SUM, self.group, size))
            next(received, None)  # lets go of the last one
        else:
            add_parts(self.comm, self.readers, out, what)
            replicas -= len(self.readers) - 1
        if replicas > 1:  # other ones have zeros, which make a sum of -0 to one of 0
            repeat(operator.iadd, out, 0)

    def _pieces(self, group: int) -> dict[int, slice]:
        """Return the place of each piece that is not empty in a big block, by its owner."""
        rows = self.heights[group]
        ends = np.cumsum(rows).tolist()
        return {group * rows.size + replica: slice(end - height, end)
                for replica, (end, height) in enumerate(zip(ends, rows.tolist())) if height}

    def _empty(self, groups: list[int], width: int, dtype: DTypeLike) -> np.ndarray:
        """Return an array for the rows of each of some big blocks."""
        rows = int(self.heights[groups].sum(1).max())
        with self.comm.device.in_memory():
            return self.comm.device.empty((rows, width), dtype)
