"""Read and write files in whole pieces, and let their contents leave the page cache.

Linux keeps in memory what was read from a file or written to it, until memory is short. A
control group counts these pages as well. So a command with a memory limit runs inside
`bypassed()`. Files that are opened there leave the cache. Pages that were read leave it at
once. Pages that were written leave it every STEP bytes, after they are on the disk. Systems
without these calls (macOS) drop nothing.
"""
import errno
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

STEP = 1 << 24  # bytes that are written before they leave the page cache
PAGE = os.sysconf("SC_PAGE_SIZE")
# a file reads the value when it is opened, so threads that use open files need not inherit it
_bypassed = ContextVar("page_cache_bypassed", default=False)


def whole_pages(nbytes: Any) -> Any:
    """Return bytes, or an array of them, in whole pages."""
    return -(-nbytes // PAGE) * PAGE


@contextmanager
def bypassed(condition: object = True) -> Iterator[None]:
    """Let files that are opened in this block leave the page cache, if `condition` holds.

    A block inside another one cannot end what the outer one began.
    """
    token = _bypassed.set(bool(condition) or _bypassed.get())
    try:
        yield
    finally:
        _bypassed.reset(token)


def is_bypassed() -> bool:
    """Return whether files that are opened now leave the page cache."""
    return _bypassed.get()


def read_nothing_ahead(handle: int) -> None:
    """Let later reads of a file cache only the pages that they read.

    Pages that Linux reads ahead are in groups, which leave the cache only as a whole.
    """
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)


def drop_pages(handle: int, start: int = 0, size: int = 0) -> None:
    """Let bytes of an open file leave the page cache; size 0 means all from `start` on.

    Contents that are not on the disk yet stay.
    """
    if hasattr(os, "posix_fadvise"):
        first = start - start % PAGE
        pages = -(-(start + size - first) // PAGE)
        with suppress(OSError):  # advice, which a file system need not take
            os.posix_fadvise(handle, first, size and pages * PAGE, os.POSIX_FADV_DONTNEED)


def write_out(handle: int) -> None:
    """Write the contents of an open file to the disk, and drop them from the page cache."""
    if hasattr(os, "posix_fadvise"):
        try:
            os.fdatasync(handle)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not possible on some systems
                raise
        drop_pages(handle)


def read_exactly(handle: int, buffer: memoryview, place: int, bypass: bool = False) -> None:
    """Fill a memoryview from an open file at byte `place`, without moving its position.

    With `bypass` the pages leave the page cache. OSError if the file ends before.
    """
    while len(buffer):
        piece = buffer[:STEP] if bypass else buffer
        count = os.preadv(handle, [piece], place)
        if not count:
            raise OSError(f"ends at byte {place}, expected {len(buffer)} bytes more")
        if bypass:
            drop_pages(handle, place, count)
        buffer = buffer[count:]
        place += count


class DiskFile(io.FileIO):
    """An unbuffered file, like io.FileIO, that observes `bypassed`."""

    bypass = False
    _waiting = 0  # bytes that were written since the last ones left the cache

    def __init__(self, file: int | str | Path, mode: str = "r") -> None:
        super().__init__(file, mode)
        self.bypass = is_bypassed()
        if self.bypass:
            read_nothing_ahead(self.fileno())

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer)
        if count and self.bypass:
            drop_pages(self.fileno(), self.tell() - count, count)
        return count

    def write(self, data: Any) -> int:
        count = super().write(memoryview(data).cast("B")[:STEP] if self.bypass else data)
        self._count(count)
        return count

    def read_array(self, array: Any, place: int) -> None:
        """Fill a C-contiguous array from byte `place` on; errors as `read_exactly`."""
        if array.size:
            raw = memoryview(array).cast("B")
            read_exactly(self.fileno(), raw, place, self.bypass)

    def write_array(self, array: Any, place: int) -> None:
        """Write all bytes of a C-contiguous array from byte `place` on."""
        rest = memoryview(array).cast("B") if array.size else b""
        while len(rest):
            count = os.pwrite(self.fileno(), rest[:STEP] if self.bypass else rest, place)
            self._count(count)
            rest = rest[count:]
            place += count

    def close(self) -> None:
        if not self.closed and self.bypass:
            drop_pages(self.fileno())
        super().close()

    def _count(self, written: int) -> None:
        self._waiting += written
        if self._waiting >= STEP and self.bypass:
            write_out(self.fileno())
            self._waiting = 0


def nameless_file(folder: Path | str) -> DiskFile:
    """Return an empty DiskFile without a name in a folder; OSError if it cannot be made."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        return DiskFile(os.dup(file.fileno()), "r+")
