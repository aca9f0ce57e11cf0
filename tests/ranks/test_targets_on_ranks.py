"""Training on targets has the losses, metrics and bytes of one rank and of the plan."""
import numpy as np
import pytest
from graphs import make, scattered, with_targets
from training import alone, run

import hpgcn
from hpgcn import Config
from hpgcn.strategies import STRATEGIES

NUMBERS = ("loss", "val_loss", *(f"{key}_{name}" for key in ("train", "val", "test")
                                 for name in ("rmse", "mae", "r2", "acc")))


def check(comm, graph, config, epochs=3):
    history, flat = run(scattered(graph, comm), config, comm, epochs)  # which compares bytes
    expected, parameters = alone(graph, config, epochs)
    for key in NUMBERS:
        np.testing.assert_allclose(*([entry[key] for entry in each] for each in (
            history, expected)), rtol=1e-9, err_msg=key)
    np.testing.assert_allclose(flat, parameters, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("comm", [1, 2, 3, 5], ids="{} ranks".format, indirect=True)
@pytest.mark.parametrize("loss", ["mse", "mae", "huber"])
@pytest.mark.parametrize("strategy", ["p2p", "2d", "mop"])
def test_equal_those_of_one_rank(comm, strategy, loss):
    graph = with_targets(make(directed=True), 3)
    check(comm, graph, Config(strategy=strategy, loss=loss, dtype="float64", seed=2, metric="mae"))


@pytest.mark.long
@pytest.mark.parametrize("comm", [3, 4], indirect=True)
@pytest.mark.parametrize("targets", [1, 5])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_strategies(comm, strategy, targets):
    graph = with_targets(make(sparse=targets == 1), targets)
    check(comm, graph, Config(strategy=strategy, dtype="float64", prune=targets == 1))


@pytest.mark.parametrize("comm", [1, 2, 3], indirect=True)
@pytest.mark.parametrize("batch", ["vertices:60", "neighbors:4,3:20"])
def test_mini_batches(comm, batch):
    graph, config = with_targets(make()), Config(batch=batch, dtype="float64", epochs=3)
    ours, theirs = hpgcn.train(scattered(graph, comm), config, comm), hpgcn.train(graph, config)
    for key in NUMBERS:
        np.testing.assert_allclose(*([entry[key] for entry in each.history] for each in (
            ours, theirs)), rtol=1e-9, err_msg=key)
