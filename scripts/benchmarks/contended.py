"""Timing of calls while another process keeps copying memory (--starved)."""

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

PIECE = 1 << 20  # float64 numbers that are copied before the flag is read again
PAUSE = 0.001  # seconds between two reads of the flag while nothing is copied
RUN, MOVED = 0, 1  # places in the shared state: whether to copy, and bytes copied so far


class Stream:
    """The process that copies memory; it shares the array `state` with this process."""

    def __init__(self, process, state):
        self.process = process
        self.state = state
        self.bytes_per_s = 0.0

    @contextmanager
    def running(self):
        """Context manager: copy within its block.

        Afterwards `bytes_per_s` is the rate of bytes read and written.
        """
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
        """Wait until more than `before` bytes have been copied in total.

        Return their number.
        """
        while self.state[MOVED] <= before:
            if not self.process.is_alive():
                raise InternalError("bench --starved: the process that copies memory has ended")
            time.sleep(PAUSE)
        return self.state[MOVED]


@contextmanager
def stream(host):
    """Start a Stream on the last processor, and yield it.

    This process is kept off its core.

    The copying process is killed at the end, and by the system if this process is
    killed. UsageError if this process has one processor.
    """
    if len(host.cpus) < 2:
        raise UsageError("bench --starved needs two processors, because another process copies "
                         f"memory; this process may use {len(host.cpus)}")
    mine, other = places(host.cpus)
    context = get_context("spawn")
    state = context.RawArray("d", 2)
    size = max(CACHES * host.cache_bytes, SMALLEST) // 8
    host.need(16 * size, "the process that copies memory")
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
    """Return a processor for timed calls and one for the copying process.

    They are on two cores if possible.
    """
    *others, last = cpus
    return next((cpu for cpu in others if cores([cpu, last]) == 2), others[0]), last


def copy_on(cpu, size, state, parent):
    """Copy between arrays while a flag in `state` is set, until killed.

    Arrays have `size` numbers; the process stays on processor `cpu`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and kills this process
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


def time_contended(stream, host, calls, repeats, label):
    """Time calls, and copies of memory, by `in_turns` while a Stream runs."""
    with stream.running():
        return in_turns(host, calls | host.memory_calls, repeats, f"{label}, starved")


def contended_row(stream, alone, timing, left, moved):
    """Return the report entries of a call that was timed while a Stream ran.

    starved_ms : its time; slower_ratio is this over `alone`, its time in ms without a Stream.
    left_bytes_per_s : the bandwidth that was left; starved_share is the share of it that the call
        used, which moves `moved` bytes.
    stream_bytes_per_s : the bandwidth of the Stream.
    """
    least = timing["time_ms"]
    return {"starved_ms": least, "slower_ratio": least / alone,
            "starved_share": 1e3 * moved / left / least, "left_bytes_per_s": left,
            "stream_bytes_per_s": stream.bytes_per_s}
