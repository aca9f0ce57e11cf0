"""Fault injection for tests: HPGCN_FAULT=kind:rank:epoch:phase.

A phase names a point in the program. `point(phase)` raises the fault once, if the fault
has this phase, rank and epoch; otherwise it does nothing. Ranks are those of the world,
epochs count from 1 (0: outside of epochs). Kinds: raise (an exception of this rank
only), kill (SIGKILL), segv, hang, full (the error of a full disk), nan.
"""

import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from hpgcn.errors import UsageError

VARIABLE = "HPGCN_FAULT"
KINDS = ("raise", "kill", "segv", "hang", "full", "nan")
PHASES = ("setup", "forward", "loss", "backward", "update", "evaluate", "record", "end",
          "checkpoint.begin", "checkpoint.write", "checkpoint.written", "checkpoint.fsync",
          "checkpoint.manifest", "checkpoint.rename", "checkpoint.renamed", "checkpoint.prune",
          "checkpoint.end")
POISONED = ("loss", "backward")  # phases that can make NaN of logits or of the loss's gradient


@dataclass(frozen=True)
class State:
    """Rank, epoch and planned fault of the current rank."""

    rank: int = 0
    epoch: int = 0
    fault: tuple | None = None
    done: bool = False
    ignored: bool = False


# each rank of a process runs in its own context
STATE = ContextVar("fault", default=State())  # noqa: B039 (immutable)


def _change(**fields: Any) -> None:
    STATE.set(replace(STATE.get(), **fields))


def parse(text: str) -> tuple:
    """Parse the text kind:rank:epoch:phase into a tuple; UsageError for another text."""
    kind, rank, epoch, phase = (text.split(":") + [""] * 4)[:4]
    phase = "forward" if phase == "exchange" else phase  # the name of older versions
    is_number = rank.isdigit() and epoch.isdigit()
    if kind not in KINDS or phase not in PHASES or not is_number or text.count(":") != 3:
        raise UsageError(f"{VARIABLE}={text}: expected kind:rank:epoch:phase, kind one of "
                         f"{', '.join(KINDS)}, phase one of {', '.join(PHASES)}")
    if kind == "nan" and phase not in POISONED:
        raise UsageError(f"{VARIABLE}={text}: NaN is possible in the phases {', '.join(POISONED)}")
    return kind, int(rank), int(epoch), phase


def requested_fault() -> tuple | None:
    """Return the fault that the environment variable requests, as from `parse`, or None."""
    text = os.environ.get(VARIABLE)
    return parse(text) if text else None


def begin(rank: int, epoch: int) -> None:
    """Set the rank of this process and its epoch, 0 before the first and after the last."""
    if not STATE.get().ignored:
        _change(rank=rank, epoch=epoch, fault=requested_fault())


@contextmanager
def ignored() -> Iterator[None]:
    """Context manager: disable faults in an epoch of the warm-up."""
    _change(ignored=True)
    try:
        yield
    finally:
        _change(ignored=False)


def point(phase: str) -> bool:
    """Raise or perform the planned fault if it is due in this phase.

    Return whether the caller must produce NaN.
    """
    now = STATE.get()
    if now.fault is None or now.done or now.ignored:
        return False

    kind, *place = now.fault
    if place != [now.rank, now.epoch, phase]:
        return False
    _change(done=True)

    if kind == "raise":
        raise RuntimeError(f"a fault on purpose ({os.environ[VARIABLE]})")
    if kind == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if kind in ("kill", "segv"):
        os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSEGV)
    while kind in ("kill", "segv", "hang"):
        time.sleep(1)
    return True
