"""Signal handlers that end this process with cleanup; a run of training first completes
its epoch.

A signal raises an exception in the main thread, so that every `with` and `finally` can
clean up. It is KeyboardInterrupt for SIGINT, `Ended` for all others. Handlers of other
code are left in place.
"""

import os
import signal
import threading
import time
from contextlib import contextmanager, suppress

KILLING = (signal.SIGTERM, signal.SIGHUP)
ENDING = (signal.SIGINT, *KILLING, signal.SIGUSR1)
PREEMPTED, INTERRUPTED = 1, 2  # results of `pending_signal`
REPEATED = 1e-3  # seconds; timeout(1), for one, signals its child, then its child's group
UNWINDING = 5.0  # seconds that cleanup may take
NOTICE = b"hpgcn: interrupted, ends after this epoch; a second Ctrl-C ends it at once\n"
_state = {"early": False, "program": (), "noted": set(), "asked": set(), "last": (0, 0.0),
          "ended": None, "number": 0}


class Ended(SystemExit):
    """Exception by which a signal ends this process; the exit code is 128 + its number,
    as in a shell.
    """

    def __init__(self, number):
        super().__init__(128 + number)
        self.number = number


def install(numbers, noted=()):
    """Handle each of these signals whose default action would end this process without
    cleanup.

    Signals in `noted` do not end the process: `pending_signal` returns them. Return the
    former handlers; outside of the main thread do nothing and return {}.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    _state["noted"] |= set(noted)
    return {number: signal.signal(number, _handle) for number in numbers
            if signal.getsignal(number) in defaults}


def start(argv):
    """Install the signal handlers of a command before its imports; until then most
    signals end it at once.
    """
    install(ENDING, _noted_by(argv))
    _state["early"] = True


@contextmanager
def program(argv):
    """Context manager for a whole command: signals of ENDING end it with cleanup, a
    second Ctrl-C at once.
    """
    started = _state["early"]
    _state.update(early=False, program=ENDING)
    before = {} if started else install(ENDING, _noted_by(argv))
    try:
        yield
    finally:
        if not started:
            _restore(before, _noted_by(argv))
            _state["program"] = ()


def _noted_by(argv):
    return [signal.SIGUSR1] if argv[:1] == ["train"] else []


@contextmanager
def ending():
    """Context manager: SIGTERM and SIGHUP end this process with cleanup."""
    before = install(KILLING)
    try:
        yield
    finally:
        _restore(before)


@contextmanager
def record_signal(number):
    """Context manager: only record this signal, for `pending_signal`; a second SIGINT
    ends this process.
    """
    if number in _state["noted"] or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = install([number], [number])
    if number == signal.SIGUSR1 and not before and signal.getsignal(number) is not _handle:
        before = {number: signal.signal(number, _handle)}  # training records it
    try:
        yield
    finally:
        _restore(before, [number])


@contextmanager
def blocked(*numbers):
    """Context manager: delay these signals until the block ends. Child processes
    started in it never get them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def pending_signal():
    """Return the recorded signal: 0 for none, PREEMPTED (SIGUSR1) or INTERRUPTED
    (SIGINT).
    """
    if signal.SIGINT in _state["asked"]:
        return INTERRUPTED
    return PREEMPTED if _state["asked"] else 0


def ended_by():
    """Return the number of the signal that is ending this process, or 0; exceptions may
    hide it.
    """
    return 0 if _state["ended"] is None else _state["number"]


def _restore(before, noted=()):
    for number, handler in before.items():
        signal.signal(number, handler)
    if before:
        _state["ended"] = None
    _state["noted"] -= set(noted)
    _state["asked"] -= set(noted)


def _handle(number, _):
    now = time.monotonic()
    last, when = _state["last"]
    _state["last"] = number, now
    if number == last and now - when < REPEATED:
        return
    if _state["ended"] is not None:  # the process is ending, or is stuck in cleanup
        if number == signal.SIGINT or now - _state["ended"] > UNWINDING:
            os._exit(128 + number)
        return

    noted = number in _state["noted"]
    if noted and (number == signal.SIGUSR1 or number not in _state["asked"]):
        _state["asked"].add(number)
        if number == signal.SIGINT and os.isatty(2):
            with suppress(OSError):
                os.write(2, NOTICE)
        return
    if _state["early"]:
        _leave(number)
    if number != signal.SIGINT or number in _state["program"]:
        _state.update(ended=now, number=number)
    raise KeyboardInterrupt if number == signal.SIGINT else Ended(number)


def _leave(number):
    """End this process at once, without cleanup, because there is nothing to clean up
    yet.
    """
    with suppress(Exception):  # this module may be half imported
        from hpgcn.runtime.launcher import launched_rank

        if not launched_rank():
            os.write(2, f"hpgcn: {told(number)}\n".encode())
    os._exit(128 + number)


def told(number):
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
