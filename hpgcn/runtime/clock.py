"""Seconds of a rank by kind: "spmm", "dense", "comm" (all except waiting), "wait"."""
import time
from contextlib import contextmanager

KINDS = ("spmm", "dense", "comm", "wait")


class Clock:
    """Sums seconds by kind since the last `reset`; after `record` every block also is an event."""

    def __init__(self):
        self.reset()
        self.detail = ""  # kept with the events that follow, e.g. "layer 1 forward"
        self.epoch = 0
        # (name, begin, end, epoch, detail) in order of their ends, times by
        # time.perf_counter
        self.events = None  # None: nothing is recorded
        self.limit = 0
        self.full = None  # epoch of the first event that found no room

    @contextmanager
    def __call__(self, kind, name=None):
        """Time a block under one of KINDS; an event is called `name` (default: the kind)."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            end = time.perf_counter()
            self.seconds[kind] += end - begin
            if self.events is not None:
                self._keep(name or kind, begin, end)

    @contextmanager
    def span(self, name, epoch):
        """Mark a part of an epoch ("epoch" is the training step); add to no sum."""
        self.epoch = epoch
        self.detail = ""
        begin = time.perf_counter()
        try:
            yield
        finally:
            if self.events is not None:
                self.detail = ""
                self._keep(name, begin, time.perf_counter())

    def _keep(self, name, begin, end):
        if len(self.events) < self.limit:
            self.events.append((name, begin, end, self.epoch, self.detail))
        elif self.full is None:
            self.full = self.epoch

    def record(self, limit):
        """Keep events from now on, `limit` at most; later ones are dropped."""
        self.events = []
        self.limit = limit
        self.full = None

    def stop(self):
        events = self.events or []
        self.events = None
        return events

    def reset(self):
        self.seconds = dict.fromkeys(KINDS, 0.0)
