"""Run kernels on threads of hpgcn's own, which take pieces of work until none is left.

The calling thread also works. At the end it waits only for chunks that another thread
holds. One thread sums each chunk, in a fixed order. So the choice of the thread changes
no bit of a result.
"""
import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numba
import numpy as np

from hpgcn.kernels.host import atomics
from hpgcn.kernels.host.cgroups import usable_cores
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.pools import start_pool
from hpgcn.kernels.host.record import recording
from hpgcn.kernels.host.team import CallSequence, Team, finish
from hpgcn.kernels.host.trampolines import WORDS

LEAST_WORK = 1 << 20  # scalar operations, about a millisecond: kernels of less wake no threads
LEAST_REPEATED = 1 << 16  # the same for pieces that follow each other: threads are mostly awake
_least_work: ContextVar = ContextVar("least_work", default=None)


class _Threads:
    """The number of threads of this process, and those that run."""

    size = numba.config.NUMBA_NUM_THREADS
    if "NUMBA_NUM_THREADS" not in os.environ:
        size = min(size, usable_cores())
    team = None


# not cached: Numba loses the code of a generator that it takes from its cache
_inner = numba.njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@_inner
def chunks(counters, count):
    """Yield numbers from 0 to count - 1; each number goes to one of the threads.

    `counters`, (WORDS,) int64, are those that all threads of a call share. Each thread
    must take numbers until none is left.
    """
    # not the array: Numba does not release the arguments of a generator
    return _chunks(np.int64(counters.ctypes.data), count)


@_inner
def _chunks(address, count):
    taken = np.int64(0)
    while True:
        chunk = atomics.add(address, 1)
        if chunk >= count:
            break
        yield chunk
        taken += 1
    finish(address, taken, count)


class Threaded:
    """A kernel that runs on all threads; its first parameter are the counters of `chunks`.

    Waking threads may take longer than a small kernel. `options` are those of
    numba.njit.
    """

    def __init__(self, function: Callable, **options: Any) -> None:
        self.kernel = jit(**options)(function)
        functools.update_wrapper(self, function)

    def __call__(self, work: int, *args: Any) -> None:
        """Run the kernel; wake threads if `work`, its scalar operations, is large enough."""
        if worth_threads(work):
            run_piece(CallSequence([(self.kernel, args)]), work, 0)
        else:
            self.kernel(np.zeros(WORDS, np.int64), *args)
        if (active := recording()) is not None:
            active.note(self.kernel, args, work)

    def launch(self, work: int, *args: Any) -> Callable:
        """Return a `functools.partial` that runs the kernel like a call does, once."""
        if worth_threads(work) or recording() is not None:
            return partial(self, work, *args)
        return partial(self.kernel, np.zeros(WORDS, np.int64), *args)


def run_piece(piece: CallSequence, work: int, least: int = LEAST_REPEATED) -> None:
    """Run a CallSequence of `work` scalar operations; wake threads for `least` or more."""
    if _Threads.team is None:
        _Threads.team = Team()
    _Threads.team.run(piece, _Threads.size, worth_threads(work, least))


def _forget_team() -> None:
    _Threads.team = None


# a child process has only the thread that forked
os.register_at_fork(after_in_child=_forget_team)


def run_on_all_threads(function: Callable, *args: Any) -> None:
    """Call a Python function on all threads, including this one; wait for those that started."""
    if _Threads.size == 1:
        function(*args)
        return
    pool, count = _pool(_Threads.size)
    others = [pool.submit(function, *args) for _ in range(count)]
    try:
        function(*args)
    finally:
        for other in others:
            if not other.cancel():
                other.result()


def worth_threads(work: int, least: int = LEAST_WORK) -> bool:
    """Return whether `work` scalar operations take long enough to wake threads for them."""
    chosen = _least_work.get()
    return _Threads.size > 1 and work >= (least if chosen is None else chosen)


@contextmanager
def threshold(work: float) -> Iterator[None]:
    """Set the scalar operations from which this thread wakes others; a context manager.

    0 always wakes them.
    """
    token = _least_work.set(work)
    try:
        yield
    finally:
        _least_work.reset(token)


def num_threads() -> int:
    """Return the number of threads that kernels use."""
    return _Threads.size


def set_num_threads(count: int) -> None:
    """Set the number of threads that kernels use, at least 1."""
    _Threads.size = max(1, int(count))


@functools.cache
def _pool(threads: int) -> tuple[Executor, int]:
    """Return a pool of the other threads of a team of `threads`, and its size."""
    return start_pool(threads - 1, "hpgcn-python")
