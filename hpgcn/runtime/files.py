"""Open input files, but only regular ones, and check that they do not change.

A pipe would let the process wait, and a device might never end. DataError for a path
that is not a regular file; InputNotFoundError for one that cannot be opened;
StorageError for a device that fails. DataError also for a file that is replaced or
written to while it is read; `opened` is its os.stat from before.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from hpgcn.errors import DataError, HpgcnError, InputNotFoundError, StorageError, UsageError
from hpgcn.runtime.disk.page_cache import drop_pages, is_bypassed

PIECE = 1 << 20  # bytes hashed at a time
# path of each output that exists already, by device and inode
OUTPUTS = ContextVar("outputs", default={})  # noqa: B039 (never changed)


def check_path(path: Any) -> str:
    """Return a path as text; UsageError for other types."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise UsageError(f"path is of type {type(path).__name__}, expected str or path-like")
    return os.fsdecode(path)


def regular(path: Any, flags: int) -> int:
    """Open a file only if it is regular: the `opener` for open() and io.FileIO."""
    _check_regular(path, os.stat(path))
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    try:
        _check_regular(path, os.fstat(handle))  # the path may lead to another file by now
    except BaseException:
        os.close(handle)
        raise
    return handle


@contextmanager
def replaced(*paths: Path | str | None) -> Iterator[None]:
    """Context manager: refuse to read a file that one of these outputs would replace.

    A file is the same by any path or link. None is no path. The function that opens the
    file raises the UsageError.
    """
    found = {}
    with ExitStack() as held:
        for path in paths:
            try:
                handle = os.open(path or b"", os.O_PATH)
            except (OSError, ValueError):  # no file to replace
                continue
            held.callback(os.close, handle)  # an open file's inode is not given to another file
            found[_identity(os.fstat(handle))] = os.fsdecode(path)
        token = OUTPUTS.set({**OUTPUTS.get(), **found})
        try:
            yield
        finally:
            OUTPUTS.reset(token)


@contextmanager
def reading(path: Path | str) -> Iterator[Any]:
    """Context manager: open a regular file to read its bytes."""
    try:
        with open(path, "rb", opener=regular) as file:
            yield file
    except HpgcnError:
        raise
    except (OSError, ValueError) as error:  # ValueError for a NUL byte in the path
        raise unreadable(path, error) from error


def open_each(*paths: Path | str) -> None:
    """Open each file among `paths` and close it again; errors as `reading`."""
    for path in filter(os.path.isfile, paths):
        with reading(path):
            pass


def read_bytes(path: Path | str) -> bytes:
    """Return the bytes of a regular file; errors as `reading`."""
    with reading(path) as file:
        return file.read()


def file_sha256(path: Path | str) -> str:
    """Return the SHA-256 of a regular file, 64 hexadecimal digits; errors as `reading`."""
    with reading(path) as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if is_bypassed():
            drop_pages(file.fileno())
        return found


def unreadable(path: Path | str, error: BaseException) -> InputNotFoundError | StorageError:
    """Return the exception for an unreadable input, a StorageError if the device failed."""
    reason = getattr(error, "strerror", None) or error
    if getattr(error, "errno", None) in (errno.EIO, errno.ENXIO, errno.ESTALE):
        return StorageError(f"{path}: cannot be read: {reason}")
    return InputNotFoundError(f"{path}: {reason}")


def _check_regular(path: Path | str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{os.fsdecode(path)}: is a special file, expected a regular file")
    refuse_output(path, status)


def refuse_output(path: Path | str, status: os.stat_result) -> None:
    """Raise UsageError if the file with this os.stat is an output of `replaced`."""
    output = OUTPUTS.get().get(_identity(status))
    if output is not None:
        raise UsageError(f"{os.fsdecode(path)}: is read by this command, whose output {output} "
                         "would replace it; choose another output")


def is_same(path: Path | str, other: Path | str) -> bool:
    """Return whether two paths lead to one place, where a file may not be yet."""
    return os.path.realpath(path) == os.path.realpath(other)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def signature(status: os.stat_result) -> tuple[int, ...]:
    """Return device, inode, size and two times, which identify a file and its content."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def refuse_replaced(path: Path | str, opened: os.stat_result) -> None:
    """Raise DataError if `path` leads to another file than `opened`, or it was written to."""
    try:
        now = os.stat(path)
    except OSError as error:
        raise changed(path) from error
    if signature(now) != signature(opened):
        raise changed(path)


def refuse_rewritten(path: Path | str, handle: int, opened: os.stat_result) -> None:
    """Raise DataError if the open file was written to; `path` may lead elsewhere by now."""
    now = os.fstat(handle)
    compared = 4 if now.st_nlink == 0 else 5  # removing a link changes the ctime
    if signature(now)[:compared] != signature(opened)[:compared]:
        raise changed(path)


def add_to(digest: Any, path: Path | str, handle: int, opened: os.stat_result) -> None:
    """Add an open file to a hash without moving its position; errors as `refuse_rewritten`."""
    place = 0
    while block := os.pread(handle, PIECE, place):
        digest.update(block)
        if is_bypassed():
            drop_pages(handle, place, len(block))
        place += len(block)
    refuse_rewritten(path, handle, opened)


def changed(path: Path | str) -> DataError:
    """Return the DataError for a file that was changed while it was read."""
    return DataError(f"{path}: changed while it was read; run again when no other program writes "
                     "it")
