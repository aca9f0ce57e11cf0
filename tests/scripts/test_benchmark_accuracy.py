"""The benchmark of time to accuracy: counts, missed targets, and the comparison with PyG."""
import importlib.util
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from commands import refused, succeed

from benchmarks import accuracy, run
from hpgcn import store
from hpgcn.config import Config
from hpgcn.datasets.generators.generate import generate
from hpgcn.errors import UsageError

ROW = {"library", "batch", "steps", "epochs_run", "epoch_s", "setup_s", "reached",
       "to_target_epochs", "to_target_steps", "to_target_s", "faster_ratio", "val_acc", "test_acc",
       "peak_rss_bytes"}
QUICK = ("--threads", 1, "--hidden", 8, "--json")
PEERS = pytest.mark.skipif(importlib.util.find_spec("torch_geometric") is None,
                           reason="needs PyTorch and PyG")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "sbm.h5"
    store.write_graph(path, generate("sbm", scale=9, edge_factor=4, features=6, classes=3))
    return path


@pytest.fixture
def in_process(monkeypatch):
    """Run each measurement in this process, which is faster than a new one."""
    monkeypatch.setattr(accuracy, "alone", lambda label, hint, call, *args: call(*args))


def measured(*args):
    text = succeed("accuracy", *args, *QUICK, program=run.main)
    report = json.loads(text, parse_constant=pytest.fail)
    assert report["bench"] == "accuracy" and all(set(row) == ROW for row in report["rows"])
    return report


def run_of(epochs, library="hpgcn", steps=2):
    """Return a run with the given epochs (seconds, validation accuracy, test accuracy)."""
    names = ("epoch_s", "val_acc", "test_acc")
    return {"library": library, "batch": "full", "seed": 0, "steps": steps, "setup_s": 1.0,
            "peak_rss_bytes": 7, "history": [dict(zip(names, epoch)) for epoch in epochs]}


def test_seconds_are_those_up_to_the_first_evaluation_at_the_target():
    run = run_of([(4, 0.2, 0.1), (1, None, None), (1, 0.6, 0.7), (1, 0.5, 0.9), (1, 0.8, 0.3)])
    row = accuracy.row_of([run], 0.6)
    assert set(row) == ROW and row["reached"] == "1 of 1"
    assert [row[f"to_target_{name}"] for name in ("epochs", "steps", "s")] == [3, 6, 6]
    assert (row["epochs_run"], row["epoch_s"]) == (5, 1)
    assert (row["val_acc"], row["test_acc"]) == (0.8, 0.3)  # accuracies of the best epoch
    curve = accuracy.curve_of(run)
    assert curve["seconds"] == [4, 6, 7, 8] and curve["test_acc"] == [0.1, 0.7, 0.9, 0.3]


def test_medians_of_seeds_count_those_that_never_get_there():
    runs = [run_of([(seconds, value, value)]) for seconds, value in ((1, 0.9), (5, 0.9), (2, 0.1))]
    row = accuracy.row_of(runs, 0.5)
    assert (row["reached"], row["to_target_s"], row["val_acc"]) == ("2 of 3", 5, 0.9)
    row = accuracy.row_of(runs[1:], 0.5)
    assert (row["reached"], row["to_target_s"]) == ("1 of 2", None)


