"""Gradients of every parameter by finite differences; initial weights; order of A and W."""
import numpy as np
import oracle
import pytest
from graphs import make
from training import loss_and_gradient, run, start

from hpgcn.config import Config
from hpgcn.model import ModelSpec, Parameters, keyed_uniform, num_parameters
from hpgcn.model.layer import spmm_first
from hpgcn.planning.step import LevelSizes, Steps
from hpgcn.training.step import evaluate


def spec_of(*widths, architecture="gcn", **options):
    return ModelSpec(architecture, widths, **options)


def trainer_of(graph, **settings):
    return start(graph, Config(dtype="float64", **settings))


def products(*widths, **options):
    """Widths of the products with A, and with A^T, of a training step."""
    spec = spec_of(*widths, **options)
    levels = len(widths)
    sizes = LevelSizes([np.array([50])] * levels, [True] * levels, [50] * levels,
                       np.ones((2, 1), np.int64))
    found = Steps().products(spec, (sizes, sizes))
    return [[each.width for each in found if each.backward == backward]
            for backward in (False, True)]


@pytest.mark.parametrize("directed, weighted, sparse",
                         [(False, False, False), (True, True, False), (True, False, True)])
@pytest.mark.parametrize("layers, hidden", [(1, 4), (2, 3), (3, 21)])
def test_every_parameter_by_finite_differences(layers, hidden, directed, weighted, sparse):
    graph = make(n=30, f=9, c=4, directed=directed, weighted=weighted, sparse=sparse)
    trainer = trainer_of(graph, layers=layers, hidden=hidden, dropout=0.3)
    flat = trainer.parameters.flat
    # biases off 0, so that ReLU has no ties
    flat += 0.01 * np.random.default_rng(1).standard_normal(flat.size)
    _, gradient = loss_and_gradient(trainer)
    for i in range(flat.size):
        before = flat[i]
        flat[i] = before + 1e-6
        above, _ = loss_and_gradient(trainer)
        flat[i] = before - 1e-6
        below, _ = loss_and_gradient(trainer)
        flat[i] = before
        assert gradient[i] == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=2e-9), i


@pytest.mark.parametrize("settings", [{}, {"decay_layers": "all"}, {"weight_decay": 0.0},
                                      {"input_dropout": 0.0}])
@pytest.mark.parametrize("directed", [False, True])
def test_twenty_epochs_equal_the_dense_oracle(directed, settings):
    graph = make(directed=directed, weighted=True)
    config = Config(dtype="float64", layers=3, hidden=7, **settings)
    initial = Parameters.initial(spec_of(13, 7, 7, 5, dtype="float64"))
    expected, _ = oracle.losses(graph, config, initial, 20)
    history, _ = run(graph, config, epochs=20)
    np.testing.assert_allclose([metrics["loss"] for metrics in history], expected, rtol=1e-11)


def test_evaluation_has_no_dropout_and_global_counts():
    graph = make()
    trainer = trainer_of(graph, hidden=8, dropout=0.9)
    found = evaluate(trainer.evaluation)
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
    one, two = (Parameters.initial(spec_of(5, 4, 3, seed=7)) for _ in range(2))
    assert one.flat.tobytes() == two.flat.tobytes()
    assert np.any(Parameters.initial(spec_of(5, 4, 3, seed=8)).flat != one.flat)
    assert np.abs(one.weights[0]).max() <= np.sqrt(6 / 9)
    assert not one.biases[0].any()
    # a layer's weights do not depend on how many layers there are
    np.testing.assert_array_equal(Parameters.initial(spec_of(5, 4, 3, 2, seed=7)).weights[0],
                                  one.weights[0])
    draws = keyed_uniform(0, "W0", 100_000)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert abs(draws.mean() - 0.5) < 0.005


def test_views_share_the_flat_array():
    parameters = Parameters.zeros(spec_of(3, 2, 4, dtype="float64"))
    parameters.weights[1][:] = 1
    parameters.biases[0][:] = 2
    assert parameters.flat.tolist() == [0] * 6 + [1] * 8 + [2] * 2 + [0] * 4
    assert list(parameters.named()) == ["W0", "W1", "b0", "b1"]


def test_order_of_products():
    assert spmm_first(3, 5)
    assert not spmm_first(5, 5)
    assert spmm_first(5, 5, narrows=True)
    assert not spmm_first(3, 5, sparse=True)
    assert products(128, 128, 128, 40) == [[128, 128, 40], [40, 128, 128]]
    assert products(3, 16, 7) == [[3, 7], [7]]
    assert products(128, 128, 40, precomputed=True) == [[40], [40]]
    assert products(3, 16, 7, architecture="gin") == [[3, 16], [16]]
    assert products(9, 4, 7, architecture="sage-mean") == [[4, 4], [4, 4]]
    assert products(9, 4, 7, architecture="sage-mean", precomputed=True) == [[4], [4]]
    assert num_parameters(spec_of(3, 16, 7)) == 3 * 16 + 16 + 16 * 7 + 7
