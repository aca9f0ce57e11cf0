"""Short training runs for tests of results and traffic."""
import numpy as np
import pytest
from once import once

from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.model import MODELS, heads_of, make_spec
from hpgcn.strategies import STRATEGIES, find_strategy, read_options
from hpgcn.training.trainer import make_trainer

SPECIAL = {"gat": {"output_heads": 2, "attention_dropout": 0.3}}  # besides a model's name


def settings_of(name):
    """Return the settings of a model name, MODEL or MODEL-AGGREGATOR."""
    model, _, aggregator = name.partition("-")
    named = {"model": model, "aggregator": aggregator} if aggregator else {"model": model}
    return named | SPECIAL.get(name, {})


# models that read edge features have tests of their own: tests/ranks/test_gine.py
PLAIN = [name for name, layer in MODELS.items() if not layer.uses_edge_features]
SETTINGS = {name: settings_of(name) for name in PLAIN}

RANKS = (1, 2, 3, 4, 5, 7)  # numbers of ranks, in one process, that tests are run on
RARE = (5, 7)  # rare ones among these: outside the contract, only before a release
LATER = ("1d", "cover", "vertex-cut")  # use no other calls of MPI than other strategies

WIDE = {name: given | {"heads": 4, "output_heads": 4} if MODELS[name].uses_attention else given
        for name, given in SETTINGS.items()}  # heads that two and four ranks can share


def served(models=PLAIN, strategies=STRATEGIES, ranks=RANKS, rare="release", later=()):
    """Run a test with all numbers of ranks, strategies and models that support each other.

    Numbers of ranks in RARE have the marker `rare`. Strategies in `later` need --product.
    """
    cases = [
        pytest.param(P, strategy, model, marks=[getattr(pytest.mark, rare)] * (P in RARE)
                     + [pytest.mark.release] * (strategy in later))
        for P in ranks for strategy in strategies for model in models
        if not STRATEGIES[strategy].unsupported_reason([4 * MODELS[model].uses_attention], P)]
    return pytest.mark.parametrize("comm, strategy, model", cases, indirect=["comm"])


def on_ranks(*numbers):
    """Run a test with `comm` only on these numbers of ranks; those in RARE need --product."""
    cases = [pytest.param(P, marks=[pytest.mark.release] * (P in RARE)) for P in numbers]
    return pytest.mark.parametrize("comm", cases, ids="{} ranks".format, indirect=True)


def start(source, config, comm=None):
    comm = comm or SerialComm()
    skip_refused(source, config, comm)
    return make_trainer(source, config, comm, warm=False)


def skip_refused(source, config, comm):
    """Skip a test if the strategy does not support the model; another test checks the refusal."""
    spec = make_spec(source.header, config)
    strategy = find_strategy(read_options(config))
    reason = strategy.unsupported_reason(heads_of(spec), comm.size, spec.edge_width > 0)
    if reason:
        pytest.skip(f"{config.strategy}: {reason}")


def loss_and_gradient(trainer, step=1):
    """Return this rank's share of the mean training loss, and the whole gradient, flat."""
    view = trainer.training
    trainer.comm.counters.phase = "other"
    logits, backward = view.model.forward(view.features, step)
    total, G = view.loss.gradient(logits)
    gradient = backward(G)
    trainer.shard.columns.reduce(gradient)
    view.model.update_running_moments(gradient)
    return total / view.loss.norm, gradient.flat


def history_of(trainer, epochs):
    """Train and evaluate `epochs` epochs; return their metrics."""
    history = []
    for epoch in range(1, epochs + 1):
        history.append(trainer.train_epoch(epoch))
        trainer.evaluate_epoch(history[-1])
    return history


def metrics_of(trainer, epochs):
    """Return the metrics of `epochs` epochs; compare sent bytes with the prediction."""
    history = history_of(trainer, epochs)
    for entry in history:
        for kind in ("bytes", "messages"):
            assert entry[f"sent_{kind}"] == getattr(trainer.run_info, f"predicted_{kind}_per_epoch")
    return history


def run(source, config, comm=None, epochs=3):
    """Train `epochs` epochs; return their metrics, and the final parameters as a flat array."""
    trainer = start(source, config, comm)
    with trainer:
        history = metrics_of(trainer, epochs)
        return history, trainer.comm.device.get(trainer.parameters.flat).copy()


def alone(graph, config, epochs=3):
    """Train on one rank with the default strategy; return as `run` does."""
    return known_run(graph, config.replace(strategy=Config.strategy), epochs)


@once
def known_run(graph, config, epochs):
    return run(graph, config, SerialComm(), epochs)


def assert_same_on_one_rank(graph, source, config, comm):
    """Compare two epochs on the ranks of `comm`, which read `source`, with those on one rank."""
    histories = []
    for given, ranks in ((source, comm), (graph, None)):
        with start(given, config, ranks) as trainer:
            histories.append(history_of(trainer, 2))
    assert_same_curves(*histories, 1e-10)


def assert_same_curves(ours, theirs, bound):
    for key in ("loss", "val_loss"):
        curves = [[entry[key] for entry in history] for history in (ours, theirs)]
        np.testing.assert_allclose(*curves, rtol=bound, err_msg=key)
    for key in ("train_acc", "val_acc", "test_acc"):
        assert [entry[key] for entry in ours] == [entry[key] for entry in theirs]
