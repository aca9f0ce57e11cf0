"""`hpgcn.sweep` and `hpgcn train --sweep`: every combination, resumed runs, and the table."""
import json
import os
import signal

import numpy as np
import pytest
from commands import ended, refused, succeed
from commands import hpgcn as started
from graphs import make

import hpgcn
from hpgcn.errors import ConfigError, DivergedError, UsageError
from hpgcn.runtime.temporary import temporary_file
from hpgcn.training.setup import run_partition
from hpgcn.training.sweep_table import Sweep

VALUES = {"lr": [0.01, 0.1], "hidden": [4, 8]}
FLAGS = ("--sweep", "lr=.01,.1", "--sweep", "hidden=4,8", "--epochs", 3)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "g.h5"
    hpgcn.save(make(n=60), path)
    return path


def test_rows_are_those_of_single_runs(path):
    config = hpgcn.Config(epochs=3)
    found = hpgcn.sweep(path, config, VALUES, seeds=range(2))
    assert [(row["lr"], row["hidden"], row["seed"]) for row in found] == [
        (lr, hidden, seed) for lr in VALUES["lr"] for hidden in VALUES["hidden"] for seed in (0, 1)]
    for row, result in zip(found, found.results):
        alone = hpgcn.train(path, config.replace(
            **{name: row[name] for name in ("lr", "hidden", "seed")}))
        assert row["final_loss"] == alone["final_loss"] and row["test_acc"] == alone["test_acc"]
        np.testing.assert_array_equal(result.weights["W0"], alone.weights["W0"])

    # the means of the table, and the best of them
    means = []
    for first, each in zip(range(0, 8, 2), found.combinations):
        scores = [found[number]["best_val_acc"] for number in (first, first + 1)]
        assert each["best_val_acc"]["mean"] == pytest.approx(np.mean(scores))
        assert each["best_val_acc"]["std"] == pytest.approx(np.std(scores, ddof=1))
        means.append(each["best_val_acc"]["mean"])
    best = found.combinations[int(np.argmax(means))]
    assert found.best == best and found.best_config == config.replace(
        lr=best["lr"], hidden=best["hidden"], seed=0)
    pandas = pytest.importorskip("pandas")
    assert pandas.DataFrame(found).groupby(["lr", "hidden"])["test_acc"].mean().shape == (4,)


@pytest.mark.parametrize("in_memory", [False, True])
def test_ranks_change_nothing_but_rounding(path, in_memory):
    source = hpgcn.load(path).read() if in_memory else path
    config = hpgcn.Config(epochs=3, dtype="float64")
    one = hpgcn.sweep(source, config, VALUES)
    two = hpgcn.sweep(source, config, VALUES, ranks=2)
    both = hpgcn.run_on_ranks(lambda comm: hpgcn.sweep(source, config, VALUES, comm), 2)
    assert [*both[0]] == [*both[1]]
    for each in (two, both[0]):
        np.testing.assert_allclose([row["final_loss"] for row in each],
                                   [row["final_loss"] for row in one], rtol=1e-12)
        assert each.best["lr"] == one.best["lr"]


def test_a_graph_in_memory_is_partitioned_once(monkeypatch):
    calls = []
    make_partition = hpgcn.partition.make_partition
    monkeypatch.setattr("hpgcn.partition.make_partition",
                        lambda *given, **named: calls.append(1) or make_partition(*given, **named))
    hpgcn.sweep(make(n=60), hpgcn.Config(epochs=1, strategy="p2p"), {"lr": [0.1, 0.2]}, ranks=2)
    assert len(calls) == 1


def test_a_partition_in_a_run_directory_is_used_by_other_runs(path, tmp_path, monkeypatch):
    """If the folder of the graph cannot be written, the first run stores the partition."""
    writable = run_partition._writable
    monkeypatch.setattr(run_partition, "_writable", lambda folders: writable(folders[1:]))
    graph = tmp_path / "g.h5"
    graph.write_bytes(path.read_bytes())
    hpgcn.sweep(graph, hpgcn.Config(epochs=1, strategy="p2p", out=str(tmp_path / "runs")),
                {"lr": [0.1, 0.2]}, ranks=2)
    assert [*tmp_path.glob("runs/*/partitions")] == [tmp_path / "runs" / "lr-0.1" / "partitions"]


