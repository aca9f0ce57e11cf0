"""Compare the training loss of approximate steps with the exact loss of the same weights."""
from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from hpgcn.training.files.records import link_fields
from hpgcn.training.steps.divergence import check_evaluation

if TYPE_CHECKING:
    from hpgcn.training.steps.training_step import StepView
    from hpgcn.training.trainer import Trainer

log = logging.getLogger("hpgcn")


def measure_exact_loss(trainer: Trainer, epoch: int) -> dict:
    """Return {"exact_loss": x} for the next step in monitored epochs, {} in all others.

    Monitored epochs are the last one and the first `Strategy.num_monitored_steps` of an
    approximate strategy. All ranks call this together. DivergedError if the loss is not
    finite.
    """
    first = trainer.shard.strategy.num_monitored_steps
    if not first or first < epoch < trainer.config.epochs:
        return {}
    comm = trainer.comm
    with comm.clock.span("exact loss", epoch):
        comm.counters.phase = "eval"
        metrics = {"exact_loss": exact_loss(trainer.evaluation, trainer.state.steps + 1)}
    check_evaluation(epoch, metrics, trainer.config.lr)
    return metrics


def exact_loss(view: StepView, number: int) -> float:
    """Return the mean training loss by exact products instead of approximate ones.

    All ranks call this together. `number` keys dropout as in the training step that
    follows.
    """
    logits, _ = view.model.forward(view.features, number)
    total, _ = view.loss.gradient(logits, view.model.workspace.buffer("ping", *logits.shape))
    columns = view.model.columns
    total = columns.comm.sum(columns.device.numbers([total]))[0]
    return float(total / view.loss.norm)


def loss_error(metrics: dict[str, Any]) -> float | None:
    """Return the training loss of an epoch minus the exact loss.

    Return None if the exact loss was not measured.
    """
    exact = metrics.get("exact_loss")
    return None if exact is None else metrics["loss"] - exact


def progress_postfix(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of an epoch that the progress bar shows, a dict."""
    names = [name for name in link_fields(metrics) if name.startswith("val_")]
    shown = {"loss": f"{metrics['loss']:.4f}", **{name: metrics[name] for name in
                                                  names or ["val_acc"]}}
    if loss_error(metrics) is not None:
        shown["off"] = f"{loss_error(metrics):+.4f}"
    return shown


def log_drift(title: str, history: list[dict]) -> None:
    """Log one line on the difference between losses and exact losses."""
    found = {metrics["epoch"]: abs(loss_error(metrics)) for metrics in history
             if loss_error(metrics) is not None}
    if found:
        *first, last = found
        log.warning("%s is approximate: training loss off by at most %.3g in the first %d epochs, "
                    "by %.3g in epoch %d", title, max(found.values()), len(first) or 1,
                    found[last], last)
