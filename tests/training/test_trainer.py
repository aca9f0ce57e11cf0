"""The training loop on one rank: records, the best epoch, early stopping, entry points."""
import json

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import make
from training import SETTINGS

import hpgcn
from hpgcn.errors import DataError, DivergedError, InputNotFoundError, OutputError, UsageError
from hpgcn.training.files.records import PART_SECONDS
from hpgcn.training.files.run_directory import read_run
from hpgcn.training.steps.loop_state import BestEpoch

KEYS = {"epoch", "loss", "train_acc", "val_acc", "test_acc", "val_loss", "epoch_s", "eval_s",
        "spmm_s", "dense_s", "comm_s", "wait_s", "sent_bytes", "sent_messages", "peak_rss_bytes",
        *PART_SECONDS}


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_directory(tmp_path):
    out = tmp_path / "run"
    summary = hpgcn.train(make(), hpgcn.Config(out=str(out), epochs=12, hidden=6))
    assert json.loads((out / "summary.json").read_text()) == summary
    lines = records(out)
    assert [line["epoch"] for line in lines] == list(range(1, 13))
    assert all(set(line) == KEYS for line in lines)
    best = max(lines, key=lambda m: (m["val_acc"], -m["val_loss"], -m["epoch"]))
    assert (summary["best_epoch"], summary["test_acc"]) == (best["epoch"], best["test_acc"])
    assert summary["sent_bytes_per_epoch"] == summary["predicted_bytes_per_epoch"] == 0
    weights, settings, _ = read_run(out)
    assert hpgcn.Config(**settings) == hpgcn.Config(out=str(out), epochs=12, hidden=6,
                                                    strategy=summary["strategy"])
    assert weights["W0"].shape == (13, 6)
    with pytest.raises(OutputError, match="run directory exists"):
        hpgcn.train(make(), hpgcn.Config(out=str(out), epochs=1))
    (out / "mine.txt").write_text("keep")
    hpgcn.train(make(), hpgcn.Config(out=str(out), epochs=2), overwrite=True)
    assert len(records(out)) == 2 and (out / "mine.txt").read_text() == "keep"


def test_the_model_kept_is_that_of_the_best_epoch(tmp_path):
    graph, out = make(), tmp_path / "run"
    summary = hpgcn.train(graph, hpgcn.Config(out=str(out), epochs=30, hidden=6, dropout=0.2))
    found = hpgcn.predict(graph, out)
    again = hpgcn.predict(graph, hpgcn.read_run(out))
    np.testing.assert_array_equal(again["logits"], found["logits"])
    test = graph.masks["test"]
    assert found["logits"].shape == (203, 5) and found["embedding"].shape == (203, 6)
    assert np.mean(found["label"][test] == graph.labels[test]) == pytest.approx(summary["test_acc"])


def test_predict_on_another_graph(tmp_path):
    out = tmp_path / "run"
    hpgcn.train(make(), hpgcn.Config(out=str(out), epochs=3, hidden=6))
    other = make(n=77, seed=9)
    assert hpgcn.predict(other, out / "model.h5")["logits"].shape == (77, 5)
    with pytest.raises(DataError, match="20 features, but the model was trained on 13"):
        hpgcn.predict(make(f=20), out)
    with pytest.raises(InputNotFoundError):
        hpgcn.predict(other, tmp_path / "none")


def test_nothing_is_written_without_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hpgcn.train(make(), hpgcn.Config(epochs=1))
    assert not list(tmp_path.iterdir())


def test_no_dropout_no_evaluation_until_the_end(tmp_path):
    out = tmp_path / "run"
    hpgcn.train(make(), hpgcn.Config(out=str(out), epochs=7, eval_every=0))
    assert [line["val_acc"] is None for line in records(out)] == [True] * 6 + [False]
    hpgcn.train(make(), hpgcn.Config(out=str(out), epochs=7, eval_every=3), overwrite=True)
    assert [line["epoch"] for line in records(out) if line["val_acc"] is not None] == [3, 6, 7]


