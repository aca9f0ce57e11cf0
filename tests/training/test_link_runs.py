"""Runs on links: the same curves on any ranks, traffic as planned, resuming, metrics, refusals."""
import csv
import os
import subprocess

import numpy as np
import pytest
from cuda_ranks import cuda, gpu
from graphs import make, with_links
from training import start

import hpgcn
from hpgcn.comm import SerialComm, as_comm, run_on_ranks
from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.interop.onnx import export_onnx
from hpgcn.model.link_metrics import link_metric
from hpgcn.model.links import link_loss
from hpgcn.planning.answers import dry_run
from hpgcn.strategies import STRATEGIES, keeps_rows
from hpgcn.training.setup.placement import assign_rows

__all__ = ["cuda", "gpu"]
GRAPH, DIRECTED = (with_links(make(n=90, directed=directed)) for directed in (False, True))
CONFIG = Config(task="links", epochs=3, hidden=8, output_width=6, lr=0.05, dropout=0.4, seed=3,
                dtype="float64")
KINDS = [{}, {"decoder": "hadamard:2", "negatives": "uniform:3", "strict_negatives": True},
         {"decoder": "distmult", "negatives": "shared:9", "model": "sage", "metric": "ap"}]
WHOLE = [name for name, kind in STRATEGIES.items() if keeps_rows(kind)]
TIMED = "_s", "_rss_bytes", "bytes", "messages"


def epochs_of(graph, config, comm=None, ranks=1):
    """Train and evaluate; return the last epoch, its prediction, and the parameters."""
    def train(comm):
        with start(graph, config, comm) as trainer:
            for epoch in range(1, config.epochs + 1):
                metrics = trainer.train_epoch(epoch)
                trainer.evaluate_epoch(metrics)
            info = trainer.run_info
            planned = info.predicted_bytes_per_epoch, info.predicted_messages_per_epoch
            return metrics, planned, trainer.comm.device.get(trainer.parameters.flat).copy()

    if ranks == 1:
        return train(comm or SerialComm())
    return run_on_ranks(lambda mpi: train(as_comm(mpi)), ranks)[0]


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("strategy", WHOLE)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("graph", [GRAPH, DIRECTED], ids=["undirected", "directed"])
def test_the_same_curve_on_any_ranks(graph, kind, strategy, ranks):
    config = CONFIG.replace(**kind)
    expected, _, weights = epochs_of(graph, config)
    if strategy == "1.5d" and ranks % 2:
        config = config.replace(strategy="1.5d:1")
    else:
        config = config.replace(strategy=strategy)
    found, planned, flat = epochs_of(graph, config, ranks=ranks)
    np.testing.assert_allclose(flat, weights, rtol=1e-9, atol=1e-12)
    names = [name for name in expected if not name.endswith(TIMED) and name != "train_acc"]
    assert {"loss", "val_loss", "val_auc", "test_ap"} <= {*names}
    np.testing.assert_allclose(*([each[name] for name in names] for each in (found, expected)),
                               rtol=1e-10)
    assert (found["sent_bytes"], found["sent_messages"]) == planned and planned[0] > 0


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("strategy", ["p2p", "1d", "vertex-cut", "mop"])
def test_plans_have_the_traffic_of_the_last_epoch(kind, strategy):
    config = CONFIG.replace(strategy=strategy, epochs=2, **kind)

    def both(mpi):
        comm = as_comm(mpi)
        with assign_rows(GRAPH, comm, config) as placed:
            report = dry_run.forecast(placed, config, comm)
        return report["predicted_bytes_per_epoch"], report["predicted_messages_per_epoch"]

    metrics, _, _ = epochs_of(GRAPH, config, ranks=3)
    assert run_on_ranks(both, 3)[0] == (metrics["sent_bytes"], metrics["sent_messages"])


