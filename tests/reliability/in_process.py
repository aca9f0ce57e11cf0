"""Runs commands in this process: quick, for inputs that are refused before anything is computed."""
import contextlib
import io
import os
import re
from unittest import mock

from commands import without_notice

from hpgcn.__main__ import main
from hpgcn.runtime import machine


def run(*argv):
    """Return (exit code, standard error, standard output) of a command."""
    errors, output = io.StringIO(), io.StringIO()
    # would change the environment of all tests behind this one
    threads = mock.patch.object(machine, "limit_threads")
    with threads, contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
        code = main([str(word) for word in argv])
    return code, without_notice(errors.getvalue()), output.getvalue()


def succeed(*argv):
    """Return the standard output of a command that must succeed."""
    code, errors, output = run(*argv)
    assert code == 0, errors
    return output


def refused(code, message, *argv):
    """Check that a command fails with this code and one line that matches, and leaves nothing."""
    before = sorted(os.listdir())
    ended, errors, _ = run(*argv)
    assert ended == code, errors
    assert re.fullmatch(r"hpgcn: [^\n]+\n", errors), errors
    assert re.search(message, errors), errors
    assert errors[:-1].isprintable()
    assert sorted(os.listdir()) == before
    return errors
