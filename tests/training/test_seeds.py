"""`hpgcn train --seeds` and `--splits`: runs in separate directories, and their summary."""
import json

import numpy as np
import pytest
from commands import refused, succeed

from hpgcn.cli.run_flags import parse_numbers
from hpgcn.errors import UsageError


@pytest.fixture(scope="module")
def karate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    succeed("convert", "karate", folder / "k.h5", "--split", "random:50/25/25")
    return folder / "k.h5"


def train(karate, out, *more):
    return succeed("train", karate, "--out", out, "--epochs", 3, "-q", *more)


def test_words():
    assert parse_numbers("--seeds", "0..3") == [0, 1, 2, 3]
    assert parse_numbers("--seeds", "7") == [7]
    assert parse_numbers("--seeds", "1, 5,8..9") == [1, 5, 8, 9]
    for text in ("", "a", "3..1", "0..20000", "-1", "1..", "1,1", "9223372036854775808", "0..3,2"):
        with pytest.raises(UsageError, match="--seeds"):
            parse_numbers("--seeds", text)


def test_runs_are_those_of_each_seed_alone(karate, tmp_path):
    said = json.loads(train(karate, tmp_path / "all", "--seeds", "3..5", "--json"))
    scores = []
    for seed, run in zip((3, 4, 5), said["runs"]):
        alone = json.loads(train(karate, tmp_path / f"{seed}", "--seed", seed, "--json"))
        stored = json.loads((tmp_path / "all" / f"seed-{seed}" / "summary.json").read_text())
        assert run["final_loss"] == alone["final_loss"] == stored["final_loss"]
        scores.append(alone["test_acc"])
    assert said["test_acc"]["mean"] == pytest.approx(np.mean(scores))
    assert said["test_acc"]["std"] == pytest.approx(np.std(scores, ddof=1))


def test_a_table_and_what_is_there_already(karate, tmp_path):
    out = tmp_path / "runs"
    lines = train(karate, out, "--seeds", "0,2").splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["0", "2", "mean", "std"]
    before = (out / "seed-2" / "metrics.jsonl").read_bytes()
    process = refused(78, "train", karate, "--out", out, "--layers", 3, "--seeds", "1,2")
    assert "seed-2: layers is 3, but the run was started with 2" in process
    assert not (out / "seed-1").exists()  # no run is trained
    for flags in ((), ("--resume",)):
        train(karate, out, "--seeds", "0..2", *flags)
        assert (out / "seed-2" / "metrics.jsonl").read_bytes() == before
    assert (out / "seed-1" / "summary.json").exists()


def test_what_excludes_it(karate):
    for several, single in (("--seeds", "--seed"), ("--splits", "--split-index")):
        for flag in ([single, 0], [single, 1], ["--dry-run"]):
            process = refused(2, "train", karate, several, "0..2", *flag)
            assert f"{several} and {flag[0]} exclude" in process


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    path = tmp_path_factory.mktemp("splits") / "k.h5"
    succeed("convert", "karate", path, "--split", "random:50/25/25:7", "--num-splits", 3)
    return path


@pytest.mark.long
def test_each_split_with_one_seed(splits, tmp_path):
    """Training on each split equals training on a file with only this split."""
    said = json.loads(train(splits, tmp_path / "all", "--splits", "all", "--seed", 4, "--json"))
    assert [(run["seed"], run["split_index"]) for run in said["runs"]] == [(4, 0), (4, 1), (4, 2)]
    scores = []
    for i, run in enumerate(said["runs"]):
        alone = tmp_path / f"{i}.h5"
        succeed("convert", "karate", alone, "--split", f"random:50/25/25:{7 + i}")
        expected = json.loads(train(alone, tmp_path / f"{i}", "--seed", 4, "--json"))
        stored = json.loads((tmp_path / "all" / f"split-{i}" / "summary.json").read_text())
        assert run["final_loss"] == expected["final_loss"] == stored["final_loss"]
        scores.append(expected["test_acc"])
    assert len(set(map(str, [run["final_loss"] for run in said["runs"]]))) == 3
    assert said["test_acc"]["mean"] == pytest.approx(np.mean(scores))
    assert said["test_acc"]["std"] == pytest.approx(np.std(scores, ddof=1))


@pytest.mark.long
def test_every_seed_on_every_split(splits, tmp_path):
    out = tmp_path / "runs"
    lines = train(splits, out, "--splits", "0,2", "--seeds", "5..6").splitlines()
    assert lines[0].split()[:2] == ["split", "seed"]
    assert [line.split()[:2] for line in lines[2:6]] == [
        ["0", "5"], ["0", "6"], ["2", "5"], ["2", "6"]]
    assert [line.split()[0] for line in lines[6:]] == ["mean", "std"]
    run = out / "split-2" / "seed-5"
    assert "split_index = 2 " in (run / "config.toml").read_text()
    alone = json.loads(train(splits, tmp_path / "one", "--split-index", 2, "--seed", 5, "--json"))
    assert json.loads((run / "summary.json").read_text())["final_loss"] == alone["final_loss"]

    before = (run / "metrics.jsonl").read_bytes()
    assert "split-0/seed-5: layers is 3, but" in refused(
        78, "train", splits, "--out", out, "--splits", "all", "--seeds", "5..6", "--layers", 3)
    lines = train(splits, out, "--splits", "all", "--seeds", "5..6", "--resume").splitlines()
    assert len(lines) == 2 + 6 + 2 and (run / "metrics.jsonl").read_bytes() == before
    assert (out / "split-1" / "seed-6" / "summary.json").exists()


def test_splits_that_are_not_there(karate, splits, tmp_path):
    line = refused(78, "train", splits, "--out", tmp_path / "run", "--splits", "0..3")
    assert "k.h5: --split-index 3, but the graph has 3 splits, 0 to 2" in line
    for text in ("al", "1,1", "2..0"):
        assert "--splits" in refused(2, "train", splits, "--splits", text)
    assert "no train" in refused(65, "train", _bare(tmp_path), "--splits", "all")
    assert not (tmp_path / "run").exists()


def _bare(folder):
    np.savez(folder / "bare.npz", edges=[[0, 1]], node_features=np.eye(3), node_labels=[0, 1, 0])
    succeed("convert", folder / "bare.npz", folder / "bare.h5")
    return folder / "bare.h5"
