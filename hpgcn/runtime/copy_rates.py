"""Rates of copies between a fast memory and a larger one: host and disk, or GPU and host."""
from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.runtime.device import address

if TYPE_CHECKING:
    from hpgcn.runtime.device import Cuda

SAMPLE = 1 << 28  # bytes of an array that measures PCIe
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
