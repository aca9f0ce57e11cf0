"""Gradients of every parameter by finite differences, in float64; keyed initial weights; order of A and W."""
import numpy as np
import oracle
import pytest
from graphs import make

from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.cost import aggregate_first, gcn_exchanges, num_parameters
from hpgcn.model import Parameters, keyed_uniform
from hpgcn.trainer import Trainer


def trainer_of(graph, **settings):
    return Trainer(graph, Config(dtype="float64", **settings), SerialComm(), warm=False)


def loss_and_gradient(trainer, epoch=1):
    logits, backward = trainer.training.model.forward(trainer.training.X, epoch)
    total, G = trainer.training.loss.gradient(logits)
    return total / trainer.training.loss.count["train"], backward(G).flat


@pytest.mark.parametrize("directed, weighted, sparse",
                         [(False, False, False), (True, True, False), (True, False, True)])
@pytest.mark.parametrize("layers, hidden", [(1, 4), (2, 3), (3, 21)])
def test_every_parameter_by_finite_differences(layers, hidden, directed, weighted, sparse):
    graph = make(n=30, f=9, c=4, directed=directed, weighted=weighted, sparse=sparse)
    trainer = trainer_of(graph, layers=layers, hidden=hidden, dropout=0.3)
    flat = trainer.parameters.flat
    flat += 0.01 * np.random.default_rng(1).standard_normal(flat.size)  # biases off 0, so that ReLU has no ties
    _, gradient = loss_and_gradient(trainer)
    for i in range(flat.size):
        before = flat[i]
        flat[i] = before + 1e-6
        above, _ = loss_and_gradient(trainer)
        flat[i] = before - 1e-6
        below, _ = loss_and_gradient(trainer)
        flat[i] = before
        assert gradient[i] == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=2e-9), i


@pytest.mark.parametrize("settings", [{}, {"decay_layers": "all"}, {"weight_decay": 0.0}, {"input_dropout": 0.0}])
@pytest.mark.parametrize("directed", [False, True])
def test_twenty_epochs_equal_the_dense_oracle(directed, settings):
    graph = make(directed=directed, weighted=True)
    config = Config(dtype="float64", layers=3, hidden=7, **settings)
    trainer = trainer_of(graph, layers=3, hidden=7, **settings)
    expected, _ = oracle.losses(graph, config, Parameters.initial([13, 7, 7, 5], "float64", 0), 20)
    np.testing.assert_allclose([trainer.step(e)["loss"] for e in range(1, 21)], expected, rtol=1e-11)


def test_evaluation_has_no_dropout_and_global_counts():
    graph = make()
    trainer = trainer_of(graph, hidden=8, dropout=0.9)
    found = trainer.evaluate()
    A, H = oracle.normalised(graph), oracle.features(graph)
    H = np.maximum(A @ H @ trainer.parameters.weights[0] + trainer.parameters.biases[0], 0)
    logits = A @ H @ trainer.parameters.weights[1] + trainer.parameters.biases[1]
    right = logits.argmax(1) == graph.labels
    for key in ("train", "val", "test"):
        assert found[f"{key}_acc"] == pytest.approx(right[graph.masks[key]].mean())
    val = np.flatnonzero(graph.masks["val"])
    soft = np.exp(logits[val])
    assert found["val_loss"] == pytest.approx(-np.log((soft / soft.sum(1, keepdims=True))[
        np.arange(val.size), graph.labels[val]]).mean())


def test_initial_weights_are_keyed():
    one, two = Parameters.initial([5, 4, 3], "float32", 7), Parameters.initial([5, 4, 3], "float32", 7)
    assert one.flat.tobytes() == two.flat.tobytes()
    assert np.any(Parameters.initial([5, 4, 3], "float32", 8).flat != one.flat)
    assert np.abs(one.weights[0]).max() <= np.sqrt(6 / 9)
    assert not one.biases[0].any()
    # a layer's weights do not depend on how many layers there are
    np.testing.assert_array_equal(Parameters.initial([5, 4, 3, 2], "float32", 7).weights[0], one.weights[0])
    draws = keyed_uniform(0, "W0", 100_000)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert abs(draws.mean() - 0.5) < 0.005


def test_views_share_the_flat_array():
    parameters = Parameters.zeros([3, 2, 4], "float64")
    parameters.weights[1][:] = 1
    parameters.biases[0][:] = 2
    assert parameters.flat.tolist() == [0] * 6 + [1] * 8 + [2] * 2 + [0] * 4
    assert list(parameters.named()) == ["W0", "W1", "b0", "b1"]


def test_order_of_products():
    assert aggregate_first(3, 5)
    assert not aggregate_first(5, 5)
    assert not aggregate_first(3, 5, sparse=True)
    assert gcn_exchanges([128, 128, 128, 40]) == ([128, 128, 40], [128, 128, 40])
    assert gcn_exchanges([3, 16, 7]) == ([3, 7], [7])
    assert gcn_exchanges([128, 128, 40], constant=True) == ([40], [40])
    assert num_parameters([3, 16, 7]) == 3 * 16 + 16 + 16 * 7 + 7
