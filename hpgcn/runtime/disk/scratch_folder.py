"""The folder of arrays in files (`--scratch`): make the files, report errors, measure the disk."""
import errno
import os
import resource
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from hpgcn.errors import StorageError, setting

THRESHOLD = 1 << 18  # bytes of the smallest array in a file
FILES = 1 << 16  # files that a process wants to open at a time
SAMPLE = 1 << 28  # bytes by which a disk is measured


def check_scratch(folder):
    """Raise StorageError if no file can be made in a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StorageError(f"{setting('scratch', folder)}: {error.strerror}") from error


def scratch_files(folder, ranks):
    """Return the hpgcn.kernels.disk.file_arrays.FileArrays of each rank, in a folder.

    StorageError if no file can be made there.
    """
    from hpgcn.kernels.disk.file_arrays import FileArrays

    check_scratch(folder)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        wanted = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return [FileArrays(folder, THRESHOLD) for _ in range(ranks)]


@contextmanager
def scratch_errors(folder, files):
    """Context manager: raise StorageError for a MemoryError that the disk has caused."""
    try:
        yield
    except Exception as error:
        if not files.error or not (isinstance(error, MemoryError) or "MemoryError" in str(error)):
            raise
        words = os.strerror(files.error)
        if files.error == errno.ENOSPC:
            words += f": {files.nbytes:,} bytes of arrays of a rank were in it"
        raise StorageError(f"{setting('scratch', folder)}: {words}") from error


def disk_bytes():
    """Return the bytes that this process has read from disks and written so far, two int, as the
    system counts them; 0 where it does not.
    """
    found = {}
    with suppress(OSError), open("/proc/self/io") as file:
        found = {name: int(number) for name, number in (line.split(": ") for line in file)}
    written = found.get("write_bytes", 0) - found.get("cancelled_write_bytes", 0)
    return found.get("read_bytes", 0), written


@dataclass(frozen=True)
class Disk:
    """Bytes per second of mapped files in large pieces: reading, writing, and the sum of both at
    the same time.
    """

    read: float
    write: float
    both: float

    def seconds(self, read, written):
        """Return the seconds to read and write numbers of bytes at the same time."""
        return max(read / self.read, written / self.write, (read + written) / self.both)

    @property
    def text(self):
        """The rates in words."""
        return (f"{self.read / 1e9:.3g} GB/s read, {self.write / 1e9:.3g} GB/s written, "
                f"{self.both / 1e9:.3g} GB/s both at once")


def measure_disk(folder, nbytes=SAMPLE):
    """Measure the Disk of a folder with files of `nbytes` bytes. OSError as from the system."""
    with tempfile.TemporaryFile(dir=folder) as one, tempfile.TemporaryFile(dir=folder) as other:
        write = _rate(nbytes, _write, one)
        _drop(one)
        read = _rate(nbytes, _read, one)

        # write one file while the other is read
        _drop(one)
        writer = threading.Thread(target=_write, args=(other, nbytes))

        def both(file, nbytes):
            writer.start()
            _read(file, nbytes)
            writer.join()

        return Disk(read, write, 2 * _rate(nbytes, both, one))


def _rate(nbytes, move, file):
    begin = time.perf_counter()
    move(file, nbytes)
    return nbytes / (time.perf_counter() - begin)


def _write(file, nbytes):
    os.posix_fallocate(file.fileno(), 0, nbytes)
    np.memmap(file, np.uint8, "r+", shape=nbytes)[:] = 1
    os.fdatasync(file.fileno())


def _read(file, nbytes):
    os.posix_fadvise(file.fileno(), 0, nbytes, os.POSIX_FADV_WILLNEED)
    np.memmap(file, np.uint8, "r", shape=nbytes).view(np.int64).sum()


def _drop(file):
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