@pytest.mark.long
@pytest.mark.usefixtures("in_process")
def test_report_and_files(graph, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "folder"
    args = (graph, "--batch", "vertices:200", "--epochs", 4, "--seeds", "0,3", "--out", out)
    report = measured(*args)
    assert report == json.loads((out / "accuracy.json").read_text())
    assert (out / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert [(row["batch"], row["steps"]) for row in report["rows"]] == [
        ("full", 1), ("vertices:200", 3)]
    assert [(curve["batch"], curve["seed"]) for curve in report["curves"]] == [
        (batch, seed) for batch in ("full", "vertices:200") for seed in (0, 3)]
    best = np.mean([max(curve["val_acc"]) for curve in report["curves"][:2]])
    assert report["target_acc"] == pytest.approx(best - 0.005)
    assert report["graph"]["vertices"] == 512 and not report["absent"]
    assert "exists already" in refused(73, "accuracy", *args, *QUICK, program=run.main)


@pytest.mark.long
@pytest.mark.usefixtures("in_process")
def test_a_target_that_is_never_reached_is_said_plainly(graph):
    report = measured(graph, "--batch", "vertices:200", "--epochs", 2, "--target", 1)
    row, = report["rows"]  # --target replaces the run with a full batch
    assert row["reached"] == "0 of 1" and row["to_target_s"] is None is row["faster_ratio"]
    text = run.format_report(report)
    words = " ".join(text.split())
    assert "target 100.00%, given by --target" in words
    best = f"{100 * row['val_acc']:.2f}%"
    assert words.endswith(f"target never reached hpgcn vertices:200 (best {best})")


@pytest.mark.long
def test_seconds_end_a_run(graph):
    """A run ends after --seconds; its own process reports the peak memory."""
    row, = measured(graph, "--epochs", 500, "--seconds", 1e-6)["rows"]
    assert row["epochs_run"] == 1 and row["reached"] == "1 of 1"
    assert row["peak_rss_bytes"] > 10 << 20


def test_steps_of_an_epoch(graph, tmp_path):
    parted = tmp_path / "parts.h5"
    succeed("partition", graph, "-k", 7, "--method", "random", "-o", parted, "-q")
    for path, batch, steps in ((graph, "full", 1), (graph, "vertices:100", 6),
                               (graph, "parts:3:10", 4), (graph, f"parts:3:{parted}", 3),
                               (parted, "parts:4", 2)):
        source = store.load(path)
        assert accuracy.steps_of(batch, source, source.read()) == steps


@PEERS
@pytest.mark.long
def test_pyg_trains_beside(graph):
    report = measured(graph, "--epochs", 12, "--lr", 0.05, "--peers")
    ours, pyg = report["rows"]
    assert (pyg["library"], pyg["batch"], pyg["steps"], pyg["epochs_run"]) == ("pyg", "full", 1, 12)
    assert pyg["val_acc"] > 0.6 and pyg["peak_rss_bytes"] >= ours["peak_rss_bytes"] > 10 << 20
    assert not report["absent"] and len(report["curves"][1]["seconds"]) == 12


@pytest.mark.long
@PEERS
def test_batches_of_pyg(graph, monkeypatch):
    pytest.importorskip("pymetis")
    from benchmarks import accuracy_peer

    monkeypatch.setattr(accuracy, "call_peer", lambda _, folder: accuracy_peer.main(folder))
    batches = ("parts:2:6", "neighbours:3,2:50", "vertices:99", "parts:2")
    config = Config(epochs=12, lr=0.05, hidden=8, threads=1, patience=0)
    absent = {}
    source = store.load(graph)
    whole = source.read()
    todo = [(batch, 1) for batch in batches]
    runs = accuracy.run_peers(source, whole, config, todo, 0, "", absent)
    assert [run["batch"] for run in runs] == [*batches[:2]]
    train = int(whole.masks["train"].sum())
    assert [run["steps"] for run in runs] == [3, -(-train // 50)]
    assert [run["steps"] for run in runs] == [accuracy.steps_of(batch, source, whole)
                                              for batch in batches[:2]]
    assert all(max(line["val_acc"] for line in run["history"]) > 0.6 for run in runs)
    assert "no equivalent loader" in absent["pyg vertices:99"]
    assert "the graph is not partitioned" in absent["pyg parts:2"]


@pytest.mark.long
@PEERS
@pytest.mark.parametrize("fan_out", [2, 5, -1])
def test_draws_of_the_peer_are_uniform_and_distinct(fan_out, tmp_path):
    import torch

    from benchmarks import accuracy_peer

    graph = generate("rmat", scale=6, edge_factor=3, features=2, classes=2)
    accuracy.hand_over(graph, tmp_path)
    peer = accuracy_peer.Graph(tmp_path)
    dense = graph.adjacency.toarray()
    torch.manual_seed(0)
    rows = torch.arange(64).repeat(1000)
    owner, column = accuracy_peer.drawn(peer, rows, fan_out)
    pairs = torch.stack([owner, column], 1)
    assert len(pairs.unique(dim=0)) == len(pairs)
    counts = np.zeros((64, 64))
    np.add.at(counts, (rows[owner].numpy(), column.numpy()), 1 / 1000)
    degree = dense.sum(1)
    share = np.minimum(1, (64 if fan_out < 0 else fan_out) / np.maximum(degree, 1))
    assert np.abs(counts - share[:, None] * dense).max() < 0.1


class TheirLoader:
    """A fake NeighborLoader of PyG that samples all neighbors of two hops; counts by
    hop if `told`.
    """

    told = True

    def __init__(self, data, fan_outs, seeds, batch_size, shuffle):
        assert shuffle and fan_outs == [-1, -1]
        self.batches = seeds.split(batch_size)
        self.edges = data.edge_index

    def __iter__(self):
        import torch

        for seeds in self.batches:
            nodes, edges, known = [seeds], [], seeds
            for _ in range(2):
                source, target = self.edges[:, torch.isin(self.edges[1], nodes[-1])]
                new = source[~torch.isin(source, known)].unique()
                nodes.append(new)
                known = torch.cat([known, new])
                place = torch.full((int(self.edges.max()) + 1,), -1)
                place[known] = torch.arange(known.numel())
                edges.append(torch.stack([place[source], place[target]]))
            counts = [hop.numel() for hop in nodes], [hop.shape[1] for hop in edges]
            yield SimpleNamespace(
                n_id=known, edge_index=torch.cat(edges, 1), num_nodes=known.numel(),
                batch_size=seeds.numel(), num_sampled_nodes=counts[0] if self.told else None,
                num_sampled_edges=counts[1] if self.told else None)


@pytest.mark.long
@PEERS
@pytest.mark.parametrize("sampler", ["own", "hops", "no hops"])
def test_all_neighbours_of_the_peer_are_the_whole_matrix(tmp_path, monkeypatch, sampler):
    import torch

    from benchmarks import accuracy_peer

    graph = generate("sbm", scale=7, edge_factor=3, features=4, classes=2)
    accuracy.hand_over(graph, tmp_path)
    peer = accuracy_peer.Graph(tmp_path)
    settings = {"batch": {"name": "neighbours"}, "hidden": [5], "dropouts": [0.0, 0.0], "lr": 0.01,
                "weight_decay": 0.0, "decay_layers": "first"}
    model = accuracy_peer.Model(peer, settings)
    expected = model(peer.x, [((model.whole,), peer.n)] * 2)
    monkeypatch.setattr("torch_geometric.loader.NeighborLoader", TheirLoader)
    monkeypatch.setattr(TheirLoader, "told", sampler == "hops")
    kind = accuracy_peer.Fans if sampler == "own" else accuracy_peer.Loader
    seen = 0
    for batch in kind(peer, 2, 40, [-1, -1]):
        x, hops, chosen, y = batch.given
        places = [int((peer.x == row).all(1).nonzero()[0, 0]) for row in x[chosen]]
        assert torch.allclose(model(x, hops)[chosen], expected[places], atol=1e-5)
        assert torch.equal(peer.y[places], y)
        seen += len(places)
    assert seen == int(peer.train.sum())


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("python, reason", [
    ("/nowhere/python", "No such file"), (None, "No module named 'torch'")])
def test_a_missing_peer_is_named_not_needed(graph, tmp_path, python, reason):
    if python is None:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\nexec {sys.executable} -S -E \"$@\"\n")
        python.chmod(0o755)
        reason = "No module named"
    report = measured(graph, "--epochs", 1, "--peers", "--peer-python", python)
    assert [row["library"] for row in report["rows"]] == ["hpgcn"]
    assert reason in report["absent"]["pyg full"]
    assert f"without pyg full:  {report['absent']['pyg full']}" in run.format_report(report)


@pytest.mark.usefixtures("in_process")
def test_what_the_peer_does_not_know(graph):
    report = measured(graph, "--epochs", 1, "--optimizer", "adamw", "--peers")
    assert "optimizer = 'adamw'" in report["absent"]["pyg"]


@pytest.mark.parametrize("options, message", [
    ({"batches": ["vertices:5", "vertices:5"]}, "'vertices:5' is given twice"),
    ({"batches": ["vertices"]}, "batch = 'vertices': expected full"),
    ({"batches": ["full"], "target": 1.5}, "target is 1.5"), ({"margin": -1.0}, "margin is -1"),
    ({"seconds": float("nan")}, "seconds is nan"), ({"target": 0.5}, "expected at least one")])
def test_usage(graph, options, message):
    with pytest.raises(UsageError, match=message):
        accuracy.measure(str(graph), Config(), **options)


def test_flags_that_need_each_other(graph):
    assert "needs --peers" in refused(2, "accuracy", graph, "--peer-python", "x",
                                          program=run.main)
