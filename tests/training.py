"""Short runs, a step at a time, for tests of what training computes and sends."""
import numpy as np
import pytest

from hpgcn.comm import SerialComm
from hpgcn.model import MODELS, heads_of, make_spec
from hpgcn.strategies import find_strategy
from hpgcn.training.progress import Best
from hpgcn.training.trainer import make_trainer

SPECIAL = {"gat": {"output_heads": 2, "attention_dropout": 0.3}}  # beside what names a model


def settings_of(name):
    """The settings of one of MODELS, MODEL or MODEL-AGGREGATOR."""
    model, _, aggregator = name.partition("-")
    named = {"model": model, "aggregator": aggregator} if aggregator else {"model": model}
    return named | SPECIAL.get(name, {})


SETTINGS = {name: settings_of(name) for name in MODELS}

RANKS = (1, 2, 3, 4, 5, 7)  # numbers of ranks, in one process, that tests are run on


def start(source, config, comm=None):
    comm = comm or SerialComm()
    skip_refused(source, config, comm)
    return make_trainer(source, config, comm, warm=False)


def skip_refused(source, config, comm):
    """Skip a test of a model that a strategy does not compute: a test of its own refuses it."""
    reason = find_strategy(config).refuses(heads_of(make_spec(source.header, config)), comm.size)
    if reason:
        pytest.skip(f"{config.strategy}: {reason}")


def loss_and_gradient(trainer, step=1):
    """Return the share of this rank of the mean training loss, and the whole gradient, flat."""
    view = trainer.training
    trainer.comm.counters.phase = "other"
    logits, backward = view.model.forward(view.features, step)
    total, G = view.loss.gradient(logits)
    gradient = backward(G)
    trainer.shard.columns.reduce(gradient)
    view.model.absorb(gradient)
    return total / view.loss.norm, gradient.flat


def metrics_of(trainer, epochs):
    """Train and evaluate for some epochs, and hold what was sent against the prediction."""
    history = []
    for epoch in range(1, epochs + 1):
        history.append(trainer.epoch(epoch))
        trainer.judge(history[-1], Best())
    for entry in history:
        for kind in ("bytes", "messages"):
            assert entry[f"sent_{kind}"] == trainer.about[f"predicted_{kind}_per_epoch"]
    return history


def run(source, config, comm=None, epochs=8):
    trainer = start(source, config, comm)
    with trainer.shard:
        history = metrics_of(trainer, epochs)
        return history, trainer.comm.device.get(trainer.parameters.flat).copy()


def assert_same_curves(ours, theirs, bound):
    for key in ("loss", "val_loss"):
        curves = [[entry[key] for entry in history] for history in (ours, theirs)]
        np.testing.assert_allclose(*curves, rtol=bound, err_msg=key)
    for key in ("train_acc", "val_acc", "test_acc"):
        assert [entry[key] for entry in ours] == [entry[key] for entry in theirs]