def test_finished_runs_are_not_repeated(path, tmp_path, caplog):
    out = tmp_path / "runs"
    first = succeed("train", path, "--out", out, *FLAGS, "-q")
    before = {each: each.read_bytes() for each in out.glob("*/metrics.jsonl")}
    assert len(before) == 4
    (out / "lr-0.1,hidden-8" / "summary.json").unlink()  # as if it was interrupted
    caplog.clear()
    assert succeed("train", path, "--out", out, *FLAGS) == first
    assert caplog.text.count("nothing to do") == 3
    found = hpgcn.sweep(path, hpgcn.Config(epochs=3, out=str(out)), {"lr": [.01, .1, .2],
                                                                    "hidden": [4, 8]})
    assert len(found) == 6 and len([*out.iterdir()]) == 6
    assert all(each.read_bytes() == text for each, text in before.items()
               if each.parent.name != "lr-0.1,hidden-8")
    assert found.results[0].weights.keys() == found.results[5].weights.keys()


def test_other_settings_and_other_data_are_refused(path, tmp_path):
    config = hpgcn.Config(epochs=1, out=str(tmp_path / "runs"))
    hpgcn.sweep(path, config, {"lr": [0.1]})
    with pytest.raises(ConfigError, match=r"lr-0\.1: layers is 3, but the run was started with 2"):
        hpgcn.sweep(path, config.replace(layers=3), {"lr": [0.1, 0.2]})
    hpgcn.save(make(n=60, seed=5), tmp_path / "other.h5")
    with pytest.raises(ConfigError, match="trained on another graph than"):
        hpgcn.sweep(tmp_path / "other.h5", config, {"lr": [0.1]})
    assert not (tmp_path / "runs" / "lr-0.2").exists()
    (tmp_path / "runs" / "lr-0.3").mkdir()
    (tmp_path / "runs" / "lr-0.3" / "mine.txt").write_text("mine")
    assert "lr-0.3: run directory exists" in refused(
        73, "train", path, "--out", tmp_path / "runs", "--epochs", 1, "--sweep", "lr=.3,.4")
    found = hpgcn.sweep(path, config.replace(layers=3), {"lr": [0.1]}, overwrite=True)
    assert "W2" in found.results[0].weights


@pytest.mark.long
def test_every_run_counts_its_own_bytes(path, tmp_path):
    """Runs that share a communicator have the bytes of a single run."""
    flags = ("--epochs", 3, "--strategy", "p2p", "-q")
    assert started("train", path, "--out", tmp_path / "runs", *flags, "--seeds", "0..1",
                   ranks=2).returncode == 0
    assert started("train", path, "--out", tmp_path / "alone", *flags, "--seed", 1,
                   ranks=2).returncode == 0
    found, alone = tmp_path / "runs" / "seed-1", tmp_path / "alone"
    for name in ("traffic.npy", "sums.npy"):
        np.testing.assert_array_equal(np.load(found / name), np.load(alone / name))
    now, wanted = (json.loads((run / "summary.json").read_text()) for run in (found, alone))
    assert now["setup_bytes"] == wanted["setup_bytes"] > 0
    assert now["sent_bytes_per_epoch"] == wanted["sent_bytes_per_epoch"] > 0


@pytest.mark.long
@pytest.mark.parametrize("ranks", [None, 2])
def test_a_killed_sweep_goes_on(path, tmp_path, ranks):
    """The run that was killed continues after its checkpoint, to the same bits."""
    flags = ("--sweep", "lr=.01,.1", "--seeds", "0..1", "--epochs", 6, "--checkpoint-every", 2,
             "--json")
    wanted = json.loads(started("train", path, "--out", tmp_path / "whole", *flags,
                                ranks=ranks).stdout)
    killed = started("train", path, "--out", tmp_path / "runs", *flags, ranks=ranks,
                     HPGCN_FAULT="kill:0:5:update")
    assert killed.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL, signal.SIGKILL)
    assert not (tmp_path / "runs" / "lr-0.01" / "seed-0" / "summary.json").exists()
    goes_on = started("train", path, "--out", tmp_path / "runs", *flags, ranks=ranks)
    assert "seed-0: continuing after epoch 4" in goes_on.stderr
    found = json.loads(goes_on.stdout)
    for was, now in zip(wanted["runs"], found["runs"], strict=True):
        for name in ("lr", "seed", "final_loss", "test_acc", "sent_bytes_per_epoch"):
            assert was[name] == now[name]
    assert found["combinations"] == wanted["combinations"] and found["best"] == wanted["best"]


