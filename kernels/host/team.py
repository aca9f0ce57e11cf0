"""A team of threads that go through pieces, lists of calls of kernels, without Python.

The calling thread publishes a piece and works on it. Threads that are awake or wake up
join it. A call is divided into chunks, which threads take by an atomic counter. The
next call begins when all chunks of this one are done. So a thread that lost its core
delays only the chunk that it holds, and no thread waits for one that did not come.

Threads wait in a loop for a short time, and then sleep. Each thread that joins a piece
wakes two more, so a long team delays the calling thread no more than a short one.
"""
import ctypes
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from hpgcn.kernels.host import atomics
from hpgcn.kernels.host.cgroups import usable_cores
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.pointers import pointer_of
from hpgcn.kernels.host.pools import warn_of_few
from hpgcn.kernels.host.trampolines import WORDS, words_of

# offsets of the counters of a call, in bytes; those of different threads' writes lie in
# different cache lines
DONE, COMPLETE, SLEEPING, FAILED = 64, 128, 136, 144
# words of the board: a number that changes with each piece, the piece, sleeping threads, and
# nanoseconds that threads wait in a loop
PUBLISHED, PIECE, ASLEEP, SPIN = 0, 64, 128, 136
# words of a piece: the other threads on it, their largest number, how many a thread wakes, and
# the number of calls. Four words of each call follow: trampoline, words, counters, and a place
# for nanoseconds.
JOINED, MOST, WAKES, COUNT, CALLS = 0, 64, 72, 80, 88
CALL = 32
WAITS = 50_000  # nanoseconds
LINE = 64


@jit(inner=True, counted=False)
def finish(counters, taken, count):
    """Note that a thread has done `taken` of the `count` chunks of a call, and found no more.

    `counters` is the address of the call's counters.
    """
    if atomics.add(counters + DONE, taken) + taken == count:
        _complete(counters)


@jit(inner=True, counted=False)
def _complete(counters):
    atomics.store(counters + COMPLETE, 1)
    if atomics.load(counters + SLEEPING):
        atomics.wake(counters + COMPLETE, 1 << 30)


@jit(inner=True, counted=False)
def _await_call(counters, spin):
    """Wait until all chunks of a call are done."""
    if atomics.load(counters + COMPLETE):
        return
    until = atomics.now() + spin
    while not atomics.load(counters + COMPLETE):
        if atomics.now() < until:
            atomics.relax()
        else:
            atomics.add(counters + SLEEPING, 1)
            atomics.sleep_while(counters + COMPLETE, 0)
            atomics.add(counters + SLEEPING, -1)


@jit(inner=True, counted=False)
def _work_on(place, spin):
    """Run the call of a piece at a place; return whether it failed."""
    counters = atomics.load(place + 16)
    if not atomics.load(counters + COMPLETE):
        if atomics.run(atomics.load(place), atomics.load(place + 8), counters):
            atomics.store(counters + FAILED, 1)
            _complete(counters)
        _await_call(counters, spin)
    return atomics.load(counters + FAILED)


@jit(inner=True, counted=False)
def _wake_others(board, piece):
    count = atomics.load(piece + WAKES)
    if count and atomics.load(board + ASLEEP):
        atomics.wake(board + PUBLISHED, count)


@jit(counted=False)
def _run_piece(board, piece):
    """Run the calls of a piece with other threads; return whether a call failed."""
    spin = atomics.load(board + SPIN)
    if atomics.load(piece + MOST):
        atomics.store(board + PIECE, piece)
        atomics.add(board + PUBLISHED, 1)
        _wake_others(board, piece)
    failed = np.int64(0)
    place = piece + CALLS
    begin = atomics.now()
    for _ in range(atomics.load(piece + COUNT)):
        failed |= _work_on(place, spin)
        end = atomics.now()
        nanoseconds = atomics.load(place + 24)
        if nanoseconds:
            atomics.add(nanoseconds, end - begin)
        begin = end
        place += CALL
    atomics.exchange(board + PIECE, piece, 0)
    return failed


@jit(counted=False)
def _serve(board):
    """Join the pieces of a board, without end."""
    while True:
        # join the present piece, unless enough threads have; it may be withdrawn any time
        spin = atomics.load(board + SPIN)
        published = atomics.load(board + PUBLISHED)
        piece = atomics.load(board + PIECE)
        if piece:
            if (atomics.add(piece + JOINED, 1) < atomics.load(piece + MOST)
                    and atomics.load(board + PIECE) == piece):
                _wake_others(board, piece)
                place = piece + CALLS
                for _ in range(atomics.load(piece + COUNT)):
                    _work_on(place, spin)
                    place += CALL
            atomics.add(piece + JOINED, -1)

        # wait for the next one
        until = atomics.now() + spin
        while atomics.load(board + PUBLISHED) == published and atomics.now() < until:
            atomics.relax()
        if atomics.load(board + PUBLISHED) == published:
            atomics.add(board + ASLEEP, 1)
            atomics.sleep_while(board + PUBLISHED, published)
            atomics.add(board + ASLEEP, -1)


_free_words: dict[int, list[np.ndarray]] = {}  # memory of former sequences, by its size


