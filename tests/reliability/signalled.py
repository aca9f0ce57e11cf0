"""Run the command line and send a signal to it: `python signalled.py HOW POINT ARGS...`.

HOW is RANK:NAME:AFTER: the rank, the name of the signal, and the call of POINT that
sends it. POINT is a function of the package, which is called as usual after the signal.
A ! after NAME makes POINT behave like compiled code, which replaces the exception of a
signal handler. With NAME "none" the process prints a line and waits.
"""
import importlib
import os
import signal
import sys
import time

from hpgcn.runtime.launcher import launched_rank

HOW, POINT, *ARGS = sys.argv[1:]
RANK, NAME, AFTER = HOW.split(":")


def hook():
    """Replace the function POINT by one that sends the signal, then calls the original."""
    module, _, name = POINT.rpartition(".")
    try:
        owner = importlib.import_module(module)
    except ImportError:  # a method
        module, _, kind = module.rpartition(".")
        owner = getattr(importlib.import_module(module), kind)
    before, calls = getattr(owner, name), []

    def called(*args, **options):
        calls.append(None)
        if len(calls) == int(AFTER) and launched_rank() == int(RANK):
            if NAME == "none":
                print("here", flush=True)
                time.sleep(600)
            try:
                os.kill(os.getpid(), getattr(signal, NAME.rstrip("!")))
            except BaseException as error:
                if NAME.endswith("!"):
                    raise SystemError("returned a result with an exception set") from error
                raise
        return before(*args, **options)

    setattr(owner, name, called)


# it may be ignored where the tests were started
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["hpgcn", *ARGS]
from hpgcn.__main__ import main  # noqa: E402

hook()
sys.exit(main())
