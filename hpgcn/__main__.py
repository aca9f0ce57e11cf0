"""The command line: `hpgcn COMMAND ...` or `python -m hpgcn COMMAND ...`.

Slow imports are delayed until a command runs.
"""
import os
import signal
import sys

from hpgcn.runtime import signals

# signals end the program with cleanup, from its first line on
if __name__ == "__main__" or os.path.basename(sys.argv[0]) == "hpgcn":
    signals.start(sys.argv[1:])

import contextvars
import faulthandler
import logging
import re
import traceback
from contextlib import suppress

from hpgcn.cli.parser import parser
from hpgcn.errors import (
    COMMAND_LINE,
    HpgcnError,
    InternalError,
    StorageError,
    UsageError,
    agreed,
    printable,
)
from hpgcn.runtime import launcher, streams
from hpgcn.runtime.disk import page_cache

log = logging.getLogger("hpgcn")
LONG = re.compile(r"(\S{160})\S{160,}(\S{80})")  # a word that is too long for a message


def main(argv=None, make_parser=None):
    """Run a command and return its exit code (docs/reference/exit-codes.md).

    A script may pass another parser; its commands set the argument `run`.
    """
    return contextvars.copy_context().run(_main, argv, make_parser)


def _main(argv, make_parser):
    COMMAND_LINE.set(True)
    streams.repair()
    faulthandler.enable(2)  # a segmentation fault leaves a stack on standard error
    argv = sys.argv[1:] if argv is None else argv
    with signals.program(argv):
        code = command(argv, make_parser)
        lost = streams.failure(sys.stdout)
        if lost and not code:
            code = fail_to_print(lost)
        if not streams.is_complete():
            streams.silence(sys.stderr)
            code = code or end_all(StorageError.code)
    return code


def command(argv, make_parser):
    """Run a command and return its exit code.

    The buffers of the output streams may still hold text.
    """
    # parse, before anything is logged
    ranked = argv[:1] in (["train"], ["predict"]) or argv[:2] == ["bench", "machine"]
    launcher.ALONE.set("--alone" in argv)
    try:
        args = (make_parser or parser)().parse_args(argv)
    except UsageError as error:
        return fail(error, False, ranked)
    except SystemExit as error:  # --help
        return error.code or 0
    except OSError as error:
        return fail_to_print(error)
    except (KeyboardInterrupt, signals.Ended) as error:
        return failed(error, False, ranked)

    # choose what is logged
    launcher.ALONE.set(getattr(args, "alone", False))
    level = logging.DEBUG if args.verbose else logging.INFO
    if args.quiet:
        level = logging.WARNING
    if launcher.launched_rank():
        level = logging.ERROR
    handler = streams.Lines()
    handler.setFormatter(OneLine("hpgcn: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    log.setLevel(level)

    # libraries need a working folder to be imported
    try:
        os.getcwd()
    except OSError as error:
        lost = StorageError(f"the working folder: {error.strerror}; change to one that exists")
        return fail(agreed(lost), args.verbose, ranked)

    try:
        with page_cache.bypassed(getattr(args, "memory", None)):
            return args.run(args) or 0
    except (Exception, KeyboardInterrupt, signals.Ended) as error:
        return failed(error, args.verbose, ranked)


def failed(error, verbose, ranked):
    """Report the error that ended a command, and return its exit code.

    Call it in an `except` block.
    """
    number = signals.ended_by()
    if number:  # libraries may have replaced the exception of the signal
        return interrupted(number)

    # errors that hpgcn raises, and signals
    if isinstance(error, HpgcnError):
        return fail(error, verbose, ranked)
    if isinstance(error, KeyboardInterrupt):
        return interrupted(signal.SIGINT)
    if isinstance(error, signals.Ended):
        return interrupted(error.number)
    if isinstance(error, MemoryError):
        return fail(InternalError(f"out of memory: {error}"), verbose, ranked)

    # the reader of the output is gone, or the disk is full
    lost = isinstance(error, OSError) and streams.failure(sys.stdout, b"\n")
    if lost:
        return fail_to_print(lost)

    # everything else is a fault of hpgcn
    if "mpi4py.MPI" in sys.modules:
        raise error  # the except hook names the rank and ends them all
    with suppress(OSError):
        traceback.print_exc()
    streams.say(f"hpgcn: internal error: {type(error).__name__}: {error}")
    return 70


def fail(error, verbose, ranked):
    """Print one line for `error` and return its exit code.

    Unless every rank raises the error, end all ranks. Ranks that still wait in the
    start of MPI receive the message there.
    """
    if verbose:
        with suppress(OSError):
            traceback.print_exc()
    alone = ranked and not error.collective and "mpi4py.MPI" not in sys.modules
    if alone and launcher.launched():
        from hpgcn import comm

        try:
            comm.world(error=error)  # the other ranks wait there
        except HpgcnError as agreed:
            error = agreed
    if not error.collective or launcher.launched_rank() == 0 or not connected():
        streams.say("hpgcn: " + LONG.sub(r"\1...\2", printable(error)))
    return error.code if error.collective else end_all(error.code)


def fail_to_print(error):
    """Report like `fail` that standard output is closed.

    Print nothing if only the reader of the output has gone.
    """
    streams.silence(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0
    reason = getattr(error, "strerror", None) or error
    return fail(StorageError(f"standard output: writing failed: {reason}"), False, False)


def interrupted(number):
    """Print the name of a signal on rank 0, and end all ranks.

    Return the exit code of the signal.
    """
    if not launcher.launched_rank():
        streams.say(f"hpgcn: {signals.describe(number)}")
    return end_all(128 + number)


def end_all(code):
    """End all ranks with exit code `code` if there are several ranks; return `code`."""
    if connected():
        streams.wait_for_reader()
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(code)
    return code


def connected():
    """Return whether MPI runs and has several ranks."""
    mpi = sys.modules.get("mpi4py.MPI")
    runs = mpi and mpi.Is_initialized() and not mpi.Is_finalized()
    return bool(runs) and mpi.COMM_WORLD.Get_size() > 1


class OneLine(logging.Formatter):
    """A log formatter that writes each record on one line.

    Line feeds in names are escaped.
    """

    def format(self, record):
        return printable(super().format(record))


if __name__ == "__main__":
    sys.exit(main())
