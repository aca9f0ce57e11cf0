"""Rates of copies between a fast memory and a larger one: host and disk, or GPU and host."""
from __future__ import annotations

import mmap
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from hpgcn.errors import StorageError, setting
from hpgcn.kernels.disk.direct import use_directly
from hpgcn.runtime.device import address

if TYPE_CHECKING:
    from hpgcn.runtime.device import Cuda

SAMPLE = 1 << 28  # bytes of an array that measures PCIe, or of a file that measures a disk
PIECE = 1 << 24  # bytes of a read or write of a file
TIMES = 5  # copies of which the fastest counts


@dataclass(frozen=True)
class CopyRates:
    """Bytes per second that a fast memory reads, writes, or does both at once with a larger one.

    They are those of a host with a disk, without page cache, or of a GPU with pinned
    host memory.
    """

    read: float
    write: float
    both: float

    def seconds(self, read: float, written: float) -> float:
        """Return the seconds to read and write numbers of bytes at the same time."""
        return max(read / self.read, written / self.write, (read + written) / self.both)

    @property
    def text(self) -> str:
        """The rates in words."""
        return (f"{self.read / 1e9:.3g} GB/s read, {self.write / 1e9:.3g} GB/s written, "
                f"{self.both / 1e9:.3g} GB/s both at once")


PCIE = CopyRates(25e9, 25e9, 50e9)  # what is assumed of PCIe 4.0 x16 unless it was measured


def measure_pcie(gpu: Cuda) -> CopyRates:
    """Measure the CopyRates of a GPU with two pinned arrays of at most SAMPLE bytes."""
    nbytes = max(1, min(SAMPLE, gpu.memory()[0] // 4))
    arrays = [gpu.empty((nbytes,), np.uint8) for _ in range(2)]
    homes = [gpu.pinned(nbytes) for _ in range(2)]
    read, write = ((address(target), address(source), nbytes, gpu.stream())
                   for target, source in ((arrays[0], homes[0]), (homes[1], arrays[1])))

    def rate(*copies: tuple) -> float:
        return len(copies) * nbytes / min(_seconds(gpu, copies) for _ in range(TIMES))

    return CopyRates(rate(read), rate(write), rate(read, write))


def _seconds(gpu: Cuda, copies: tuple) -> float:
    """Return the seconds of copies, each of which has a stream of its own."""
    gpu.synchronize()
    begin = time.perf_counter()
    for copy in copies:
        gpu.copy(*copy)
    for *_, stream in copies:
        stream.synchronize()
    return max(time.perf_counter() - begin, 1e-9)


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