def test_an_interrupt_leaves_finished_runs(path, tmp_path):
    """Ctrl-C in the second run ends the sweep; the same call trains the missing runs."""
    config = hpgcn.Config(epochs=5, out=str(tmp_path / "runs"))

    def train(source, config, **options):
        def interrupt(metrics):
            if config.lr == 0.1 and metrics["epoch"] == 2:
                os.kill(os.getpid(), signal.SIGINT)

        return hpgcn.train(source, config, callbacks=[interrupt], **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpgcn.training.sweep.train", train)
        with pytest.raises(KeyboardInterrupt, match="interrupted after epoch 3"):
            hpgcn.sweep(path, config, {"lr": [0.01, 0.1, 0.2]})
    before = (tmp_path / "runs" / "lr-0.01" / "metrics.jsonl").read_bytes()
    found = hpgcn.sweep(path, config, {"lr": [0.01, 0.1, 0.2]})
    assert [row["epochs"] for row in found] == [5, 5, 5]
    assert (tmp_path / "runs" / "lr-0.01" / "metrics.jsonl").read_bytes() == before


def test_a_run_that_diverges_is_not_the_best(path):
    with np.errstate(all="ignore"):
        found = hpgcn.sweep(path, hpgcn.Config(epochs=5), {"lr": [1e30, 0.01]})
        assert "lr" in found[0]["error"] and found.results[0] is None
        assert found.combinations[0]["test_acc"] == {"mean": None, "std": None}
        assert found.best["lr"] == 0.01 and "none" in repr(found)
        assert hpgcn.sweep(path, hpgcn.Config(epochs=5), {"lr": [1e30, 0.01]},
                           ranks=2).best["lr"] == 0.01
        with pytest.raises(DivergedError):
            hpgcn.sweep(path, hpgcn.Config(epochs=5), {"lr": [1e30]})


def test_values_of_numpy(path, tmp_path):
    """A float64 of NumPy is written to config.toml as a number."""
    config = hpgcn.Config(epochs=1, out=str(tmp_path))
    for _ in range(2):
        found = hpgcn.sweep(path, config, {"lr": np.logspace(-2, -1, 2), "hidden": np.array([4])})
    assert [type(row["lr"]) for row in found] == [float, float]
    assert (tmp_path / "lr-0.1,hidden-4" / "config.toml").exists()


def test_splits(tmp_path):
    several = make(n=60)
    masks = {key: np.stack([mask, mask[::-1]], axis=1) for key, mask in several.masks.items()}
    graph = hpgcn.Graph.from_scipy(several.adjacency, several.features,
                                   np.zeros(60, int) + np.arange(60) % 3, masks)
    found = hpgcn.sweep(graph, hpgcn.Config(epochs=1, out=str(tmp_path)), {"lr": [0.1]},
                        splits="all", seeds=[4])
    assert [row["split_index"] for row in found] == [0, 1]
    assert (tmp_path / "lr-0.1" / "split-1" / "seed-4" / "summary.json").exists()
    assert len(hpgcn.sweep(graph, hpgcn.Config(epochs=1), splits=[1])) == 1
    with pytest.raises(ConfigError, match="has 2 splits"):
        hpgcn.sweep(graph, hpgcn.Config(epochs=1), splits=[2])


def test_what_a_killed_process_left_does_not_count(path, tmp_path):
    out = tmp_path / "runs" / "lr-0.1"
    out.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:  # the file stays
        patch.setattr("os.unlink", lambda *given, **named: None)
        with temporary_file(out) as left:
            left.write_text("half")
    assert [*out.iterdir()]
    hpgcn.sweep(path, hpgcn.Config(epochs=1, out=str(tmp_path / "runs")), {"lr": [0.1]})


@pytest.mark.parametrize("metric, best", [("rmse", 0.2), ("r2", 0.1)])
def test_smaller_is_better_of_some_metrics(metric, best):
    rows = [{"lr": lr, "metric": metric, "best_val_acc": value, "test_acc": value}
            for lr, value in ((0.1, 0.5), (0.2, 0.3), (0.3, 0.4))]
    assert Sweep(["lr"], rows).best["lr"] == best


@pytest.mark.parametrize("flag, message", [
    ("hiden=8", "--sweep hiden=8: setting 'hiden' is unknown; did you mean hidden?"),
    ("lr", "expected NAME=VALUE,VALUE"), ("lr=.1,.1", "each once"), ("lr=", "list of values"),
    ("seed=0,1", "seed has a list of its own: use --seeds"),
    ("threads=1,2", "threads is equal in all runs: use --threads"),
    ("residual=on", "--sweep residual=on: expected true or false")])
def test_refused_flags(path, flag, message):
    assert message in refused(2, "train", path, "--sweep", flag)


@pytest.mark.parametrize("name, good, bad", [
    ("hidden", "8", "0"), ("hidden", "8", "x"), ("optimizer", "sgd", "adm"), ("model", "gcn", "gc"),
    ("dropout", ".5", "1"), ("schedule", "cosine", "cosin"), ("strategy", "p2p", "p3p")])
def test_values_are_refused_as_those_of_their_flag(path, tmp_path, name, good, bad):
    """The line is that of the flag itself, and nothing is trained."""
    line = refused(2, "train", path, f"--{name}", bad)
    out = tmp_path / "runs"
    assert refused(2, "train", path, "--sweep", f"{name}={good},{bad}", "--out", out) == line
    assert not out.exists()


@pytest.mark.parametrize("flags", [
    ("--model", "gat", "--heads", 8, "--sweep", "hidden=16,63"),
    ("--sweep", "strategy=p2p,2d:3x1", "--ranks", 2),
    ("--sweep", "metric=accuracy,roc-auc")], ids=str)
def test_combinations_are_checked_on_the_graph_first(path, tmp_path, flags):
    done = ended("train", path, *flags, "--out", tmp_path / "runs")
    assert done.returncode in (2, 78) and not (tmp_path / "runs").exists(), done.stderr


def test_what_excludes_it(path):
    for flag in (["--lr", ".1"], ["--dry-run"]):
        assert f"--sweep and {flag[0]} exclude each other" in refused(
            2, "train", path, "--sweep", "lr=.1,.2", *flag)


def test_words_with_commas_and_switches(path, tmp_path):
    said = json.loads(succeed("train", path, "--out", tmp_path / "a", "--epochs", 1, "-q", "--json",
                              "--sweep", 'batch="neighbors:3,2:20",full', "--sweep",
                              "residual=true,false"))
    assert [(row["batch"], row["residual"]) for row in said["runs"]] == [
        ("neighbors:3,2:20", True), ("neighbors:3,2:20", False), ("full", True), ("full", False)]
    names = {each.name for each in (tmp_path / "a").iterdir()}
    assert "batch-neighbors:3%2C2:20,residual-True" in names


def test_the_command_of_the_best_trains_it_again(path, tmp_path):
    lines = succeed("train", path, "--out", tmp_path / "runs", "--sweep", "residual=true,false",
                    "--sweep", "norm=layer,none", "--epochs", 2, "--no-shortcuts", "--seeds",
                    "1..2", "-q").splitlines()
    words = lines[-1].split()
    assert words[:2] == ["hpgcn", "train"] and {"--no-shortcuts", "--norm"} <= {*words}
    best = next(line.split() for line in lines if line.endswith("  best"))
    alone = succeed(*words[1:], "--out", tmp_path / "again", "-q").splitlines()
    mean, std = (line.split()[1:] for line in alone[-2:])
    assert best[3:] == [mean[1], "±", std[1], mean[0], "±", std[0], "best"]


@pytest.mark.parametrize("values, options, message", [
    ({"hiden": [1]}, {}, "'hiden' is unknown; did you mean hidden?"),
    ({"hidden": "8"}, {}, "expected a list of values"), ({"hidden": [0]}, {}, "hidden = 0"),
    ({"seed": [0]}, {}, "use seeds="), ({}, {"seeds": [1, 1]}, "seeds: expected"),
    ({"out": ["a"]}, {}, "out is equal in all runs")])
def test_refused_in_python(path, values, options, message):
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        hpgcn.sweep(path, hpgcn.Config(epochs=1), values, **options)
