"""Ranks that are threads of one process, of which exactly one runs at a time.

A rank runs until it waits for a message that has not arrived. Then the next rank in
cyclic order that can go on runs. So the schedule depends only on the ranks' calls. With
other processes it depends on their messages as well: if no rank can go on, all wait for these.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from hpgcn.errors import DeadlockError, HpgcnError, InternalError, StoppedError

if TYPE_CHECKING:
    from hpgcn.comm.processes import Processes


class RankEnded(BaseException):
    """Raised on a rank because another rank failed.

    It is a BaseException, so that handlers do not catch it.
    """


class Turns:
    """Scheduler of the ranks in one process.

    One rank runs until it waits, then the next one runs.

    Attributes
    ----------
    size : int
        Number of ranks.
    observer : Residency (hpgcn.runtime.disk), GpuTurns (hpgcn.runtime.gpu) or None
        Called between the turns of two ranks.
    processes : Processes or None
        Other processes, whose ranks send messages to these.
    waited : list of bool
        Whether each rank has let others run since it began a segment, which resets it.
    """

    def __init__(self, size: int, observer: Any = None,
                 processes: Processes | None = None) -> None:
        self.size = size
        self.observer = observer
        self.processes = processes
        self.waited = [False] * size
        self._turn = [threading.Semaphore(0) for _ in range(size)]
        # rank: (whether it can go on, a function; what it waits for, a function; seconds at most)
        self._waits = {}
        self._over = set()
        self._failure = None  # (rank, exception) of the first rank that failed
        self._agreed = None  # the same of the first rank that raised an error of all ranks
        self._arrivals = [0] * size  # calls of `in_order` by each rank

    def wait(self, rank: int, ready: Callable, describe: Callable,
             timeout: float = 600.0) -> None:
        """Let other ranks run until `ready()` is true.

        Parameters
        ----------
        rank : int
            The caller.
        ready : callable
            Returns whether the caller can go on. Only what other ranks do changes the
            answer.
        describe : callable
            Function that returns what the caller waits for, such as "rank(s) 1 in layer 0
            forward".
        timeout : float
            Seconds to wait for messages of other processes, if no rank can go on.

        Raises
        ------
        DeadlockError
            No rank can go on.
        StoppedError
            Nothing came from other processes within the longest timeout of a rank.
        """
        self._raise_if_ended()
        if ready():
            return
        self._waits[rank] = ready, describe, timeout

        # if no rank can go on, this one reports the deadlock
        following = self._following(rank)
        if following is None:
            error = self._deadlock()
            self._failure = rank, error
            raise error

        # let the next rank run, until this one can go on
        self._switch(rank, following)
        self._acquire(rank)
        self.waited[rank] = True
        del self._waits[rank]
        self._raise_if_ended()

    def pass_turn(self, rank: int, ready: Callable = lambda: True,
                  describe: Callable = lambda: "its turn", timeout: float = 600.0) -> None:
        """Let all other ranks that can go on run before this one waits as in `wait`."""
        passed = []
        self.wait(rank, lambda: (bool(passed) or passed.append(True)) and ready(), describe,
                  timeout)

    def in_order(self, rank: int) -> None:
        """Let this rank go on once all ranks before it have gone on from the same call."""
        number = self._arrivals[rank]
        self.wait(rank, lambda: all(calls > number for calls in self._arrivals[:rank]),
                  lambda: "the ranks before it")
        self._arrivals[rank] += 1

    def run(self, functions: list[Callable]) -> list:
        """Call one function a rank, the first on this thread; return their results in rank order.

        Raises
        ------
        BaseException
            The error of the first rank that failed. If other ranks did not agree on it,
            its message names the rank, and an error that is neither an HpgcnError nor an
            OSError becomes an InternalError.
        """
        results = [None] * self.size

        # a rank begins when it gets the turn, and passes it on at its end
        def call(rank: int) -> None:
            self._acquire(rank)
            try:
                self._raise_if_ended()
                results[rank] = functions[rank]()
            except RankEnded:
                pass
            except BaseException as error:
                if getattr(error, "collective", False):  # others may have to send before they end
                    self._agreed = self._agreed or (rank, error)
                else:
                    self._failure = self._failure or (rank, error)
            finally:
                self._over.add(rank)
                self._waits.pop(rank, None)
                self._pass_on(rank)

        # rank 0 runs on this thread
        threads = [threading.Thread(target=copy_context().run, args=(call, rank),
                                    name=f"rank {rank}", daemon=True)
                   for rank in range(1, self.size)]
        for thread in threads:
            thread.start()
        self._turn[0].release()
        call(0)
        for thread in threads:
            self._join(thread)

        # raise the first failure; other processes end with this one unless they failed as well
        if self.processes is not None and self._failure is None:
            self.processes.close(failed=self._agreed is not None)
        if self._agreed is not None:
            raise self._agreed[1]
        if self._failure is not None:
            raise self._named_failure()
        return results

    def _acquire(self, rank: int) -> None:
        """Wait for the turn; an interrupt in the meantime ends all ranks, each in its turn."""
        while True:
            try:
                self._turn[rank].acquire()
                return
            except BaseException as error:  # Ctrl-C reaches rank 0 while another rank runs
                self._failure = self._failure or (rank, error)

    def _join(self, thread: threading.Thread) -> None:
        while thread.is_alive():
            try:
                thread.join()
            except BaseException as error:
                self._failure = self._failure or (0, error)

    def _raise_if_ended(self) -> None:
        if self._failure is not None:
            raise RankEnded

    def _next(self, rank: int) -> int | None:
        """Return the next rank in cyclic order that can go on, or None."""
        for step in range(1, self.size + 1):
            other = (rank + step) % self.size
            if other in self._over:
                continue
            if self._failure is not None or other not in self._waits or self._waits[other][0]():
                return other
        return None

    def _following(self, rank: int) -> int | None:
        """Return `_next`, once messages of other processes have arrived if one must wait."""
        found = self._next(rank)
        if found is not None or self.processes is None or len(self._over) == self.size:
            return found
        try:
            self.processes.wait(lambda: self._next(rank) is not None,
                                lambda: f"other processes: {self._describe_waits()}",
                                max(timeout for *_, timeout in self._waits.values()))
        except BaseException as error:
            self._failure = self._failure or (rank, error)
        return self._next(rank)

    def _pass_on(self, rank: int) -> None:
        """Let the next rank run, after this rank has ended."""
        following = self._following(rank)
        if following is None and len(self._over) < self.size:
            self._failure = rank, self._deadlock()
            following = self._next(rank)
        if following is not None:
            self._switch(rank, following)

    def _switch(self, leaving: int, entering: int) -> None:
        """Call the observer, and let the next rank run."""
        if self.observer is not None and self._failure is None and leaving != entering:
            try:
                self.observer.switch(leaving, entering)
            except BaseException as error:  # the next rank gets its turn all the same, and ends
                self._failure = leaving, error
        self._turn[entering].release()

    def _describe_waits(self) -> str:
        waits = [f"rank {self._number(rank)} has returned" if rank in self._over else
                 f"rank {self._number(rank)} waits for {self._waits[rank][1]()}"
                 for rank in range(self.size)]
        return "; ".join(waits)

    def _deadlock(self) -> DeadlockError:
        return DeadlockError(f"no rank can go on: {self._describe_waits()}")

    def _number(self, rank: int) -> int:
        """Return the number of a rank among those of all processes."""
        return rank if self.processes is None else rank + self.processes.number * self.size

    def _named_failure(self) -> BaseException:
        rank, error = self._failure
        total = self.size if self.processes is None else self.processes.size
        of_several = isinstance(error, DeadlockError | StoppedError)
        if not isinstance(error, Exception) or total == 1 or of_several:
            return error
        place = f"(on rank {self._number(rank)} of {total})"
        if isinstance(error, HpgcnError):
            named = type(error)(f"{error} {place}")
        elif isinstance(error, OSError):  # as without ranks, such as of a full standard output
            error.add_note(place)
            return error
        else:
            named = InternalError(f"{type(error).__name__}: {error} {place}")
        named.__cause__ = error
        return named
