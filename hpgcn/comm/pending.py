"""Collectives that were started and are not complete, and the queue of pieces of long sums.

A few pieces go at a time, because MPI keeps copies of every array under reduction.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from hpgcn.comm.repeated import note_messages
from hpgcn.kernels.host.record import recording

if TYPE_CHECKING:
    from hpgcn.comm.local_mpi import Request

PIECE_BYTES = 4 << 20
UNDER_WAY = 4  # pieces: enough that one is sent while others are added


class Pending:
    """A collective under way. Its arrays belong to it until `wait` returns."""

    def __init__(self, comm: Any, requests: Sequence = (), describe: Callable | None = None,
                 finish: Callable | None = None, name: str | None = None) -> None:
        self.comm = comm
        self.requests = requests
        self.describe = describe
        self.finish = finish
        self.name = name  # name of the wait on a timeline
        self.part = comm.clock.messages_part
        self.open = set(range(len(requests)))

    def test(self) -> bool:
        """Let messages progress, which MPI does only within calls; return whether all arrived."""
        if self.open:
            with self.comm.clock.messages(self.part), self.comm.clock("comm"):
                self.comm.test(self.requests, self.open)
            self.note_arrival()
        return not self.open

    def note_arrival(self) -> None:
        """Let a recorded step wait here if the messages have arrived, else let them progress."""
        if (active := recording()) is not None:
            again = self.test if self.open else partial(self.arrive, "a repeated step")
            note_messages(active, self.comm.clock, again)

    def arrive(self, what: str) -> None:
        """Wait for the messages; see `wait`."""
        if self.open:
            self.comm.wait(self.requests, partial(self.describe, what), self.open, self.name)

    def wait(self, what: str) -> None:
        """Wait until the result is there; calling it again does nothing.

        StoppedError after the communicator's `timeout`, naming this rank, those it
        waits for, and `what`, e.g. "the broadcast of block 2 in layer 1 forward".
        """
        active = recording() if self.open or self.finish else None
        if active is not None:
            note_messages(active, self.comm.clock, partial(self.wait, what))
        with self.comm.clock.messages(self.part), active.paused() if active else nullcontext():
            self.arrive(what)
            finish = self.finish
            if finish is not None:
                self.finish = None
                with self.comm.clock("comm"):
                    finish()


class Queue:
    """Pieces of the reductions of one communicator, which start in the order of the calls.

    MPI matches the collectives of a communicator by their order, so `flush` comes
    before any other of them. `busy` lists the queues of this rank in which pieces wait,
    of all communicators. A wait for one of them lets the others advance, as MPI itself
    does.
    """

    def __init__(self, busy: list) -> None:
        self.busy = busy
        self.waiting = deque()  # (list of requests, place in it, function that returns the request)
        self.running = []

    def extend(self, starts: list[Callable], null: Any) -> list[Request]:
        """Queue calls, each of which starts once a slot is free.

        Return a list of their requests. A call that has not started has the request
        `null`.
        """
        requests = [null] * len(starts)
        idle = not self.waiting
        self.waiting.extend((requests, place, start) for place, start in enumerate(starts))
        if idle and self.waiting:
            self.busy.append(self)
            self.advance()
        return requests

    def advance(self, most: int = UNDER_WAY) -> None:
        """Start pieces while fewer than `most` are under way; does not wait."""
        self.running = [request for request in self.running if not request.Get_status()]
        while self.waiting and len(self.running) < most:
            requests, place, start = self.waiting.popleft()
            requests[place] = start()
            self.running.append(requests[place])
        if not self.waiting:
            self.busy.remove(self)

    def flush(self) -> None:
        if self.waiting:
            self.advance(most=len(self.running) + len(self.waiting))


def format_ranks(ranks: Iterable[int], named: str = "rank") -> str:
    """Name ranks in words, at most eight of them: "rank(s) 0, 2, 5"."""
    ranks = sorted(ranks)
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"{named}(s) {', '.join(map(str, ranks[:8]))}{more}"
