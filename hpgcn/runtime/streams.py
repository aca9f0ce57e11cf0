"""Write to standard output and error safely, even if they are closed or full."""

import fcntl
import logging
import os
import stat
import sys
import termios
import time
from contextlib import suppress
from typing import TextIO

_unsaid = []


def repair() -> None:
    """Open /dev/null for closed standard streams, so that no other file gets their numbers."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free number, which is `number`
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


class Lines(logging.Handler):
    """A logging handler that writes each record with `say`."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


def say(text: str) -> None:
    """Write a line to standard error in one piece, because other ranks may write too."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        _unsaid.append(text)


def is_complete() -> bool:
    """Return whether all output to standard error was written."""
    return not _unsaid and not failure(sys.stderr)


def wait_for_reader(seconds: float = 1.0) -> None:
    """Wait until the reader of standard error has received all output, at most `seconds`.

    A launcher that ends all ranks drops output that it has not read yet.
    """
    end = time.monotonic() + seconds
    with suppress(OSError, ValueError):  # closed, or neither a pipe nor a socket
        number = sys.stderr.fileno()
        request = termios.FIONREAD if stat.S_ISFIFO(os.fstat(number).st_mode) else termios.TIOCOUTQ
        while any(fcntl.ioctl(number, request, bytes(4))) and time.monotonic() < end:
            time.sleep(0.001)


def failure(stream: TextIO, probe: bytes = b"") -> Exception | None:
    """Flush a stream and write the bytes `probe`; return the exception of a failure, or None."""
    try:
        stream.flush()
        if probe:
            os.write(stream.fileno(), probe)
    except (OSError, ValueError) as error:
        return error
    return None


def silence(stream: TextIO) -> None:
    """Discard the buffer of a stream, whose flush at Python's exit would fail again."""
    with suppress(OSError, ValueError):
        handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, stream.fileno())
        os.close(handle)
        stream.flush()
