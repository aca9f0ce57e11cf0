"""How far a run has come: its best epoch, whether it is finished, what it can go on with."""
from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from hpgcn.errors import (
    COMMAND_LINE,
    CancelledError,
    ConfigError,
    StoppedError,
    UsageError,
    agreed,
    setting,
)
from hpgcn.runtime import signals
from hpgcn.runtime.advice import resume_command
from hpgcn.training.runs.records import read_summary
from hpgcn.training.runs.result import Result

log = logging.getLogger("hpgcn")


class Best:
    """The best epoch so far: highest validation accuracy, then lowest loss, then earliest."""

    def __init__(self):
        self.epoch = 0
        self.metrics = {}
        self.weights = None
        self.key = None

    def update_if_better(self, epoch, metrics, flat):
        """Keep the weights if they are better; without validation vertices the latest are."""
        key = None
        if metrics["val_acc"] is not None:
            key = (metrics["val_acc"], -metrics["val_loss"])
        if self.key is None or key is None or key > self.key:
            self.epoch = epoch
            self.metrics = metrics
            self.weights = flat.copy()
            self.key = key


def load_resume_state(checkpoints, config, comm):
    """Read what a run directory holds to go on with; every rank calls this together.

    Return the newest State, None if the run starts at epoch 1; and the Result,
    None unless the run is finished. Errors on all ranks as `Checkpoints.load`
    and `Checkpoints.check`; a ConfigError if the run has done more epochs than
    it is to do, or is finished, is to do more, and has no checkpoint.
    """
    state = summary = None
    with comm.collective_errors():
        if comm.rank == 0:
            state = checkpoints.load()
            if state is not None:
                checkpoints.check(state, config)
                unknown = state.epoch == config.epochs and not state.best_epoch
                if state.epoch > config.epochs or unknown:
                    raise ConfigError(f"{config.out}: has a checkpoint after epoch {state.epoch}, "
                                      f"expected more {setting('epochs')} than {config.epochs}")
            summary = _summary(config, state)
    common = state  # what is of single ranks stays on rank 0 until it is known which they are
    if state is not None:
        arrays = {name: array for name, array in state.arrays.items() if name != "lasting"}
        common = replace(state, arrays=arrays)
    common, summary = comm.bcast((common, summary))
    return state or common, summary


def _summary(config, state):
    """Return the Result of a finished run; None if there is more to do."""
    out = config.out
    summary = read_summary(out)
    if summary is not None:
        if is_finished(config, summary["epochs"], summary["best_epoch"]):
            log.info("%s: finished after epoch %d, nothing to do", out, summary["epochs"])
            return Result.read(config, summary)
        if state is None:
            raise ConfigError(f"{out}: finished after epoch {summary['epochs']} and keeps no "
                              f"checkpoint to go on from: train anew with another "
                              f"{setting('out')}, or {setting('overwrite', True)}")
    elif state is None:
        log.info("%s: no checkpoint, starting at epoch 1", out)
    return None


def is_finished(config, epoch, best_epoch):
    """Tell whether a run ends with this epoch: it is the last, or patience is over."""
    impatient = config.patience and best_epoch and epoch - best_epoch >= config.patience
    return epoch >= config.epochs or bool(impatient)


def raise_if_stop_requested(epoch, config, comm):
    """Raise the stop error on all ranks if a signal came to one of them; all call this together."""
    asked = comm.max([signals.pending_signal()])[0]
    if asked:
        raise make_stop_error(asked, f"before epoch {epoch}", config, comm)


def make_stop_error(asked, where, config, comm):
    """Return the error to raise on all ranks if a signal, `asked`, ends a run."""
    ranks = ""
    if comm.size > 1:
        ranks = f"ranks={comm.size}, " if comm.in_process else "comm=comm, "
    again = f"hpgcn.train(graph, {ranks}{setting('resume', config.out)})"
    if COMMAND_LINE.get():
        again = resume_command(config.graph, config.out, comm.size, comm.in_process)
    if asked == signals.INTERRUPTED:
        return agreed(CancelledError(f"interrupted {where}; go on with `{again}`"))
    return agreed(StoppedError(f"stopped by SIGUSR1 {where}; go on with `{again}`"))


def check_callbacks(callbacks):
    """Refuse what is no sequence of callables with a UsageError."""
    if not isinstance(callbacks, list | tuple):
        raise UsageError("callbacks: expected a list of functions, not a "
                         f"{type(callbacks).__name__}")
    for callback in callbacks:
        if not callable(callback):
            raise UsageError(f"callbacks: {repr(callback)[:80]} cannot be called")


def run_callbacks(callbacks, metrics, comm):
    """Call the callbacks on rank 0, and tell all ranks whether one ends the run with this epoch.

    What one of them raises is an InternalError on all ranks, if there are several.
    """
    answers = []
    with comm.collective_errors():
        if comm.rank == 0:
            answers = [callback(dict(metrics)) for callback in callbacks]
    return comm.bcast(any(isinstance(answer, bool | np.bool_) and answer for answer in answers))