@pytest.mark.parametrize("ranks", [1, 3])
def test_resumed_runs_have_the_same_bits(tmp_path, ranks):
    config = CONFIG.replace(out=str(tmp_path / "run"), decoder="hadamard", checkpoint_every=2,
                            strategy="p2p")
    hpgcn.train(GRAPH, config, ranks=ranks)
    found = hpgcn.train(GRAPH, config.replace(epochs=7), ranks=ranks, resume=config.out)
    whole = hpgcn.train(GRAPH, config.replace(epochs=7, out="", checkpoint_every=0), ranks=ranks)
    assert {"W2_decoder", "b4_decoder"} <= found.weights.keys()
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(found.weights[name], weights)
    for ours, theirs in zip(found.history, whole.history, strict=True):
        assert [each for key, each in ours.items() if not key.endswith(("_s", "_bytes"))] == [
            each for key, each in theirs.items() if not key.endswith(("_s", "_bytes"))]
    again = hpgcn.train(GRAPH, config.replace(epochs=7), ranks=ranks, resume=config.out)
    assert again["val_auc"] == found["val_auc"] == again["best_val_acc"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_losses_on_a_gpu(gpu, kind):
    comm = SerialComm()
    comm.use(gpu)
    (found, _, flat), (expected, _, weights) = (
        epochs_of(GRAPH, CONFIG.replace(**kind), each) for each in (comm, None))
    np.testing.assert_allclose(flat, weights, rtol=1e-9, atol=1e-12)
    for name in ("loss", "val_loss", "val_auc", "test_ap"):
        assert found[name] == pytest.approx(expected[name], rel=1e-10)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("metric", ["auc", "ap", "hits@3", "mrr"])
@pytest.mark.parametrize("kind", ["negative", "negative_targets"])
def test_metrics_of_given_negatives(kind, metric, ranks):
    rng = np.random.default_rng(1)
    count = len(GRAPH.links["val"]), len(GRAPH.links["test"])
    assert count[0] * 2 == pytest.approx(count[1], abs=2)
    graph = GRAPH
    for key in ("val", "test"):
        given = rng.integers(0, 90, (len(GRAPH.links[key]), 7) if kind == "negative_targets"
                             else (40, 2))
        sets = {**graph.links, key: hpgcn.graphs.links.LinkSet(graph.links[key].positive,
                                                               **{kind: given})}
        graph = Graph.from_scipy(GRAPH.adjacency, GRAPH.features, links=sets)
    result = hpgcn.train(graph, CONFIG.replace(metric=metric, strategy="p2p"), ranks=ranks)
    Z = hpgcn.predict(graph, result)["embedding"]
    for key in ("val", "test"):
        links = graph.links[key]
        source, target = links.positive.T
        positive = (Z[source] * Z[target]).sum(axis=1)
        if kind == "negative":
            negative = (Z[links.negative[:, 0]] * Z[links.negative[:, 1]]).sum(axis=1)
        else:
            negative = (Z[source][:, None] * Z[links.negative_targets]).sum(axis=2)
        if metric in ("auc", "ap"):
            negative = negative.ravel()
        expected = link_metric(metric)(SerialComm(), positive, negative)
        assert result[f"{key}_{metric}"] == pytest.approx(expected, rel=1e-10)


def test_the_best_epoch_and_patience_are_those_of_the_metric():
    config = CONFIG.replace(metric="hits@5", epochs=40, patience=3)
    result = hpgcn.train(GRAPH, config)
    values = [entry["val_hits@5"] for entry in result.history]
    assert result["metric"] == "hits@5" and result["best_val_acc"] == max(values)
    assert result["epochs"] == 40 or result["epochs"] == result["best_epoch"] + 3


@pytest.mark.parametrize("changes, message", [
    ({"metric": "accuracy"}, "not a metric of links"),
    ({"metric": "macro-f1"}, "not a metric of links"),
    ({"decoder": "dots"}, "expected one of dot"),
    ({"decoder": "dot:2"}, "decoder = 'dot:2': expected dot"), ({"metric": "hits@0"}, "hits@K"),
    ({"label_smoothing": 0.1}, "label_smoothing = 0.1: only for task='vertices'"),
    ({"strategy": "2d"}, "strategy = '2d': it divides the columns of rows"),
    ({"batch": "vertices:9"}, "batch = 'vertices:9': not supported")])
def test_refused_settings(changes, message):
    with pytest.raises(UsageError, match=message):
        hpgcn.train(GRAPH, Config(task="links", **changes))


@pytest.mark.parametrize("changes", [{"decoder": "distmult"}, {"metric": "auc"},
                                     {"output_width": 8}, {"strict_negatives": True}])
def test_settings_of_links_are_refused_for_vertices(changes):
    with pytest.raises(UsageError, match=f"{next(iter(changes))} = .*: only for task='links'"):
        hpgcn.train(make(), Config(**changes))


def test_graphs_without_links_are_refused():
    with pytest.raises(DataError, match="no links to train on"):
        hpgcn.train(make(), CONFIG)
    few = Graph.from_scipy(GRAPH.adjacency, GRAPH.features,
                           links={"train": GRAPH.links["train"]})
    with pytest.raises(UsageError, match="has no links of validation"):
        hpgcn.train(few, CONFIG.replace(patience=2))
    assert hpgcn.train(few, CONFIG)["best_val_acc"] is None


@pytest.fixture(scope="module", params=["dot", "hadamard:2"])
def run(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("links") / "run"
    graph = Graph.from_scipy(GRAPH.adjacency, GRAPH.features, links=GRAPH.links,
                             original_ids=[f"v{k}" for k in range(90)])
    path = out.parent / "g.h5"
    hpgcn.save(graph, path)
    hpgcn.train(path, CONFIG.replace(out=str(out), graph=str(path), decoder=request.param))
    return out, path


def test_scores_of_pairs(run, tmp_path, forked):
    out, path = run
    Z = hpgcn.predict(path, out)
    assert Z.keys() == {"id", "original_ids", "embedding"} and Z["embedding"].shape == (90, 6)
    pairs = [["v3", "v9"], ["v9", "v3"], ["v80", "v0"]]
    for ranks in (1, 3):
        found = hpgcn.predict(path, out, pairs=pairs, ranks=ranks)
        assert [*zip(found["source"], found["target"])] == [*map(tuple, pairs)]
        assert found["score"][0] == found["score"][1] != found["score"][2]
        if ranks == 1:
            first = found["score"]
    np.testing.assert_allclose(found["score"], first, rtol=1e-9)
    if "hadamard" not in (out / "config.toml").read_text().partition("decoder = ")[2][:12]:
        rows = Z["embedding"]
        np.testing.assert_allclose(first[0], rows[3] @ rows[9], rtol=1e-12)
    with pytest.raises(DataError, match=r"pairs\[1\]: .* has no vertex 'x'"):
        hpgcn.predict(path, out, pairs=[["v1", "v2"], ["v1", "x"]])

    # the same by the command
    (tmp_path / "pairs.csv").write_text("source,target\n" + "\n".join(map(",".join, pairs)))
    command = ["hpgcn", "predict", out, "--pairs", "pairs.csv", "-o", "s.csv"]
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "PATH": str(forked)})
    with (tmp_path / "s.csv").open() as file:
        head, *lines = csv.reader(file)
    assert head == ["source", "target", "score"] and [line[:2] for line in lines] == pairs
    np.testing.assert_allclose([float(line[2]) for line in lines], first, rtol=1e-8)


