"""Run kernels on threads of hpgcn's own, which take pieces of work until none is left.

The calling thread also works. At the end it waits only for threads that have started; a
thread that is still asleep is cancelled. So another process on the machine delays a
kernel only by the piece that it interrupted. One thread sums each piece, in a fixed
order. So the choice of the thread changes no bit of a result.
"""
import ctypes
import functools
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from hpgcn.kernels.host.cgroups import usable_cores
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.pools import start_pool

LEAST_WORK = 1 << 20  # scalar operations, about a millisecond: kernels of less wake no threads
OPERATIONS = 1 << 30  # scalar operations of about a second
# Threads are woken if a kernel takes DOUBT times as long as threads have lately waited for a
# core. LONG seconds, some time slices of the system, are always enough.
DOUBT = 16
LONG = 0.024
NOTICED = 0.0005  # seconds: a thread that wakes later is late; most wake in a tenth of this time
LONGEST_LOST = 0.01  # seconds: the most that one launch adds to `lost`
FORGOTTEN = 1 / 64  # each LEAST_WORK without threads lowers `lost` by this share
_least_work: ContextVar = ContextVar("least_work", default=None)


class _ThreadPool:
    """The number of threads, and the recent cost of waking them."""

    size = numba.config.NUMBA_NUM_THREADS
    if "NUMBA_NUM_THREADS" not in os.environ:
        size = min(size, usable_cores())
    lost = 0.0  # mean seconds that a woken thread waited for a core
    others: ClassVar = {}  # by process: system ids of the threads of its pool
    avoided = None  # the core that these threads leave to the calling thread


@intrinsic
def _fetch(typingctx, next_chunk):
    """Add 1 atomically to the first element of an array; return its old value."""
    signature = types.int64(next_chunk)

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        one = context.get_constant(types.int64, 1)
        return builder.atomic_rmw("add", array.data, one, "monotonic")

    return signature, codegen


# not cached: Numba loses the code of a generator that it takes from its cache
@numba.njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
def chunks(next_chunk, count):
    """Yield numbers from 0 to count - 1; each number goes to one of the threads.

    `next_chunk`, (1,) int64, is the counter that all threads share.
    """
    while True:
        chunk = _fetch(next_chunk)  # type: ignore[call-arg]
        if chunk >= count:
            return
        yield chunk


class Threaded:
    """A kernel that runs on all threads; its first parameter is the counter of `chunks`.

    Waking threads may take longer than a small kernel and, on a busy machine, a whole
    time slice. `options` are those of numba.njit.
    """

    def __init__(self, function: Callable, **options: Any) -> None:
        self.kernel = jit(**options)(function)
        functools.update_wrapper(self, function)

    def __call__(self, work: int, *args: Any) -> None:
        """Run the kernel; wake threads if `work`, its scalar operations, is large enough."""
        self.launch(work, *args)()

    def launch(self, work: int, *args: Any) -> Callable:
        """Return a `functools.partial` that runs the kernel like a call does, once."""
        next_chunk = np.zeros(1, np.int64)
        if worth_threads(work):
            return partial(run_on_all_threads, self.kernel, next_chunk, *args)
        return partial(self.kernel, next_chunk, *args)


def run_on_all_threads(function: Callable, *args: Any) -> None:
    """Call a function on all threads, including this one; wait for those that started."""
    if _ThreadPool.size == 1:
        function(*args)
        return
    begin = time.perf_counter()
    pool, count = _pool(_ThreadPool.size)
    _part()
    others = [pool.submit(_timed, function, *args) for _ in range(count)]
    try:
        function(*args)
    finally:
        done = time.perf_counter()
        ended = [other.result() for other in others if not other.cancel()]
        now = time.perf_counter()
        lost = [waited + _late(now - max(done, end)) for waited, end in ended]
        if len(lost) < len(others):
            lost.append(now - begin)
        _ThreadPool.lost += (min(max(lost, default=0.0), LONGEST_LOST) - _ThreadPool.lost) / 4


def _late(seconds: float) -> float:
    """Return `seconds` if they exceed the usual time to wake a thread, else 0."""
    return seconds if seconds > NOTICED else 0.0


def _timed(function: Callable, *args: Any) -> tuple[float, float]:
    """Call a function; return the seconds of waiting for a core, and the time of its end.

    The wait is 0 if the thread was never interrupted: other waits are first touches of
    memory.
    """
    interrupted = _interruptions()
    before = time.perf_counter() - time.thread_time()
    function(*args)
    end = time.perf_counter()
    waited = end - time.thread_time() - before
    return (waited if _interruptions() != interrupted else 0.0), end


def _interruptions() -> float:
    """Return the number of involuntary context switches of this thread, or else the time."""
    if not hasattr(resource, "RUSAGE_THREAD"):
        return time.perf_counter()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def _part() -> None:
    """Keep the other threads off the core of this thread.

    A woken thread may start on the core of its waker. The system moves one of the two
    threads only after some milliseconds, longer than many kernels take.
    """
    here = _core()
    if here == _ThreadPool.avoided:
        return
    rest = os.sched_getaffinity(0) - {here}
    if len(rest) < _ThreadPool.size - 1:
        return
    for thread in _ThreadPool.others.get(os.getpid(), ()):
        with suppress(OSError):  # the thread has ended
            os.sched_setaffinity(thread, rest)
    _ThreadPool.avoided = here


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _core() -> int | None:
    """Return the core on which this thread runs; None if unknown."""
    if not hasattr(os, "sched_setaffinity") or not hasattr(_libc(), "sched_getcpu"):
        return None
    return _libc().sched_getcpu()


def _join() -> None:
    _ThreadPool.others.setdefault(os.getpid(), []).append(threading.get_native_id())
    _ThreadPool.avoided = None


def worth_threads(work: int) -> bool:
    """Return whether `work` scalar operations take long enough to wake threads for them.

    They must take far longer than threads have recently waited for a core. Old waits
    count less and less, so that threads are tried again.
    """
    if _ThreadPool.size == 1:
        return False
    least = _least_work.get()
    if least is not None:
        return work >= least
    if work < LEAST_WORK:
        return False
    if work >= LEAST_WORK + min(DOUBT * _ThreadPool.lost, LONG) * OPERATIONS:
        return True
    _ThreadPool.lost *= (1 - FORGOTTEN) ** (work / LEAST_WORK)
    return False


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
    return _ThreadPool.size


def set_num_threads(count: int) -> None:
    """Set the number of threads that kernels use, at least 1."""
    _ThreadPool.size = max(1, int(count))


@functools.cache
def _pool(threads: int) -> tuple[Executor, int]:
    """Return a pool of the other threads of a team of `threads`, and its size."""
    return start_pool(threads - 1, "hpgcn-kernels", initializer=_join)
