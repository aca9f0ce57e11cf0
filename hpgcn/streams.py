"""Standard output and error, where they are closed or take no more."""
from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress

_unsaid = []


def repair():
    """Occupy standard streams that are closed, so that no file that is opened later gets their numbers.

    What is then printed on standard output fails as on a closed one; what is said on standard error goes nowhere.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


class Lines(logging.Handler):
    """Says what is logged."""

    def emit(self, record):
        say(self.format(record))


def say(text):
    """Write a line on standard error, at once and as a whole: other ranks may write, too."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        _unsaid.append(text)


def said():
    """Whether all that was to be said could be."""
    return not _unsaid and not failure(sys.stderr)


def failure(stream, probe=b""):
    """The error of writing out what a stream still holds, and then `probe`; None if it takes it."""
    try:
        stream.flush()
        if probe:
            os.write(stream.fileno(), probe)
    except (OSError, ValueError) as error:
        return error
    return None


def silence(stream):
    """Let what a stream still holds go nowhere: Python would fail again at the end of the process."""
    with suppress(OSError, ValueError):
        handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, stream.fileno())
        os.close(handle)
        stream.flush()