@pytest.mark.parametrize("block", [link_loss.BLOCK, 500])
def test_the_best_new_targets(run, block, monkeypatch):
    monkeypatch.setattr(link_loss, "BLOCK", block)
    out, path = run
    found = hpgcn.predict(path, out, top=4)
    ids = np.array([f"v{k}" for k in range(90)])
    every = [[a, b] for a in ids for b in ids]
    scores = hpgcn.predict(path, out, pairs=every)["score"].reshape(90, 90)
    known = GRAPH.adjacency.toarray() > 0
    for links in GRAPH.links.values():
        known[tuple(links.positive.T)] = known[tuple(links.positive.T[::-1])] = True
    scores[known | np.eye(90, dtype=bool)] = -np.inf
    for k in range(90):
        chosen = found["source"] == ids[k]
        best = np.sort(scores[k])[::-1][:4]
        np.testing.assert_allclose(found["score"][chosen], best, rtol=1e-9)
        targets = [int(each[1:]) for each in found["target"][chosen]]
        np.testing.assert_allclose(scores[k, targets], best, rtol=1e-9)


def test_targets_among_some_vertices(run, tmp_path, forked):
    out, path = run
    whole = hpgcn.predict(path, out, top=90)
    vertices, targets = ["v7", "v3"], [f"v{k}" for k in range(30, 50)]
    found = hpgcn.predict(path, out, top=3, vertices=vertices, top_targets=[*targets, "v31"])
    place = 0
    for vertex in vertices:
        chosen = (whole["source"] == vertex) & np.isin(whole["target"], targets)
        np.testing.assert_array_equal(found["target"][place:place + 3], whole["target"][chosen][:3])
        np.testing.assert_allclose(found["score"][place:place + 3], whole["score"][chosen][:3],
                                   rtol=1e-9)
        place += 3
    assert len(found["source"]) == place
    with pytest.raises(DataError, match=r"top_targets\[0\]: .* has no vertex 'x'"):
        hpgcn.predict(path, out, top=3, top_targets=["x"])

    # the same by the command
    (tmp_path / "some.txt").write_text("\n".join(vertices))
    (tmp_path / "targets.txt").write_text("\n".join(targets))
    command = ["hpgcn", "predict", out, "--top", "3", "--vertices", "some.txt", "--top-targets",
               "targets.txt", "-o", "s.csv"]
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "PATH": str(forked)})
    with (tmp_path / "s.csv").open() as file:
        assert [line[:2] for line in csv.reader(file)][1:] == [
            *map(list, zip(found["source"], found["target"]))]


