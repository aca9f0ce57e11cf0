"""Homes of blocks in a file, below a GPU and pinned host memory.

Contents pass through a pool of pinned memory, in pieces. What goes home is copied to a
piece, and a thread writes it. What the next turns need is read ahead by another thread.
Anything else is read when a copy needs it. What a turn wrote or used is read again, so that
the bytes of the disk do not depend on the size of the pool.
"""
from __future__ import annotations

import mmap
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import InternalError
from hpgcn.runtime.disk.page_cache import PAGE
from hpgcn.runtime.gpu.homes import Home, Part
from hpgcn.runtime.gpu.spans import EMPTY, Span, overlap, without
from hpgcn.runtime.places import Places, ScratchFile

if TYPE_CHECKING:
    from hpgcn.runtime.device import Cuda

PIECE = 1 << 24  # bytes of a piece, at most
AT_ONCE: Future = Future()  # stands for a read that is complete
AT_ONCE.set_result(None)
LEAST = 4 * (PIECE + 2 * PAGE)  # bytes of the smallest pool
AHEAD = 2 / 3  # most of the pool that is read ahead; the rest is for what goes home


def whole_pages(span: Span) -> Span:
    """Return the span of all pages that a span touches."""
    return span[0] // PAGE * PAGE, -(-span[1] // PAGE) * PAGE


