"""Where the seconds of a rank go, by kind of work: "spmm", "dense", "comm" (packing, starting, testing), "wait"."""
import time
from contextlib import contextmanager

KINDS = ("spmm", "dense", "comm", "wait")


class Clock:
    """Sums seconds by kind; `read` returns the sums since the last `reset`."""

    def __init__(self):
        self.seconds = dict.fromkeys(KINDS, 0.0)

    @contextmanager
    def __call__(self, kind):
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[kind] += time.perf_counter() - begin

    def reset(self):
        """Start all sums at 0."""
        self.seconds = dict.fromkeys(KINDS, 0.0)
