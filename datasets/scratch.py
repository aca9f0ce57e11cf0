"""Temporary files of a conversion, beside its output: gone when it ends, however it ends."""
from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np

from hpgcn.errors import OutputError, StorageError
from hpgcn.store.atomic import writing

TERMINATED = 128 + signal.SIGTERM  # exit code


class Scratch:
    """A folder beside an output file, removed with all that is in it when the block ends; SIGTERM ends the block too.

    What a killed process left behind for the same output is removed first: its folder bears the output's mark, and
    nobody holds a lock on it.

    Parameters
    ----------
    out : str or path
        The output file, in a folder that exists.

    Attributes
    ----------
    folder : pathlib.Path
        On the output's file system, so that a finished file can be renamed to it.

    Raises
    ------
    OutputError
        The folder cannot be created.
    """

    def __init__(self, out):
        self.out = out
        self.target = Path(os.path.realpath(out))
        self.prefix = f".hpgcn-convert-{hashlib.sha256(os.fsencode(self.target.name)).hexdigest()[:16]}-"
        self.spools = []

    def __enter__(self):
        for left in self.target.parent.glob(self.prefix + "*"):
            _remove_abandoned(left)
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=self.prefix, dir=self.target.parent))
            self.lock = os.open(self.folder, os.O_RDONLY)
        except OSError as error:
            raise OutputError(f"{self.out}: cannot be created: {error.strerror}") from error
        with suppress(OSError):  # a file system without locks: leftovers stay
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.handler = None
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            self.handler = signal.signal(signal.SIGTERM, _terminate)
        return self

    def __exit__(self, *_):
        for spool in self.spools:
            spool.file.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.lock)
        if self.handler is not None:
            signal.signal(signal.SIGTERM, self.handler)

    def spool(self, dtype=np.uint8):
        """Return a new, empty Spool."""
        self.spools.append(Spool(self.folder / f"{len(self.spools)}.spool", dtype, self.out))
        return self.spools[-1]


class Spool:
    """A one-dimensional array on disk, appended to, then read slice by slice.

    Attributes
    ----------
    shape, size, dtype
        As of an array.
    """

    def __init__(self, path, dtype, out):
        self.path, self.dtype, self.out, self.nbytes = path, np.dtype(dtype), out, 0
        with writing(out):
            self.file = open(path, "x+b", buffering=0)  # noqa: SIM115 (closed by Scratch)

    @property
    def size(self):
        """Elements written so far."""
        return self.nbytes // self.dtype.itemsize

    @property
    def shape(self):
        """As of an array."""
        return (self.size,)

    def append(self, array):
        """Write an array of any dtype at the end; return the byte where it begins."""
        start, rest = self.nbytes, memoryview(np.ascontiguousarray(array)).cast("B") if array.size else b""
        with writing(self.out):
            while len(rest):
                written = self.file.write(rest)
                rest = rest[written:]
                self.nbytes += written
        return start

    def read(self, start, size, dtype):
        """Read `size` elements of `dtype` from byte `start` on."""
        array = np.empty(size, dtype)
        rest = memoryview(array).cast("B") if size else b""
        while len(rest):
            try:
                count = os.preadv(self.file.fileno(), [rest], start)
            except OSError as error:
                raise StorageError(f"{self.path}: cannot be read: {error.strerror}") from error
            if not count:
                raise StorageError(f"{self.path}: ends at byte {start}, expected {len(rest)} bytes more")
            start, rest = start + count, rest[count:]
        return array

    def __getitem__(self, rows):
        start, stop, _ = rows.indices(self.size)
        return self.read(start * self.dtype.itemsize, max(0, stop - start), self.dtype)

    def remove(self):
        """Give the disk space back."""
        self.file.close()
        self.path.unlink()


def _remove_abandoned(folder):
    """Remove a folder unless a living process holds its lock."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


def _terminate(*_):
    raise SystemExit(TERMINATED)