def _take_words(size: int) -> np.ndarray:
    """Return at least `size` words that begin a cache line; they are never freed.

    A thread that is late may still add 1 to the first word of a sequence that has ended, and
    then subtract it. So the memory only ever serves sequences, and outlives Python's end.
    """
    size = 1 << (size - 1).bit_length()
    with suppress(KeyError, IndexError):
        return _free_words[size].pop()
    memory = np.zeros(size + LINE // 8, np.int64)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    skipped = -pointer_of(memory) % LINE // 8
    return memory[skipped:skipped + size]


class CallSequence:
    """A list of calls that a team may run many times.

    Each call is a kernel and its arguments without the counters. The arguments are kept
    for as long as a thread may read them. The nanoseconds of a call are added to the
    int64 at its address in `clocks`, if there is one.
    """

    _words = None

    def __init__(self, calls: Sequence[tuple[Callable, tuple]],
                 clocks: Sequence[int] | None = None) -> None:
        self.calls = calls
        found = [words_of(*call) for call in calls]
        sizes = [len(words) for words, *_ in found]
        head = -(-(CALLS + CALL * len(calls)) // LINE) * (LINE // 8)
        room = head + WORDS * len(calls)
        self._words = words = _take_words(room + sum(sizes))
        self.address = begin = pointer_of(words)
        words[COUNT // 8] = len(calls)
        self._counters = words[head:room]
        self._joined = words[:1]
        self._limits = words[MOST // 8:][:2]
        self._places = []  # first word of each call, and those of its arguments
        place = room
        for number, (argument_words, trampoline, starts, writers) in enumerate(found):
            first = (CALLS + CALL * number) // 8
            words[first:first + 4] = (trampoline, begin + 8 * place,
                                      begin + 8 * (head + WORDS * number),
                                      clocks[number] if clocks else 0)
            self._places.append((place, starts, writers))
            self._write(place, argument_words)
            place += len(argument_words)

    def _write(self, place: int, words: Sequence[int]) -> None:
        self._words[place:place + len(words)] = np.array(words, np.uint64).view(np.int64)

    def set_argument(self, call: int, argument: int, value: Any) -> None:
        """Replace an argument that is a number, or a tuple of numbers."""
        place, starts, writers = self._places[call]
        self._write(place + starts[argument], writers[argument](value))

    def __del__(self, free: dict = _free_words) -> None:
        if self._words is not None:
            free.setdefault(self._words.size, []).append(self._words)

    @property
    def busy(self) -> bool:
        """Whether a thread is still about to leave."""
        return self._joined[0] != 0

    def run(self, board: int, others: int, wake: bool) -> None:
        """Run the calls with the help of at most `others` threads of a board.

        Those that sleep only help if they are to `wake`.
        """
        self._counters[:] = 0
        self._limits[:] = others, 2 * wake
        if _run_piece(board, self.address):
            raise MemoryError("a kernel found no memory for its work arrays")


class Team:
    """The threads of this process that help with pieces."""

    def __init__(self) -> None:
        self._words = _take_words(4 * LINE // 8)
        self._words[:] = 0
        self.board = pointer_of(self._words)
        self.threads: list = []
        self.avoided = None  # the core that they leave to the calling thread
        self.cores = usable_cores()
        self.leaving: deque = deque()  # pieces that threads were about to leave
        self._lock = threading.Lock()

    def run(self, piece: CallSequence, size: int, wake: bool) -> None:
        """Run a piece on the calling thread and those of a team of `size` threads.

        Without `wake` only threads that are awake help.
        """
        others = min(size, max(2, self.cores)) - 1 if size > 1 else 0
        if len(self.threads) < others:
            self._start(others)
        self._words[SPIN // 8] = WAITS if size <= self.cores else 0
        if others:
            self._part(others)
        try:
            piece.run(self.board, min(others, len(self.threads)), wake)
        finally:
            if piece.busy:
                self.leaving.append(piece)
            with suppress(IndexError):  # another Python thread may take the last one
                while not self.leaving[0].busy:
                    self.leaving.popleft()

    def _start(self, others: int) -> None:
        with self._lock:
            while len(self.threads) < others:
                thread = threading.Thread(target=_serve, args=(self.board,), daemon=True,
                                          name=f"hpgcn-kernels_{len(self.threads)}")
                try:
                    thread.start()
                except RuntimeError as error:  # can't start new thread
                    warn_of_few(others, len(self.threads), error)
                    return
                self.threads.append(thread)
                self.avoided = None

    def _part(self, others: int) -> None:
        """Keep the other threads off the core of this thread.

        A woken thread may start on the core of its waker. The system moves one of the two
        threads only after some milliseconds, longer than many kernels take.
        """
        here = current_core()
        if here == self.avoided:
            return
        rest = os.sched_getaffinity(0) - {here}
        if len(rest) < others:
            return
        for thread in self.threads:
            with suppress(OSError):  # the thread has ended
                os.sched_setaffinity(thread.native_id, rest)
        self.avoided = here


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def current_core() -> int | None:
    """Return the core on which this thread runs; None if unknown."""
    if not hasattr(os, "sched_setaffinity") or not hasattr(_libc(), "sched_getcpu"):
        return None
    return _libc().sched_getcpu()
