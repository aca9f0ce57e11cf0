"""Temporary files of a conversion beside its output, removed at its end."""
from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.errors import StorageError
from hpgcn.runtime.atomic import scratch_folder, writing
from hpgcn.runtime.disk.page_cache import DiskFile

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class Scratch(ExitStack):
    """Context manager for a temporary folder beside the file `out`, removed at the end."""

    def __init__(self, out: Path | str) -> None:
        super().__init__()
        self.out = out
        self.count = 0

    def __enter__(self) -> Scratch:
        self.folder = self.enter_context(scratch_folder(self.out))
        return self

    def new_array(self, dtype: DTypeLike = np.uint8) -> DiskArray:
        path = self.folder / f"{self.count}.spool"
        stored = DiskArray(path, dtype, self.out)
        self.callback(stored.file.close)
        self.count += 1
        return stored


class DiskArray:
    """A one-dimensional array on disk, first appended to, then read slice by slice."""

    def __init__(self, path: Path, dtype: DTypeLike, out: Path | str) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self.out = out
        self.nbytes = 0
        with writing(out):
            self.file = DiskFile(path, "x+")  # closed by Scratch

    @property
    def size(self) -> int:
        return self.nbytes // self.dtype.itemsize

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)

    def append(self, array: np.ndarray) -> int:
        """Write an array of any dtype at the end; return the byte where it begins."""
        start = self.nbytes
        with writing(self.out):
            self.file.write_array(np.ascontiguousarray(array), start)
        self.nbytes += array.nbytes
        return start

    def read(self, start: int, size: int, dtype: DTypeLike) -> np.ndarray:
        """Read `size` elements of `dtype` from the byte position `start` on."""
        array = np.empty(size, dtype)
        try:
            self.file.read_array(array, start)
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        return array

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.size)
        return self.read(start * self.dtype.itemsize, max(0, stop - start), self.dtype)

    def remove(self) -> None:
        self.file.close()
        self.path.unlink()
