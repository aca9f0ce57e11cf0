"""The folder of arrays in files (`--scratch`): make the files, report errors, measure the disk."""
from __future__ import annotations

import errno
import mmap
import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hpgcn.errors import StorageError, setting
from hpgcn.kernels.disk.direct import use_directly
from hpgcn.runtime.copy_rates import CopyRates

if TYPE_CHECKING:
    from hpgcn.kernels.disk.file_arrays import FileArrays

THRESHOLD = 1 << 18  # bytes of the smallest array in a file
FILES = 1 << 16  # files that a process may need to have open at a time
SAMPLE = 1 << 28  # bytes that measure the speed of a disk
PIECE = 1 << 24  # bytes of a read or write


def check_scratch(folder: Path | str) -> None:
    """Raise StorageError if no file can be made in a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StorageError(f"{setting('scratch', folder)}: {error.strerror}") from error


def scratch_files(folder: Path | str) -> FileArrays:
    """Return the hpgcn.kernels.disk.file_arrays.FileArrays of a folder.

    StorageError if no file can be made in the folder.
    """
    from hpgcn.kernels.disk.file_arrays import FileArrays

    check_scratch(folder)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        wanted = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return FileArrays(folder, THRESHOLD)


@contextmanager
def scratch_errors(folder: Path | str, files: FileArrays) -> Iterator[None]:
    """Context manager: raise StorageError for a MemoryError that the disk has caused."""
    try:
        yield
    except Exception as error:
        if not files.error or not (isinstance(error, MemoryError) or "MemoryError" in str(error)):
            raise
        words = os.strerror(files.error)
        if files.error == errno.ENOSPC:
            words += f": {files.nbytes:,} bytes of arrays were in it"
        raise StorageError(f"{setting('scratch', folder)}: {words}") from error


def disk_bytes() -> tuple[int, int]:
    """Return the bytes that this process has read from and written to disks, two int.

    Each is 0 where the system does not count them.
    """
    found = {}
    with suppress(OSError), open("/proc/self/io") as file:
        found = {name: int(number) for name, number in (line.split(": ") for line in file)}
    written = found.get("write_bytes", 0) - found.get("cancelled_write_bytes", 0)
    return found.get("read_bytes", 0), written


def measure_disk(folder: Path | str, nbytes: int | None = None) -> CopyRates:
    """Measure the CopyRates of a folder with two files of `nbytes` bytes, SAMPLE by default.

    They take at most half of the free space. StorageError if there is no space for two
    pieces, or the disk fails.
    """
    try:
        free = os.statvfs(folder)
        most = free.f_bavail * free.f_frsize // 4 // PIECE * PIECE
        return _measure(folder, min(nbytes or SAMPLE, max(PIECE, most)))
    except OSError as error:
        raise StorageError(f"{setting('scratch', folder)}: {os.strerror(error.errno)}, measured "
                           f"with files of {PIECE >> 20} MiB or more") from error


def _measure(folder: Path | str, nbytes: int) -> CopyRates:
    with _file(folder, nbytes) as one, _file(folder, nbytes) as other:
        write = _rate(nbytes, _move, os.pwritev, one)
        read = _rate(nbytes, _move, os.preadv, one)

        # write one file while the other is read
        writer = threading.Thread(target=_move, args=(os.pwritev, other, nbytes))

        def both(nbytes: int) -> None:
            writer.start()
            _move(os.preadv, one, nbytes)
            writer.join()

        return CopyRates(read, write, 2 * _rate(nbytes, both))


def _rate(nbytes: int, move: Callable, *given: Any) -> float:
    begin = time.perf_counter()
    move(*given, nbytes)
    return nbytes / (time.perf_counter() - begin)


@contextmanager
def _file(folder: Path | str, nbytes: int) -> Iterator[BinaryIO]:
    """Context manager: return a file with contents, for direct reads and writes."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        use_directly(file)
        os.posix_fallocate(file.fileno(), 0, nbytes)
        _move(os.pwritev, file, nbytes)  # a first write is slower than later ones
        yield file


def _move(call: Callable, file: BinaryIO, nbytes: int) -> None:
    """Read or write a file from its begin, in the pieces in which arrays move."""
    with mmap.mmap(-1, min(nbytes, PIECE)) as piece:
        for place in range(0, nbytes, len(piece)):
            call(file.fileno(), [piece], place)
