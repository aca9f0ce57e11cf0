"""Check that an open file was not replaced or changed, so that its digest describes the
data read.

A file that was replaced or written to raises a DataError. `opened` is its os.stat from
before it was read.
"""

import os

from hpgcn.errors import DataError

PIECE = 1 << 20  # bytes hashed at a time


def signature(status):
    """Return five attributes that identify a file and its content: device, inode, size,
    two times.
    """
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def refuse_replaced(path, opened):
    """Raise DataError if `path` now leads to another file than `opened`, or if the file
    was written to.
    """
    try:
        now = os.stat(path)
    except OSError as error:
        raise changed(path) from error
    if signature(now) != signature(opened):
        raise changed(path)


def refuse_rewritten(path, handle, opened):
    """Raise DataError if the open file `handle` was written to, even if `path` leads
    elsewhere by now.
    """
    now = os.fstat(handle)
    compared = 4 if now.st_nlink == 0 else 5  # removing a link changes the ctime
    if signature(now)[:compared] != signature(opened)[:compared]:
        raise changed(path)


def add_to(digest, path, handle, opened):
    """Add the content of an open file to a hash without moving its position; errors as
    `refuse_rewritten`.
    """
    place = 0
    while block := os.pread(handle, PIECE, place):
        digest.update(block)
        place += len(block)
    refuse_rewritten(path, handle, opened)


def changed(path):
    """Return the DataError for a file that was changed while it was read."""
    return DataError(f"{path}: changed while it was read; run again when no other program writes "
                     "it")
