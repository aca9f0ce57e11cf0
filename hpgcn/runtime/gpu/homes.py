"""Homes of blocks while their rank does not run, in pinned host memory."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from hpgcn.runtime.device import Cuda
    from hpgcn.runtime.gpu.spans import Span


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
        """Let other blocks use the home, after the arrays of its block have ended."""
        raise NotImplementedError

    def end(self) -> None:
        """Give its memory back, because a larger home takes its place."""
        self.free()

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
    """Home in pinned host memory. `moved` is an event after the last copy from or to it."""

    def __init__(self, homes: PinnedHomes, nbytes: int) -> None:
        self.homes = homes
        self.nbytes = nbytes
        self.memory = homes.gpu.pinned(nbytes)
        self.moved: Any = None

    def parts(self, span: Span, *, filled: bool) -> Iterator[Part]:
        yield Part(span, self.memory[slice(*span)], self)

    def copied(self, event: Any) -> None:
        """Note that a copy from the home or to it is complete after an event; None: now."""
        self.moved = event

    def free(self) -> None:
        self.homes.unused[self.nbytes].append(self)

    def end(self) -> None:
        if self.moved is not None:
            self.moved.synchronize()
        self.homes.nbytes -= self.nbytes
        self.memory = self.memory[:0]
        self.homes.gpu.trim_pinned()


class PinnedHomes:
    """Pinned host memory for blocks, which is used again once its block has ended."""

    def __init__(self, gpu: Cuda) -> None:
        self.gpu = gpu
        self.unused: defaultdict = defaultdict(list)  # by size
        self.nbytes = 0  # bytes of all homes, used and unused

    def take(self, nbytes: int) -> PinnedHome:
        """Return a home for a block."""
        if self.unused[nbytes]:
            return self.unused[nbytes].pop()
        self.nbytes += nbytes
        return PinnedHome(self, nbytes)
