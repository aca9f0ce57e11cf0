"""Memory that processes of one machine share: files in memory without a name.

A process makes such a file, and sends its Key to others. They open the file through /proc.
No file remains once the processes have ended, however they end. Linux only: elsewhere
nothing is made.
"""
from __future__ import annotations

import mmap
import os
import sys
from typing import NamedTuple

import numpy as np

HEAD = 64  # bytes before the contents, which begin at a cache line
TOKEN = 16  # bytes of a random number at the start, by which the file is recognized


class Key(NamedTuple):
    """Address of a file for other processes: the process that made it, and its number there."""

    process: int
    number: int
    token: bytes
    nbytes: int  # size of the contents

    def close(self) -> None:
        """Let no other process open the file any more; mapped memory stays."""
        os.close(self.number)


def create_file(nbytes: int) -> tuple[Key | None, np.ndarray | None]:
    """Return the Key of a new file and its contents, (nbytes,) uint8.

    Return (None, None) if the system has no room, or no such files.
    """
    try:
        number = os.memfd_create("hpgcn")
    except (AttributeError, OSError):
        return None, None
    key = Key(os.getpid(), number, os.urandom(TOKEN), nbytes)
    try:
        os.posix_fallocate(number, 0, HEAD + nbytes)  # takes the memory now, or fails
        memory = _mapped(number, nbytes)
    except (OSError, ValueError):
        key.close()
        return None, None
    memory[:TOKEN] = np.frombuffer(key.token, np.uint8)
    return key, memory[HEAD:]


def open_file(key: Key) -> np.ndarray | None:
    """Return the contents of another process's file, (nbytes,) uint8.

    Return None if the file cannot be opened.
    """
    try:
        number = os.open(f"/proc/{key.process}/fd/{key.number}", os.O_RDWR | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        memory = _mapped(number, key.nbytes)
    except (OSError, ValueError):
        return None
    finally:
        os.close(number)

    # a container may have another process of that number
    return memory[HEAD:] if memory[:TOKEN].tobytes() == key.token else None


def _mapped(number: int, nbytes: int) -> np.ndarray:
    # Python 3.13 can map a file without a descriptor that stays open
    options = {"trackfd": False} if sys.version_info >= (3, 13) else {}
    return np.frombuffer(mmap.mmap(number, HEAD + nbytes, **options), np.uint8)
