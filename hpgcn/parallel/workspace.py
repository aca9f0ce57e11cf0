"""Work arrays and message buffers that are made once, and grow when larger ones are needed."""
from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.comm.staging import PinnedMemory
from hpgcn.kernels.host.threads import num_threads, run_on_all_threads
from hpgcn.runtime.device import HOST

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.kernels import Array
    from hpgcn.runtime.device import Host

PAGE = 1 << 12  # bytes
PIECE = 16 << 20  # bytes that a thread touches at a time


class Workspace:
    """Dense arrays by name, made once and used in every step: fresh memory costs page faults.

    Arrays begin at multiples of 64 bytes, so that their rows lie in few cache lines.
    """

    def __init__(self, dtype: DTypeLike, device: Host = HOST) -> None:
        self.dtype = np.dtype(dtype)
        self.device = device
        self.arrays = {}
        self.version = 0  # increases when an array is made

    def buffer(self, name: str, rows: int, width: int,
               dtype: DTypeLike | None = None) -> Array:
        """Return the (rows, width) array called `name`, with its last content.

        Arrays of another dtype than the workspace's have names of their own.
        """
        return self.flat(name, rows * width, dtype).reshape(rows, width)

    def flat(self, name: str, size: int, dtype: DTypeLike | None = None) -> Array:
        """Return the first `size` elements of the array called `name`, (size,)."""
        dtype = np.dtype(dtype or self.dtype)
        if dtype != self.dtype:
            name = f"{name} {dtype}"
        if name not in self.arrays or self.arrays[name].size < size:
            self.arrays.pop(name, None)  # the smaller one is let go of first
            self.arrays[name] = self.device.empty(size, dtype)
            self.version += 1
        return self.arrays[name][:size]

    def flat_as(self, name: str, size: int, dtype: np.dtype) -> np.ndarray:
        """Return `size` elements of a longer dtype in the memory of the array called `name`."""
        words = np.dtype(dtype).itemsize // self.dtype.itemsize
        return self.flat(name, size * words).view(dtype)

    def reserve(self, sizes: dict[str, tuple]) -> None:
        """Allocate arrays in advance.

        `sizes` has pairs (size, dtype) by the names in `arrays`.

        The system provides memory at the first write, which takes about the time of a
        product. So all threads write to every page of it once, now. Arrays in files are
        left without contents, which would be written and read.
        """
        for name, (size, dtype) in sizes.items():
            array = self.arrays[name] = self.device.empty(size, dtype)
            self.version += 1
            if isinstance(array, np.ndarray) and not self.device.in_files:
                touch(array)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())


class HaloBuffers:
    """The two buffers of an exchange; exchanges that share them are used one at a time.

    `owned` holds rows of this rank that other ranks read, `ghost` the rows of other
    ranks that it reads, (size,) each. `host_views` are the memory that MPI uses: the
    same, or `pinned` host memory. Pulled rows have dtype `dtype`; pushed partial sums
    have dtype `sums`, which may be longer. Room for these is reserved beforehand if
    exchanges push (`pushes`). Ranks of a node may read each other's buffers
    (hpgcn.parallel.nodes.shared_buffers): `near` has those of each such rank, two dicts.
    """

    memory = None
    near = {}, {}

    def __init__(self, device: Host, stager: Any, dtype: DTypeLike, sums: DTypeLike | None = None,
                 *, pushes: bool = True) -> None:
        self.settings = device, stager, dtype, sums
        self.device = device
        self.dtype = np.dtype(dtype)
        self.sums = np.dtype(sums or dtype)
        self.words = self.sums.itemsize // self.dtype.itemsize  # elements that a sum takes
        self.pushes = pushes
        self.by_host = stager is not None and "message" not in stager.direct
        self.pinned = []
        self.owned = self.ghost = device.empty((0,), dtype)
        self.host_views = self.owned, self.ghost

    def discard(self) -> None:
        """Drop the contents, after an exchange."""
        if self.device.in_files:
            self.device.discard(self.owned, self.ghost)

    def empty_copy(self) -> HaloBuffers:
        """Return buffers of the same kind, which are empty."""
        return HaloBuffers(*self.settings, pushes=self.pushes)

    @cached_property
    def second(self) -> HaloBuffers:
        """Buffers of the same kind for a second exchange that goes with the first."""
        return self.empty_copy()

    def reserve(self, owned: int, ghost: int) -> None:
        """Make room for `owned` and `ghost` elements in the buffers.

        Existing requests keep the smaller buffers.
        """
        enough = self.owned.size >= owned and self.ghost.size >= ghost
        if enough and (self.pinned or not self.by_host):
            return
        self.owned = self.device.empty((max(owned, self.owned.size),), self.dtype)
        self.ghost = self.device.empty((max(ghost, self.ghost.size),), self.dtype)
        self.host_views = self.owned, self.ghost
        if self.by_host:
            self.pinned = [PinnedMemory(self.device, max(buffer.nbytes, 1))
                           for buffer in self.host_views]
            self.host_views = tuple(block.memory[:buffer.nbytes].view(self.dtype)
                                    for block, buffer in zip(self.pinned, self.host_views))

    def close(self) -> None:
        """Do nothing: only shared memory is freed."""


def touch(array: np.ndarray) -> None:
    """Write to every page of an array on all threads; its content is lost."""
    memory = array.reshape(-1).view(np.uint8)
    starts = iter(range(0, memory.size, PIECE))

    def write_pages() -> None:
        for start in starts:
            memory[start:min(start + PIECE, memory.size):PAGE] = 0

    if num_threads() > 1 and memory.size > PIECE:
        run_on_all_threads(write_pages)
    else:
        write_pages()
