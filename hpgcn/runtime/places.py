"""Places in a file or in memory, which are taken and given back, and a scratch file of them."""
from __future__ import annotations

import math
import os
import time
from bisect import bisect_left, insort
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from hpgcn.errors import StorageError, setting
from hpgcn.kernels.disk.direct import use_directly
from hpgcn.runtime.disk.page_cache import nameless_file


class Places:
    """Places within `limit` bytes: the smallest hole that is large enough, or the end."""

    def __init__(self, limit: float = math.inf) -> None:
        self.limit = limit
        self.end = 0
        self.holes: dict[int, int] = {}  # bytes by the first one
        self._by_size: list[tuple[int, int]] = []  # (bytes, first one) of all holes, in order
        self._by_end: dict[int, int] = {}  # first byte of each hole by its end

    def take(self, size: int) -> int:
        """Return the first byte of a place of `size` bytes; -1 if all holes are too small."""
        number = bisect_left(self._by_size, (size, 0))
        if number == len(self._by_size):
            if self.end + size > self.limit:
                return -1
            self.end += size
            return self.end - size
        hole, place = self._by_size[number]
        self._remove(place)
        if hole > size:
            self._add(place + size, hole - size)
        return place

    def take_parts(self, size: int) -> list[tuple[int, int]]:
        """Return places of `size` bytes together, (first byte, bytes) each.

        They are one hole, or else the largest ones, and then the end.
        """
        parts = []
        while size:
            part = min(size, self._by_size[-1][0]) if self._by_size else size
            parts.append((self.take(part), part))
            size -= part
        return parts

    def give(self, place: int, size: int) -> None:
        """Let a place be used again, together with the holes beside it."""
        size += self._remove(place + size)
        before = self._by_end.get(place, place)
        size += self._remove(before)
        if before + size == self.end:
            self.end = before
        else:
            self._add(before, size)

    def _add(self, place: int, size: int) -> None:
        self.holes[place] = size
        self._by_end[place + size] = place
        insort(self._by_size, (size, place))

    def _remove(self, place: int) -> int:
        """Remove the hole that begins at a place; return its bytes, or 0 without one."""
        size = self.holes.pop(place, 0)
        if size:
            del self._by_end[place + size]
            del self._by_size[bisect_left(self._by_size, (size, place))]
        return size


class DiskThreads:
    """Threads to write files of a folder and to read them.

    Parameters
    ----------
    folder : str
        Where the files are.
    contents : str
        What they have, for messages of errors.
    threads : int
        How many write, and how many read.

    Attributes
    ----------
    waited : dict
        Seconds of waits, for "read" and for "write".
    """

    def __init__(self, folder: str, contents: str, threads: int = 1) -> None:
        self.folder = folder
        self.contents = contents
        self.waited = {"read": 0.0, "write": 0.0}
        self.writer, self.reader = (ThreadPoolExecutor(threads, f"{way} {contents}")
                                    for way in ("write", "read"))

    @contextmanager
    def waiting(self, kind: str) -> Iterator[None]:
        """Context manager: count the seconds of a wait for the disk; errors as StorageError."""
        begin = time.perf_counter()
        with self.errors():
            yield
        self.waited[kind] += time.perf_counter() - begin

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Context manager: raise StorageError for an OSError."""
        try:
            yield
        except OSError as error:
            raise StorageError(f"{setting('scratch', self.folder)}: {error.strerror}: "
                               f"{self.contents}") from error

    def close(self) -> None:
        """Wait for the disk."""
        for worker in (self.writer, self.reader):
            worker.shutdown(cancel_futures=True)


class ScratchFile(DiskThreads):
    """A file that grows, with places for arrays. It has no name, so nothing remains of it.

    StorageError if it cannot be made, grow, or be moved.

    Attributes
    ----------
    file : hpgcn.runtime.disk.page_cache.DiskFile
        Reads and writes bypass the page cache, if the file system can.
    reserved : int
        Bytes of the file.
    moved : dict
        Bytes that were read and written so far, under the words of `waited`; the callers
        add them.
    """

    def __init__(self, folder: str, contents: str, threads: int = 1) -> None:
        super().__init__(folder, contents, threads)
        self.moved = {"read": 0, "write": 0}
        self.reserved = 0
        self._places = Places()
        with self.errors():
            self.file = nameless_file(folder)
        self.file.bypass = not use_directly(self.file)

    def take_place(self, size: int) -> int:
        """Return the first byte of a place of `size` bytes, whole pages; the file may grow."""
        place = self._places.take(size)
        if self._places.end > self.reserved:
            with self.errors():
                os.posix_fallocate(self.file.fileno(), place, size)
            self.reserved = self._places.end
        return place

    def give_place(self, place: int, size: int) -> None:
        """Let a place be used again."""
        self._places.give(place, size)

    def close(self) -> None:
        """Wait for the disk, and let go of the file."""
        super().close()
        self.file.close()
