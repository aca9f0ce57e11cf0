"""Models composed by flags on one rank: equal to PyTorch, skipped rows, stored arrays."""
from dataclasses import replace

import numpy as np
import oracle
import pytest
from arrays import assert_all, assert_none, assert_some
from graphs import make
from stacks import KINDS, PLATONOV, STACKS, of_torch
from training import run, start

import hpgcn
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.model import Parameters, find_model
from hpgcn.planning.counts.plan_input import PlanInput

CASES = [*(("gcn", name) for name in STACKS), ("sage-mean", "platonov"), ("sage-mean", "residual"),
         ("sage-mean", "cat"), ("sgc", "batch norm"), ("sgc", "platonov"), ("appnp", "elu"),
         ("appnp", "batch norm"), ("appnp", "gelu after dropped features"),
         ("gat", "residual"),
         *(pytest.param("gat", name, marks=pytest.mark.long)
           for name in ("gelu after dropped features", "cat", "platonov",
                        "residual of A X formed once"))]
STORED = [("gcn", "platonov, batch norm, elu"), ("gcn", "cat of batch norm"), ("gcn", "max"),
          ("gcn", "residual of A X formed once"), ("sage-mean", "platonov"),
          ("sgc", "batch norm"), ("appnp", "batch norm"), ("gat", "residual")]


def settings(kind, stack, **changes):
    return Config(**{"dtype": "float64", "hidden": 10, "dropout": 0.4, "seed": 3, "epochs": 3,
                     **KINDS[kind], **STACKS[stack], **changes})


@pytest.mark.long
@pytest.mark.parametrize("kind, stack", CASES)
@pytest.mark.parametrize("directed, sparse", [(False, False), (True, True)])
def test_three_epochs_equal_pytorch(kind, stack, directed, sparse):
    graph = make(directed=directed, weighted=True, sparse=sparse)
    config = settings(kind, stack)
    trainer = start(graph, config)
    initial = Parameters.initial(trainer.shard.spec)
    model = find_model(config)
    expected, weights = of_torch(graph, config, model, initial)
    history, flat = run(graph, config)
    # PyTorch's bias before a batch norm has a gradient of rounding errors only, which Adam divides
    # by their size. Moments of rows take it off again, running ones later.
    bounds = 1e-12, 1e-8 if config.norm == "batch" else 1e-12
    for key, losses, bound in zip(("loss", "val_loss"), expected, bounds):
        np.testing.assert_allclose([metrics[key] for metrics in history], losses, rtol=bound)
    found = trainer.arrays_by_name(flat)
    assert set(found) == set(weights)
    for name, array in weights.items():
        np.testing.assert_allclose(found[name], array, atol=10 * bounds[1], err_msg=name)


@pytest.mark.long
@pytest.mark.parametrize("kind, stack", CASES)
def test_rows_that_nobody_reads_change_nothing(kind, stack):
    graph = make(n=500, degree=1.5, train=6, directed=True)
    config = settings(kind, stack, layers=2)
    (pruned, one), (whole, other) = (run(graph, config.replace(prune=prune))
                                     for prune in (True, False))
    np.testing.assert_allclose([m["loss"] for m in pruned], [m["loss"] for m in whole], rtol=1e-10)
    np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("kind, stack", STORED)
def test_a_run_is_stored_resumed_and_predicts(tmp_path, kind, stack):
    graph = make(directed=True)
    config = settings(kind, stack, layers=2, epochs=4, checkpoint_every=2)
    expected = hpgcn.train(graph, config.replace(checkpoint_every=0))
    hpgcn.train(graph, config.replace(out=str(tmp_path / "run"), epochs=2))
    resumed = hpgcn.train(graph, config.replace(out=str(tmp_path / "run")),
                          resume=tmp_path / "run")
    assert [m["loss"] for m in resumed.history] == [m["loss"] for m in expected.history]
    for name, array in expected.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], array)
    found = hpgcn.predict(graph, tmp_path / "run")
    trainer = start(graph, config.replace(prune=False))
    trainer.parameters.flat[:] = np.concatenate([each.ravel() for each in resumed.weights.values()])
    logits, _ = trainer.evaluation.model.infer(trainer.evaluation.features)
    np.testing.assert_allclose(found["logits"], logits, rtol=1e-12, atol=1e-13)
    assert found["embedding"].shape[0] == 203


