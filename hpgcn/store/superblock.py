"""The first 48 bytes of an HDF5 file, checked before the library sees it."""
from __future__ import annotations

import os
import stat

from hpgcn.errors import DataError
from hpgcn.store.atomic import unreadable

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SIZE = 48


def check_superblock(path):
    """Refuse what is no HDF5 file, is truncated, or has headers without checksums.

    Returns
    -------
    os.stat_result
        Of the file that was looked at.

    Raises
    ------
    InputNotFoundError, DataError, StorageError
    """
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            kind = "folder" if stat.S_ISDIR(mode) else "special file"
            raise DataError(f"{path}: is a {kind}, expected an HDF5 file")
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            head = file.read(SIZE)
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    size = status.st_size
    if not head:
        raise DataError(f"{path}: is empty (0 bytes), expected an HDF5 file")
    if head[:8] != SIGNATURE:
        raise DataError(f"{path}: is not an HDF5 file; `hpgcn convert` makes one of a graph in another format")
    if len(head) >= 9 and head[8] not in (2, 3):
        raise DataError(f"{path}: HDF5 superblock version {head[8]}, expected 2 or 3 (checksummed headers)")
    end = int.from_bytes(head[28:36], "little")
    if len(head) < SIZE or end > size:
        raise DataError(f"{path}: is truncated: {size} bytes" + (f" of {end}" if len(head) == SIZE else ""))
    if head[9:11] != b"\x08\x08" or head[12:20] != bytes(8):
        raise DataError(f"{path}: HDF5 superblock has unusual offsets, expected 8-byte ones from 0")
    return status
