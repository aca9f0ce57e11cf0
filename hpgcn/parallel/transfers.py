"""Transfers of rows between their owners and the ranks that multiply by them.

A transfer has two directions, each the transpose of the other. A pull brings rows of H
from their owners to the ranks that read them:

    pull.start(H, what)
    for source, rows in pull.received_rows(wanted, what):
        multiply by rows

A push brings partial sums to the owners of their rows, which add them:

    for target, Z in push.partial_sums(out, what):
        fill Z
        push.send(target)
    push.finish(out, what)                              now `out` is complete

Sources and targets are numbers that blocks of A are kept under; the rank's own rows are
LOCAL. Beside these methods a transfer has

    adds        whether a push adds to what the rank has formed itself
    pending     whether messages are under way, which `progress` lets move
    collect     waits for all rows, if they are one block and pass through a Spool
    multiplied  notes that rows of a source are not read again
    send_rows   the numbers of the rows that a pull sends, if it gathers them
    discard     drops what the buffers contain, after a product
    reserve     makes the buffers for rows of a width
    nbytes      bytes of the buffers, which the two transfers of a product share
    release     notes that pulled rows are not read any more

Each transfer has a plan class: the (bytes, messages) that all ranks send in each call,
and `buffer_rows`. It is pure, by rank in the shape of its grid.
hpgcn.parallel.halo_exchange has the transfer of single rows to their readers.
"""
from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.kernels.host.record import ALL, repeat
from hpgcn.parallel.counts import broadcasts, reduce_scatter, reduces, replicate, spooled
from hpgcn.parallel.layout import split

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.parallel.counts import Collective
    from hpgcn.parallel.csr import Csr
    from hpgcn.parallel.workspace import Workspace

LOCAL = -1


