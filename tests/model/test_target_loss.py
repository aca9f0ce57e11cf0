"""Losses and metrics of targets against dense NumPy, scikit-learn and finite differences."""
import numpy as np
import pytest
from graphs import make, with_targets
from training import loss_and_gradient, start

import hpgcn
from hpgcn import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.model.target_loss import LOSSES
from hpgcn.training.steps.training_step import evaluate

GRAPH = with_targets(make(), 3)
EXACT = Config(dtype="float64", dropout=0.0, input_dropout=0.0, hidden=6)


@pytest.mark.parametrize("loss, values, slopes", [
    ("mse", [4, 0.25, 0], [4, -1, 0]), ("mae", [2, 0.5, 0], [1, -1, 0]),
    ("huber", [1.5, 0.125, 0], [1, -0.5, 0])])
def test_table_of_losses(loss, values, slopes):
    found = LOSSES[loss](np.array([2, -0.5, 0]))
    assert [each.tolist() for each in found] == [values, slopes]


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_that_of_finite_differences(loss, standardize):
    with start(GRAPH, EXACT.replace(loss=loss, standardize=standardize)) as trainer:
        _, gradient = loss_and_gradient(trainer)
        gradient = gradient.copy()
        flat = trainer.parameters.flat
        for k in np.random.default_rng(0).choice(flat.size, 12, replace=False):
            kept, found = flat[k], []
            for step in (1e-6, -1e-6):
                flat[k] = kept + step
                found.append(loss_and_gradient(trainer)[0])
            flat[k] = kept
            assert (found[0] - found[1]) / 2e-6 == pytest.approx(gradient[k], rel=1e-4, abs=1e-7)


def judged(graph, config):
    """Train two epochs; return the evaluation, and outputs in the user's units."""
    with start(graph, config) as trainer:
        for epoch in (1, 2):
            trainer.train_epoch(epoch)
        found = evaluate(trainer.evaluation, trainer.run_info.metric)
        outputs, _ = trainer.evaluation.model.infer(trainer.evaluation.features)
        scale = trainer.plan.targets
        return found, np.array(outputs) * scale.deviation + scale.mean


@pytest.mark.parametrize("standardize", [True, False])
def test_metrics_are_those_of_scikit_learn(standardize):
    sklearn = pytest.importorskip("sklearn.metrics", reason="needs pip install '.[demo]'")
    found, outputs = judged(GRAPH, EXACT.replace(standardize=standardize, metric="r2"))
    functions = {"rmse": sklearn.root_mean_squared_error, "mae": sklearn.mean_absolute_error,
                 "r2": sklearn.r2_score}
    for key, mask in GRAPH.masks.items():
        y, z = GRAPH.targets[mask], outputs[mask]
        known = ~np.isnan(y)
        for name, function in functions.items():
            expected = [function(y[rows, k], z[rows, k]) for k, rows in enumerate(known.T)]
            assert found[f"{key}_{name}"] == pytest.approx(np.mean(expected), rel=1e-10)
        assert found[f"{key}_acc"] == found[f"{key}_r2"]


@pytest.mark.parametrize("loss", LOSSES)
def test_loss_is_the_mean_over_known_targets(loss):
    found, outputs = judged(GRAPH, EXACT.replace(loss=loss))
    mask = GRAPH.masks["train"]
    mean, deviation = (function(GRAPH.targets[mask], axis=0) for function in
                       (np.nanmean, np.nanstd))
    error = (outputs - GRAPH.targets)[GRAPH.masks["val"]] / deviation
    assert found["val_loss"] == pytest.approx(
        LOSSES[loss](error[~np.isnan(error)])[0].mean(), rel=1e-10)
    result = hpgcn.train(GRAPH, EXACT.replace(epochs=1))
    np.testing.assert_allclose(result.target_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(result.target_deviation, deviation, rtol=1e-12)


def of_targets(y, masks=([0, 1], [2, 3], [4])):
    return Graph.from_scipy(np.ones((5, 5)) - np.eye(5), np.eye(5), masks=masks, targets=y)


def test_constant_and_unknown_targets():
    graph = of_targets(np.array([[0.1, 1], [0.1, 2], [0.1, np.nan], [0.1, np.nan], [0.1, 4]]))
    found, _ = judged(graph, EXACT)
    assert found["val_r2"] == 0 and found["test_r2"] is None  # constant; a single vertex
    assert found["train_rmse"] < 3 and found["val_mae"] < 1
    assert hpgcn.train(graph, Config(epochs=1)).target_deviation.tolist() == [1, 0.5]
    with pytest.raises(DataError, match="target 'target_1': no training vertex has a value"):
        hpgcn.train(of_targets(np.c_[np.ones(5), [np.nan, np.nan, 1, 1, 1]]), Config(epochs=1))
    empty = hpgcn.train(of_targets(np.arange(5), ([0, 1], [], [])), Config(epochs=2))
    assert empty["best_val_acc"] is None and empty["best_epoch"] == 2
    with pytest.raises(UsageError, match="patience=1: graph has no validation vertices"):
        hpgcn.train(of_targets(np.array([1, 2, np.nan, np.nan, 3])), Config(patience=1))


@pytest.mark.parametrize("settings, message", [
    ({"metric": "accuracy"}, "metric = 'accuracy': vertices have targets, which are numbers, "
                             "expected rmse, mae, r2"),
    ({"metric": "roc-auc"}, "expected rmse, mae, r2"),
    ({"label_smoothing": 0.1}, "label_smoothing = 0.1: only for labels; made has targets"),
    ({"class_weight": "balanced"}, "class_weight = 'balanced': only for labels")])
def test_settings_of_labels_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        hpgcn.train(GRAPH, Config(**settings))


@pytest.mark.parametrize("settings, message", [
    ({"metric": "mae"}, "metric = 'mae': vertices have labels, not targets, expected accuracy"),
    ({"loss": "huber"}, "loss = 'huber': only for targets, values to predict; made has labels"),
    ({"standardize": False}, "standardize = False: only for targets")])
def test_settings_of_targets_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        hpgcn.train(make(), Config(**settings))
