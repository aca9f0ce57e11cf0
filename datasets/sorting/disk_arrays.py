"""Temporary files of a conversion, in the folder of its output; they are removed when
it ends.
"""
import os
from contextlib import ExitStack

import numpy as np

from hpgcn.errors import StorageError
from hpgcn.runtime.atomic import scratch_folder, writing


class Scratch(ExitStack):
    """A context manager for a temporary folder beside the file `out`; at its end the
    folder is removed.
    """

    def __init__(self, out):
        super().__init__()
        self.out = out
        self.count = 0

    def __enter__(self):
        self.folder = self.enter_context(scratch_folder(self.out))
        return self

    def new_array(self, dtype=np.uint8):
        stored = DiskArray(self.folder / f"{self.count}.spool", dtype, self.out)
        self.callback(stored.file.close)
        self.count += 1
        return stored


class DiskArray:
    """A one-dimensional array on disk that is first appended to and then read slice by
    slice.
    """

    def __init__(self, path, dtype, out):
        self.path = path
        self.dtype = np.dtype(dtype)
        self.out = out
        self.nbytes = 0
        with writing(out):
            self.file = open(path, "x+b", buffering=0)  # noqa: SIM115 (closed by Scratch)

    @property
    def size(self):
        return self.nbytes // self.dtype.itemsize

    @property
    def shape(self):
        return (self.size,)

    def append(self, array):
        """Write an array of any dtype at the end; return the byte position where it
        begins.
        """
        start = self.nbytes
        rest = memoryview(np.ascontiguousarray(array)).cast("B") if array.size else b""
        with writing(self.out):
            while len(rest):
                written = self.file.write(rest)
                rest = rest[written:]
                self.nbytes += written
        return start

    def read(self, start, size, dtype):
        """Read `size` elements of `dtype` from the byte position `start` on."""
        array = np.empty(size, dtype)
        rest = memoryview(array).cast("B") if size else b""
        while len(rest):
            try:
                count = os.preadv(self.file.fileno(), [rest], start)
            except OSError as error:
                raise StorageError(f"{self.path}: cannot be read: {error.strerror}") from error
            if not count:
                raise StorageError(f"{self.path}: ends at byte {start}, expected {len(rest)} bytes "
                                   "more")
            start += count
            rest = rest[count:]
        return array

    def __getitem__(self, rows):
        start, stop, _ = rows.indices(self.size)
        return self.read(start * self.dtype.itemsize, max(0, stop - start), self.dtype)

    def remove(self):
        self.file.close()
        self.path.unlink()
