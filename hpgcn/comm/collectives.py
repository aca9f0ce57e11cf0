"""Non-blocking collectives: they are started, tested, waited for, and counted.

Broadcasts and reductions are MPI's own. The other collectives are messages between
pairs of ranks. Empty blocks send nothing, sums are in rank order with every MPI
library, and no stage waits for a rank that computes. Broadcasts and reductions of GPU
memory are messages as well, if MPI takes GPU memory in messages only.
"""
from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.comm.pending import PIECE_BYTES, Pending, format_ranks
from hpgcn.comm.repeated import started
from hpgcn.comm.staging import RECEIVE, SEND, Messages, MpiCall
from hpgcn.comm.stragglers import unresponsive_ranks
from hpgcn.errors import InternalError, StoppedError
from hpgcn.kernels.host.accesses import accessed
from hpgcn.runtime.device import address

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hpgcn.comm.local_mpi import Request
    from hpgcn.kernels import Array

MAX_MESSAGE_BYTES = 1 << 30  # longer ones go in pieces: not every MPI takes counts past 2^31 - 1
NAP = 5e-5  # seconds that a rank sleeps between two polls
PATIENCE = 1 / 256  # share by which sleep may lengthen a wait for ranks that compute
TAG = 21  # messages of one tag between two ranks arrive in the order of their start
BROADCAST = -1  # the lane of broadcasts as messages


