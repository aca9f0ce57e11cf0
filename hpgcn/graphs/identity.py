"""Checks that a file is still the one that was opened, so that its digest describes the data read.

One that was replaced or written to is a DataError. `opened`: its os.stat before it was
read.
"""

import os

from hpgcn.errors import DataError

PIECE = 1 << 20  # bytes hashed at a time


def signature(status):
    """Return the attributes that differ between files or contents: device, inode, size
    and two times.
    """
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def refuse_replaced(path, opened):
    """Refuse a file that its name does not lead to any more, or that was written to."""
    try:
        now = os.stat(path)
    except OSError as error:
        raise changed(path) from error
    if signature(now) != signature(opened):
        raise changed(path)


def refuse_rewritten(path, handle, opened):
    """Refuse an open file (descriptor `handle`) that was written to, whatever has its name now."""
    now = os.fstat(handle)
    compared = 4 if now.st_nlink == 0 else 5  # removing a file changes its second time
    if signature(now)[:compared] != signature(opened)[:compared]:
        raise changed(path)


def add_to(digest, path, handle, opened):
    """Put an open file through a hash function, its position unmoved; as `refuse_rewritten`."""
    place = 0
    while block := os.pread(handle, PIECE, place):
        digest.update(block)
        place += len(block)
    refuse_rewritten(path, handle, opened)


def changed(path):
    """Return the error about a file that did not stay as it was."""
    return DataError(f"{path}: changed while it was read; run again when no other program writes "
                     "it")
