"""Output files that appear whole or not at all."""
from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path

from hpgcn import faults
from hpgcn.errors import InputNotFoundError, OutputError, StorageError, UsageError

HDF5_SUFFIXES = (".h5", ".hdf5")


def check_suffix(path, *others):
    """Refuse the name of an HDF5 file that does not say so; `others` are endings under which something else is written.

    Raises
    ------
    UsageError
    """
    if not os.fspath(path).lower().endswith(HDF5_SUFFIXES):
        expected = ", ".join((*HDF5_SUFFIXES, *others)[:-1]) + f" or {(*HDF5_SUFFIXES, *others)[-1]}"
        raise UsageError(f"{path}: an output must end in {expected}")


def refuse_existing(path, overwrite=False):
    """Refuse an output that cannot be created, before any work is spent on it.

    Returns
    -------
    pathlib.Path
        Where the file will lie, symbolic links followed.

    Raises
    ------
    OutputError
        It exists and `overwrite` is false, is no regular file, or its folder is missing or not writable.
    """
    try:
        target = Path(os.path.realpath(path))
        kind = _mode(target)
        folder = _mode(target.parent)
    except (OSError, ValueError) as error:
        raise OutputError(f"{path}: cannot be created: {_reason(error)}") from error
    if kind is not None and not stat.S_ISREG(kind):
        raise OutputError(f"{path}: is a {'folder' if stat.S_ISDIR(kind) else 'special file'}, expected a file name")
    if kind is not None and not overwrite:
        raise OutputError(f"{path}: exists already; --overwrite replaces it")
    if folder is None or not stat.S_ISDIR(folder):
        raise OutputError(f"{path}: cannot be created: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: cannot be created: folder {target.parent} is not writable")
    return target


@contextmanager
def replacing(path, overwrite=False):
    """Give the name of an empty temporary file beside `path`; it becomes `path` when the block ends well.

    The file and its folder are synchronised to disk. When the block raises, KeyboardInterrupt included, nothing
    is left behind and an older file under that name stays as it was.

    Raises
    ------
    OutputError
        As `refuse_existing`, or the file cannot be created.
    StorageError
        Synchronising to disk failed.
    """
    target = refuse_existing(path, overwrite)
    temporary = target.with_name(f".hpgcn-{secrets.token_hex(8)}.tmp")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except OSError as error:
        raise OutputError(f"{path}: cannot be created: {_reason(error)}") from error
    try:
        yield temporary
        with writing(path):
            _fsync(temporary)
        refuse_existing(path, overwrite)  # another process may have been faster
        with writing(path):
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    with writing(path):
        _fsync(target.parent)


def atomic_write(path, content, overwrite=False):
    """Write a whole file, or leave everything as it was.

    Parameters
    ----------
    content : bytes, str, or function of a binary file
        Text is encoded as UTF-8; a function is called once with the open file.

    Raises
    ------
    OutputError
        As `refuse_existing`.
    StorageError
        The disk is full, or writing failed.
    """
    with replacing(path, overwrite) as temporary, writing(path), open(temporary, "r+b") as file:
        if callable(content):
            content(file)
        else:
            file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing_folder(path):
    """Give an empty temporary folder beside `path`; it becomes `path` when the block ends well.

    The files in it must be synchronised to disk already, as those of `replacing` are; the folders are here. Where the
    block raises nothing is left behind, and an older folder of that name stays; killed, it leaves `.NAME.tmp`, which
    the next one replaces. The folder around it is made where it is missing.

    Raises
    ------
    StorageError
        The disk is full, or writing failed.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with writing(path):
            shutil.rmtree(temporary, ignore_errors=True)
            if not target.parent.is_dir():
                target.parent.mkdir()
                _fsync(target.parent.parent)
            temporary.mkdir()
            yield temporary
            _fsync(temporary)
            faults.point("checkpoint.fsync")
            if target.exists():
                discard(target)
            faults.point("checkpoint.rename")
            os.rename(temporary, target)
            faults.point("checkpoint.renamed")
            _fsync(target.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def discard(path):
    """Remove a folder; killed in between, it leaves `.NAME.old` and never half a folder under its name."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.old")
    with writing(path):
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(path, aside)
        faults.point("checkpoint.prune")
        shutil.rmtree(aside, ignore_errors=True)


def file_sha256(path):
    """SHA-256 of a file as 64 hexadecimal digits, read in pieces.

    Raises
    ------
    InputNotFoundError
        It does not exist or cannot be opened.
    StorageError
        Reading failed.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def unreadable(path, error):
    """Return what to raise when opening or reading an input failed: StorageError if the device is at fault."""
    if getattr(error, "errno", None) in (errno.EIO, errno.ENXIO, errno.ESTALE):
        return StorageError(f"{path}: cannot be read: {_reason(error)}")
    return InputNotFoundError(f"{path}: {_reason(error)}")


@contextmanager
def writing(path):
    """Turn the failure of a write into a StorageError that names the file as the user does."""
    try:
        yield
    except (OutputError, StorageError):
        raise
    except OSError as error:
        raise StorageError(f"{path}: writing failed: {_reason(error)}") from error


def _mode(path):
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _fsync(path):
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot synchronise a folder
            raise
    finally:
        os.close(handle)


def _reason(error):
    return getattr(error, "strerror", None) or str(error)
