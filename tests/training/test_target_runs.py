"""Runs on targets: best epoch, files, resuming, predictions in every format, reports."""
import csv
import json

import numpy as np
import pytest
from graphs import make, with_targets

import hpgcn
from hpgcn import report
from hpgcn.cli.inspect_files import describe_file
from hpgcn.config import Config
from hpgcn.errors import DataError
from hpgcn.graphs.graph import Graph
from hpgcn.store import prediction_writer, read_predictions
from hpgcn.training.steps.loop_state import BestEpoch

GRAPH = with_targets(make())
CONFIG = Config(epochs=6, hidden=8, lr=0.05)


@pytest.mark.parametrize("metric, best_of", [("auto", min), ("mae", min), ("r2", max)])
def test_the_best_epoch_is_that_of_the_metric(metric, best_of):
    result = hpgcn.train(GRAPH, CONFIG.replace(metric=metric, lr=0.5))
    name = "rmse" if metric == "auto" else metric
    values = [entry[f"val_{name}"] for entry in result.history]
    assert result["best_val_acc"] == best_of(values) and result["metric"] == name
    assert result["best_epoch"] == values.index(best_of(values)) + 1
    assert result["test_rmse"] == result.history[result["best_epoch"] - 1]["test_rmse"]


def test_a_lower_error_is_better():
    best = BestEpoch()
    for epoch, (error, loss) in enumerate([(2.0, 1.0), (1.5, 2.0), (1.5, 1.5), (1.7, 0.1)], 1):
        metrics = {"val_acc": error, "val_loss": loss}
        best.update_if_better(epoch, metrics, np.array([epoch]), "rmse")
    assert best.epoch == 3


def test_patience_counts_epochs_without_a_lower_error():
    result = hpgcn.train(GRAPH, CONFIG.replace(epochs=500, patience=4, lr=0.0))
    assert (result["epochs"], result["best_epoch"]) == (5, 1)


@pytest.mark.parametrize("ranks", [1, 3])
def test_resumed_runs_have_the_same_bits(tmp_path, ranks):
    config = CONFIG.replace(out=str(tmp_path / "run"), loss="huber", dropout=0.3,
                            checkpoint_every=3)
    first = hpgcn.train(GRAPH, config, ranks=ranks)
    assert first["epochs"] == 6
    found = hpgcn.train(GRAPH, config.replace(epochs=12), ranks=ranks, resume=config.out)
    whole = hpgcn.train(GRAPH, config.replace(epochs=12, out="", checkpoint_every=0),
                        ranks=ranks)
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(found.weights[name], weights)
    timed = "_s", "_bytes"
    for ours, theirs in zip(found.history, whole.history, strict=True):
        assert [(key, each) for key, each in ours.items() if not key.endswith(timed)] == [
            (key, each) for key, each in theirs.items() if not key.endswith(timed)]
    np.testing.assert_array_equal(found.target_mean, whole.target_mean)

    # a finished run is read from its files
    again = hpgcn.train(GRAPH, config.replace(epochs=12), ranks=ranks, resume=config.out)
    np.testing.assert_array_equal(again.target_deviation, found.target_deviation)
    assert again.target_names == ("t0", "t1")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("targets") / "run"
    return hpgcn.train(GRAPH, CONFIG.replace(out=str(out))), out


def test_predictions_are_in_the_units_of_the_targets(run):
    result, out = run
    found = hpgcn.predict(GRAPH, out)
    assert found["value"].dtype == np.float64 and {"logits", "label"}.isdisjoint(found)
    assert found["target_names"].tolist() == ["t0", "t1"]
    known = GRAPH.masks["test"][:, None] & ~np.isnan(GRAPH.targets)
    error = np.where(known, found["value"] - GRAPH.targets, 0)
    rmse = np.sqrt((error**2).sum(0) / known.sum(0)).mean()
    assert rmse == pytest.approx(result["test_rmse"], rel=1e-5)
    np.testing.assert_array_equal(hpgcn.predict(GRAPH, result)["value"], found["value"])
    unknown = Graph.from_scipy(GRAPH.adjacency, GRAPH.features)  # the graph needs no targets
    np.testing.assert_array_equal(hpgcn.predict(unknown, out)["value"], found["value"])
    np.testing.assert_allclose(hpgcn.predict(GRAPH, out, ranks=3)["value"], found["value"],
                               rtol=1e-5)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".npz", ".h5"])
def test_files_of_predictions(run, tmp_path, suffix):
    found, path = hpgcn.predict(GRAPH, run[1]), tmp_path / f"values{suffix}"
    if suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra io")
    prediction_writer(str(path))(path, found, {"graph": "made"})
    if suffix in (".csv", ".tsv"):
        with path.open() as file:
            head, *rows = csv.reader(file, delimiter="\t" if suffix == ".tsv" else ",")
        names, values = head, np.array(rows, float)[:, 1:]
    elif suffix == ".parquet":
        table = parquet.read_table(path)
        names, values = table.column_names, np.column_stack(table.columns[1:])
    else:
        arrays = np.load(path) if suffix == ".npz" else read_predictions(path)[0]
        names, values = ["id", *arrays["target_names"].tolist()], arrays["value"]
    assert names == ["id", "t0", "t1"]
    np.testing.assert_allclose(values, found["value"], rtol=1e-8)
    if suffix == ".h5":
        assert "the predicted targets" in describe_file(path)


def test_a_target_called_id_is_refused(tmp_path):
    found = {"id": np.arange(2), "value": np.ones((2, 1)), "target_names": np.array(["id"])}
    with pytest.raises(DataError, match="target 'id' is called like the column of ids"):
        prediction_writer("x.csv")(tmp_path / "x.csv", found, {})


def test_reports_and_descriptions(run, tmp_path):
    _, out = run
    text = report.table(report.read_runs([out]))
    assert "rmse" in text and "%" not in text
    report.write(report.read_runs([out]), tmp_path / "report.html")
    assert "t0: mean " in describe_file(out / "model.h5")
    (out / "summary.json").rename(tmp_path / "summary.json")  # the best of an unfinished run
    unfinished, = report.read_runs([out])
    (tmp_path / "summary.json").rename(out / "summary.json")
    values = [json.loads(line)["val_rmse"] for line in
              (out / "metrics.jsonl").read_text().splitlines()]
    assert unfinished.metric == "rmse" and unfinished.best == values.index(min(values))
    assert unfinished.metrics["val_rmse"].tolist() == values


@pytest.mark.parametrize("settings", [
    {"dtype": "bf16"}, {"model": "gat", "heads": 2}, {"model": "sgc"}, {"model": "appnp"},
    {"model": "gin", "norm": "layer"}, {"model": "sage"}, {"optimizer": "adamw", "clip_norm": 1.0},
    {"output_layer": True, "residual": True}], ids=str)
def test_models_learn(settings):
    result = hpgcn.train(GRAPH, Config(**{"epochs": 30, "lr": 0.02, "dropout": 0.0, **settings}))
    assert result["final_loss"] < 0.97 * result.history[0]["loss"]