class Transfer:
    """Base class of transfers, with buffers in a workspace."""

    adds = True
    workspace = buffers = None
    sources = ()  # sources of rows that other ranks own
    send_rows: Array = np.empty(0, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return self.workspace.nbytes if self.workspace else 0

    @property
    def message_transfer(self) -> Transfer:
        """The transfer with messages of its own: itself, unless it shares them with another."""
        return self

    def rows_for(self, target: int, wanted: dict[int, Csr], what: str) -> Iterable[tuple]:
        """Return the pairs of `received_rows` for the partial sums of a target."""
        return self.received_rows(wanted, what)

    def collect(self, what: str) -> None:
        """Wait for all rows. Default: they arrive as they are used."""

    def multiplied(self, source: int) -> None:
        """Note that rows of `received_rows` are not read again. Default: do nothing."""

    def close(self) -> None:
        """Do nothing: there are no MPI objects to free."""

    release = discard = close


class OwnRows(Transfer):
    """Transfer without messages: each rank reads only rows that it owns."""

    adds = pending = False

    def reserve(self, width: int) -> None:
        """Do nothing: no buffers are needed."""

    def start(self, H: np.ndarray, what: str) -> None:
        """Store H for `received_rows`."""
        self.H = H

    def received_rows(self, wanted: Iterable[int],
                      what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (source, own rows) for each source in `wanted`."""
        for source in wanted:
            yield source, self.H

    def partial_sums(self, out: np.ndarray, what: str) -> list[tuple]:
        """Return [(LOCAL, out)]: all partial sums are of own rows."""
        return [(LOCAL, out)]

    def send(self, target: int) -> None:
        """Do nothing: partial sums stay on this rank."""

    def finish(self, out: np.ndarray, what: str) -> None:
        """Do nothing: nothing arrives."""

    def progress(self) -> None:
        """Do nothing: no message is under way."""


class StagedRows(Transfer):
    """The transfer of rows or sums in stages.

    In stage s rank `first` + s broadcasts its rows, or receives their sums. One of two
    buffers receives while the other is multiplied, or is reduced while the other is
    filled. `heights` are the numbers of rows of each of these ranks. `comm` is the
    communicator of the ranks that take part in the stages. The buffers lie in
    `workspace`; transfers that share it are used one after the other. `sums` is the
    dtype of reduced sums if that is longer than the workspace's, None if nothing is
    reduced.
    """

    def __init__(self, heights: list[int], first: int, comm: SerialComm, workspace: Workspace,
                 sums: DTypeLike = None) -> None:
        self.heights = heights
        self.first = first
        self.comm = comm
        self.workspace = workspace
        self.longest = np.dtype(sums or workspace.dtype)
        stage = comm.rank - first
        self.own = stage if 0 <= stage < len(heights) else None
        self.tallest = max((rows for stage, rows in enumerate(heights) if stage != self.own),
                           default=0)
        self.under_way = deque()  # (stage, buffer or None, rows, collective), in order

    def reserve(self, width: int) -> None:
        """Allocate the buffers for rows of `width` columns."""
        for buffer in self._buffers():
            self._rows_of(buffer, self.tallest, width, self.longest)

    def _buffers(self) -> list[str]:
        others = len(self.heights) - (self.own is not None)
        return [f"stage {number}" for number in range(min(others, 2))]

    def _rows_of(self, buffer: str, rows: int, width: int, dtype: np.dtype) -> np.ndarray:
        flat = self.workspace.flat_as(buffer, self.tallest * width, dtype)
        return flat[:rows * width].reshape(rows, width)

    @property
    def pending(self) -> bool:
        """Whether messages may be under way: there are several ranks."""
        return self.comm.size > 1

    def start(self, H: np.ndarray, what: str) -> None:
        """Start the first broadcasts."""
        self.H = H
        self.free = self._buffers()
        self.waiting = deque(range(len(self.heights)))
        self._broadcast()

    def _broadcast(self) -> None:
        """Start the next broadcasts until all buffers are in use; own rows need none."""
        while self.waiting and (self.waiting[0] == self.own or self.free):
            stage = self.waiting.popleft()
            buffer = None
            rows = self.H
            if stage != self.own:
                buffer = self.free.pop()
                rows = self._rows_of(buffer, self.heights[stage], self.H.shape[1], self.H.dtype)
            handle = self.comm.start_bcast(rows, self.first + stage, "aggregation")
            self.under_way.append((stage, buffer, rows, handle))

    def received_rows(self, wanted: Iterable[int], what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (stage, rows of that stage): own rows at once, then the others in order."""
        clock = self.comm.clock
        if self.own is not None:
            clock.stage = self.first + self.own
            yield self.own, self.H
        while self.under_way:
            stage, buffer, rows, handle = self.under_way.popleft()
            clock.stage = self.first + stage
            handle.wait(f"the broadcast of block {self.first + stage} in {what}")
            if stage != self.own:
                yield stage, rows
                self.free.append(buffer)
            self._broadcast()
        clock.stage = -1

    def partial_sums(self, out: np.ndarray, what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (stage, array for its partial sums) as soon as a buffer is free.

        One array is reduced while the next one is filled.
        """
        self.free = self._buffers()
        if self.own is None:
            repeat(operator.setitem, out, ALL, 0)
        for stage, rows in enumerate(self.heights):
            buffer, partial = None, out
            if stage != self.own:
                while not self.free:
                    self._wait_for_oldest(what)
                buffer = self.free.pop()
                partial = self._rows_of(buffer, rows, out.shape[1], out.dtype)
            self.formed = buffer, partial
            self.comm.clock.stage = self.first + stage
            yield stage, partial

    def send(self, target: int) -> None:
        """Start the reduction of the partial sums that were yielded last, of stage `target`."""
        buffer, partial = self.formed
        handle = self.comm.start_reduce(partial, None, self.first + target, "aggregation")
        self.under_way.append((target, buffer, partial, handle))

    def finish(self, out: np.ndarray, what: str) -> None:
        """Wait for all reductions; that of the own stage completes `out`."""
        while self.under_way:
            self._wait_for_oldest(what)
        self.comm.clock.stage = -1

    def _wait_for_oldest(self, what: str) -> None:
        """Wait for the oldest reduction, and free its buffer."""
        stage, buffer, _, handle = self.under_way.popleft()
        self.comm.clock.stage = self.first + stage
        handle.wait(f"the sum of block {self.first + stage} in {what}")
        if buffer is not None:
            self.free.append(buffer)

    def progress(self) -> None:
        for *_, handle in self.under_way:
            handle.test()


class GatheredRows(Transfer):
    """Transfer of big blocks.

    A pull gathers the pieces of a block, a push sums and scatters them.

    `heights`: (c,) int64, rows of the pieces of the c ranks of `comm`. `inner`: the
    transfer that then sends the big block. `sums`: dtype of the scattered sums, if that
    is longer than the workspace's.
    """

    def __init__(self, heights: np.ndarray, comm: SerialComm, inner: Transfer, workspace: Workspace,
                 sums: DTypeLike = None) -> None:
        self.heights = heights
        self.comm = comm
        self.inner = inner
        self.workspace = workspace
        self.sums = np.dtype(sums or workspace.dtype)
        self.rows = int(heights.sum())

    def reserve(self, width: int) -> None:
        """Allocate the buffers for rows of `width` columns."""
        others = (self.comm.size - 1) * int(self.heights[self.comm.rank])
        self.workspace.flat("whole", self.rows * width)
        self.workspace.flat_as("whole", others * width, self.sums)
        self.workspace.flat_as("partial", self.rows * width, self.sums)
        self.inner.reserve(width)

    @property
    def pending(self) -> bool:
        """Whether messages are under way."""
        return self.inner.pending

    def start(self, H: np.ndarray, what: str) -> None:
        """Gather the big block, then start the inner transfer with it."""
        width = H.shape[1]
        whole = self.workspace.buffer("whole", self.rows, width)
        handle = self.comm.start_allgather(H, whole, self.heights * width, "aggregation")
        handle.wait(f"the rows of a big block in {what}")
        self.inner.start(whole, what)

    def received_rows(self, wanted: Iterable[int], what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the pairs of the inner transfer."""
        yield from self.inner.received_rows(wanted, what)

    def partial_sums(self, out: np.ndarray, what: str) -> list[tuple]:
        """Return the pairs of the inner transfer for partial sums of the big block."""
        return self.inner.partial_sums(self._big_block(out), what)

    def send(self, target: int) -> None:
        """Send by the inner transfer."""
        self.inner.send(target)

    def finish(self, out: np.ndarray, what: str) -> None:
        """Complete the big block, then sum it over the owners of its pieces."""
        partial = self._big_block(out)
        self.inner.finish(partial, what)
        work = self.workspace.flat_as("whole", (self.comm.size - 1) * out.size, out.dtype)
        counts = self.heights * out.shape[1]
        handle = self.comm.start_reduce_scatter(partial, out, counts, "aggregation", work=work)
        handle.wait(f"the sum over replicas in {what}")

    def _big_block(self, out: np.ndarray) -> np.ndarray:
        """Return the array for the sums of the big block of which `out` is a piece."""
        width = out.shape[1]
        partial = self.workspace.flat_as("partial", self.rows * width, out.dtype)
        return partial.reshape(self.rows, width)

    def progress(self) -> None:
        self.inner.progress()


def tiles_of(block: Csr, pull: Transfer, push: Transfer,
             accumulate: bool = False) -> Iterator[tuple]:
    """Yield the tiles of a Csr, and let pending messages progress between them."""
    under_way = pull.pending or push.pending
    for tile in block.tiles(under_way, accumulate):
        yield tile
        if under_way:
            pull.progress()
            push.progress()


class OwnRowsPlan:
    """Plan of OwnRows: nothing is sent."""

    buffer_rows = ghost_rows = largest = 0
    joined = False

    def spooled(self, row_bytes: int, in_files: int, at_once: np.ndarray | bool = True, *,
                pushed: bool = False, rule: Callable = spooled) -> int:
        """Return the bytes that pass through a Spool: 0."""
        return 0

    def held_bytes(self, row_bytes: int, sum_bytes: int, *, reduces: bool) -> int:
        """Return the bytes of the buffers: 0."""
        return 0

    def pull(self, row_bytes: int) -> Iterable:
        """Yield nothing: no message is sent."""
        return iter(())

    push = pull


@dataclass(frozen=True, eq=False)
class StagedPlan:
    """Plan of StagedRows: broadcasts of R big blocks, divided evenly among L replicas."""

    rows: np.ndarray  # (R, L) int64, of each piece
    joined = False  # not a field

    @property
    def largest(self) -> int:
        """Rows of the largest message."""
        return int(self.rows.sum(1).max())

    def spooled(self, row_bytes: int, in_files: int, at_once: np.ndarray | bool = True, *,
                pushed: bool = False, rule: Callable = spooled) -> np.ndarray:
        """Return the bytes that pass through a Spool, as `ExchangeSizes.spooled`.

        A pull writes rows once for all ranks. There are no replicas.
        """
        sizes = np.repeat(self.rows * row_bytes, len(self.rows), axis=1)
        np.fill_diagonal(sizes, 0)
        return rule(sizes if pushed else sizes.T, in_files, at_once=at_once, once=not pushed)

    def held_bytes(self, row_bytes: int, sum_bytes: int, *, reduces: bool) -> np.ndarray:
        """Return the bytes of the buffers, (R, L); `reduces`: sums are reduced in them."""
        return self.buffer_rows * (sum_bytes if reduces else row_bytes)

    def _blocks(self, row_bytes: int) -> np.ndarray:
        whole = self.rows.sum(1, keepdims=True) * row_bytes
        return whole * replica_assignment(*self.rows.shape)

    @property
    def buffer_rows(self) -> np.ndarray:
        """Rows of the buffers, (R, L).

        There are two buffers as tall as the tallest block that arrives, or one if only
        one block arrives.
        """
        R, L = self.rows.shape
        big = self.rows.sum(1)
        tallest = np.zeros((R, L), np.int64)
        bounds = split(R, L).tolist()
        for i in range(R):
            for j in range(L):
                first, last = bounds[j:j + 2]
                others = big[first:last]
                if first <= i < last:
                    others = np.delete(others, i - first)
                tallest[i, j] = others.max(initial=0) * min(2, others.size)
        return tallest

    @property
    def ghost_rows(self) -> np.ndarray:
        """Number of rows that arrive in all stages; (R, L)."""
        arriving = replica_assignment(*self.rows.shape).T @ self.rows.sum(1)
        return arriving - self.rows.sum(1, keepdims=True) * replica_assignment(*self.rows.shape)

    def pull(self, row_bytes: int) -> Iterator[Collective]:
        yield broadcasts(self._blocks(row_bytes), 0)

    def push(self, row_bytes: int) -> Iterator[Collective]:
        yield reduces(self._blocks(row_bytes), 0)


@dataclass(frozen=True, eq=False)
class GatheredPlan:
    """Plan of GatheredRows: pieces of R big blocks, each gathered by its L owners."""

    rows: np.ndarray  # (R, L) int64, of each piece
    inner: object  # plan of the transfer that follows

    def pull(self, row_bytes: int) -> Iterator[Collective | tuple[np.ndarray, np.ndarray]]:
        yield replicate(self.rows * row_bytes, 1)
        yield from self.inner.pull(row_bytes)

    def push(self, row_bytes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield from self.inner.push(row_bytes)
        yield reduce_scatter(self.rows * row_bytes, 1)

    @property
    def ghost_rows(self) -> np.ndarray:
        """Rows of the big blocks that are multiplied, (R, L).

        They are stored in message buffers.
        """
        assigned = replica_assignment(*self.rows.shape)
        return np.broadcast_to(assigned.T @ self.rows.sum(1), self.rows.shape)

    @property
    def buffer_rows(self) -> np.ndarray:
        """Number of rows of the big block, its partial sums and `inner`; (R, L)."""
        return self.held_bytes(1, 1, reduces=False)

    def held_bytes(self, row_bytes: int, sum_bytes: int, *, reduces: bool) -> np.ndarray:
        """Return the bytes of the big block, its sums and the buffers of `inner`, (R, L)."""
        others = (self.rows.shape[1] - 1) * self.rows
        big = self.rows.sum(1, keepdims=True)
        return (self.inner.held_bytes(row_bytes, sum_bytes, reduces=reduces) + big * sum_bytes
                + np.maximum(big * row_bytes, others * sum_bytes))


def replica_assignment(blocks: int, replicas: int) -> np.ndarray:
    """Assign blocks evenly to replicas, in order; return (blocks, replicas) of 0 and 1."""
    replica = np.repeat(np.arange(replicas), np.diff(split(blocks, replicas)))
    return (replica[:, None] == np.arange(replicas)).astype(np.int64)
