"""How far a run has come: its best epoch, whether it is finished, what its directory holds to go on with."""
from __future__ import annotations

import logging

from hpgcn import signals
from hpgcn.errors import CancelledError, ConfigError, StoppedError
from hpgcn.rundir import read_summary

log = logging.getLogger("hpgcn")


class Best:
    """The best epoch so far: highest validation accuracy, then lowest validation loss, then earliest."""

    def __init__(self):
        self.epoch, self.metrics, self.weights, self.key = 0, {}, None, None

    def offer(self, epoch, metrics, flat):
        """Keep the weights if they are better; without validation vertices the latest are."""
        key = None if metrics["val_acc"] is None else (metrics["val_acc"], -metrics["val_loss"])
        if self.key is None or key is None or key > self.key:
            self.epoch, self.metrics, self.weights, self.key = epoch, metrics, flat.copy(), key


def to_go_on(checkpoints, config, comm):
    """What a run directory holds to go on with; every rank calls this together.

    Returns
    -------
    state : hpgcn.checkpoint.State or None
        The newest; None if the run starts at epoch 1.
    summary : dict or None
        None unless the run is finished.

    Raises
    ------
    ConfigError, DataError, StorageError
        On all ranks together: as `Checkpoints.load` and `Checkpoints.check`; the run has done more epochs than it is
        to do, or is finished, is to do more, and has no checkpoint.
    """
    state = summary = None
    with comm.together():
        if comm.rank == 0:
            state, summary = checkpoints.load(), read_summary(config.out)
            if state is not None:
                checkpoints.check(state, config)
                if state.epoch > config.epochs or (state.epoch == config.epochs and not state.best_epoch):
                    raise ConfigError(f"{config.out}: has a checkpoint after epoch {state.epoch}, "
                                      f"expected more --epochs than {config.epochs}")
            if summary is not None and finished(config, summary["epochs"], summary["best_epoch"]):
                log.info("%s: finished after epoch %d, nothing to do", config.out, summary["epochs"])
            elif state is not None:
                summary = None
            elif summary is not None:
                raise ConfigError(f"{config.out}: finished after epoch {summary['epochs']} and keeps no checkpoint to "
                                  "go on from: train anew with another --out, or --overwrite")
            else:
                log.info("%s: no checkpoint, starting at epoch 1", config.out)
    return comm.bcast((state, summary))


def finished(config, epoch, best_epoch):
    """Whether a run ends with this epoch: it is the last, or patience is over."""
    impatient = config.patience and best_epoch and epoch - best_epoch >= config.patience
    return epoch >= config.epochs or bool(impatient)


def stop_before(epoch, config, comm):
    """Stop a run of which a signal has asked it before an epoch; every rank calls this together.

    Raises
    ------
    StoppedError, CancelledError
        On all ranks, if it came to any of them.
    """
    asked = comm.max([signals.asked()])[0]
    if asked:
        raise stopped(asked, f"before epoch {epoch}", config)


def stopped(asked, where, config):
    """Return what to raise, on all ranks, where a run stops because it was asked to (`hpgcn.signals.asked`)."""
    again = f"go on with `hpgcn train {config.graph or 'GRAPH'} --out {config.out} --resume`"
    kind, how = ((CancelledError, "interrupted") if asked == signals.INTERRUPTED else
                 (StoppedError, "stopped by SIGUSR1"))
    error = kind(f"{how} {where}; {again}")
    error.collective = True
    return error
