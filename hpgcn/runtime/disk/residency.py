"""Move arrays of ranks in one process between memory and files, as the ranks take turns.

After each turn of a rank its arrays are written to their files, and leave memory. While a
rank runs, the arrays of the next one are read. Which ones follows from its place in a pass
through a model (hpgcn.training.steps.pass_arrays). At other times, Linux reads them when
they are touched.
"""
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hpgcn.runtime.disk import mapped_pages
from hpgcn.runtime.disk.private_memory import make_private
from hpgcn.runtime.places import DiskThreads
from hpgcn.runtime.planned_turns import PlannedTurns

CHECK = "HPGCN_CHECK_RESIDENCY"  # 1: arrays that a turn should not touch cannot be accessed


class Residency(PlannedTurns):
    """Moves arrays between memory and disk as the ranks of this process take turns.

    The arrays of three turns are in memory: the last one is written, one runs, and the
    next one is read.

    Parameters
    ----------
    in_files : int
        Number of the first ranks whose arrays are in files. Those of later ranks are in memory.
    ranks : int
        Number of all ranks.
    folder : str
        Where the files are.
    waiting : callable
        Returns messages that no rank has received yet: (rank that will, array) each.

    Attributes
    ----------
    disk : hpgcn.runtime.places.DiskThreads
    """

    def __init__(self, in_files: int, ranks: int, folder: str, waiting: Callable) -> None:
        # late, because it imports Numba
        from hpgcn.kernels.disk import file_table

        self._table = file_table
        super().__init__(ranks)
        self.in_files = in_files
        self._waiting = waiting
        self._events = [[] for _ in range(ranks)]  # by rank: (name, begin, end) of reads and writes
        self._filled = []  # arrays that received messages in this turn
        self._private = [[] for _ in range(ranks)]  # the PrivateMemory of each rank
        self._moving = []  # arrays whose PrivateMemory may be under way
        self._ahead = -1  # rank whose next turn is read ahead; -1: none
        self._here = -1  # rank that runs, if its turn was read ahead, and has not begun
        self._checks = os.environ.get(CHECK) == "1"
        self._known = [{} for _ in range(ranks)]  # the PassArrays of each rank, if it checks
        self._enter(0)
        self.disk = DiskThreads(folder, "arrays of ranks")
        self._writing = self._reading = self.disk.writer.submit(_move, [], "", [])

    def begin_pass(self, rank: int, arrays: Any) -> None:
        super().begin_pass(rank, arrays)
        self._known[rank][id(arrays)] = arrays
        self._here = -1
        self._protect(rank)

    def begin_segment(self, rank: int) -> None:
        if self._here != rank:  # the turn before goes on, or ranks are not in order
            with self.disk.waiting("read"):
                for each in self._coming(rank):
                    self._bring_in(rank, *each)
        self._here = -1
        super().begin_segment(rank)

    def end_segment(self, rank: int, *ends: Any) -> bool:
        ended = super().end_segment(rank, *ends)
        if ended:
            self._protect(rank)
        return ended

    def finish_moves(self, arrays: Iterable) -> None:
        """Wait until no thread moves arrays that messages are about to change."""
        if any(np.may_share_memory(each, other) for each in arrays if isinstance(each, np.ndarray)
               for other in self._moving):
            self._finish_writing()
            self._finish_reading()

    def note_messages(self, arrays: Iterable) -> None:
        """Note that messages were copied to or from arrays, also of ranks that do not run."""
        self._filled += (each for each in arrays
                         if isinstance(each, np.ndarray) and each.nbytes >= mapped_pages.PAGE)

    def switch(self, leaving: int, entering: int) -> None:
        """Exchange arrays between the turns of two ranks, after that of `leaving`."""
        self._enter(entering)
        following = (entering + 1) % self.ranks
        near = {entering, following} - {leaving}
        dead = {id(array): (array, first) for array, first in self._dead(leaving)}
        private, self._private[leaving] = self._private[leaving], []
        out: list = [(each.write, *dead.pop(id(each.array), (each.array, each.pages))[1:])
                     for each in private]
        out += [(mapped_pages.forget, *each) for each in dead.values()]
        out.append((mapped_pages.put_out, self._touched(leaving, near)))

        # finish writing the turn before, because memory holds the arrays of three turns
        begin = time.perf_counter()
        self._finish_writing()
        if self._checks:  # the writer reads what was protected within the turn
            self._allow(leaving, allowed=True)
        self._writing = self.disk.writer.submit(_move, out, "write to disk", self._events[leaving])
        self._finish_reading()
        self._events[leaving].append(("wait for disk", begin, time.perf_counter()))
        self._moving = [each.array for each in private]

        # read the arrays of the turn after this one; with two ranks they are being written now
        self._here, self._ahead = entering if self._ahead == entering else -1, -1
        if following != entering:
            coming = self._coming(following)
            self._ahead = following if coming else -1
            self._moving += (array for array, _, written in coming if written)
            ahead = [(self._bring_in, following, *each) for each in coming]
            ahead += [(mapped_pages.bring_in, array, 0, array.nbytes)
                      for rank, array in self._waiting() if rank == following]
            if following == leaving:
                ahead.insert(0, (self._writing.result,))
            self._reading = self.disk.reader.submit(_move, ahead, "read from disk",
                                                    self._events[following])
        if self._checks:
            self._finish_writing()
            self._allow(leaving, allowed=False)
        self._protect(entering)

    def _bring_in(self, rank: int, array: np.ndarray, read: int, written: int) -> None:
        """Read the first bytes of an array; those that are written then get private memory."""
        if any(each.array is array for each in self._private[rank]):
            return
        private = make_private(array, read, written)
        if private is not None:
            self._private[rank].append(private)
        mapped_pages.bring_in(array, 0 if private is None else private.pages, read)

    def _enter(self, rank: int) -> None:
        self._table.TABLE[self._table.RUNNING] = rank

    def _touched(self, leaving: int, near: set[int]) -> list[tuple[int, int, int, int]]:
        """Return the parts of files that a turn has touched, as `mapped_pages.put_out` takes them.

        The two ranks `near`, which run next, find messages to them in memory.
        """
        table = self._table
        rows = table.ROWS[:table.TABLE[table.ARRAYS]]
        own = (rows[:, table.ADDRESS] > 0) & (rows[:, table.OWNER] == leaving)
        found = {row[table.ADDRESS]: row for row in rows[own].tolist()}
        for array in self._filled:
            row = table.row_of(array)
            if row is not None and row[table.OWNER] not in near:
                found[int(row[table.ADDRESS])] = row.tolist()
        self._filled = []

        # leave out messages that wait for these ranks
        ends = {address: [0] for address in found}  # begins and ends of parts, in turn
        waiting = [mapped_pages.pages_of(array) for rank, array in self._waiting() if rank in near]
        for address, _, begin, end in sorted(part for part in waiting if part is not None):
            if address in found and begin < end:
                ends[address] += begin, end
        return [(address, descriptor, *part) for address, nbytes, descriptor, _ in found.values()
                for part in zip(ends[address][::2], [*ends[address][1::2], nbytes])]

    def _finish_writing(self) -> None:
        with self.disk.waiting("write"):
            self._writing.result()

    def _finish_reading(self) -> None:
        with self.disk.waiting("read"):
            self._reading.result()

    def _allow(self, rank: int, *, allowed: bool) -> None:
        """Let accesses to all arrays that the plans of a rank name succeed, or fault."""
        for arrays in filter(None, self._known[rank].values()):
            for array in arrays.named():
                mapped_pages.protect(array, allowed=allowed)

    def _protect(self, rank: int) -> None:
        """Let accesses that the plan of a rank's turn leaves out fault, if they are checked."""
        arrays, segment = self._passes[rank], self._segments[rank]
        if not self._checks:
            return
        if arrays is None or segment == arrays.last:
            self._allow(rank, allowed=True)
        else:
            self._allow(rank, allowed=False)
            for array, *_ in arrays.coming(segment):
                mapped_pages.protect(array, allowed=True)

    def take_events(self, rank: int) -> list[tuple]:
        """Return the events of a rank since the last call, a list of (name, begin, end)."""
        found, self._events[rank][:] = [*self._events[rank]], []
        return found

    def close(self) -> None:
        """Wait for the disk."""
        self.disk.close()
        for rank in range(self.ranks if self._checks else 0):
            self.begin_pass(rank, None)


def _move(calls: list[tuple], name: str, events: list[tuple]) -> None:
    """Make calls (function, *arguments), and add their time to `events`."""
    begin = time.perf_counter()
    for call, *given in calls:
        call(*given)
    if calls:
        events.append((name, begin, time.perf_counter()))
