"""One training step (forward, backward and update) and one evaluation on a StepView."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hpgcn.graphs.validation import SPLIT
from hpgcn.model import METRICS, BatchLoss, Features, MaskedRows, Model, make_loss
from hpgcn.setting_words import TARGET_METRICS

if TYPE_CHECKING:
    from hpgcn.model.links.link_loss import LinkLoss
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.target_scale import TargetScale
    from hpgcn.model.targets import Targets
    from hpgcn.parallel.shared_rows import SharedRows
    from hpgcn.parallel.workspace import Workspace
    from hpgcn.runtime.clock import Clock
    from hpgcn.training.setup.shard import GraphShard
    from hpgcn.training.steps.optimizers import SGD
    from hpgcn.training.steps.step_replay import StepReplay


class StepView(NamedTuple):
    """The input of a training step.

    It is a model on certain rows, their loss and their features. With `replay`, steps or
    evaluations may be repeated as recorded calls. `before` evaluates other sets on another
    graph, with the same parameters.
    """

    model: Model
    loss: BatchLoss | LinkLoss
    features: Features
    replay: StepReplay | None = None
    before: StepView | None = None

    def run(self, compute: Callable, results: Callable, step: int = 0) -> Any:
        """Call `compute` and return its result; see `StepReplay.run`."""
        return self.replay.run(compute, results, step) if self.replay else compute()


def make_views(shard: GraphShard, parameters: Parameters, workspace: Workspace,
               targets: Targets | TargetScale, link_loss: LinkLoss | None = None) -> list[StepView]:
    """Return the StepViews for training and for evaluation.

    All ranks call this together. This releases the features of the shard. Both views
    share one workspace, because they are never used at the same time. `targets` are
    those of the training loss, unless both have the `link_loss`.
    """
    columns = shard.columns
    views = []
    for field, read in zip((shard.train, shard.evaluated), shard.release_features()):
        model = Model(shard.spec, parameters, field, columns, workspace, shard.key)
        loss = link_loss
        if loss is None:
            masks = {key: field.select(-1, mask) for key, mask in shard.masks.items()}
            masked = MaskedRows.of(masks, columns)
            loss = make_loss(shard.spec, field.select(-1, shard.labels), masked, columns, targets)
        model.prepare(read, shard.width)
        views.append(StepView(model, loss, read))

    return views


def train_step(view: StepView, number: int, optimizer: SGD, columns: SharedRows,
               observe: Callable = lambda phase, array=None: None) -> tuple[Any, Parameters]:
    """Take training step `number`, from 1, which keys dropout.

    All ranks call this together. Return this rank's share of the SUM of training
    losses, which may lie on the device, and the gradient, Parameters summed over all
    ranks. `observe` is called as each phase begins, with the array that the phase
    reads.
    """
    clock = columns.comm.clock
    compute = partial(loss_and_gradient, view, number, clock, observe)
    loss, gradient = view.run(compute, lambda found: (found[0], found[1].flat), number)
    clock.detail = "update"
    observe("update")
    columns.reduce(gradient)
    view.model.update_running_moments(gradient)
    with clock("dense", part="update"):
        optimizer.step(gradient.flat)
    columns.device.synchronize()
    return loss, gradient


def loss_and_gradient(view: StepView, number: int, clock: Clock,
                      observe: Callable) -> tuple[Any, Parameters]:
    """Return this rank's terms of the loss and of the gradient; see `train_step`."""
    observe("forward")
    logits, backward = view.model.forward(view.features, number)
    observe("loss", logits)
    clock.detail = "loss"
    with clock("dense", part="loss"):
        loss, G = view.loss.gradient(logits, view.model.workspace.buffer("ping", *logits.shape))
    observe("backward", G)
    gradient = backward(G)
    view.loss.add_parameters(gradient)
    return loss, gradient


def evaluate(view: StepView, metric: str = "auto") -> dict[str, Any]:
    """Return the validation loss, and a metric for each mask.

    Both are over all ranks, without dropout. The dict is that of `Loss.evaluate`, with
    the metric of `metric_of` in place of accuracies.
    """
    def compute() -> Any:
        return view.model.infer(view.features)[0]

    def results(logits: Any) -> list:
        return [*view.loss.evaluate(logits).values()]

    logits = view.run(compute, results)
    found = view.loss.evaluate(logits)
    if view.before:
        found |= {name: value for name, value in evaluate(view.before, metric).items()
                  if value is not None}
    if metric in TARGET_METRICS:
        found |= {f"{key}_acc": found[f"{key}_{metric}"] for key in SPLIT}
    elif metric in METRICS:
        found |= {f"{key}_acc": value for key, value in METRICS[metric](view.loss, logits).items()}
    return found
