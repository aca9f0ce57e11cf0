"""Homes of blocks while their rank does not run, in pinned host memory."""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpgcn.runtime.disk.page_cache import PAGE, whole_pages
from hpgcn.runtime.gpu.spans import EMPTY, Span, overlap
from hpgcn.runtime.places import Places

if TYPE_CHECKING:
    from hpgcn.runtime.device import Cuda


class Part(NamedTuple):
    """Bytes of a home in pinned memory.

    `owner.moved` is an event after the last copy, or None. `owner.copied(event)` notes one.
    """

    span: Span
    memory: np.ndarray  # uint8
    owner: Any


class Home:
    """Base class of homes, whose contents pass through pinned memory."""

    nbytes: int

    def parts(self, span: Span, *, filled: bool) -> Iterator[Part]:
        """Yield the Parts of a span: with its contents if `filled`, else to be overwritten.

        The caller copies each, or queues a copy, before it takes the next one.
        """
        raise NotImplementedError

    def read_ahead(self, span: Span) -> None:
        """Begin to bring a span into pinned memory, if it is not there."""

    def free(self) -> None:
        """Let other homes use its memory, because nothing reads the contents any more."""
        raise NotImplementedError

    def load(self, span: Span) -> np.ndarray:
        """Return a copy of the contents of a span, uint8."""
        found = np.empty(span[1] - span[0], np.uint8)
        for part in self.parts(span, filled=True):
            _await(part)
            found[part.span[0] - span[0]:part.span[1] - span[0]] = part.memory
            part.owner.copied(None)
        return found

    def store(self, span: Span, contents: np.ndarray) -> None:
        """Replace the contents of a span by those of an array of the host."""
        contents = contents.reshape(-1).view(np.uint8)
        for part in self.parts(span, filled=False):
            _await(part)
            part.memory[:] = contents[part.span[0] - span[0]:part.span[1] - span[0]]
            part.owner.copied(None)


def _await(part: Part) -> None:
    """Let the host wait for the last copy."""
    if part.owner.moved is not None:
        part.owner.moved.synchronize()


class PinnedHome(Home):
    """Home in pinned host memory, in one piece or in several.

    `moved` is an event after the last copy from or to it, and of homes before it.
    """

    def __init__(self, homes: PinnedHomes, nbytes: int, places: list[Span],
                 pieces: list[np.ndarray]) -> None:
        self.homes = homes
        self.nbytes = nbytes
        self.places = places
        self.pieces = pieces  # uint8
        self.moved: Any = None

    def parts(self, span: Span, *, filled: bool) -> Iterator[Part]:
        begin = 0
        for piece in self.pieces:
            part = overlap(span, (begin, begin + piece.size))
            if part != EMPTY:
                yield Part(part, piece[part[0] - begin:part[1] - begin], self)
            begin += piece.size

    def copied(self, event: Any) -> None:
        """Note that a copy from the home or to it is complete after an event; None: now."""
        self.moved = event

    def free(self) -> None:
        self.homes.give(self)


class PinnedHomes:
    """Pinned host memory, which grows to the most bytes that homes have at a time.

    A home has several places if no hole is large enough, so that gaps take no memory.
    """

    def __init__(self, gpu: Cuda) -> None:
        self.gpu = gpu
        self.nbytes = 0
        self._places = Places()
        self._regions: list[np.ndarray] = []  # uint8; one range of bytes together
        self._begins: list[int] = []  # first byte of each
        self._copies: list = []  # by page: event after the last copy of a home that was there
        self._joined = gpu.stream()  # waits for several events

    def take(self, nbytes: int) -> PinnedHome:
        """Return a home of some bytes."""
        places = [(place, place + size)
                  for place, size in self._places.take_parts(whole_pages(nbytes))]
        missing = self._places.end - self.nbytes
        if missing > 0:
            self._begins.append(self.nbytes)
            self._regions.append(self.gpu.pinned(missing))
            self._copies += [None] * (missing // PAGE)
            self.nbytes = self._places.end
        home = PinnedHome(self, nbytes, places,
                          [piece for place in places for piece in self._pieces(*place)])
        home.moved = self._after({event for begin, end in places for event
                                  in self._copies[begin // PAGE:end // PAGE]} - {None})
        return home

    def _pieces(self, begin: int, end: int) -> Iterator[np.ndarray]:
        """Yield the memory of a place, region by region."""
        while begin < end:
            number = bisect_right(self._begins, begin) - 1
            first = self._begins[number]
            piece = self._regions[number][begin - first:end - first]
            yield piece
            begin += piece.size

    def _after(self, events: set) -> Any:
        """Return an event after some events, or None without any."""
        if len(events) < 2:
            return next(iter(events), None)
        for event in events:
            self._joined.wait_event(event)
        return self.gpu.event(self._joined)

    def give(self, home: PinnedHome) -> None:
        """Let other homes use the memory of one."""
        for begin, end in home.places:
            self._copies[begin // PAGE:end // PAGE] = [home.moved] * ((end - begin) // PAGE)
            self._places.give(begin, end - begin)
