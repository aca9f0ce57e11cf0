"""Says what a program is doing where it takes long, so that nobody looks at nothing."""
import threading
import time
from contextlib import contextmanager, suppress

from hpgcn.runtime.progress_bar import log_line

EVERY = 5.0  # seconds


class _Now:
    """What is being done; empty while something else tells."""

    what = ""
    silent = False  # what is done is nobody's business


def doing(what=""):
    """Note what is done from now on, a phrase such as "reading g.h5"."""
    if not _Now.silent:
        _Now.what = what


@contextmanager
def silent():
    """Within, nothing is noted or told: something else tells."""
    _Now.what = ""
    _Now.silent = True
    try:
        yield
    finally:
        _Now.silent = False


@contextmanager
def told(shown=True, every=EVERY):
    """Within, log every few seconds what is being done: nothing of what is over sooner."""
    _Now.what = ""
    if not shown:
        yield
        return
    over = threading.Event()
    begin = time.monotonic()

    def tell():
        while not over.wait(every):
            if _Now.what:
                log_line(f"set-up: {_Now.what}, {time.monotonic() - begin:.0f} s so far")

    thread = threading.Thread(target=tell, name="set-up", daemon=True)
    with suppress(RuntimeError):  # no thread can be started: nothing is logged
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()
        _Now.what = ""
