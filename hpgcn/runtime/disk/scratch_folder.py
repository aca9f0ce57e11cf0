"""The folder of arrays in files (`--scratch`): make the files, report errors, count bytes."""
from __future__ import annotations

import errno
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpgcn.errors import StorageError, setting

if TYPE_CHECKING:
    from hpgcn.kernels.disk.file_arrays import FileArrays

THRESHOLD = 1 << 18  # bytes of the smallest array in a file
FILES = 1 << 16  # files that a process may need to have open at a time


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
