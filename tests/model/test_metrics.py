"""Metrics on one rank equal those of scikit-learn; ties, empty masks and refusals."""
import numpy as np
import pytest
from graphs import make, several_labels
from training import start

import hpgcn
from hpgcn import Config
from hpgcn.errors import UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.model.metrics import _area
from hpgcn.training.steps.training_step import evaluate

SPLIT = ("train", "val", "test")


@pytest.fixture
def sklearn():
    """Return the module sklearn.metrics, or skip the test if it is missing."""
    return pytest.importorskip("sklearn.metrics", reason="needs pip install '.[demo]'")


def of_classes(graph, classes, seed=0):
    """Return the graph with random labels of `classes` classes, the last of them rare."""
    shares = np.r_[np.ones(classes - 1), 0.1]
    y = np.random.default_rng(seed).choice(classes, graph.num_rows, p=shares / shares.sum())
    return Graph.from_scipy(graph.adjacency, graph.features, y, graph.masks)


def judged(graph, metric):
    """Train two epochs; return metrics, logits, the rows of each mask, and labels."""
    trainer = start(graph, Config(metric=metric, dtype="float64", lr=0.05))
    for epoch in (1, 2):
        trainer.train_epoch(epoch)
    found = evaluate(trainer.evaluation, trainer.run_info.metric)
    logits, _ = trainer.evaluation.model.infer(trainer.evaluation.features)
    loss = trainer.evaluation.loss
    return found, np.array(logits), loss.rows, np.asarray(loss.labels)


@pytest.mark.parametrize("classes", [2, 3, 9])
def test_macro_f1_of_classes(sklearn, classes):
    found, logits, rows, labels = judged(of_classes(make(directed=True), classes), "macro-f1")
    for key in SPLIT:
        y, predicted = labels[rows[key]], logits[rows[key]].argmax(1)
        assert found[f"{key}_acc"] == pytest.approx(sklearn.f1_score(y, predicted, average="macro"))
    assert found["val_loss"] > 0


def test_micro_f1_of_classes_is_their_accuracy():
    graph = make()
    assert judged(graph, "micro-f1")[0] == judged(graph, "accuracy")[0] == judged(graph, "auto")[0]


@pytest.mark.parametrize("metric", ["micro-f1", "macro-f1", "roc-auc"])
def test_metrics_of_several_labels(sklearn, metric):
    found, logits, rows, labels = judged(several_labels(make()), metric)
    for key in SPLIT:
        y, z = labels[rows[key]], logits[rows[key]]
        expected = (sklearn.roc_auc_score(y, z) if metric == "roc-auc" else
                    sklearn.f1_score(y, z > 0, average=metric.partition("-")[0], zero_division=0))
        assert found[f"{key}_acc"] == pytest.approx(expected, rel=1e-12)


def test_roc_auc_of_two_classes(sklearn):
    found, logits, rows, labels = judged(of_classes(make(), 2), "roc-auc")
    for key in SPLIT:
        y, z = labels[rows[key]], logits[rows[key]]
        expected = sklearn.roc_auc_score(y, z[:, 1] - z[:, 0])
        assert found[f"{key}_acc"] == pytest.approx(expected, rel=1e-12)


def test_ties_are_halved(sklearn):
    rng = np.random.default_rng(0)
    score, true = rng.integers(0, 4, 300) / 2, rng.random(300) < 0.3
    assert _area(score, true) == pytest.approx(sklearn.roc_auc_score(true, score), rel=1e-14)
    assert _area(np.zeros(9), np.arange(9) < 2) == 0.5
    assert _area(np.arange(3.0), np.ones(3, bool)) is None


def test_masks_of_one_kind_or_none():
    graph = make()
    y = np.zeros(graph.num_rows, int)
    y[np.flatnonzero(graph.masks["train"])[0]] = 1
    masks = {**graph.masks, "test": np.zeros(graph.num_rows, bool)}
    graph = Graph.from_scipy(graph.adjacency, graph.features, y, masks)
    found = judged(graph, "roc-auc")[0]
    assert found["val_acc"] is found["test_acc"] is None and 0 <= found["train_acc"] <= 1
    assert judged(graph, "macro-f1")[0]["test_acc"] is None


def test_the_best_epoch_is_that_of_the_metric(tmp_path):
    graph = of_classes(make(), 3)
    result = hpgcn.train(graph, Config(metric="macro-f1", epochs=8, out=str(tmp_path / "run")))
    scores = [each["val_acc"] for each in result.history]
    assert result["metric"] == "macro-f1" and result["best_val_acc"] == max(scores)


def test_metrics_that_labels_do_not_have():
    for graph, metric, words in (
            (make(), "roc-auc", "metric = 'roc-auc': 5 classes, expected 2, or several labels"),
            (several_labels(make()), "accuracy", "metric = 'accuracy': vertices have several")):
        with pytest.raises(UsageError, match=words):
            hpgcn.train(graph, Config(metric=metric))