def cut_in_pieces(span: Span) -> list[Span]:
    """Return the parts of a span between multiples of PIECE."""
    cuts = [span[0], *range((span[0] // PIECE + 1) * PIECE, span[1], PIECE), span[1]]
    return [*pairwise(cuts)]


class HomePiece:
    """Bytes of a home in the pool, as the file has them, or will have them.

    `moved` is an event after the copy that filled it; None: it was read, or the host has
    filled it. `disk` is the Future of its read or write. `copies` are events after copies
    from it.
    """

    def __init__(self, home: FileHome, span: Span, place: int) -> None:
        self.home = home
        self.span = span
        self.pages = whole_pages(span)
        self.place = place
        self.moved: Any = None
        self.disk: Future | None = None
        self.copies: list = []

    @property
    def memory(self) -> np.ndarray:
        """Its whole pages, uint8."""
        size = self.pages[1] - self.pages[0]
        return self.home.homes.memory[self.place:self.place + size]

    def part(self, span: Span) -> Part:
        first = self.pages[0]
        return Part(span, self.memory[span[0] - first:span[1] - first], self)

    def copied(self, event: Any) -> None:
        """Note a copy that is complete after an event, from it or to it; None: now."""
        homes = self.home.homes
        if self.disk is None:
            self.moved = event
            self.disk = self.home.written = homes.writer.submit(homes.write, self)
            homes.moved["write"] += self.pages[1] - self.pages[0]
            homes.moved["read"] += PAGE * len(self.edges())
        elif event is not None:
            self.copies.append(event)
        homes.ahead.pop(self, None)
        homes.used[self] = None
        homes.used.move_to_end(self)

    def edges(self) -> list[tuple[int, Span]]:
        """Return the pages that it covers in part: (page, bytes outside of the piece)."""
        found = []
        if self.pages[0] < self.span[0]:
            found.append((self.pages[0], (self.pages[0], self.span[0])))
        if self.span[1] < min(self.pages[1], self.home.nbytes):
            found.append((self.pages[1] - PAGE, (self.span[1], self.pages[1])))
        return found

    def wait(self) -> None:
        """Wait until the pool may use its memory again."""
        if self.disk is not None:
            self.disk.result()
        for event in self.copies:
            event.synchronize()


class FileHome(Home):
    """Home in a file. `written` is the Future of its last write."""

    def __init__(self, homes: FileHomes, nbytes: int) -> None:
        self.homes = homes
        self.nbytes = nbytes
        self.place = homes.take_place(whole_pages((0, nbytes))[1])
        self.pieces: list[HomePiece] = []  # those in the pool that were read, or will be
        self.written: Future | None = None

    def parts(self, span: Span, *, filled: bool) -> Iterator[Part]:
        for part in cut_in_pieces(span):
            if filled:
                yield from self._contents(part)
            else:
                self.pieces = [each for each in self.pieces if overlap(each.span, part) == EMPTY]
                yield self.homes.piece(self, part).part(part)

    def _contents(self, span: Span) -> Iterator[Part]:
        piece = next((each for each in self.pieces if overlap(each.span, span) != EMPTY), None)
        if piece is None:
            piece = self.homes.piece(self, span)
            self._add(piece, AT_ONCE)
            with self.homes.waiting("read"):
                self.homes.read(piece, self.written)
        self.homes.await_read(piece)
        yield piece.part(overlap(piece.span, span))
        for rest in without(span, piece.span):
            yield from self._contents(rest)

    def read_ahead(self, span: Span) -> None:
        """Begin to read as much as the pool has room for."""
        for part in cut_in_pieces(span):
            missing = [part]
            for piece in self.pieces:
                if overlap(piece.span, part) != EMPTY and piece in self.homes.used:
                    del self.homes.used[piece]
                    self.homes.ahead[piece] = None
                missing = [rest for each in missing for rest in without(each, piece.span)]
            for each in missing:
                piece = self.homes.piece(self, each, ahead=True)
                if piece is None:
                    return
                self._add(piece, self.homes.reader.submit(self.homes.read, piece, self.written))
                self.homes.ahead[piece] = None

    def _add(self, piece: HomePiece, read: Future) -> None:
        """Note a piece that is read, or will be."""
        piece.disk = read
        self.homes.moved["read"] += piece.pages[1] - piece.pages[0]
        self.pieces.append(piece)

    def free(self) -> None:
        self.homes.give_place(self.place, whole_pages((0, self.nbytes))[1])


class FileHomes(ScratchFile):
    """A file of homes, and the pool of pinned memory through which their contents pass.

    Ranks wait for contents ("read"), and for room in the pool ("write").
    """

    def __init__(self, folder: str, nbytes: int, gpu: Cuda) -> None:
        super().__init__(folder, "arrays of a GPU")

        # direct reads and writes need memory that begins at a page
        self.nbytes = max(nbytes, LEAST)
        memory = gpu.pinned(self.nbytes)
        self.memory = memory[-memory.ctypes.data % PAGE:]
        self.room = Places(self.memory.size // PAGE * PAGE)
        # pieces that make room, the least recently used first, and pieces that turns to come need
        self.used: OrderedDict[HomePiece, None] = OrderedDict()
        self.ahead: dict[HomePiece, None] = {}
        self.edge = np.frombuffer(mmap.mmap(-1, PAGE), np.uint8)

    def take(self, nbytes: int) -> FileHome:
        """Return a home for a block."""
        return FileHome(self, nbytes)

    def piece(self, home: FileHome, span: Span, *, ahead: bool = False) -> HomePiece | None:
        """Return a new HomePiece, for which others make room.

        What is read ahead makes none for other pieces that are: then the result is None.
        """
        first, end = whole_pages(span)
        if ahead and sum(each.memory.size for each in self.ahead) + end - first > (
                AHEAD * self.room.limit):
            return None
        while (place := self.room.take(end - first)) < 0:
            if self.used:
                self._free(next(iter(self.used)))
            elif ahead:
                return None
            elif self.ahead:
                self._free(next(reversed(self.ahead)))
            else:
                raise InternalError(f"a piece of {end - first} bytes in a pool of {self.nbytes}")
        return HomePiece(home, span, place)

    def _free(self, piece: HomePiece) -> None:
        with self.waiting("write"):
            piece.wait()
        self.used.pop(piece, None)
        self.ahead.pop(piece, None)
        if piece in piece.home.pieces:
            piece.home.pieces.remove(piece)
        self.room.give(piece.place, piece.memory.size)

    def release_ahead(self) -> None:
        """Let pieces make room that were read ahead; those that a turn used are read again."""
        for piece in self.used:
            if piece in piece.home.pieces:
                piece.home.pieces.remove(piece)
        self.used.update(self.ahead)
        self.ahead = {}

    def await_read(self, piece: HomePiece) -> None:
        """Wait until a piece has been read, if it has."""
        if piece.moved is None and piece.disk is not None:
            with self.waiting("read"):
                piece.disk.result()

    def read(self, piece: HomePiece, written: Future | None) -> None:
        """Read the pages of a piece, after the last write to its home."""
        if written is not None:
            written.result()
        self.file.read_array(piece.memory, piece.home.place + piece.pages[0])

    def write(self, piece: HomePiece) -> None:
        """Write the whole pages of a piece, once it is filled; the writer calls it."""
        if piece.moved is not None:
            piece.moved.synchronize()
        for page, (first, end) in piece.edges():
            self.file.read_array(self.edge, piece.home.place + page)
            begin = piece.pages[0]
            piece.memory[first - begin:end - begin] = self.edge[first - page:end - page]
        self.file.write_array(piece.memory, piece.home.place + piece.pages[0])
