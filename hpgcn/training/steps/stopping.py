"""Decide when a run ends: after its last epoch, by patience, by a callback or by a signal."""
from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import (
    COMMAND_LINE,
    CancelledError,
    StoppedError,
    UsageError,
    agreed,
    setting,
)
from hpgcn.runtime import signals
from hpgcn.runtime.advice import resume_command

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.errors import HpgcnError


def is_finished(epoch: int, best_epoch: int, *, epochs: int, patience: int) -> bool:
    """Return whether a run ends after this epoch.

    It ends with the last epoch, or when patience is exhausted.
    """
    impatient = patience and best_epoch and epoch - best_epoch >= patience
    return epoch >= epochs or bool(impatient)


def raise_if_stop_requested(epoch: int, graph: str, out: str, comm: SerialComm) -> None:
    """Raise an error on all ranks if one of them received a signal to stop.

    All ranks call this together. `epoch` is the next epoch; `graph` and `out` are as in
    `make_stop_error`.
    """
    pending = int(comm.max([signals.pending_signal()])[0])
    if pending:
        raise make_stop_error(pending, f"before epoch {epoch}", graph, out, comm)


def make_stop_error(pending: int, where: str, graph: str, out: str, comm: SerialComm) -> HpgcnError:
    """Return the error with which all ranks end a run after a signal.

    `pending` is a result of `signals.pending_signal`. The message contains `where`, a text
    on the place in the run. It also contains the command to resume, with the path of the
    graph and the run directory `out`.
    """
    ranks = ""
    if comm.size > 1:
        ranks = "comm=comm, " if comm.process_ranks < comm.size else ""
        ranks += f"ranks={comm.process_ranks}, " if comm.process_ranks > 1 else ""
    again = f"hpgcn.train(graph, {ranks}{setting('resume', out)})"
    if COMMAND_LINE.get():
        again = resume_command(graph, out, comm.size, comm.size // comm.process_ranks)
    if pending == signals.INTERRUPTED:
        return agreed(CancelledError(f"interrupted {where}; continue with `{again}`"))
    name = signal.Signals(pending).name
    return agreed(StoppedError(f"stopped by {name} {where}; continue with `{again}`"))


def check_callbacks(callbacks: Sequence) -> None:
    """Raise a UsageError unless `callbacks` is a sequence of callables."""
    if not isinstance(callbacks, list | tuple):
        raise UsageError("callbacks: expected a list of functions, not a "
                         f"{type(callbacks).__name__}")
    for callback in callbacks:
        if not callable(callback):
            raise UsageError(f"callbacks: {repr(callback)[:80]} cannot be called")


def run_callbacks(callbacks: Sequence, metrics: dict[str, Any], comm: SerialComm) -> bool:
    """Call the callbacks on rank 0.

    Return on all ranks whether one of them ends the run. An exception in a callback is
    an InternalError on all ranks, if there are several.
    """
    results = []
    with comm.collective_errors():
        if comm.rank == 0:
            results = [callback(dict(metrics)) for callback in callbacks]
    return comm.bcast(any(isinstance(result, bool | np.bool_) and result for result in results))
