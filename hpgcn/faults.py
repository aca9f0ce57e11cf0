"""Faults on purpose, to see what happens then: HPGCN_FAULT=kind:rank:epoch:phase, off unless set.

A point in the program is named by its phase; `point(phase)` does nothing unless the fault asked for is of this phase,
rank and epoch, and then it happens, once. Ranks are those of the world, epochs count from 1 (0: outside of epochs).
"""
from __future__ import annotations

import errno
import os
import signal
import time

from hpgcn.errors import UsageError

VARIABLE = "HPGCN_FAULT"
KINDS = ("raise", "kill", "segv", "hang", "full", "nan")
PHASES = ("setup", "exchange", "forward", "loss", "backward", "update", "evaluate", "checkpoint.begin",
          "checkpoint.write", "checkpoint.written", "checkpoint.fsync", "checkpoint.manifest", "checkpoint.rename",
          "checkpoint.renamed", "checkpoint.prune", "checkpoint.end", "record", "end")
_state = {"rank": 0, "epoch": 0, "done": False}


def parse(text):
    """Return (kind, rank, epoch, phase) of a fault in words.

    Raises
    ------
    UsageError
        It is not one of KINDS, two numbers and one of PHASES.
    """
    words = text.split(":")
    if len(words) != 4 or words[0] not in KINDS or words[3] not in PHASES or not all(w.isdigit() for w in words[1:3]):
        raise UsageError(f"{VARIABLE}={text}: expected kind:rank:epoch:phase, kind one of {', '.join(KINDS)}, "
                         f"phase one of {', '.join(PHASES)}")
    return words[0], int(words[1]), int(words[2]), words[3]


def begin(rank, epoch):
    """Say which rank this is, and which epoch begins; 0 before the first and after the last."""
    _state.update(rank=rank, epoch=epoch)


def point(phase):
    """Let the fault happen if it belongs here; return True if the caller is to make its numbers NaN."""
    text = os.environ.get(VARIABLE)
    if not text or _state["done"]:
        return False
    kind, rank, epoch, where = parse(text)
    if (rank, epoch, where) != (_state["rank"], _state["epoch"], phase):
        return False
    _state["done"] = True
    if kind == "raise":
        raise RuntimeError(f"a fault on purpose ({text})")
    if kind == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if kind in ("kill", "segv"):
        os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSEGV)
    while kind in ("kill", "segv", "hang"):
        time.sleep(1)
    return True
