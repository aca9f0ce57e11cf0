"""Run commands in this process, which is fast for inputs that are refused early."""
import contextlib
import io
import os
import re
from unittest import mock

from commands import without_notice

from hpgcn.__main__ import main
from hpgcn.runtime import machine


def run(*argv):
    """Run an hpgcn command; return (exit code, standard error, standard output)."""
    errors, output = io.StringIO(), io.StringIO()
    # the number of threads would stay for all later tests
    threads = mock.patch.object(machine, "limit_threads")
    with threads, contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
        code = main([str(word) for word in argv])
    return code, without_notice(errors.getvalue()), output.getvalue()


def succeed(*argv):
    """Run a command that must succeed; return its standard output."""
    code, errors, output = run(*argv)
    assert code == 0, errors
    return output


def refused(code, message, *argv):
    """Check that a command fails with `code`, prints one line that matches, and leaves no file."""
    before = sorted(os.listdir())
    ended, errors, _ = run(*argv)
    assert ended == code, errors
    assert re.fullmatch(r"hpgcn: [^\n]+\n", errors), errors
    assert re.search(message, errors), errors
    assert errors[:-1].isprintable()
    assert sorted(os.listdir()) == before
    return errors
