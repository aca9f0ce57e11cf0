"""Signal handlers that end this process with cleanup, or a run after its epoch.

A signal raises an exception in the main thread, so that every `with` and `finally` can
clean up. It is KeyboardInterrupt for SIGINT, `Ended` for all other signals. Handlers of
other code are left in place.
"""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

KILLING = (signal.SIGTERM, signal.SIGHUP)
# Signals of schedulers. Training writes a checkpoint and ends after the first of them.
STOPPING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGTERM)
ENDING = (signal.SIGINT, signal.SIGHUP, *STOPPING)
INTERRUPTED = 128 + signal.SIGINT  # `pending_signal` after Ctrl-C; larger than after other signals
# Seconds within which equal signals count as one: timeout(1) signals its child and then the
# child's group, and a launcher passes both signals on.
REPEATED = 0.1
UNWINDING = 5.0  # seconds that cleanup may take
NOTICE = "hpgcn: {}, ends after this epoch; a second {} ends it at once\n"
_state: dict[str, Any] = {
    "early": False, "program": (), "noted": set(), "asked": set(), "last": (0, 0.0), "ended": None,
    "number": 0}


class Ended(SystemExit):
    """Exception by which a signal ends this process, with exit code 128 + its number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def install(numbers: Collection[int], noted: Collection[int] = ()) -> dict[int, Callable]:
    """Handle each of these signals whose default action would end this process without cleanup.

    Signals in `noted` do not end the process: `pending_signal` returns them. Return the
    former handlers; outside of the main thread do nothing and return {}.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    _state["noted"] |= set(noted)
    return {number: signal.signal(number, _handle) for number in numbers
            if signal.getsignal(number) in defaults}


def start(argv: list[str]) -> None:
    """Install the signal handlers of a command before its imports.

    Before this call most signals end the process at once.
    """
    install(ENDING, _noted_by(argv))
    _state["early"] = True


@contextmanager
def program(argv: list[str]) -> Iterator[None]:
    """Context manager for a whole command: signals of ENDING end it with cleanup.

    A second Ctrl-C ends it at once.
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


def _noted_by(argv: list[str]) -> tuple:
    return STOPPING if argv[:1] == ["train"] and "--dry-run" not in argv else ()


@contextmanager
def ending() -> Iterator[None]:
    """Context manager: SIGTERM and SIGHUP end this process with cleanup."""
    before = install(KILLING)
    try:
        yield
    finally:
        _restore(before)


@contextmanager
def record_signals(*numbers: int) -> Iterator[None]:
    """Context manager: only record these signals, for `pending_signal`.

    A second signal of a kind, except SIGUSR1, ends this process.
    """
    numbers = [number for number in numbers if number not in _state["noted"]]
    if not numbers or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = install(numbers, numbers)
    if signal.SIGUSR1 in numbers and signal.getsignal(signal.SIGUSR1) is not _handle:
        before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, _handle)  # training handles it
    try:
        yield
    finally:
        _restore(before, numbers)


@contextmanager
def blocked(*numbers: int) -> Iterator[None]:
    """Context manager: delay these signals until the block ends.

    Child processes that are started in the block never get them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def pending_signal() -> int:
    """Return the recorded signal: 0 for none, INTERRUPTED for SIGINT, else its number."""
    return max((INTERRUPTED if number == signal.SIGINT else int(number)
                for number in _state["asked"]), default=0)


def ended_by() -> int:
    """Return the number of the signal that is ending this process, or 0.

    Libraries may replace the exception of the signal.
    """
    return 0 if _state["ended"] is None else _state["number"]


def _restore(before: dict[int, Callable], noted: Collection[int] = ()) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)
    if before:
        _state["ended"] = None
    _state["noted"] -= set(noted)
    _state["asked"] -= set(noted)


def _handle(number: int, _: Any) -> None:
    now = time.monotonic()
    last, when = _state["last"]
    if number == last and now - when < REPEATED:
        return
    _state["last"] = number, now
    if _state["ended"] is not None:  # the process is ending, or is stuck in cleanup
        if number == signal.SIGINT or now - _state["ended"] > UNWINDING:
            os._exit(128 + number)
        return

    noted = number in _state["noted"]
    if noted and (number == signal.SIGUSR1 or number not in _state["asked"]):
        _state["asked"].add(number)
        _note(number)
        return
    if _state["early"]:
        _leave(number)
    if number != signal.SIGINT or number in _state["program"]:
        _state.update(ended=now, number=number)
    raise KeyboardInterrupt if number == signal.SIGINT else Ended(number)


def _note(number: int) -> None:
    """Write on a terminal that the process ends after the epoch, and limit SIGXCPU to one."""
    if number == signal.SIGXCPU:  # the system repeats it every second beyond the soft limit
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
    if number != signal.SIGUSR1 and os.isatty(2):
        name = signal.Signals(number).name
        words = ("interrupted", "Ctrl-C") if number == signal.SIGINT else (name, name)
        with suppress(OSError):
            os.write(2, NOTICE.format(*words).encode())


def _leave(number: int) -> None:
    """End this process at once, because there is nothing to clean up yet."""
    with suppress(Exception):  # this module may be half imported
        from hpgcn.runtime.launcher import launched_rank

        if not launched_rank():
            os.write(2, f"hpgcn: {describe(number)}\n".encode())
    os._exit(128 + number)


def describe(number: int) -> str:
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
