"""Write output files completely or not at all.

A file that cannot be created, or exists and is not to be overwritten, raises an
OutputError. A full disk, or a failed write, raises a StorageError.
"""

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hpgcn.errors import OutputError, StorageError, UsageError, setting
from hpgcn.runtime import faults
from hpgcn.runtime.disk.page_cache import DiskFile, drop_pages, is_bypassed
from hpgcn.runtime.files import check_path
from hpgcn.runtime.temporary import remove, temporary_file, temporary_folder

HDF5_SUFFIXES = (".h5", ".hdf5")


def check_suffix(path: Path | str, *others: str) -> None:
    """Raise UsageError unless the path has an HDF5 suffix; the message also lists `others`."""
    if not os.fspath(path).lower().endswith(HDF5_SUFFIXES):
        *suffixes, last = (*HDF5_SUFFIXES, *others)
        raise UsageError(f"{path}: an output must end in {', '.join(suffixes)} or {last}")


def refuse_existing(path: Any, overwrite: bool = False, follow: bool = True) -> Path:
    """Refuse an output that exists or cannot be created, before any work; return its Path.

    Symbolic links in the path are followed; if the output itself is a link, only with
    `follow`.
    """
    # resolve links to the final path
    path = check_path(path)
    try:
        target = Path(os.path.realpath(path))
        if not follow:
            target = Path(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        kind = _mode(target, follow)
        folder = _mode(target.parent)
    except (OSError, ValueError) as error:
        raise _uncreatable(path, error) from error

    # refuse an existing folder or special file there, and a missing folder above it
    if kind is not None and not stat.S_ISREG(kind) and not stat.S_ISLNK(kind):
        other = "folder" if stat.S_ISDIR(kind) else "special file"
        raise OutputError(f"{path}: is a {other}, expected a file name")
    if kind is not None and not overwrite:
        raise OutputError(f"{path}: exists already; use {setting('overwrite', True)} to replace it")
    if folder is None or not stat.S_ISDIR(folder):
        raise OutputError(f"{path}: cannot be created: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: cannot be created: folder {target.parent} is not writable")
    return target


@contextmanager
def replacing(path: Path | str, overwrite: bool = False, follow: bool = True) -> Iterator[Path]:
    """Context manager: yield an empty temporary file that replaces `path` on success.

    The temporary file lies beside `path`. File and folder are synchronized to disk. If
    the block raises, also because of a signal, the temporary file is removed and an
    older file at `path` stays. If `path` is a symbolic link, its target is replaced;
    without `follow` the link itself.
    """
    target = refuse_existing(path, overwrite, follow)
    with ExitStack() as held:
        try:
            temporary = held.enter_context(temporary_file(target.parent))
        except OSError as error:
            raise _uncreatable(path, error) from error
        yield temporary

        # make the contents durable before the name
        with writing(path):
            synchronize(temporary)
        refuse_existing(path, overwrite, follow)  # another process may have been faster
        with writing(path):
            os.replace(temporary, target)
    with writing(path):
        synchronize(target.parent)


@contextmanager
def scratch_folder(path: Path | str) -> Iterator[Path]:
    """Context manager: yield a temporary folder beside the output `path`; remove it at the end."""
    with ExitStack() as held:
        try:
            folder = held.enter_context(temporary_folder(Path(os.path.realpath(path)).parent))
        except OSError as error:
            raise _uncreatable(path, error) from error
        yield folder


def atomic_write(path: Any, content: Any, overwrite: bool = False, follow: bool = True) -> None:
    """Write bytes, text (UTF-8) or the output of a function to a file, like `replacing`."""
    if isinstance(content, str):
        content = content.encode()
    write = content if callable(content) else lambda file: file.write(content)
    with (replacing(path, overwrite, follow) as temporary, writing(path),
          io.BufferedRandom(DiskFile(temporary, "r+")) as file):
        write(file)


@contextmanager
def replacing_folder(path: Path | str) -> Iterator[Path]:
    """Context manager: yield an empty temporary folder that becomes `path` on success.

    Files in it must be synchronized to disk already, as by `replacing`; folders are
    synchronized here. If the block raises, nothing is left and an older folder at
    `path` stays. A killed process leaves `.NAME.tmp`, which the next call replaces. The
    parent folder is created if missing.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with writing(path):
            # make the temporary folder
            remove(temporary)
            if not target.parent.is_dir():
                target.parent.mkdir()
                synchronize(target.parent.parent)
            temporary.mkdir()
            yield temporary

            # make its contents durable, then put it in the place of the older one
            synchronize(temporary)
            faults.point("checkpoint.fsync")
            if target.exists():
                discard(target)
            faults.point("checkpoint.rename")
            os.rename(temporary, target)
            faults.point("checkpoint.renamed")
            synchronize(target.parent)
    except BaseException:
        remove(temporary)
        raise


def discard(path: Path | str) -> None:
    """Remove a folder; a killed process leaves `.NAME.old`, but never a partial folder."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.old")
    with writing(path):
        remove(aside)
        os.rename(path, aside)
        faults.point("checkpoint.prune")
        remove(aside)


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Context manager: turn a failed write into a StorageError with the user's path."""
    try:
        yield
    except (OutputError, StorageError):
        raise
    except OSError as error:
        raise StorageError(f"{path}: writing failed: {_reason(error)}") from error


def _mode(path: Path, follow: bool = True) -> int | None:
    try:
        return os.stat(path, follow_symlinks=follow).st_mode
    except FileNotFoundError:
        return None


def synchronize(path: Path | str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        if is_bypassed():
            drop_pages(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not possible on some file systems
            raise
    finally:
        os.close(handle)


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)


def _uncreatable(path: Path | str, error: BaseException) -> OutputError:
    return OutputError(f"{path}: cannot be created: {_reason(error)}")
