"""SIGUSR1 as a request to stop at the end of an epoch: what a scheduler sends before it takes the machine away."""
from __future__ import annotations

import signal
import threading
from contextlib import contextmanager

_state = {"asked": False}


@contextmanager
def listening():
    """Take note of SIGUSR1, which else ends the process; in a thread that may set no handler, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _state["asked"] = False
    before = signal.signal(signal.SIGUSR1, lambda *_: _state.update(asked=True))
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def asked():
    """Whether SIGUSR1 has come to this process since it listens."""
    return _state["asked"]
