"""Which file was opened, and whether it still is the one under its name: a digest is of what was read."""
from __future__ import annotations

import os

from hpgcn.errors import DataError

PIECE = 1 << 20  # bytes hashed at a time


def signature(status):
    """What another file, or another content, changes in an os.stat_result: device, inode, size and two times."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def refuse_replaced(path, opened):
    """Refuse to go on with what was read of a file unless its name still leads to it, unchanged.

    Parameters
    ----------
    path : str or path-like
    opened : os.stat_result
        Of the file, before anything was read.

    Raises
    ------
    DataError
        Another file has its name, it was written to, or it is gone.
    """
    try:
        now = os.stat(path)
    except OSError:
        now = None
    if now is None or signature(now) != signature(opened):
        raise changed(path)


def refuse_rewritten(path, handle, opened):
    """Refuse an open file that was written to since `opened`; what its name leads to by now does not matter.

    Parameters
    ----------
    path : str or path-like
        For the message.
    handle : int
        File descriptor.
    opened : os.stat_result

    Raises
    ------
    DataError
    """
    now = os.fstat(handle)
    unlinked = now.st_nlink == 0  # which changes its second time
    if signature(now)[:4 if unlinked else 5] != signature(opened)[:4 if unlinked else 5]:
        raise changed(path)


def add_to(digest, path, handle, opened):
    """Put all bytes of an open file through a hash function, without moving its position; as `refuse_rewritten`."""
    place = 0
    while block := os.pread(handle, PIECE, place):
        digest.update(block)
        place += len(block)
    refuse_rewritten(path, handle, opened)


def changed(path):
    """The error about a file that did not stay as it was."""
    return DataError(f"{path}: changed while it was read; run this again once nothing replaces or writes it")
