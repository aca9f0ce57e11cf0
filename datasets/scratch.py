"""Temporary files of a conversion, beside its output: gone when it ends, however it ends."""
from __future__ import annotations

import os
from contextlib import ExitStack

import numpy as np

from hpgcn.atomic import scratch_folder, writing
from hpgcn.errors import StorageError


class Scratch:
    """A folder beside an output file, removed with all that is in it when the block ends.

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
        self.spools = []
        self._held = ExitStack()

    def __enter__(self):
        self.folder = self._held.enter_context(scratch_folder(self.out))
        return self

    def __exit__(self, *error):
        for spool in self.spools:
            spool.file.close()
        return self._held.__exit__(*error)

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
