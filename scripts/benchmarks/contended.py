"""A machine whose memory others use: what is timed, beside a process that copies without end."""

import os
import signal
import time
from contextlib import contextmanager
from multiprocessing import get_context

import numpy as np

from hpgcn.bench.host import CACHES, SMALLEST, cores
from hpgcn.bench.timing import in_turns
from hpgcn.errors import InternalError, UsageError
from hpgcn.runtime.machine import die_with_parent

PIECE = 1 << 20  # float64 numbers that are copied between two looks at what is asked
PAUSE = 0.001  # seconds between two looks while nothing is copied
RUN, MOVED = 0, 1  # of the numbers that both processes see: whether to copy, and bytes so far


class Stream:
    """What the copying process is asked and says: `state` is shared with it."""

    def __init__(self, process, state):
        self.process = process
        self.state = state
        self.bytes_per_s = 0.0

    @contextmanager
    def running(self):
        """Have it copy within; then `bytes_per_s` is what it read and wrote in a second."""
        self.state[RUN] = 1
        try:
            begin = self._wait(self.state[MOVED])
            start = time.perf_counter()
            yield
            seconds = time.perf_counter() - start
            self.bytes_per_s = (self.state[MOVED] - begin) / seconds
        finally:
            self.state[RUN] = 0

    def _wait(self, before):
        """Wait until more than so many bytes are copied; return how many."""
        while self.state[MOVED] <= before:
            if not self.process.is_alive():
                raise InternalError("bench --starved: the process that copies memory has ended")
            time.sleep(PAUSE)
        return self.state[MOVED]


@contextmanager
def stream(host):
    """Give a Stream on the last of the processors of this process, which keeps to another core.

    The copying process is killed at the end, and by the system should this one be killed.
    UsageError where there is one processor alone.
    """
    if len(host.cpus) < 2:
        raise UsageError("bench --starved needs two processors, one of them to copy memory on; "
                         f"this process may use {len(host.cpus)}")
    mine, other = places(host.cpus)
    context = get_context("spawn")
    state = context.RawArray("d", 2)
    size = max(CACHES * host.cache_bytes, SMALLEST) // 8
    host.need(16 * size, 0, "the process that copies memory")
    process = context.Process(target=copy_on, args=(other, size, state, os.getpid()), daemon=True)
    before = os.sched_getaffinity(0)
    process.start()
    try:
        os.sched_setaffinity(0, {mine})
        yield Stream(process, state)
    finally:
        os.sched_setaffinity(0, before)
        process.kill()
        process.join()


def places(cpus):
    """Return the processors of what is timed and of what copies: the last, and another core's."""
    *others, last = cpus
    return next((cpu for cpu in others if cores([cpu, last]) == 2), others[0]), last


def copy_on(cpu, size, state, parent):
    """Copy between arrays of so many numbers on a processor, whenever asked, until killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which kills this one
    die_with_parent(parent)
    os.sched_setaffinity(0, {cpu})
    source = np.ones(size)
    target = np.ones(size)
    first = 0
    while os.getppid() == parent:
        if not state[RUN]:
            time.sleep(PAUSE)
            continue
        last = min(size, first + PIECE)
        np.copyto(target[first:last], source[first:last])
        state[MOVED] += 16 * (last - first)
        first = last % size


def beside(stream, host, calls, repeats, label):
    """Time calls in turns, and those that measure memory, while a Stream runs; as `in_turns`."""
    with stream.running():
        return in_turns(host, calls | host.memory_calls, repeats, f"{label}, starved")


def compared(stream, alone, timing, left, moved):
    """Return what a row says of a call beside a Stream.

    starved_ms; slower_ratio, over `alone` ms; starved_share, of the bandwidth that was left, for
    `moved` bytes; left_bytes_per_s, that bandwidth; stream_bytes_per_s, what the stream got itself.
    """
    least = timing["time_ms"]
    return {"starved_ms": least, "slower_ratio": least / alone,
            "starved_share": 1e3 * moved / left / least, "left_bytes_per_s": left,
            "stream_bytes_per_s": stream.bytes_per_s}