def test_embeddings_are_what_the_last_layer_reads(tmp_path):
    graph = make()
    for jump in ("none", "max", "cat"):
        config = settings("gcn", "cat", jump=jump, epochs=2, layers=3)
        result = hpgcn.train(graph, config)
        found = hpgcn.predict(graph, result)
        parts = [name for name in sorted(result.weights) if name.startswith("W3")]
        W = np.concatenate([result.weights[name] for name in parts])
        np.testing.assert_allclose(found["embedding"] @ W + result.weights["b3"], found["logits"],
                                   rtol=1e-10, atol=1e-12)


def test_names_and_shapes():
    spec = start(make(), settings("gcn", "platonov", layers=1)).shard.spec
    shapes = {name: array.shape for name, array in Parameters.zeros(spec).arrays.items()}
    square, row = (10, 10), (10,)
    assert shapes == {
        "W0": (13, 10), "W1": square, "W1_ffn": square, "W2": (10, 5), "b0": row, "b1": row,
        "b1_ffn": row, "gain1": row, "shift1": row, "b2": (5,), "gain2": row, "shift2": row}
    assert Parameters.zeros(spec).decayed("first") == 13 * 10
    spec = start(make(), settings("gcn", "residual", norm="batch", layers=2)).shard.spec
    parameters = Parameters.initial(spec)
    assert parameters.decayed("first") == 2 * 13 * 10
    assert list(parameters.arrays) == ["W0", "W0_res", "W1", "W1_res", "b0", "gain0", "shift0",
                                       "mean0", "variance0", "b1"]
    assert_all(parameters.arrays["variance0"] == 1)
    assert_none(parameters.arrays["mean0"])


def test_a_first_maximum_takes_the_gradient():
    """If the outputs of two layers tie in a maximum, the first layer gets the gradient."""
    trainer = start(make(), settings("gcn", "max", layers=2, dropout=0.0, activation="elu"))
    w = trainer.parameters.arrays
    for name in ("W0", "W1", "b0", "b1"):
        w[name][:] = 0
    view = trainer.training
    logits, backward = view.model.forward(view.features, 1)
    gradient = backward(view.loss.gradient(logits)[1]).arrays
    assert_some(gradient["b0"])
    assert_none(gradient["b1"])


def test_batch_norm_keeps_all_rows():
    graph = make(n=500, degree=1.5, train=6)
    config = settings("gcn", "batch norm")
    for inputs, rows in ((PlanInput(graph, config), 500),
                         (PlanInput(graph, config.replace(norm="layer")), 6)):
        assert inputs.totals(inputs.ordered.train)[-1] == rows


@pytest.mark.parametrize("changes, words", [
    ({"hops": 3}, "hops = 3: only for models sgc and appnp"),
    ({"restart": 0.2}, "restart = 0.2: only for model appnp"),
    ({"model": "appnp", "residual": True}, "residual = True: only for models gcn"),
    ({"model": "appnp", "input_layer": True}, "input_layer = True: only for models gcn"),
    ({"model": "sgc", "restart": 0.2}, "restart = 0.2: only for model appnp"),
    ({"ffn": True}, "ffn = True: needs input_layer=True"),
    ({"jump": "cat"}, "jump = 'cat': needs output_layer=True"),
    ({**PLATONOV, "jump": "max"}, "jump = 'max': excludes ffn"),
    ({"layer_norm": True, "norm": "batch"}, "excludes norm = 'batch'"),
    ({"activation": "tanh"}, "expected one of own, relu, elu, gelu")], ids=str)
def test_settings_that_are_refused(changes, words):
    with pytest.raises(UsageError) as caught:
        start(make(), Config(**changes))
    assert words in str(caught.value)


def test_layer_norm_is_another_word():
    assert Config(layer_norm=True) == Config(norm="layer")
    assert Config(layer_norm=True).replace(norm="none").norm == "none"


def test_sparse_features_are_added_by_a_matrix_alone():
    graph = make(sparse=True)
    with pytest.raises(UsageError, match="residual: 13 sparse features"):
        start(graph, settings("gcn", "residual", hidden=13))
    start(graph, settings("gcn", "residual", hidden=12))


def test_one_layer_of_sgc_is_a_power_of_the_matrix():
    graph = make(weighted=True)
    config = Config(model="sgc", hops=3, layers=1, dtype="float64", dropout=0)
    trainer = start(graph, config)
    w = trainer.parameters.arrays
    assert list(w) == ["W0", "b0"]
    w["b0"][:] = np.arange(5)
    A = oracle.normalized(graph)
    expected = A @ A @ A @ oracle.features(graph) @ w["W0"] + w["b0"]
    logits, _ = trainer.evaluation.model.infer(trainer.evaluation.features)
    np.testing.assert_allclose(logits, expected, atol=1e-12)
    assert replace(trainer.shard.spec, hops=1) != trainer.shard.spec
