"""How far the training loss of approximate steps is from the exact one, of the same weights."""
from __future__ import annotations

import logging

from hpgcn.training.loop.divergence import check_evaluation

log = logging.getLogger("hpgcn")


def watched(trainer, epoch):
    """Return the exact loss of the step to come under "exact_loss"; {} unless it is looked at.

    That is so in the first epochs of an approximate strategy (`Strategy.watched`), and in the last.
    All ranks call this together. A DivergedError if the loss is not finite.
    """
    first = trainer.shard.strategy.watched
    if not first or first < epoch < trainer.config.epochs:
        return {}
    comm = trainer.comm
    with comm.clock.span("exact loss", epoch):
        comm.counters.phase = "eval"
        found = {"exact_loss": exact_loss(trainer.evaluation, trainer.steps + 1)}
    check_evaluation(epoch, found, trainer.config.lr)
    return found


def exact_loss(view, number):
    """The mean training loss of a step by the exact maps of a View; all ranks call this together.

    The number keys dropout, as in the step itself, which is taken afterwards.
    """
    logits, _ = view.model.forward(view.features, number)
    total, _ = view.loss.gradient(logits, view.model.workspace.take("even", *logits.shape))
    columns = view.model.columns
    total = columns.comm.sum(columns.device.numbers([total]))[0]
    return float(total / view.loss.norm)


def off(metrics):
    """By how much the loss of an epoch was off; None where that was not measured."""
    exact = metrics.get("exact_loss")
    return None if exact is None else metrics["loss"] - exact


def in_words(metrics):
    """What a progress bar shows of an epoch."""
    shown = {"loss": f"{metrics['loss']:.4f}", "val_acc": metrics["val_acc"]}
    if off(metrics) is not None:
        shown["off"] = f"{off(metrics):+.4f}"
    return shown


def tell(title, history):
    """Say in one line how far the losses of a run were from exact ones."""
    found = {metrics["epoch"]: abs(off(metrics)) for metrics in history
             if off(metrics) is not None}
    if found:
        *first, last = found
        log.warning("%s is approximate: training loss off by at most %.3g in the first %d epochs, "
                    "by %.3g in epoch %d", title, max(found.values()), len(first) or 1,
                    found[last], last)
