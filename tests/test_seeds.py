"""hpgcn train --seeds: a run of each seed, in a directory of its own, and what they come to."""
import json

import numpy as np
import pytest
from commands import refused, succeed

from hpgcn.cli.seeds import parse_seeds
from hpgcn.errors import UsageError


@pytest.fixture(scope="module")
def karate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    succeed("convert", "karate", folder / "k.h5", "--split", "random:50/25/25")
    return folder / "k.h5"


def train(karate, out, *more):
    return succeed("train", karate, "--out", out, "--epochs", 3, "-q", *more)


def test_words():
    assert parse_seeds("0..3") == [0, 1, 2, 3]
    assert parse_seeds("7") == [7]
    assert parse_seeds("1, 5,8..9") == [1, 5, 8, 9]
    for text in ("", "a", "3..1", "0..20000", "-1", "1..", "1,1", "9223372036854775808", "0..3,2"):
        with pytest.raises(UsageError, match="--seeds"):
            parse_seeds(text)


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
    process = refused(73, "train", karate, "--out", out, "--epochs", 3, "--seeds", "1,2")
    assert "seed-2: run directory exists" in process
    assert not (out / "seed-1").exists()  # nothing is trained then
    train(karate, out, "--seeds", "0..2", "--resume")
    assert (out / "seed-2" / "metrics.jsonl").read_bytes() == before
    assert (out / "seed-1" / "summary.json").exists()


def test_what_excludes_it(karate):
    for flag in (["--seed", 1], ["--dry-run"]):
        process = refused(2, "train", karate, "--seeds", "0..2", *flag)
        assert f"--seeds and {flag[0]} exclude" in process
