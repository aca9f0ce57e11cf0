"""Work arrays that are made once, and grow when larger ones are needed."""
import numpy as np

from hpgcn.kernels.threads import num_threads, run_on_all_threads
from hpgcn.runtime.device import HOST

PAGE = 1 << 12  # bytes
PIECE = 16 << 20  # bytes that a thread touches at a time


class Workspace:
    """Dense arrays by name, made once and used in every step: fresh memory costs page faults.

    Arrays begin at multiples of 64 bytes, so that their rows lie in few cache lines.
    """

    def __init__(self, dtype, device=HOST):
        self.dtype = np.dtype(dtype)
        self.device = device
        self.arrays = {}

    def buffer(self, name, rows, width, dtype=None):
        """Return the (rows, width) array called `name`, with its last content.

        Arrays of another dtype than the workspace's have names of their own.
        """
        return self.flat(name, rows * width, dtype).reshape(rows, width)

    def flat(self, name, size, dtype=None):
        """Return the first `size` elements of the array called `name`, (size,)."""
        dtype = np.dtype(dtype or self.dtype)
        if dtype != self.dtype:
            name = f"{name} {dtype}"
        if name not in self.arrays or self.arrays[name].size < size:
            self.arrays.pop(name, None)  # the smaller one is let go of first
            self.arrays[name] = self.device.empty(size, dtype)
        return self.arrays[name][:size]

    def flat_as(self, name, size, dtype):
        """Return `size` elements of a longer dtype in the memory of the array called `name`."""
        words = np.dtype(dtype).itemsize // self.dtype.itemsize
        return self.flat(name, size * words).view(dtype)

    def reserve(self, sizes):
        """Allocate arrays in advance: `sizes` maps names in `arrays` to pairs (size,
        dtype).

        The system provides memory at the first write, which takes about the time of a
        product. So all threads write to every page of it once, now.
        """
        for name, (size, dtype) in sizes.items():
            array = self.arrays[name] = self.device.empty(size, dtype)
            if isinstance(array, np.ndarray):
                touch(array)

    @property
    def nbytes(self):
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def touch(array):
    """Write to every page of an array on all threads; its content is lost."""
    memory = array.reshape(-1).view(np.uint8)
    starts = iter(range(0, memory.size, PIECE))

    def write_pages():
        for start in starts:
            memory[start:min(start + PIECE, memory.size):PAGE] = 0

    if num_threads() > 1 and memory.size > PIECE:
        run_on_all_threads(write_pages)
    else:
        write_pages()
