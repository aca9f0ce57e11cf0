"""Collectives that proceed while a rank computes: started, tested, waited for; counted as hpgcn.parallel.counts says.

Broadcasts and reductions are MPI's own. The others are messages between pairs of ranks: an empty block sends nothing,
sums are taken in the order of ranks whatever the MPI, and no later stage waits for a rank that computes.
"""
from __future__ import annotations

import os
import time
from functools import partial
from itertools import pairwise

import numpy as np

from hpgcn.comm.pending import Pending, named
from hpgcn.comm.queue import PIECE_BYTES
from hpgcn.comm.rollcall import silent
from hpgcn.comm.staging import RECEIVE, SEND, Call, Messages
from hpgcn.device import address
from hpgcn.errors import InternalError, StoppedError

MAX_MESSAGE_BYTES = 1 << 30  # a longer message travels in pieces: counts past 2^31 - 1 are not safe on every MPI
TAG = 21  # messages of one tag between two ranks arrive in the order of their start


class Collectives:
    """What `SerialComm` and `MpiComm` share; with a single rank nothing travels.

    All ranks of the communicator start the same collectives in the same order; several may be under way. Every array is
    contiguous, of any shape, and of one dtype in a call; `counts` are the elements (not rows) of each rank's block, the
    same on all ranks. The arrays of a call lie in host memory on all ranks, or on all ranks on the GPU that was given
    to `use`: what is computed there after `wait` sees what has arrived. `kind`: what the payload is counted under
    ("aggregation", "dense", "weights"; None: not at all).
    Starting and testing are clocked as "comm", waiting as "wait".
    """

    def start_bcast(self, array, root, kind):
        """Copy `array` of rank `root` into `array` of all ranks.

        Returns
        -------
        Pending
        """
        view = flat(array, "array").view(np.uint8)
        if self.rank == root:
            self._count_blocks(kind, [view] * self.size)
        way = SEND if self.rank == root else RECEIVE
        return self._own("bcast", lambda piece: self.mpi.Ibcast(piece, root), view, way, self._under(root))

    def start_reduce(self, array, out, root, kind):
        """Sum `array` over ranks into `out` of rank `root`.

        A long array is summed in pieces of PIECE_BYTES at most, a few at a time (hpgcn.comm.queue). They are as even as
        can be, so that none is so short that MPI adds it in another order than the whole.

        Parameters
        ----------
        out : array like `array`, or None
            At the root, None: the sum replaces `array`. Not read on other ranks.

        Returns
        -------
        Pending
        """
        flat_in = flat(array, "array")
        if self.rank != root:
            self._count_blocks(kind, [flat_in if rank == root else flat_in[:0] for rank in range(self.size)])
            return self._own("reduce", lambda piece: self.mpi.Ireduce(piece, None, self.MPI.SUM, root), flat_in, SEND,
                             self._under(root))
        total = flat_in if out is None else flat(out, "out")
        same_block(flat_in, total, "array", "out")
        with self.clock("comm"):
            place(flat_in, total)
        return self._own("reduce", lambda piece: self.mpi.Ireduce(self.MPI.IN_PLACE, piece, self.MPI.SUM, root), total,
                         SEND | RECEIVE, self._under(root))

    def start_allreduce(self, array, kind, op="sum"):
        """Replace `array` by its sum (op "sum") or maximum ("max") over ranks; pieces as in `start_reduce`.

        Returns
        -------
        Pending
        """
        if op not in ("sum", "max"):
            raise InternalError(f"allreduce: op is {op!r}, expected 'sum' or 'max'")
        view = flat(array, "array")
        quotient, remainder = divmod(2 * view.nbytes * (self.size - 1), self.size)
        self.count(kind, quotient + (self.rank < remainder), (view.size > 0) * 2 * (self.size - 1))
        return self._own("reduce", lambda piece: self.mpi.Iallreduce(
            self.MPI.IN_PLACE, piece, self.MPI.SUM if op == "sum" else self.MPI.MAX), view, SEND | RECEIVE,
            self._under(None), name="reduce")

    def start_allgather(self, own, out, counts, kind):
        """Copy the block of every rank into `out`, in rank order.

        Parameters
        ----------
        own : counts[rank] elements
            May be its place in `out`; any other overlap is an error.
        out : sum(counts) elements

        Returns
        -------
        Pending
        """
        own, out = flat(own, "own"), flat(out, "out")
        blocks = self._blocks(out, counts, "out")
        same_block(own, blocks[self.rank], "own", "its place in out")
        self._count_blocks(kind, [own] * self.size)
        with self.clock("comm"):
            place(own, blocks[self.rank])
            return self._messages([own] * self.size, blocks)

    def start_alltoall(self, send, send_counts, recv, recv_counts, kind):
        """Copy block q of `send` to rank q, and into block q of `recv` what rank q sends to this one.

        Parameters
        ----------
        send : sum(send_counts) elements
            Not overlapping `recv`.
        recv : sum(recv_counts) elements
        send_counts, recv_counts : (P,) ints
            Of this rank alone; send_counts[q] equals recv_counts[this rank] of rank q.

        Returns
        -------
        Pending
        """
        send, recv = flat(send, "send"), flat(recv, "recv")
        outgoing, incoming = self._blocks(send, send_counts, "send"), self._blocks(recv, recv_counts, "recv")
        same_block(outgoing[self.rank], incoming[self.rank], "the own block of send", "the own block of recv")
        self._count_blocks(kind, outgoing)
        with self.clock("comm"):
            place(outgoing[self.rank], incoming[self.rank])
            return self._messages(outgoing, incoming)

    def start_reduce_scatter(self, packed, out, counts, kind, work=None):
        """Sum `packed` over ranks, block q into `out` of rank q; added in the order of ranks, when waited for.

        Parameters
        ----------
        packed : sum(counts) elements
        out : counts[rank] elements
            May lie in `packed`, at any place.
        work : (P - 1) * counts[rank] elements or more, optional
            Room for the blocks of the others (default: allocated).

        Returns
        -------
        Pending
        """
        packed, out = flat(packed, "packed"), flat(out, "out")
        blocks = self._blocks(packed, counts, "packed")
        own, others = blocks[self.rank], self.size - 1
        same_block(own, out, "the own block of packed", "out")
        work = np.empty_like(own, shape=(others * own.size,)) if work is None else flat(work, "work")
        if work.size < others * own.size or work.dtype != own.dtype:
            raise InternalError(f"reduce_scatter: work holds {work.size} elements of {work.dtype}, expected "
                                f"{others} x {own.size} of {own.dtype}")
        incoming = list(work[:others * own.size].reshape(others, own.size))
        incoming.insert(self.rank, own)
        self._count_blocks(kind, blocks)

        def add():
            # a sum that starts with rank 0's block must not overwrite the own block before its turn
            parts = [part.copy() if part is own and self.rank and np.may_share_memory(own, out) else part
                     for part in incoming]
            place(parts[0], out)
            for part in parts[1:]:
                np.add(out, part, out=out)

        with self.clock("comm"):
            return self._messages(blocks, incoming, add)

    def wait(self, requests, what, pending=None, name=None):
        """Test requests until all (or those numbered in `pending`) are complete.

        Polls, yields, then sleeps: with more ranks than cores, MPI's own Waitsome is hundreds of times slower.

        Parameters
        ----------
        requests : list of mpi4py requests
        what : callable
            Called with the numbers of the requests still open; says in words what is waited for.
        pending : set of int, optional
            Changed: completed numbers leave it.
        name : str, optional
            What a timeline calls it (default: wait).

        Raises
        ------
        StoppedError
            After `timeout` seconds.
        """
        pending = set(range(len(requests))) if pending is None else pending
        if not pending:
            return
        with self.clock("wait", name):
            polls, deadline = 0, time.monotonic() + self.timeout
            while pending:
                if self.test(requests, pending):
                    polls = 0
                    continue
                polls += 1
                if polls < 200:
                    os.sched_yield()
                    continue
                time.sleep(5e-5)
                if time.monotonic() > deadline:
                    text = f"rank {self.ranks[self.rank]} waited {self.timeout:g} s for {what(sorted(pending))}"
                    missing = silent(self, min(5.0, self.timeout / 4))
                    raise StoppedError(f"{text}; no word from {named(missing)}" if missing else text)

    def test(self, requests, pending):
        """One test of the pending requests, which also lets messages progress; returns whether any completed."""
        if self.relay is not None:
            self.relay.advance()
        for queue in list(self.busy):
            queue.advance()
        numbers = sorted(pending)
        done = self.MPI.Request.Testsome([requests[number] for number in numbers])
        pending.difference_update(numbers[i] for i in done or ())
        if done and isinstance(requests, Messages):
            requests.landed([numbers[i] for i in done])
        return bool(done)

    def count(self, kind, payload, messages, to=()):
        """Count a call under `kind` of the present phase."""
        if kind is not None:
            self.counters.add(kind, int(payload), int(messages), to)

    def _count_blocks(self, kind, blocks):
        others = [(self.ranks[q], block.nbytes) for q, block in enumerate(blocks) if q != self.rank and block.size]
        self.count(kind, sum(size for _, size in others), len(others), others)

    def _on_gpu(self, array):
        return self.relay is not None and not isinstance(array, np.ndarray)

    def _pieces(self, view, operation):
        """Even views of at most as many bytes as the operation takes at a time; none where nothing travels."""
        if self.size == 1 or not view.size:
            return []
        limit = MAX_MESSAGE_BYTES
        if self._on_gpu(view):
            limit = self.relay.most(operation, limit)
        elif operation == "reduce":
            limit = min(limit, PIECE_BYTES)
        number = -(-view.size // max(1, limit // view.itemsize))
        step = -(-view.size // number)
        return [view[begin:begin + step] for begin in range(0, view.size, step)]

    def _blocks(self, view, counts, name):
        """One view for each rank's block."""
        cuts = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        if cuts.size != self.size + 1 or cuts[-1] != view.size or (np.diff(cuts) < 0).any():
            raise InternalError(f"{name} has {view.size} elements, but counts are {cuts.size - 1} numbers of sum "
                                f"{cuts[-1]}; expected one number >= 0 for each of {self.size} ranks")
        return [view[begin:end] for begin, end in pairwise(cuts.tolist())]

    def _own(self, operation, start, view, way, describe, name=None):
        """Start a collective of MPI's own, piece by piece."""
        with self.clock("comm"):
            calls = [Call(start, piece, way) for piece in self._pieces(view, operation)]
            return self._begin(calls, operation, describe, name=name)

    def _messages(self, outgoing, incoming, finish=None):
        """Start sending outgoing[q] to, and receiving incoming[q] from, every other rank q."""
        calls, others = [], []
        for call, blocks, step, way in (("Irecv", incoming, -1, RECEIVE), ("Isend", outgoing, 1, SEND)):
            for distance in range(1, self.size):  # not all ranks begin with the same one
                other = (self.rank + step * distance) % self.size
                start = partial(getattr(self.mpi, call), **{"source" if way == RECEIVE else "dest": other}, tag=TAG)
                for piece in self._pieces(blocks[other].view(np.uint8), "message"):
                    calls.append(Call(start, piece, way))
                    others.append(other)

        def describe(what, numbers):
            return f"{named({self.ranks[others[number]] for number in numbers})} in {what}"

        return self._begin(calls, "message", describe, finish)

    def _begin(self, calls, operation, describe, finish=None, name=None):
        """Make calls in order; those with GPU memory wait for the GPU, in line (see hpgcn.comm.staging)."""
        if self.relay is not None:
            self.relay.flush(self)
        if not calls:
            return Pending(self, (), describe, finish, name)

        on_gpu = self._on_gpu(calls[0].piece)
        starts = [partial(call.start, call.piece) for call in calls]
        if operation == "reduce" and not on_gpu:
            requests = self.queue.extend(starts, self.MPI.REQUEST_NULL)
            return Pending(self, requests, describe, finish, name)

        if operation != "message":
            self.queue.flush()
        if not on_gpu:
            return Pending(self, [start() for start in starts], describe, finish, name)

        messages = self.relay.begin(self, calls, operation)

        def settle():
            messages.finish()
            if finish is not None:
                finish()

        return Pending(self, messages, describe, settle, name)

    def _under(self, root):
        """Who takes part in a collective of MPI's own: which of them is late, MPI does not tell."""
        def describe(what, numbers):
            return f"{what} ({named(self.ranks)}{'' if root is None else f'; root {self.ranks[root]}'})"

        return describe


def flat(array, name):
    """One-dimensional view of a contiguous array.

    Raises
    ------
    InternalError
        The array is not contiguous: what arrives would go into a copy.
    """
    if not array.flags.c_contiguous:
        raise InternalError(f"{name} of a collective is not contiguous: shape {array.shape}, strides {array.strides}")
    return array.reshape(-1)


def same_block(a, b, name_a, name_b):
    """Refuse two blocks that differ in number of elements or dtype."""
    if a.size != b.size or a.dtype != b.dtype:
        raise InternalError(f"{name_a} has {a.size} elements of {a.dtype}, {name_b} {b.size} of {b.dtype}")


def place(source, target):
    """Copy, unless the two are the same memory."""
    if address(source) != address(target):
        target[...] = source
