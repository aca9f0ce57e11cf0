"""Measure the seconds of a rank by kind: "spmm", "dense", "comm" and "wait".

Blocks nest: for example, a dense product of ranks that share rows sends messages. A
kind gets the whole time of its blocks; "comm" excludes waiting. PARTS divide the same
time without overlap: a part gets the time of its blocks minus that of inner blocks.
"""
import time
from collections.abc import Iterator
from contextlib import contextmanager

KINDS = ("spmm", "dense", "comm", "wait")
PARTS = {  # from the bottom of a stacked bar to its top
    "spmm": "SpMM", "gemm": "GEMM", "activation": "activation", "loss": "loss",
    "update": "optimizer", "dense": "other dense work", "comm": "messages of SpMM",
    "sparse_comm": "messages of blocks of A",
    "dense_comm": "messages of dense work", "gradient_comm": "messages of gradients",
    "wait": "wait"}
SETUP = ("kernels", "planning", "reading", "checking", "matrix", "memory")  # parts of set-up
DENSE = ("gemm", "activation", "loss", "update", "dense")


class SetupClock:
    """A clock of the set-up of a run; each part lasts until the next one begins.

    Attributes
    ----------
    seconds : dict
        Seconds of each part in SETUP.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(SETUP, 0.0)
        self._part, self._since = None, 0.0

    def begin(self, part: str | None = None) -> None:
        """End the current part, and begin `part` of SETUP unless it is None."""
        now = time.perf_counter()
        if self._part is not None:
            self.seconds[self._part] += now - self._since
        self._part, self._since = part, now


class Clock:
    """A clock that sums seconds by kind since `reset`.

    After `record` it also stores each block as an event.
    """

    def __init__(self) -> None:
        self.reset()
        self.setup = SetupClock()
        self.detail = ""  # stored with each later event, e.g. "layer 1 forward"
        self.stage = -1  # stored likewise: the number of a stage or batch of a product, or -1
        self.messages_part = None  # set by `messages`
        self.epoch = 0
        # tuples (name, begin, end, epoch, detail, stage) in order of their ends, with times of
        # time.perf_counter; None if nothing is recorded
        self.events = None
        self.limit = 0
        self.full = None  # epoch of the first event beyond the limit

    @contextmanager
    def __call__(self, kind: str, name: str | None = None,
                 part: str | None = None) -> Iterator[None]:
        """Context manager: time a block under one of KINDS.

        Its event has the name `name`, by default the kind. `part` is one of PARTS. By
        default it is the kind, or for messages their purpose.
        """
        # messages within dense work are part of it
        outer, inner, kinds = self._part, self._inner, self._kinds
        self._kinds = (*kinds, kind)
        if self.messages_part and kind in ("comm", "wait"):
            part = name = self.messages_part
        elif kind == "comm":
            part = self._purpose(outer)
        self._part, self._inner = part or kind, 0.0
        begin = time.perf_counter()
        try:
            yield
        finally:
            end = time.perf_counter()
            self.seconds[kind] += end - begin
            self.parts[self._part] += end - begin - self._inner
            self._part, self._inner, self._kinds = outer, inner + end - begin, kinds
            if self.events is not None:
                self._keep(name or kind, begin, end)

    @contextmanager
    def messages(self, part: str | None) -> Iterator[None]:
        """Context manager: count messages and waits of a block as this part of PARTS.

        Their events get its name. None changes nothing.
        """
        outer, self.messages_part = self.messages_part, part
        try:
            yield
        finally:
            self.messages_part = outer

    def _purpose(self, outer: str | None) -> str:
        """Return the part of messages that a block of part `outer` sends."""
        if outer in DENSE:
            return "dense_comm"
        if outer is None and self.detail == "update":
            return "gradient_comm"
        return outer if outer and outer.endswith("comm") else "comm"

    @contextmanager
    def named(self, detail: str, stage: int = -1) -> Iterator[None]:
        """Context manager: keep `detail` and `stage` with the events of a block."""
        before = self.detail, self.stage
        self.detail, self.stage = detail, stage
        try:
            yield
        finally:
            self.detail, self.stage = before

    @contextmanager
    def span(self, name: str, epoch: int) -> Iterator[None]:
        """Context manager: record an event for a part of an epoch; its time counts for no kind."""
        self.epoch = epoch
        self.detail = ""
        begin = time.perf_counter()
        try:
            yield
        finally:
            if self.events is not None:
                self.detail = ""
                self._keep(name, begin, time.perf_counter())

    def note(self, name: str, begin: float, end: float) -> None:
        """Record an event with times of time.perf_counter, if events are recorded."""
        if self.events is not None:
            self._keep(name, begin, end)

    def label(self) -> tuple:
        """Return kinds and part of the block under way, for `add`."""
        return self._kinds, self._part

    def add(self, label: tuple, seconds: float, inner: float = 0.0) -> None:
        """Add the seconds of a repeated call to the kinds and the part of its block.

        The part gets none of those of `inner` blocks.
        """
        kinds, part = label
        for kind in kinds:
            self.seconds[kind] += seconds
        if part:
            self.parts[part] += seconds - inner

    def block(self) -> tuple:
        """Return the description of the block under way that `within` takes."""
        return *self.label(), self.messages_part, self.detail, self.stage

    @contextmanager
    def within(self, block: tuple) -> Iterator[None]:
        """Context manager: time repeated calls as if they were in a `block` again."""
        before = self.block()
        self._enter(block)
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add(self.label(), time.perf_counter() - begin, self._inner)
            self._enter(before)

    def _enter(self, block: tuple) -> None:
        self._kinds, self._part, self.messages_part, self.detail, self.stage = block
        self._inner = 0.0

    def _keep(self, name: str, begin: float, end: float) -> None:
        if len(self.events) < self.limit:
            self.events.append((name, begin, end, self.epoch, self.detail, self.stage))
        elif self.full is None:
            self.full = self.epoch

    def record(self, limit: int) -> None:
        """Store events from now on, at most `limit`; drop later ones."""
        self.events = []
        self.limit = limit
        self.full = None

    def stop(self) -> list[tuple]:
        events = self.events or []
        self.events = None
        return events

    def reset(self) -> None:
        self.seconds = dict.fromkeys(KINDS, 0.0)
        self.parts = dict.fromkeys(PARTS, 0.0)
        self._part = None  # part of the block under way
        self._inner = 0.0  # seconds of the inner blocks so far
        self._kinds = ()  # the kinds of all blocks under way
