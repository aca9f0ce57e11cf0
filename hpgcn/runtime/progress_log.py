"""Log the current activity of a long set-up every few seconds.

The activity is that of the rank that opened the log, even if its process has several
ranks.
"""
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from hpgcn.runtime.progress_bar import log_line

EVERY = 5.0  # seconds
# an Activity while this rank logs
_activity: ContextVar[Any] = ContextVar("activity", default=None)


class Activity:
    """The current activity of a rank: a text to log, or an empty text."""

    text = ""


def set_activity(text: str = "") -> None:
    """Set the current activity, such as "reading g.h5"; "" logs nothing."""
    activity = _activity.get()
    if activity is not None:
        activity.text = text


@contextmanager
def mute_progress_log() -> Iterator[None]:
    """Context manager: log nothing, because the caller reports progress itself."""
    set_activity()
    token = _activity.set(None)
    try:
        yield
    finally:
        _activity.reset(token)


@contextmanager
def progress_log(shown: bool = True, every: float = EVERY) -> Iterator[None]:
    """Context manager: log the activity every `every` seconds; shorter ones are not logged."""
    if not shown:
        with mute_progress_log():
            yield
        return

    # a thread logs while the block runs
    over = threading.Event()
    begin = time.monotonic()
    activity = Activity()

    def log() -> None:
        while not over.wait(every):
            if activity.text:
                log_line(f"set-up: {activity.text}, {time.monotonic() - begin:.0f} s so far")

    thread = threading.Thread(target=log, name="set-up", daemon=True)
    with suppress(RuntimeError):  # if no thread can be started, nothing is logged
        thread.start()
    token = _activity.set(activity)

    # end the thread with the block
    try:
        yield
    finally:
        _activity.reset(token)
        over.set()
        if thread.ident is not None:
            thread.join()
