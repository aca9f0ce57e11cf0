"""The commands in sequence, from raw data to predictions, and the exit codes of refusals."""
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import hpgcn, refused, run, succeed

from hpgcn import load, predict, store


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Write digits.h5 and its partition into three, digits.p3.h5; return the folder."""
    pytest.importorskip("sklearn", reason="digits need scikit-learn: pip install '.[demo]'")
    pytest.importorskip("mtkahypar", reason="needs pip install '.[partition]'")
    folder = tmp_path_factory.mktemp("digits")
    printed = succeed("convert", "digits", folder / "digits.h5")
    assert "1797 vertices, 24678 edges, undirected" in printed
    statistics = json.loads(succeed("partition", folder / "digits.h5", "-k", 3, "--json"))
    assert statistics["k"] == 3
    assert 100 < statistics["volume"] < 600  # a random partition has about 3,000
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def graphs(digits, here):
    for path in digits.iterdir():
        shutil.copy(path, path.name)


def summary_of(run):
    return json.loads(Path(run, "summary.json").read_text())


def losses_of(run):
    lines = Path(run, "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.long
@pytest.mark.usefixtures("forks")
def test_one_rank_and_three_find_the_same(graphs):
    settings = ("--hidden", 32, "--epochs", 40, "--dtype", "float64")
    succeed("train", "digits.h5", *settings, "--out", "one")
    printed = succeed("train", "digits.p3.h5", *settings, "--out", "three", ranks=3)
    one, three = map(summary_of, ("one", "three"))
    np.testing.assert_allclose(losses_of("three"), losses_of("one"), rtol=1e-9)
    assert (one["best_epoch"], one["test_acc"]) == (three["best_epoch"], three["test_acc"])
    assert one["test_acc"] > 0.95 and three["ranks"] == 3
    for kind in ("bytes", "messages"):
        assert three[f"sent_{kind}_per_epoch"] == three[f"predicted_{kind}_per_epoch"] > 0
    assert f"{three['sent_bytes_per_epoch']:,} sent" in printed

    succeed("predict", "one")
    succeed("predict", "three", "digits.p3.h5", ranks=3)
    assert "exists" in refused(73, "predict", "one")
    arrays, again = (store.read_predictions(f"{name}/predictions.h5")[0]
                     for name in ("one", "three"))
    np.testing.assert_allclose(arrays["logits"], again["logits"], atol=1e-8)
    graph = store.load("digits.h5")
    right = (arrays["label"] == graph.labels)[graph.masks["test"]]
    assert right.mean() == pytest.approx(one["test_acc"])
    assert arrays["embedding"].shape == (1797, 32)


@pytest.mark.long
@pytest.mark.usefixtures("forks")
def test_an_unpartitioned_graph_is_partitioned_once(graphs):
    partitions = []
    for out, words in (("a", "partitioning"), ("b", "using the partition in")):
        done = hpgcn("train", "digits.h5", "--epochs", 3, "--out", out, ranks=2)
        assert not done.returncode and words in done.stderr, done.stderr
        partitions.append(Path("digits.p2.h5").read_bytes())
    assert partitions[0] == partitions[1] and losses_of("a") == losses_of("b")


@pytest.mark.long
@pytest.mark.usefixtures("forks")
def test_a_partition_of_the_users_own_is_left_alone(graphs):
    succeed("partition", "digits.h5", "-k", 2, "--method", "random")
    mine = Path("digits.p2.h5").read_bytes()
    succeed("train", "digits.h5", "--epochs", 2, "--effort", "fast", "--out", "a", ranks=2)
    assert Path("digits.p2.h5").read_bytes() == mine
    assert Path("digits.p2-cover-0.h5").exists()


@pytest.mark.long
def test_parts_from_a_file(graphs):
    parts = np.arange(1797) % 2
    np.save("parts.npy", parts)
    Path("parts.txt").write_text("\n".join(map(str, parts)) + "\n")
    Path("short.txt").write_text("0\n1\n")
    arguments = ("partition", "digits.h5", "-k", 2, "--parts")
    for name in ("parts.npy", "parts.txt"):
        succeed(*arguments, name, "-o", f"{name}.h5")
        np.testing.assert_array_equal(store.load(f"{name}.h5").partition.part, parts)
    assert "short.txt" in refused(65, *arguments, "short.txt", "-o", "x.h5")


def test_settings_from_a_file_and_flags_over_them(graphs):
    Path("run.toml").write_text("hidden = 8\nepochs = 2\n")
    succeed("train", "digits.h5", "--config", "run.toml", "--epochs", 3, "--out", "a")
    assert summary_of("a")["epochs"] == 3
    assert store.read_model("a/model.h5")[0]["W0"].shape == (64, 8)
    # the run's config.toml repeats the run
    succeed("train", "digits.h5", "--config", "a/config.toml", "--out", "b")
    assert losses_of("a") == losses_of("b")
    Path("run.toml").write_text("hiden = 8\n")
    assert "did you mean hidden?" in refused(2, "train", "digits.h5", "--config", "run.toml")


def test_the_default_run_directory_is_new_each_time(graphs):
    for number in (1, 2):
        printed = json.loads(succeed("train", "digits.h5", "--epochs", 1, "--json"))
        assert printed["out"] == f"run-digits-{number}"
        assert summary_of(printed["out"]) == printed
    line = refused(73, "train", "digits.h5", "--out", "run-digits-1")
    assert "run-digits-1: run directory exists" in line


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_ranks_against_parts(request, graphs, ranks):
    options = {"ranks": ranks} if ranks > 1 else {}
    if options:
        request.getfixturevalue("forks")
    line = refused(78, "train", "digits.p3.h5", "--out", "a", **options)
    assert f"partition has 3 parts but {ranks} rank{'s' * (ranks > 1)} started" in line
    assert not Path("a", "summary.json").exists()


@pytest.mark.long
@pytest.mark.usefixtures("forks")
def test_multi_label_predictions(here):
    rng = np.random.default_rng(0)
    y = rng.random((120, 4)) < 0.4
    np.savez("g.npz", edge_index=rng.integers(0, 120, (2, 40)), x=y + rng.random((120, 4)), y=y,
             train_idx=np.arange(60), val_idx=np.arange(60, 90), test_idx=np.arange(90, 120))
    np.save("classes.npy", np.arange(120) % 3)
    succeed("convert", "g.npz", "g.h5", "--symmetrize")
    succeed("convert", "g.npz", "classes.h5", "--labels", "classes.npy")
    succeed("partition", "g.h5", "-k", 3, "--method", "random")
    settings = ("--epochs", 60, "--lr", "0.05", "--input-dropout", 0)
    predictions = []
    for out, graph, options in (("one", "g.h5", {}), ("three", "g.p3.h5", {"ranks": 3})):
        succeed("train", graph, *settings, "--out", out, **options)
        succeed("predict", out, **options)
        # the model has several labels, not the graph
        succeed("predict", out, "classes.h5", "-o", f"{out}/others.h5")
        for file in ("others.h5", "predictions.h5"):
            arrays, _ = store.read_predictions(f"{out}/{file}")
            assert arrays["label"].dtype == np.uint8
            np.testing.assert_array_equal(arrays["label"], arrays["logits"] > 0)
        predictions.append(arrays)
        assert np.mean(arrays["label"] == y) > 0.7
    one, three = predictions
    np.testing.assert_allclose(one["logits"], three["logits"], atol=1e-3)
    np.testing.assert_array_equal(predict(load("g.h5"), "one")["label"], one["label"])


@pytest.mark.long
@pytest.mark.usefixtures("forks")
def test_ranks_refuse_a_file_in_one_line(graphs):
    whole = Path("digits.h5").read_bytes()
    Path("cut.h5").write_bytes(whole[:len(whole) // 2])
    assert "cut.h5" in refused(65, "train", "cut.h5", ranks=2)
    assert "none.h5" in refused(66, "train", "none.h5", ranks=2)
    assert "none" in refused(66, "convert", "none.txt", "out.h5")


def test_outputs_are_not_overwritten_unless_asked(here):
    succeed("convert", "karate", "k.h5")
    before = Path("k.h5").read_bytes()
    assert "k.h5" in refused(73, "convert", "karate", "k.h5")
    assert Path("k.h5").read_bytes() == before
    succeed("convert", "karate", "k.h5", "--overwrite")
    assert "k.p2.h5" in succeed("partition", "k.h5", "-k", 2, "--method", "block")
    assert refused(73, "partition", "k.h5", "-k", 2, "--method", "block")


@pytest.mark.parametrize("args", [
    (), ("trian",), ("train",), ("train", "x.h5", "--strategy", "9d"), ("convert", "digits"),
    ("train", "x.h5", "--hidden", "0")], ids=" ".join)
def test_usage_errors_are_2(args):
    assert run(*args).returncode == 2


def test_help_and_version():
    assert "train" in succeed("--help")
    assert hpgcn("--version").stdout.startswith("hpgcn 0.")


def test_generated_graph_trains(here):
    succeed("generate", "sbm", "g.h5", "--scale", 9, "--features", 8, "--classes", 4)
    succeed("train", "g.h5", "--epochs", 30, "--out", "run")
    assert summary_of("run")["test_acc"] > 0.6
    assert "512" in succeed("inspect", "g.h5", "--verify")


@pytest.mark.usefixtures("here")
def test_flags_are_whole_words():
    """An abbreviation may be another flag's name in the user's mind."""
    succeed("convert", "karate", "k.h5")
    for words, message in {
            ("plan", "k.h5", "--rank", 4): "--rank: unknown; did you mean --ranks? See `hpgcn plan",
            ("train", "k.h5", "--dropuot", .5): "--dropuot: unknown; did you mean --dropout?",
            ("train", "k.h5", "--epoch=5"): "--epoch: unknown; did you mean --epochs?",
            ("convert", "karate", "g.h5", "--overw"): "--overw: unknown; did you mean --overwrite?",
            ("trian",): "did you mean train? See `hpgcn --help`",
            ("train", "k.h5", "--lr", "inf"): "expected a finite number, at least 0",
            ("train", "k.h5", "--strategy", "p2p+"): "a name is missing before or after +",
            ("train", "k.h5", "--model", "gnc"): "did you mean gcn?"}.items():
        assert message in refused(2, *words)
    plan = json.loads(succeed("plan", "k.h5", "--ranks", 4, "--json"))
    assert {row["ranks"] for row in plan["rows"]} == {4} and "nodes" not in plan["rows"][0]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", [("train", "k.h5"), ("train", "k.h5", "--dry-run")])
def test_a_machine_file_is_read_on_one_rank(command):
    succeed("convert", "karate", "k.h5")
    assert "/nonexistent.json" in refused(66, *command, "--machine", "/nonexistent.json")


@pytest.mark.usefixtures("here")
def test_an_output_that_is_an_input_is_refused():
    """Whatever path or link leads to it, and whatever --overwrite says."""
    succeed("convert", "karate", "k.h5")
    Path("edges.txt").write_text("0 1\n1 2\n")
    Path("y.h5").write_text("id,label\n0,1\n1,0\n2,1\n")
    succeed("train", "k.h5", "--epochs", 1, "--out", "run")
    Path("linked.h5").symlink_to("k.h5")
    Path("same.h5").hardlink_to("k.h5")
    Path("twin.h5").hardlink_to("edges.txt")
    Path("linked.toml").symlink_to("run/config.toml")
    Path("run.toml").hardlink_to("run/config.toml")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}

    for command in (
            "predict run -o k.h5", "predict run -o linked.h5", "predict run -o same.h5",
            "predict run linked.h5 -o ./k.h5", "predict run -o run/model.h5",
            "predict run/model.h5 -o run/../run/model.h5", "partition k.h5 -k 2 -o same.h5",
            "partition same.h5 -k 2 -o linked.h5", "export run run/model.h5 --to pyg",
            "export run run/metrics.jsonl --to pyg", "export run/model.h5 linked.toml --to pyg",
            "convert edges.txt twin.h5",
            "convert edges.txt y.h5 --labels y.h5:label", "generate bter same.h5 --like k.h5",
            "train k.h5 --config run/config.toml --out run",
            "train k.h5 --config run.toml --out run"):
        line = refused(2, *command.split(), "--overwrite")
        assert "is read by this command, whose output" in line
        assert all(path.read_bytes() == content for path, content in before.items())
