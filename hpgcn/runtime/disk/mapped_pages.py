"""Pages of arrays in files: bring them in, write them out, and drop their contents.

Linux keeps the pages of mapped files and reads what is touched. These calls come before it.
Most are advice, which changes no contents, also if an array has ended in the meantime.
"""
import ctypes
import errno
import mmap
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
AHEAD = 1 << 21  # bytes that Linux reads at once
PAGE_OUT, READ_IN = 21, 22  # advice of madvise
START, COMPLETE = 2, 7  # flags of sync_file_range: begin to write, and wait
ZERO = 0x11  # mode of fallocate: FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE
FAILED = (1 << 32) - 1  # -1 of an int; addresses end in zeros


def system(name: str, *arguments: int) -> int:
    """Call a function of the C library, without the lock of Python; OSError if it fails."""
    found = _function(name)(*map(ctypes.c_long, arguments))
    if found & FAILED == FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


@cache
def _function(name: str) -> Any:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    function.restype = ctypes.c_long
    return function


def advise(address: int, nbytes: int, advice: int) -> None:
    """Give advice on memory; older systems ignore some of it."""
    if nbytes > 0:
        with suppress(OSError):
            system("madvise", address, nbytes, advice)


def row_of(array: np.ndarray) -> tuple[int, ...] | None:
    """Return address, bytes, descriptor and rank of the file of an array; None: it has none."""
    from hpgcn.kernels.disk import file_table  # late, because it imports Numba

    row = file_table.row_of(array)
    return None if row is None else tuple(row.tolist())


def bring_in(array: np.ndarray, first: int, end: int) -> None:
    """Read bytes of an array, so a rank that touches them later need not wait for each page."""
    row = row_of(array)
    if row is None or first >= end:
        return
    begin = array.ctypes.data - row[0]
    first = (begin + first) // PAGE * PAGE
    end = begin + min(end, array.nbytes)
    with suppress(OSError):
        for place in range(first, end, AHEAD):
            os.posix_fadvise(row[2], place, min(AHEAD, end - place), os.POSIX_FADV_WILLNEED)
    advise(row[0] + first, end - first, READ_IN)


def put_out(parts: Iterable[tuple[int, int, int, int]]) -> None:
    """Write parts of files that have changed, and let their pages leave memory.

    OSError if it fails. A part of a file is (address, descriptor, first byte, end). Writes
    of the next parts begin before one has ended.
    """
    pieces = [(address + begin, descriptor, begin, end - begin)
              for address, descriptor, begin, end in parts if begin < end]
    for _, *piece in pieces:
        _sync(START, *piece)
    for address, *piece in pieces:
        _sync(COMPLETE, *piece)
        descriptor, first, nbytes = piece
        advise(address, nbytes, PAGE_OUT)
        with suppress(OSError):  # pages that were read ahead
            os.posix_fadvise(descriptor, first, nbytes, os.POSIX_FADV_DONTNEED)


def _sync(flags: int, descriptor: int, first: int, nbytes: int) -> None:
    """Write a part of a file."""
    try:
        system("sync_file_range", descriptor, first, nbytes, flags)
    except OSError as error:
        if error.errno != errno.EBADF:  # the array has ended
            raise


def pages_of(array: np.ndarray) -> tuple[int, int, int, int] | None:
    """Return the part of a file that is whole pages of an array: see `put_out`.

    None if it has no file.
    """
    row = row_of(array)
    if row is None:
        return None
    address, nbytes, descriptor, _ = row
    begin = array.ctypes.data - address
    end = begin + array.nbytes
    end = -(-end // PAGE) * PAGE if end == nbytes else end // PAGE * PAGE
    return address, descriptor, -(-begin // PAGE) * PAGE, end


def leave_memory(array: np.ndarray) -> None:
    """Write an array in a file, and let its pages leave memory."""
    part = pages_of(array)
    if part is not None:
        put_out([part])


def forget(array: np.ndarray, first: int = 0) -> None:
    """Drop the contents of an array in a file from byte `first` on: later reads may give zeros.

    Whole pages inside it need not be written then. Some file systems cannot do it and keep
    the contents.
    """
    part = pages_of(array.reshape(-1).view(np.uint8)[first:])
    if part is not None:
        _, descriptor, begin, end = part
        with suppress(OSError):
            system("fallocate", descriptor, ZERO, begin, end - begin)


def protect(array: np.ndarray, *, allowed: bool) -> None:
    """Let accesses to an array in a file succeed, or fault."""
    row = row_of(array)
    if row is not None:
        address, nbytes, *_ = row
        system("mprotect", address, nbytes, 3 * allowed)
