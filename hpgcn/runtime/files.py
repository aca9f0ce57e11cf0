"""Open input files, but only regular ones.

This avoids waiting for a pipe, and reading a device without end. A path that is not a
regular file raises a DataError; one that cannot be opened an InputNotFoundError; a
device that fails a StorageError.
"""

import errno
import hashlib
import os
import stat
from contextlib import contextmanager

from hpgcn.errors import DataError, HpgcnError, InputNotFoundError, StorageError, UsageError


def check_path(path):
    """Return a path as text; UsageError for other types."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise UsageError(f"path is of type {type(path).__name__}, expected str or path-like")
    return os.fsdecode(path)


def regular(path, flags):
    """Open a file only if it is regular: the `opener` for open() and io.FileIO."""
    _check_regular(path, os.stat(path))
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    try:
        _check_regular(path, os.fstat(handle))  # it may have been replaced since
    except BaseException:
        os.close(handle)
        raise
    return handle


@contextmanager
def reading(path):
    """Context manager: open a regular file to read its bytes."""
    try:
        with open(path, "rb", opener=regular) as file:
            yield file
    except HpgcnError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        raise unreadable(path, error) from error


def read_bytes(path):
    """Return the bytes of a regular file; errors as `reading`."""
    with reading(path) as file:
        return file.read()


def file_sha256(path):
    """Return the SHA-256 of a regular file, 64 hexadecimal digits; errors as
    `reading`.
    """
    with reading(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unreadable(path, error):
    """Return the exception for an input that cannot be read: StorageError for failures
    of the device.
    """
    reason = getattr(error, "strerror", None) or error
    if getattr(error, "errno", None) in (errno.EIO, errno.ENXIO, errno.ESTALE):
        return StorageError(f"{path}: cannot be read: {reason}")
    return InputNotFoundError(f"{path}: {reason}")


def _check_regular(path, status):
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{os.fsdecode(path)}: is a special file, expected a regular file")
