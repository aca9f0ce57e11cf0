"""Memory that stands for the begin of an array in a file, while a turn changes it.

Linux writes changed pages of a mapped file when it likes, and again when they change again.
It leaves private memory alone. The bytes of the plan are read from the file and written to it
directly, by the calls of this module.
"""
from __future__ import annotations

import ctypes
import mmap

import numpy as np

from hpgcn.kernels.disk.direct import use_directly
from hpgcn.runtime.disk.mapped_pages import PAGE, advise, row_of, system
from hpgcn.runtime.disk.page_cache import DiskFile, whole_pages

MAKE_WRITABLE = 23  # advice of madvise
ACCESS = mmap.PROT_READ | mmap.PROT_WRITE
FIXED = 0x10  # MAP_FIXED
MOVE = 3  # MREMAP_MAYMOVE | MREMAP_FIXED


class PrivateMemory:
    """Replace the mapped pages of an array by memory; `write` undoes it.

    Addresses stay. Other threads may read the array in the meantime, but not change it.

    Parameters
    ----------
    array : ndarray
        An array in a file, from its begin.
    read : int
        Bytes whose contents are read. Those after them are zero.
    written : int
        Bytes that may change, at least 1: the others stay in the file.

    Raises
    ------
    OSError
        The file cannot be read, or memory is full.
    """

    def __init__(self, array: np.ndarray, read: int, written: int) -> None:
        self.array = array  # keeps the file
        self.address, nbytes, self.descriptor, _ = row_of(array)
        self.pages = whole_pages(min(written, nbytes))
        memory = system("mmap", 0, self.pages, ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
                         -1, 0)
        try:
            advise(memory, self.pages, MAKE_WRITABLE)
            contents = _bytes(memory, self.pages)
            with self._file() as file:
                file.read_array(contents[:whole_pages(read)], 0)
                if written < nbytes and written % PAGE:  # the last page is not written as a whole
                    file.read_array(contents[-PAGE:], self.pages - PAGE)
            system("mremap", memory, self.pages, self.pages, MOVE, self.address)
        except BaseException:
            system("munmap", memory, self.pages)
            raise

    def write(self, stored: int) -> None:
        """Write the first `stored` bytes to the file, and map it again; OSError if it fails."""
        with self._file() as file:
            file.write_array(_bytes(self.address, self.pages)[:whole_pages(stored)], 0)
        system("mmap", self.address, self.pages, ACCESS, mmap.MAP_SHARED | FIXED,
                self.descriptor, 0)

    def _file(self) -> DiskFile:
        """Open the file for direct reads and writes, if the file system has them."""
        file = DiskFile(f"/proc/self/fd/{self.descriptor}", "r+")
        file.bypass = not use_directly(file)
        return file


def make_private(array: np.ndarray, read: int, written: int) -> PrivateMemory | None:
    """Return the PrivateMemory of an array; None if it does not begin in a file."""
    row = row_of(array)
    if row is None or row[0] != array.ctypes.data or not written:
        return None
    return PrivateMemory(array, read, written)


def _bytes(address: int, nbytes: int) -> np.ndarray:
    """Return memory as an array (nbytes,) uint8."""
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)