def test_targets_of_two_kinds_have_a_warning(caplog):
    caplog.set_level("WARNING", "hpgcn")  # a command of another test may have set it
    pairs = np.array([[u, 3 + p] for u in range(3) for p in range(4) if (u + p) % 3])
    A = np.zeros((7, 7))
    A[tuple(pairs.T)] = A[tuple(pairs.T[::-1])] = 1
    for graph, warned in ((A, True), (A + np.eye(7, k=1) + np.eye(7, k=-1), False)):
        graph = Graph.from_scipy(np.minimum(graph, 1), np.eye(7), links={"train": pairs})
        result = hpgcn.train(graph, CONFIG)
        caplog.clear()
        hpgcn.predict(graph, result, top=1)
        assert ("top_targets names those" in caplog.text) == warned
        hpgcn.predict(graph, result, top=1, top_targets=[3, 4])
        assert caplog.text.count("two kinds") == warned


def test_names_of_classes_do_not_concern_links():
    labels = np.arange(90) % 2
    graph = Graph.from_scipy(GRAPH.adjacency, GRAPH.features, labels, links=GRAPH.links,
                             class_names=["no", "yes"])
    found = hpgcn.predict(graph, hpgcn.train(graph, CONFIG), top=2)
    assert found.keys() == {"source", "target", "score"}


def test_refused_predictions(run):
    out, path = run
    for options, message in (({"pairs": [["v1", "v2"]], "top": 2}, "give one of them"),
                             ({"top": -1}, "expected a number from 1"),
                             ({"top_targets": ["v1"]}, "top_targets: only with top"),
                             ({"pairs": [["v1", "v2"]], "vertices": ["v1"]}, "excludes pairs"),
                             ({"probabilities": True}, "predicts links, which have none")):
        with pytest.raises(UsageError, match=message):
            hpgcn.predict(path, out, **options)
    graph = make()
    with pytest.raises(UsageError, match="top: only for a model of task='links'"):
        hpgcn.predict(graph, hpgcn.train(graph, Config(epochs=1)), top=3)


def test_decoders_are_not_exported_to_onnx(run):
    pytest.importorskip("onnx")
    with pytest.raises(UsageError, match="the model has a decoder of links"):
        export_onnx(run[0])
