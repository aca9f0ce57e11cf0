"""Move arrays of ranks in one process between memory and files, as the ranks take turns.

After each turn of a rank, the blocks that it has changed are written to their files.
All blocks that it has touched leave the memory. While a rank runs, blocks for the next
rank are read: those that it touched in its last turn at the same place.
hpgcn.kernels.disk finds out which blocks these are. It also reads on in arrays that the
running rank goes through.
"""
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

CONTEXT = 4  # last waits of a rank that identify its next turn


class Residency:
    """Moves blocks between memory and disk as the ranks of this process take turns.

    The blocks of three turns are in memory: the last one is written, one runs, and the
    next one is read.

    Parameters
    ----------
    in_files : int
        Number of the first ranks whose arrays are in files. Those of later ranks are in memory.
    ranks : int
        Number of all ranks.

    Attributes
    ----------
    waited : dict
        Seconds that ranks waited for the disk, to "read" and to "write".
    """

    def __init__(self, in_files: int, ranks: int) -> None:
        # late, because it imports Numba
        from hpgcn.kernels.disk import disk_turns, following

        self._turns = disk_turns
        self._follow = following.follow
        self.in_files = in_files
        self.ranks = ranks
        self.waited = {"read": 0.0, "write": 0.0}
        self._events = [[] for _ in range(ranks)]  # by rank: (name, begin, end) of reads and writes
        self._touched = {}  # by rank and its last waits: the blocks that its turn touched
        self._waits = [deque(maxlen=CONTEXT) for _ in range(ranks)]
        disk_turns.begin_turns()
        self._writer, self._reader = _Worker("write to disk"), _Worker("read from disk")

    def switch(self, leaving: int, entering: int, place: Hashable) -> None:
        """Exchange blocks between the turns of two ranks.

        Parameters
        ----------
        leaving, entering : int
            The rank that has run, and the rank that runs now.
        place : hashable
            The point of the epoch at which the rank `leaving` waits.
        """
        touched, out = self._turns.end_turn(leaving, entering, self._last_touched(entering))
        if leaving < self.in_files:
            self._touched |= dict.fromkeys(self._keys(leaving), touched)
        self._waits[leaving].append(place)

        # finish writing the turn before, because memory holds the blocks of three turns
        begin = time.perf_counter()
        self.waited["write"] += self._writer.finish()
        self._writer.put(self._turns.put_out, out, events=self._events[leaving])
        self.waited["read"] += self._reader.finish()
        self._events[leaving].append(("wait for disk", begin, time.perf_counter()))

        # read the blocks of the turn after this one; with two ranks they are being written now
        following = (entering + 1) % self.ranks
        if following < self.in_files and following != entering:
            if following == leaving:
                self._reader.put(self._writer.finish)
            ahead = self._last_touched(following)
            if ahead is not None:
                self._reader.put(self._turns.bring_in, ahead, following,
                                 events=self._events[following])

        # read blocks of this turn that were not foreseen, as it touches them
        if entering < self.in_files:
            self._reader.put(self._follow, self._turns.current_turn())

    def _last_touched(self, rank: int) -> Any:
        """Return the blocks that the next turn of a rank touched last time, or None."""
        keys = self._keys(rank)
        return next((self._touched[key] for key in keys if key in self._touched), None)

    def _keys(self, rank: int) -> list[tuple]:
        """Return the keys of a rank's next turn: its last CONTEXT waits, then fewer of them.

        The waits before the first epoch differ from those before the second one.
        """
        waits = tuple(self._waits[rank])
        return [(rank, waits[first:]) for first in range(len(waits))]

    def take_events(self, rank: int) -> list[tuple]:
        """Return the events of a rank since the last call, a list of (name, begin, end)."""
        found, self._events[rank][:] = [*self._events[rank]], []
        return found

    def close(self) -> None:
        """Wait for the disk; let arrays that remain stay in memory."""
        self._turns.end_turns()
        for worker in (self._writer, self._reader):
            worker.put(None)
            worker.join()
        self._turns.open_all()


class _Worker(threading.Thread):
    """A thread that moves blocks, in the order of the turns."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._jobs = queue.Queue()
        self.start()

    def put(self, move: Callable, *given: Any, events: list | None = None) -> None:
        """Queue a call of `move(*given)`; add its time to the list `events`, if there is one."""
        self._jobs.put((move, given, events))

    def finish(self) -> float:
        """Wait until all calls have returned; return the seconds."""
        begin = time.perf_counter()
        self._jobs.join()
        return time.perf_counter() - begin

    def run(self) -> None:
        while True:
            move, given, events = self._jobs.get()
            if move is None:
                self._jobs.task_done()  # the other worker may be waiting in `finish`
                return
            begin = time.perf_counter()
            move(*given)
            if events is not None and len(given[0]):
                events.append((self.name, begin, time.perf_counter()))
            self._jobs.task_done()
