"""`hpgcn plan --from RUN`: the run's forecast equals its measured time; others scale alike."""
import json
import shutil

import numpy as np
import pytest
from commands import refused, succeed
from graphs import make

from hpgcn.store import write_graph

FLAGS = ("--model", "sage", "--layers", 3, "--hidden", 12, "--norm", "layer", "--dtype", "float64")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_graph(folder / "g.h5", make(n=300, train=40))
    succeed("train", folder / "g.h5", *FLAGS, "--epochs", 4, "--out", folder / "run", "-q")
    return folder


def plan(*args):
    return json.loads(succeed("plan", *args, "-k", "1,2", "--json"))


@pytest.mark.long
def test_a_run_corrects_all_seconds(trained):
    run = trained / "run"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    median = np.median([line["epoch_s"] for line in lines[1:]])
    found = plan("--from", run)
    same = plan(trained / "g.h5", *FLAGS[:2], *FLAGS[6:], "--widths",
                ",".join(map(str, found["step"]["widths"])))
    assert found["step"] == same["step"] and len(found["step"]["widths"]) == 4
    assert found["settings"]["model"] == "sage" and found["settings"]["norm"] == "layer"
    assert found["rows"][0]["seconds"]["epoch"] == pytest.approx(median)
    factor = found["machine"]["compute_factor"]
    assert factor > 0 and found["machine"]["communication_factor"] == 1
    for corrected, plain in zip(found["rows"], same["rows"], strict=True):
        assert corrected["bytes"] == plain["bytes"]
        assert corrected["seconds"]["compute"] == pytest.approx(
            factor * plain["seconds"]["compute"])
    assert found["notes"][0].startswith(f"calibrated by {run}: computing takes ")
    assert "calibrated by" in succeed("plan", "--from", run, "-k", 2)


def test_flags_and_another_graph_go_before_those_of_the_run(trained):
    write_graph(trained / "other.h5", make(n=200, train=40))
    found = plan(trained / "other.h5", "--from", trained / "run", "--norm", "none")
    assert found["graph"]["num_nodes"] == 200
    assert (found["settings"]["model"], found["settings"]["norm"]) == ("sage", "none")


def test_runs_that_tell_nothing_are_refused(trained, tmp_path):
    assert "give GRAPH.h5, --from RUN, or --vertices" in refused(2, "plan")
    assert "no such run directory" in refused(66, "plan", "--from", tmp_path / "none")
    unfinished = tmp_path / "unfinished"
    shutil.copytree(trained / "run", unfinished)
    (unfinished / "summary.json").unlink()
    assert "not a finished run" in refused(65, "plan", "--from", unfinished)
    moved = tmp_path / "moved"
    shutil.copytree(trained / "run", moved)
    config = (moved / "config.toml").read_text()
    (moved / "config.toml").write_text(config.replace("g.h5", "gone.h5"))
    assert "gone.h5" in refused(66, "plan", "--from", moved)
    batches = tmp_path / "batches"
    succeed("train", trained / "g.h5", "--batch", "vertices:20", "--epochs", 1, "--out", batches,
            "-q")
    said = refused(65, "plan", "--from", batches)
    assert "was trained on mini-batches (vertices:20)" in said


@pytest.mark.long
@pytest.mark.parametrize("strategy", [
    "1d", *(pytest.param(name, marks=pytest.mark.long) for name in ("p2p", "mop+p2p"))])
def test_a_run_on_two_ranks_corrects_communication_too(trained, tmp_path, strategy):
    run = tmp_path / "run"
    succeed("train", trained / "g.h5", *FLAGS[:2], "--layers", 2, "--strategy", strategy,
            "--epochs", 3, "--out", run, "-q", "--ranks", 2)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][1:]
    waited = np.median([line["comm_s"] + line["wait_s"] for line in lines])
    found = json.loads(succeed("plan", "--from", run, "-k", 2, "--method", "hypergraph", "--json"))
    machine = found["machine"]
    assert machine["compute_factor"] != 1 and machine["communication_factor"] != 1
    same = [row["seconds"] for row in found["rows"] if row["strategy"] == strategy]
    if strategy == "1d":
        assert same[0]["communication"] == pytest.approx(waited)
    assert "communication" in found["notes"][0]
