"""One training step of a view, and one evaluation: forward, backward, update; nothing else."""
from __future__ import annotations

from typing import NamedTuple

from hpgcn.model import Features, Loss, MaskedRows, Model, MultiLabelLoss, make_loss


class View(NamedTuple):
    """What a step reads: rows of the graph that matter for it. Full batch is one View in every step."""

    model: Model
    loss: Loss | MultiLabelLoss
    features: Features


def make_views(shard, parameters, workspace):
    """Return the View of a training step, and that of an evaluation; all ranks call this together.

    Parameters
    ----------
    shard : hpgcn.training.shard.GraphShard
        Whose features are released here.
    parameters : hpgcn.model.Parameters
    workspace : hpgcn.parallel.workspace.Workspace
        Shared: the views are used in turn.
    """
    spec = shard.spec
    device = shard.comm.device
    features = shard.release_features()
    whole = None
    views = []
    for field in (shard.train, shard.evaluated):
        if field.rows[0] is not None:
            read = features.take(field.rows[0], device)
        else:
            read = whole = whole or features.take(None, device)
        model = Model(spec, parameters, field, shard.columns, workspace, shard.key)
        masked = MaskedRows.of({key: field.take(-1, mask) for key, mask in shard.masks.items()}, shard.columns)
        loss = make_loss(spec, field.take(-1, shard.labels), masked, shard.columns)
        views.append(View(model, loss, read))
    return views


def train_step(view, number, optimizer, columns):
    """Take one training step; all ranks call this together.

    Parameters
    ----------
    view : View
    number : int
        Of the step, from 1: it keys dropout.
    optimizer : one of hpgcn.training.optimizers.OPTIMIZERS
    columns : hpgcn.parallel.columns.Columns

    Returns
    -------
    loss : float, or a number on the device
        This rank's share of the SUM of training losses.
    gradient : hpgcn.model.Parameters
        Summed over all ranks.
    """
    clock = columns.comm.clock
    logits, backward = view.model.forward(view.features, number)
    clock.detail = "loss"
    with clock("dense"):
        loss, G = view.loss.gradient(logits, view.model.workspace.take("even", *logits.shape))
    gradient = backward(G)
    clock.detail = "update"
    columns.reduce(gradient)
    with clock("dense"):
        optimizer.step(gradient.flat)
    columns.device.synchronize()
    return loss, gradient


def evaluate(view):
    """Accuracies and validation loss of the present weights, without dropout, over all ranks; a dict."""
    return view.loss.evaluate(view.model.infer(view.features)[0])