class Collectives:
    """Collectives of `SerialComm` and `MpiComm`; with a single rank nothing is sent.

    All ranks start the same collectives in the same order (all-to-alls: by lane).
    Several may be under way.
    Each `start_...` returns a Pending. Arrays are contiguous, of any shape and one
    dtype in a call. `counts` are the elements (not rows) of each rank's block, the same
    on all ranks. The arrays of a call lie on all ranks in host memory, or on the GPU
    given to `use`. Work that is queued there after `wait` sees the received data.
    Payload counts as `kind` ("aggregation", "dense", "weights"; None: not at all).
    Starting and testing are clocked as "comm", waiting as "wait".
    """

    @started
    def start_bcast(self, array: Array, root: int, kind: str | None) -> Pending:
        """Copy `array` of rank `root` into `array` of all ranks."""
        view = flat(array, "array").view(np.uint8)
        if self.rank == root:
            self._count_blocks(kind, [view] * self.size)
        if self._by_messages(view, "bcast"):
            outgoing = [view if self.rank == root else view[:0]] * self.size
            incoming = [view if rank == root else view[:0] for rank in range(self.size)]
            pending = self._exchange(outgoing, incoming, None, lane=BROADCAST)
        else:
            way = SEND if self.rank == root else RECEIVE
            pending = self._own("bcast", lambda piece: self.mpi.Ibcast(piece, root), view, way,
                                root)
        if not self.overlap:
            pending.wait("a broadcast without overlap")
        return pending

    @started
    def start_reduce(self, array: Array, out: Array | None, root: int, kind: str | None) -> Pending:
        """Sum `array` over ranks into `out` of rank `root`.

        At the root, the sum replaces `array` if `out` is None; other ranks ignore
        `out`. A long array is summed in even pieces of at most PIECE_BYTES, a few at a
        time (hpgcn.comm.pending). No piece is so short that MPI adds it in another order
        than the whole.
        """
        view = flat(array, "array")
        total = None if self.rank != root else view if out is None else flat(out, "out")
        if self._by_messages(view, "reduce"):
            return self._reduce_by_messages(view, total, root, kind)
        if total is None:
            blocks = [view[:0]] * self.size
            blocks[root] = view
            self._count_blocks(kind, blocks)
            return self._own("reduce", lambda piece: self.mpi.Ireduce(
                piece, None, self.MPI.SUM, root), view, SEND, root, name="reduce")

        same_block(view, total, "array", "out")
        with self.clock("comm"):
            place(view, total)
        return self._own("reduce", lambda piece: self.mpi.Ireduce(
            self.MPI.IN_PLACE, piece, self.MPI.SUM, root), total, SEND | RECEIVE, root,
            name="reduce")

    @started
    def start_allreduce(self, array: Array, kind: str | None, op: str = "sum") -> Pending:
        """Replace `array` by its sum, or maximum (op "max"), over ranks.

        It goes in pieces like `start_reduce`, or each rank adds a block in rank order.
        """
        if op not in ("sum", "max"):
            raise InternalError(f"allreduce: op is {op!r}, expected 'sum' or 'max'")
        view = flat(array, "array")
        payload, remainder = divmod(2 * view.nbytes * (self.size - 1), self.size)
        payload += self.rank < remainder
        self.count(kind, payload, (view.size > 0) * 2 * (self.size - 1))
        if self._by_messages(view, "reduce"):
            return self._allreduce_by_messages(view, np.add if op == "sum" else np.maximum)

        def start(piece: Array) -> Request:
            return self.mpi.Iallreduce(self.MPI.IN_PLACE, piece, getattr(self.MPI, op.upper()))

        return self._own("reduce", start, view, SEND | RECEIVE, None, name="reduce")

    @started
    def start_allgather(self, own: Array, out: Array, counts: ArrayLike,
                        kind: str | None) -> Pending:
        """Copy the block of each rank into `out`, in rank order.

        `own` may be this rank's block of `out`.
        """
        own = flat(own, "own")
        blocks = self._blocks(flat(out, "out"), counts, "out")
        same_block(own, blocks[self.rank], "own", "its place in out")
        return self._exchange([own] * self.size, blocks, kind)

    @started
    def start_alltoall(self, send: Array, send_counts: ArrayLike, recv: Array,
                       recv_counts: ArrayLike, kind: str | None, lane: int = 0) -> Pending:
        """Send block q of `send` to rank q, and receive its block.

        Block q of `recv` is the one that rank q sends to this rank. The arrays do not
        overlap. The counts, (P,) ints each, are those of this rank: send_counts[q]
        equals recv_counts[this rank] of rank q. All-to-alls of different lanes (0 to
        20, each a tag) may be started in another order on each rank.
        """
        outgoing = self._blocks(flat(send, "send"), send_counts, "send")
        incoming = self._blocks(flat(recv, "recv"), recv_counts, "recv")
        same_block(outgoing[self.rank], incoming[self.rank],
                   "the own block of send", "the own block of recv")
        return self._exchange(outgoing, incoming, kind, lane=lane)

    @started
    def start_reduce_scatter(self, packed: Array, out: Array, counts: ArrayLike,
                             kind: str | None, work: Array | None = None) -> Pending:
        """Sum `packed` over ranks.

        Rank q gets the sum of block q in `out`, added in rank order.

        The sum is formed when it is waited for. `out`, counts[rank] elements, may lie
        anywhere in `packed`, sum(counts) elements. `work` is room for the blocks of the
        other ranks (default: allocated).
        """
        # check the own block, and make room for the blocks of other ranks
        out = flat(out, "out")
        blocks = self._blocks(flat(packed, "packed"), counts, "packed")
        own_block = blocks[self.rank]
        others = self.size - 1
        same_block(own_block, out, "the own block of packed", "out")
        needed = others * own_block.size
        work = np.empty_like(own_block, shape=needed) if work is None else flat(work, "work")
        if work.size < needed or work.dtype != own_block.dtype:
            raise InternalError(f"reduce_scatter: work holds {work.size} elements of {work.dtype}, "
                                f"expected {others} x {own_block.size} of {own_block.dtype}")

        # one array for each rank, in rank order
        incoming = list(work[:needed].reshape(others, own_block.size))
        incoming.insert(self.rank, own_block)

        return self._exchange(blocks, incoming, kind, partial(combine, incoming, self.rank, out))

    def _reduce_by_messages(self, view: Array, total: Array | None, root: int,
                            kind: str | None) -> Pending:
        """Send `view` to the root, which adds all ranks' in rank order into `total`."""
        outgoing = incoming = [view[:0]] * self.size
        if total is None:
            outgoing = [view if rank == root else view[:0] for rank in range(self.size)]
            return self._exchange(outgoing, incoming, kind)
        same_block(view, total, "array", "out")
        incoming = [*np.empty_like(view, shape=(self.size, view.size))]
        incoming[root] = view
        return self._exchange(outgoing, incoming, None, partial(combine, incoming, root, total))

    def _allreduce_by_messages(self, view: Array, ufunc: np.ufunc) -> Pending:
        """Combine a block of `view` in rank order on each rank, then send it to all ranks."""
        even, rest = divmod(view.size, self.size)
        counts = [even + (rank < rest) for rank in range(self.size)]
        blocks = self._blocks(view, counts, "array")
        own = blocks[self.rank]
        incoming = [*np.empty_like(view, shape=(self.size, own.size))]
        incoming[self.rank] = own

        def finish() -> None:
            combine(incoming, self.rank, own, ufunc)
            self._exchange([own] * self.size, blocks, None).wait("an allreduce by messages")

        return self._exchange(blocks, incoming, None, finish)

    def wait(self, requests: Sequence, what: Callable, pending: set[int] | None = None,
             name: str | None = None, patient: bool = False) -> None:
        """Test requests until those with the numbers in `pending` are complete.

        `pending` is a set, by default of all requests. The numbers of completed
        requests are removed from it. A rank polls, yields, then sleeps: with more ranks
        than cores, MPI's own Waitsome is hundreds of times slower. `what` is called
        with the open numbers, and describes the wait in errors. A timeline calls the
        wait `name` (default: wait). Raise a StoppedError after `timeout` seconds. A
        `patient` wait, which moves no data, sleeps longer the longer it takes.
        """
        pending = set(range(len(requests))) if pending is None else pending
        if not pending:
            return
        with self.clock("wait", name):
            self.poll(lambda: self.test(requests, pending), lambda: not pending,
                      lambda: what(sorted(pending)), patient)

    def wait_for_one(self, groups: list[list[Pending]], what: str) -> None:
        """Wait until all Pendings of one of the lists in `groups` have arrived.

        Errors describe the first Pending, and `what`.
        """
        handles = [each for group in groups for each in group]
        first = handles[0]

        def test() -> bool:
            return sum(self.test(each.requests, each.open) for each in handles if each.open) > 0

        with self.clock("wait"):
            self.poll(test, lambda: any(not any(each.open for each in group) for group in groups),
                      lambda: first.describe(what, first.open))
        for each in handles:
            each.note_arrival()

    def poll(self, test: Callable, over: Callable, describe: Callable,
             patient: bool = False, named: str = "rank") -> None:
        """Call `test`, which returns whether anything arrived, until `over()` is true.

        StoppedError after `timeout` seconds, which calls the members of this communicator
        `named`. `patient` as in `wait`.
        """
        begin = time.monotonic()
        nap = NAP
        polls = 0
        while not over():
            if test():
                polls = 0
                continue

            # poll, then yield, then sleep
            polls += 1
            if polls < 200:
                os.sched_yield()
                continue
            time.sleep(nap)

            # name the ranks that are late
            waited = time.monotonic() - begin
            if patient:
                nap = max(NAP, PATIENCE * waited)
            if waited > self.timeout:
                missing = unresponsive_ranks(self, min(5.0, self.timeout / 4))
                text = f"; no word from {format_ranks(missing, named)}" if missing else ""
                raise StoppedError(f"{named} {self.ranks[self.rank]} waited {self.timeout:g} s "
                                   f"for {describe()}{text}")

    def test(self, requests: Sequence, pending: set[int]) -> bool:
        """Test pending requests once, which lets messages progress; return whether any is done."""
        if self.stager is not None:
            self.stager.advance()
        for queue in list(self.busy):
            queue.advance()
        numbers = sorted(pending)
        done = self.MPI.Request.Testsome([requests[number] for number in numbers]) or ()
        completed = [numbers[i] for i in done]
        if self.network is not None:
            completed = self.network.deliver(requests, completed, pending)
        pending.difference_update(completed)
        if completed and isinstance(requests, Messages):
            requests.complete_receives(completed)
        return bool(completed)

    def count(self, kind: str | None, payload: int, messages: int, to: Sequence = (),
              sums: Sequence = ()) -> None:
        if kind is not None:
            self.counters.add(kind, int(payload), int(messages), to, sums)

    def _count_blocks(self, kind: str | None, blocks: list, added: bool = False) -> None:
        others = [(self.ranks[q], block.nbytes) for q, block in enumerate(blocks)
                  if q != self.rank and block.size]
        self.count(kind, sum(size for _, size in others), len(others), others,
                   others if added else ())

    def _on_gpu(self, array: Array) -> bool:
        return self.stager is not None and not isinstance(array, np.ndarray)

    def _by_messages(self, array: Array, operation: str) -> bool:
        return self._on_gpu(array) and self.stager.by_messages(operation)

    def _pieces(self, view: Array, operation: str) -> list[Array]:
        """Cut a view into equal pieces for one call of the operation each."""
        if self.size == 1 or not view.size:
            return []
        limit = MAX_MESSAGE_BYTES
        if self._on_gpu(view):
            limit = self.stager.most(operation, limit)
        elif operation == "reduce":
            limit = min(limit, PIECE_BYTES)
        number = -(-view.size // max(1, limit // view.itemsize))
        step = -(-view.size // number)
        return [view[begin:begin + step] for begin in range(0, view.size, step)]

    def _blocks(self, view: Array, counts: ArrayLike, name: str) -> list:
        cuts = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        if cuts.size != self.size + 1 or cuts[-1] != view.size or (np.diff(cuts) < 0).any():
            raise InternalError(f"{name} has {view.size} elements, but counts are {cuts.size - 1} "
                                f"numbers of sum {cuts[-1]}; expected one number >= 0 for each of "
                                f"{self.size} ranks")
        return [view[begin:end] for begin, end in pairwise(cuts.tolist())]

    def _own(self, operation: str, start: Callable, view: Array, way: int, root: int | None,
             name: str | None = None) -> Pending:
        """Start one of MPI's own collectives, piece by piece."""
        def describe(what: str, numbers: Sequence[int]) -> str:
            # MPI does not report which rank is late
            of_root = "" if root is None else f"; root {self.ranks[root]}"
            return f"{what} ({format_ranks(self.ranks)}{of_root})"

        with self.clock("comm"):
            calls = [MpiCall(start, piece, way) for piece in self._pieces(view, operation)]
            return self._begin(calls, operation, describe, name=name)

    def _exchange(self, outgoing: list[Array], incoming: list[Array], kind: str | None,
                  finish: Callable | None = None, lane: int = 0) -> Pending:
        """Start sending outgoing[q] to, and receiving incoming[q] from, all ranks q."""
        self._count_blocks(kind, outgoing, added=finish is not None)
        calls = []
        others = []

        def add(start: Callable, blocks: list[Array], step: int, way: int, end: str) -> None:
            for distance in range(1, self.size):  # not all ranks begin with the same one
                other = (self.rank + step * distance) % self.size
                for piece in self._pieces(blocks[other].view(np.uint8), "message"):
                    call = partial(start, tag=TAG - lane, **{end: other})
                    calls.append(MpiCall(call, piece, way))
                    others.append(other)

        def describe(what: str, numbers: Sequence[int]) -> str:
            return f"{format_ranks({self.ranks[others[number]] for number in numbers})} in {what}"

        with self.clock("comm"):
            if finish is None:  # else that, called once all has arrived, looks after the own block
                place(outgoing[self.rank], incoming[self.rank])
            if self.size > 1:
                add(self.mpi.Irecv, incoming, -1, RECEIVE, "source")
                add(self.mpi.Isend, outgoing, 1, SEND, "dest")
            return self._begin(calls, "message", describe, finish, name=finish and "reduce")

    def _begin(self, calls: list[MpiCall], operation: str, describe: Callable,
               finish: Callable | None = None, name: str | None = None) -> Pending:
        """Make calls in order; those with GPU memory wait until it is ready.

        See hpgcn.comm.staging.
        """
        # earlier calls with GPU memory go first: MPI counts the order
        if self.stager is not None:
            self.stager.flush(self)
        if not calls:
            return Pending(self, (), describe, finish, name)

        # reductions in host memory go through the queue
        on_gpu = self._on_gpu(calls[0].piece)
        starts = [partial(call.start, call.piece) for call in calls]
        if operation == "reduce" and not on_gpu:
            requests = self.queue.extend(starts, self.MPI.REQUEST_NULL)
            self._delay(requests, calls, operation)
            return Pending(self, requests, describe, finish, name)

        # other calls in host memory start at once
        if operation != "message":
            self.queue.flush()
        if not on_gpu:
            requests = [start() for start in starts]
            self._delay(requests, calls, operation)
            return Pending(self, requests, describe, finish, name)

        # calls with GPU memory start when it is ready
        messages = self.stager.begin(self, calls, operation)

        def finish_messages() -> None:
            messages.finish()
            if finish is not None:
                finish()

        return Pending(self, messages, describe, finish_messages, name)


    def _delay(self, requests: Sequence, calls: list[MpiCall], operation: str) -> None:
        if self.network is not None:
            received = [call.piece.nbytes if call.way & RECEIVE else 0 for call in calls]
            hops = 1 if operation == "message" else math.ceil(math.log2(self.size))
            self.network.begin(requests, received, hops)


def flat(array: Array, name: str) -> Array:
    """Return a contiguous array as one-dimensional view; a copy would not get the received data."""
    if not array.flags.c_contiguous:
        raise InternalError(f"{name} of a collective is not contiguous: shape {array.shape}, "
                            f"strides {array.strides}")
    return array.reshape(-1)


def same_block(a: Array, b: Array, name_a: str, name_b: str) -> None:
    if a.size != b.size or a.dtype != b.dtype:
        raise InternalError(f"{name_a} has {a.size} elements of {a.dtype}, "
                            f"{name_b} {b.size} of {b.dtype}")


def combine(parts: list[Array], own: int, out: Array, ufunc: np.ufunc = np.add) -> None:
    """Combine one array of each rank in rank order into `out`, which may be that of rank `own`."""
    if own and np.may_share_memory(parts[own], out):
        # what starts with rank 0's array must not overwrite the own one too soon
        accessed((parts[own],))
        parts = parts.copy()
        parts[own] = parts[own].copy()
    accessed(parts, (out,))
    place(parts[0], out)
    for part in parts[1:]:
        ufunc(out, part, out=out)


def place(source: Array, target: Array) -> None:
    """Copy `source` to `target`, unless both are the same memory."""
    if address(source) != address(target):
        accessed((source,), (target,))
        target[...] = source