@pytest.mark.parametrize("ranks, strategy", [(1, "auto"), (3, "p2p"), (4, "1.5d"), (4, "2d")])
def test_settings_that_can_have_no_effect(ranks, strategy, caplog):
    """Patience without validation vertices, and classes without training vertices."""
    graph = make()
    labels = graph.labels.copy()
    train, rest = np.flatnonzero(labels < 3)[:20], np.flatnonzero(labels >= 3)[:20]
    data = {"A": graph.adjacency, "X": graph.features, "name": "mine"}
    config = hpgcn.Config(epochs=1, hidden=4, patience=5, strategy=strategy)
    unwatched = hpgcn.Graph.from_scipy(**data, y=labels, masks=(train, [], rest))
    with pytest.raises(UsageError, match="patience=5: mine has no validation vertices"):
        hpgcn.train(unwatched, config, ranks=ranks)

    several = np.eye(5)[labels.clip(0)]
    several[:, 0] = 1
    for y in (labels, several):
        caplog.clear()
        named = hpgcn.Graph.from_scipy(**data, y=y, masks=(train, rest, []),
                                       class_names=list("abcde"))
        hpgcn.train(named, config, ranks=ranks)
        said = [line for line in caplog.messages if "no training vertex" in line]
        assert said == ["mine: 2 classes have no training vertex, so that the model cannot learn "
                        "them: d, e"]


def test_patience_stops():
    summary = hpgcn.train(make(), hpgcn.Config(epochs=500, patience=5, lr=0.0))
    assert summary["epochs"] == 6  # nothing changes after epoch 1
    assert summary["best_epoch"] == 1


def test_best_rule():
    best = BestEpoch()
    for epoch, (acc, loss) in enumerate([(0.5, 1.0), (0.6, 2.0), (0.6, 1.5), (0.6, 1.5),
                                         (0.55, 0.1)], 1):
        best.update_if_better(epoch, {"val_acc": acc, "val_loss": loss}, np.array([epoch]))
    assert (best.epoch, best.weights.tolist()) == (3, [3])
    without = BestEpoch()
    for epoch in (1, 2):
        without.update_if_better(epoch, {"val_acc": None, "val_loss": None}, np.array([epoch]))
    assert without.epoch == 2


def test_empty_validation_and_test_masks_are_null():
    graph = make()
    masks = (graph.labels >= 0, [], [])
    graph = hpgcn.Graph.from_scipy(graph.adjacency, graph.features, graph.labels, masks)
    summary = hpgcn.train(graph, hpgcn.Config(epochs=3))
    assert summary["best_epoch"] == 3
    assert summary["best_val_acc"] is summary["test_acc"] is None


@pytest.mark.parametrize("settings", [
    {"lr": 0.05}, {"optimizer": "sgd", "lr": 1.0},
    *(pytest.param({"lr": 0.02, "dropout": 0.2, **SETTINGS[name]}, marks=pytest.mark.long)
      for name in ("sage-mean", "sage-gcn", "gin"))], ids=str)
def test_training_learns(settings):
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    X = np.eye(3)[y] + rng.standard_normal((300, 3))
    A = (rng.random((300, 300)) < np.where(y[:, None] == y, 0.05, 0.005)).astype(float)
    masks = np.arange(60), np.arange(60, 120), np.arange(120, 300)
    graph = hpgcn.Graph.from_scipy(A, X, y, masks, symmetrize=True)
    assert hpgcn.train(graph, hpgcn.Config(epochs=120, **settings))["test_acc"] > 0.88


@pytest.mark.parametrize("name, given", [
    ("features", (None, [0, 1, 0, 1], ([0], [1], [2]))), ("labels", (np.ones((4, 2)),)),
    ("split", (np.ones((4, 2)), [0, 1, 0, 1]))], ids=["features", "labels", "split"])
def test_what_is_missing_is_named(name, given):
    with pytest.raises(DataError, match=f"--{name}"):
        hpgcn.train(hpgcn.Graph.from_scipy(np.eye(4), *given))


def test_divergence_is_named():
    with pytest.raises(DivergedError, match=r"epoch \d+: the training loss is"):
        hpgcn.train(make(), hpgcn.Config(optimizer="sgd", lr=1e30, epochs=50, dropout=0,
                                         eval_every=0))


@pytest.mark.parametrize("model", SETTINGS)
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("sparse", [False, True])
def test_tiny_and_edgeless_graphs_train(n, sparse, model):
    X = np.ones((n, 3), np.float32)
    graph = hpgcn.Graph.from_scipy(sp.csr_array((n, n)), sp.csr_array(X) if sparse else X,
                                   np.arange(n), (np.arange(n) < 1, [], []))
    config = hpgcn.Config(epochs=3, dtype="float64", **SETTINGS[model])
    assert np.isfinite(hpgcn.train(graph, config)["final_loss"])
