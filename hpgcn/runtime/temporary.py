"""Temporary files and folders that are removed with their block, even by a signal.

A name contains the machine and the process that owns it, and ends in 16 random digits.
The process locks it. The files of a killed process are removed by the next command that
creates temporary files in the same folder. It removes only unlocked files of this
machine and user whose process has ended. OSError if something cannot be created.
"""

import fcntl
import os
import re
import secrets
import shutil
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from hpgcn.runtime import signals

MACHINE = f"{zlib.crc32(os.fsencode(os.uname().nodename)):08x}"
NAME = re.compile(rf"\.hpgcn-{MACHINE}-([0-9]+)-([0-9]+)-[0-9a-f]{{16}}\.tmp")


def temporary_file(folder: Path | str) -> AbstractContextManager[Path]:
    """Context manager: yield the path of a new, empty file; remove it unless it was renamed."""
    return _make_temporary(folder, _make_file)


def temporary_folder(folder: Path | str) -> AbstractContextManager[Path]:
    """Context manager: yield the path of a new, empty folder; remove it with its content."""
    return _make_temporary(folder, _make_folder)


def remove(path: Path | str) -> None:
    """Remove a file, a folder or a symbolic link (not its target) as far as possible."""
    with suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


@contextmanager
def _make_temporary(folder: Path | str, make: Callable) -> Iterator[Path]:
    folder = Path(folder)
    process = os.getpid()
    _, begin = _state_of(process)
    path = folder / f".hpgcn-{MACHINE}-{process}-{begin}-{secrets.token_hex(8)}.tmp"

    handle = None
    _sweep(folder)

    with signals.ending():
        try:
            handle = make(path)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield path
        finally:
            with signals.blocked(*signals.ENDING):
                remove(path)
                if handle is not None:
                    os.close(handle)


def _make_file(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)


def _make_folder(path: Path) -> int:
    os.mkdir(path, 0o700)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _sweep(folder: Path) -> None:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = NAME.fullmatch(entry.name)
            if name and not _lives(int(name[1]), name[2]):
                _remove_unlocked(entry.path)


def _remove_unlocked(path: Path | str) -> None:
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if os.fstat(handle).st_uid == os.geteuid():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(path)
        finally:
            os.close(handle)


def _lives(process: int, started: str) -> bool:
    """Return whether a process still runs that began at clock tick `started`."""
    try:
        os.kill(process, 0)
    except PermissionError:
        pass
    except (OSError, OverflowError):
        return False
    state, begin = _state_of(process)
    return state not in "ZX" and begin in (started, "0")


def _state_of(process: int) -> tuple[str, str]:
    """Return the state and start tick of a process (proc(5)), "?" and "0" if unknown."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
        fields = text.rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "?", "0"
