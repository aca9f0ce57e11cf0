"""Threads of hpgcn's own; each takes the next piece of work until none is left.

The calling thread also works. At the end it waits only for threads that have started; a
thread still asleep is cancelled. So another process on the machine delays a kernel only
by the piece that it interrupted. One thread sums each piece, in a fixed order, so the
choice of thread changes no bit of a result.
"""
import ctypes
import functools
import os
import resource
import threading
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import ClassVar

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from hpgcn.kernels.host.cgroups import usable_cores
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.pools import start_pool

LEAST_WORK = 1 << 20  # scalar operations from which on threads are woken: about a millisecond
OPERATIONS = 1 << 30  # in about a second
DOUBT = 16  # times as long as threads have lately waited a kernel must take,
LONG = 0.024  # but no longer than this, in seconds: some time slices of the system
NOTICED = 0.0005  # seconds from which on a thread is late: others wake within a tenth of it
LONGEST_LOST = 0.01  # seconds: the most that one launch adds to `lost`
FORGOTTEN = 1 / 64  # share of `lost` that is forgotten for each LEAST_WORK done while threads sleep
_least_work = ContextVar("least_work", default=None)


class _ThreadPool:
    """The number of threads, and the recent cost of waking them."""

    size = numba.config.NUMBA_NUM_THREADS
    if "NUMBA_NUM_THREADS" not in os.environ:
        size = min(size, usable_cores())
    lost = 0.0  # seconds that a woken thread was without a core, on average
    others: ClassVar = {}  # by process: system ids of the threads of its pool
    avoided = None  # the core that they leave to the calling thread


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
    """Yield the numbers from 0 to count - 1, each in one thread.

    The threads share the counter `next_chunk`.

    `next_chunk` is the counter that all threads share, (1,) int64.
    """
    while True:
        chunk = _fetch(next_chunk)
        if chunk >= count:
            return
        yield chunk


class Threaded:
    """A kernel that runs on all threads.

    Its first parameter is the counter that `chunks` shares.

    Waking threads may take longer than a small kernel and, on a busy machine, a whole
    time slice. `options` are those of numba.njit.
    """

    def __init__(self, function, **options):
        self.kernel = jit(**options)(function)
        functools.update_wrapper(self, function)

    def __call__(self, work, *args):
        """Run the kernel, on all threads if `work` is large enough.

        `work` is about the number of scalar operations.
        """
        self.launch(work, *args)()

    def launch(self, work, *args):
        """Return a `functools.partial` that runs the kernel like a call does.

        It may be called once.
        """
        next_chunk = np.zeros(1, np.int64)
        if worth_threads(work):
            return partial(run_on_all_threads, self.kernel, next_chunk, *args)
        return partial(self.kernel, next_chunk, *args)


def run_on_all_threads(function, *args):
    """Call a function on all threads, including this one.

    Wait for all that started.
    """
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


def _late(seconds):
    """Return `seconds` if they exceed the usual time to wake a thread, else 0."""
    return seconds if seconds > NOTICED else 0.0


def _timed(function, *args):
    """Call a function; return its seconds of waiting, and when it ended.

    The thread waited for a core.

    The wait is 0 if the thread was never interrupted. Other waits are first touches of
    memory.
    """
    interrupted = _interruptions()
    before = time.perf_counter() - time.thread_time()
    function(*args)
    end = time.perf_counter()
    waited = end - time.thread_time() - before
    return (waited if _interruptions() != interrupted else 0.0), end


def _interruptions():
    """Return the number of involuntary context switches of this thread.

    It is the time if they are not counted.
    """
    if not hasattr(resource, "RUSAGE_THREAD"):
        return time.perf_counter()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def _part():
    """Keep the other threads off the core of this thread.

    A woken thread may start on its waker's core.

    The system moves one of the two threads only after some milliseconds, longer than
    many kernels take.
    """
    here = _core()
    if here == _ThreadPool.avoided:
        return
    rest = os.sched_getaffinity(0) - {here}
    if len(rest) < _ThreadPool.size - 1:
        return
    for thread in _ThreadPool.others.get(os.getpid(), ()):
        with suppress(OSError):  # it is gone
            os.sched_setaffinity(thread, rest)
    _ThreadPool.avoided = here


@functools.cache
def _libc():
    return ctypes.CDLL(None)


def _core():
    """Return the core on which this thread runs; None if unknown."""
    if not hasattr(os, "sched_setaffinity") or not hasattr(_libc(), "sched_getcpu"):
        return None
    return _libc().sched_getcpu()


def _join():
    _ThreadPool.others.setdefault(os.getpid(), []).append(threading.get_native_id())
    _ThreadPool.avoided = None


def worth_threads(work):
    """Return whether `work` takes long enough to wake threads for it.

    `work` counts scalar operations.

    They do if they take far longer than threads have recently waited for a core. Old
    waits count less and less, so that threads are tried again.
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
def threshold(work):
    """Set the scalar operations from which this thread wakes others.

    This is a context manager; 0 stands for always.
    """
    token = _least_work.set(work)
    try:
        yield
    finally:
        _least_work.reset(token)


def num_threads():
    """Return the number of threads that kernels use."""
    return _ThreadPool.size


def set_num_threads(count):
    """Set the number of threads that kernels use, at least 1."""
    _ThreadPool.size = max(1, int(count))


@functools.cache
def _pool(threads):
    """Return a pool of the other threads of a team, and its size.

    The team has `threads` threads.
    """
    return start_pool(threads - 1, "hpgcn-kernels", initializer=_join)
