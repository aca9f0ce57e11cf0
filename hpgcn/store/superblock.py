"""The first 48 bytes of an HDF5 file, checked before the library sees it."""
from __future__ import annotations

import os

from hpgcn.errors import DataError
from hpgcn.files import regular, unreadable

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
        with open(path, "rb", opener=regular) as file:
            status = os.fstat(file.fileno())
            head = file.read(SIZE)
    except DataError:
        raise
    except IsADirectoryError as error:
        raise DataError(f"{path}: is a folder, expected an HDF5 file") from error
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if not head:
        raise DataError(f"{path}: is empty (0 bytes), expected an HDF5 file")
    if head[:8] != SIGNATURE:
        raise DataError(f"{path}: is not an HDF5 file; `hpgcn convert` makes one of a graph in another format")
    if len(head) >= 9 and head[8] not in (2, 3):
        raise DataError(f"{path}: HDF5 superblock version {head[8]}, expected 2 or 3 (checksummed headers)")
    end = int.from_bytes(head[28:36], "little")
    if len(head) < SIZE or end > status.st_size:
        raise DataError(f"{path}: is truncated: {status.st_size} bytes" + (f" of {end}" if len(head) == SIZE else ""))
    if head[9:11] != b"\x08\x08" or head[12:20] != bytes(8):
        raise DataError(f"{path}: HDF5 superblock has unusual offsets, expected 8-byte ones from 0")
    return status
