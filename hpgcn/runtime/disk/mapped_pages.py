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
from functools import partial

import numpy as np

PAGE = mmap.PAGESIZE
PIECE = 1 << 25  # bytes that are written at once
AHEAD = 1 << 21  # bytes that Linux reads at once
PAGE_OUT, READ_IN, MAKE_WRITABLE = 21, 22, 23  # advice of madvise
START, COMPLETE = 2, 7  # flags of sync_file_range: begin to write, and wait
ZERO = 0x11  # mode of fallocate: FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE
_library = partial(ctypes.CDLL, None, use_errno=True)
LONG, INT = ctypes.c_long, ctypes.c_int


def _call(name: str, *arguments: object) -> int:
    """Call a function of the C library, without the lock of Python; return its errno or 0."""
    if getattr(_library(), name)(*arguments):
        return ctypes.get_errno()
    return 0


def _advise(address: int, nbytes: int, advice: int) -> None:
    """Give advice on memory; older systems ignore some of it."""
    if nbytes > 0:
        _call("madvise", LONG(address), LONG(nbytes), INT(advice))


def _row(array: np.ndarray) -> tuple[int, ...] | None:
    """Return address, bytes, descriptor and rank of the file of an array; None: it has none."""
    from hpgcn.kernels.disk.file_table import row_of  # late, because it imports Numba

    row = row_of(array)
    return None if row is None else tuple(row.tolist())


def bring_in(array: np.ndarray, read: int, written: int) -> None:
    """Read the first `read` bytes of an array, and make the first `written` bytes writable.

    So a rank that touches them later need not wait for each page.
    """
    row = _row(array)
    if row is None:
        return
    begin, _, descriptor, _ = row
    address = array.ctypes.data // PAGE * PAGE
    offset, more = address - begin, array.ctypes.data - address
    read, written = ((min(each, array.nbytes) + more) * (each > 0) for each in (read, written))
    with suppress(OSError):
        for first in range(0, read, AHEAD):
            os.posix_fadvise(descriptor, offset + first, min(AHEAD, read - first),
                             os.POSIX_FADV_WILLNEED)
    _advise(address, read, READ_IN)
    _advise(address, written, MAKE_WRITABLE)


def put_out(parts: Iterable[tuple[int, int, int, int]]) -> None:
    """Write parts of files that have changed, and let their pages leave memory.

    OSError if it fails. A part of a file is (address, descriptor, first byte, end). Writes
    of the next parts begin before one has ended.
    """
    pieces = [(address + first, descriptor, first, min(PIECE, end - first))
              for address, descriptor, begin, end in parts for first in range(begin, end, PIECE)]
    begun = under_way = 0
    for address, descriptor, first, nbytes in pieces:
        while begun < len(pieces) and under_way < 2 * PIECE:
            _, *piece = pieces[begun]
            _sync(START, *piece)
            under_way += piece[-1]
            begun += 1
        _sync(COMPLETE, descriptor, first, nbytes)
        under_way -= nbytes
        _advise(address, nbytes, PAGE_OUT)
        with suppress(OSError):  # pages that were read ahead
            os.posix_fadvise(descriptor, first, nbytes, os.POSIX_FADV_DONTNEED)


def _sync(flags: int, descriptor: int, first: int, nbytes: int) -> None:
    """Write a part of a file."""
    failed = _call("sync_file_range", INT(descriptor), LONG(first), LONG(nbytes), INT(flags))
    if failed and failed != errno.EBADF:  # the array has ended
        raise OSError(failed, os.strerror(failed))


def pages_of(array: np.ndarray) -> tuple[int, int, int, int] | None:
    """Return the part of a file that is whole pages of an array: see `put_out`.

    None if it has no file.
    """
    row = _row(array)
    if row is None:
        return None
    address, nbytes, descriptor, _ = row
    begin = array.ctypes.data - address
    end = begin + array.nbytes
    end = -(-end // PAGE) * PAGE if end == nbytes else end // PAGE * PAGE
    return address, descriptor, -(-begin // PAGE) * PAGE, end


def forget(array: np.ndarray, first: int = 0) -> None:
    """Drop the contents of an array in a file from byte `first` on: later reads may give zeros.

    Whole pages inside it need not be written then. Some file systems cannot do it and keep
    the contents.
    """
    part = pages_of(array.reshape(-1).view(np.uint8)[first:])
    if part is not None:
        _, descriptor, begin, end = part
        if begin < end:
            _call("fallocate", INT(descriptor), INT(ZERO), LONG(begin), LONG(end - begin))


def protect(array: np.ndarray, *, allowed: bool) -> None:
    """Let accesses to an array in a file succeed, or fault."""
    row = _row(array)
    if row is not None:
        address, nbytes, *_ = row
        _call("mprotect", LONG(address), LONG(nbytes), INT(3 * allowed))
