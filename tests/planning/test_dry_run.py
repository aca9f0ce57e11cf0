"""`hpgcn train --dry-run` and `--memory`: a run matches its forecast, and no file is written."""
import json
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from commands import process, python, refused, succeed
from graphs import make

from hpgcn import store
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.errors import ConfigError
from hpgcn.graphs.graph import Graph
from hpgcn.planning.answers.dry_run import drops_AX, forecast, table
from hpgcn.planning.counts.footprint import ON_GPU, PARTS
from hpgcn.training.setup.placement import assign_rows

SLOW = """
import sys, time
from hpgcn import comm, config, store
from hpgcn.planning.answers import dry_run
from hpgcn.training.setup.placement import assign_rows

class SlowInput(dry_run.PlanInput):
    def __init__(self, *given):
        time.sleep(2)
        super().__init__(*given)

dry_run.PlanInput = SlowInput
ranks = comm.world(timeout=1)
settings = config.Config(strategy="1d", memory="1G", comm_timeout=1)
placed = assign_rows(store.load(sys.argv[1]), ranks, settings)
report = dry_run.forecast(placed, settings, ranks)
drops = dry_run.drops_AX(placed, settings, ranks)
if ranks.rank == 1:
    print(report["ranks"], drops, ranks.timeout)
"""


@pytest.fixture
def few(tmp_path):
    """Return the path of a graph of 500 vertices with six training vertices."""
    path = tmp_path / "few.h5"
    store.write_graph(path, make(n=500, degree=1.5, train=6))
    return path


def dry_run(file, *settings):
    return json.loads(succeed("train", file, *settings, "--dry-run", "--json"))


def forecast_of(source, config):
    return forecast(assign_rows(source, SerialComm(), config), config, SerialComm())


def row_of(file, strategy, *settings):
    rows = json.loads(succeed("plan", file, *settings, "--json"))["rows"]
    return next(row for row in rows if row["strategy"] == strategy)


@pytest.mark.long
@pytest.mark.parametrize("settings, ranks", [
    (("--strategy", "2d", "--model", "gin", "--dtype", "float64"), 4),
    (("--strategy", "mop", "--pipeline-batches", 3, "--model", "sage", "--input-dropout", 0), 3),
    (("--strategy", "1.5d", "--replication", 2, "--no-prune"), 4), (("--layers", 3), None)])
def test_a_run_does_what_was_told(few, tmp_path, settings, ranks):
    asked = (*settings, "--ranks", ranks or 1)
    report = dry_run(few, *asked)
    assert [path.name for path in tmp_path.iterdir()] == ["few.h5"]
    more = "--epochs", 2, "--threads", 1, "--out", tmp_path / "run", "--json"
    summary = json.loads(succeed("train", few, *asked, *more))
    assert report["ranks"] == summary["ranks"] == len(report["memory"])
    assert (report["strategy"], report["grid"]) == (summary["strategy"], summary["grid"])
    for name in ("predicted_bytes_per_epoch", "predicted_messages_per_epoch"):
        assert report[name] == summary[name] == summary[name.replace("predicted", "sent")]
    most = summary["max_rank_sent_bytes_per_epoch"]
    assert report["max_rank_bytes_per_epoch"] == pytest.approx(most, abs=1)
    if ranks:  # the forecast needs the file only, not the ranks
        row = row_of(few, settings[1], "-k", ranks, *settings[2:])
        assert row["bytes"]["total"] == report["predicted_bytes_per_epoch"]
        assert row["messages"]["total"] == report["predicted_messages_per_epoch"]
        assert row["memory"]["max_bytes"] == max(each["peak"] for each in report["memory"])
        assert row["seconds"] == report["seconds"]
    for each in report["memory"]:
        assert set(each) == {*PARTS, "setup", "peak", "process", "total"}
        assert each["total"] == each["peak"] + each["process"]
        assert each["peak"] == max(each["setup"], sum(each[name] for name in PARTS))
    if "--no-prune" in settings:
        assert report["rows_per_level"] == [500, 500, 500]
    else:
        assert report["rows_per_level"][-1] == 6


@pytest.mark.long
def test_parts_are_those_of_the_run(few, tmp_path, caplog):
    pytest.importorskip("mtkahypar", reason="needs pip install '.[partition]'")
    report = dry_run(few, "--ranks", 2)
    assert "partitioning" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.h5"]
    succeed("train", few, "--ranks", 2, "--epochs", 200, "--out", tmp_path / "run")
    again = dry_run(few, "--ranks", 2)  # on the parts that the run kept
    for each in (*again["memory"], *report["memory"]):
        del each["process"], each["total"]  # measured
    assert again == report
    row = row_of(tmp_path / "few.p2.h5", report["strategy"])
    assert row["bytes"]["total"] == report["predicted_bytes_per_epoch"] > 0
    assert row["memory"]["max_bytes"] == max(each["peak"] for each in report["memory"])


def test_refusals(few, tmp_path):
    line = refused(78, "train", few, "--strategy", "1d", "--memory", "2K", "--dry-run",
                   "--ranks", 2)
    assert "--memory is 2,048; `hpgcn plan --memory 2048` finds how many ranks are enough" in line
    assert "needs" in line
    assert "'much' is not a size" in refused(2, "train", few, "--memory", "much")
    line = refused(2, "train", few, "--strategy", "1d", "--grid", "2x1", "--dry-run")
    assert "--grid 2x1: only for strategies 2d and 3d; add --strategy 2d" in line
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("run")]


@pytest.mark.long
def test_counting_may_take_longer_than_messages(few):
    done = python("-c", SLOW, few, ranks=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "False", "1"]  # the timeout is unchanged


def test_text(few):
    text = succeed("train", few, "--dry-run")
    assert "1, strategy p2p (1)" in text
    assert "6" in next(line for line in text.splitlines() if line.startswith("rows per level"))
    last = text.splitlines()[-len(PARTS) - 4:]
    assert [line.split()[0] for line in last] == [*PARTS, "setup", "peak", "process", "total"]
    again = table(forecast_of(store.load(few), Config()))
    assert "\n".join(text.strip().splitlines()[:-2]) == again  # without the process


@pytest.mark.long
@pytest.mark.parametrize("settings", [
    ("--strategy", "1d"), ("--strategy", "mop"), ("--strategy", "1d", "--dtype", "bf16")])
def test_a_run_takes_no_more_memory_than_was_told(tmp_path, settings):
    """Forecast and peak are of processes of their own, with Python and libraries."""
    succeed("generate", "rmat", tmp_path / "g.h5", "--scale", 15, "--edge-factor", 16,
            "--features", 64)
    command = ("train", tmp_path / "g.h5", *settings, "--hidden", 64, "--json")
    told = json.loads(process(sys.executable, "-m", "hpgcn", *command, "--dry-run",
                              ranks=2).stdout)
    done = process(sys.executable, "-m", "hpgcn", *command, "--epochs", 2, "--out",
                   tmp_path / "run", ranks=2)
    peak = json.loads(done.stdout)["peak_rss_bytes"]
    most = max(each["total"] for each in told["memory"])
    assert 0.98 * peak < most < 1.3 * peak + 30e6


def test_products_are_formed_again_where_they_do_not_fit():
    # most is needed in training: a sparse matrix, and a last layer that multiplies by A first
    rng = np.random.default_rng(0)
    A = sp.random_array((2000, 2000), density=1 / 2000, rng=rng)
    labels = rng.permutation(2000) % 20
    masks = np.arange(1800), [1900], [1950]
    graph = Graph.from_scipy(A, rng.random((2000, 4)), labels, masks, symmetrize=True)
    config, comm = Config(hidden=16), SerialComm()
    placed = assign_rows(graph, comm, config)

    whole = forecast(placed, config, comm)["memory"][0]["peak"]
    assert not drops_AX(placed, config, comm)
    assert not drops_AX(placed, config.replace(memory=str(whole)), comm)
    limited = config.replace(memory=str(whole - 1))
    assert drops_AX(placed, limited, comm)
    report = forecast(placed, limited, comm)
    saved = whole - report["memory"][0]["peak"]
    # T is not kept; a work array takes A^T G of 20 columns, not 16
    assert saved == 2000 * (16 - (20 - 16)) * 4
    assert "multiplies by A at the larger width" in table(report)
    least = f"rank 0 of 1 needs {whole - saved:,} bytes, but memory= is"
    with pytest.raises(ConfigError, match=least):
        drops_AX(placed, config.replace(memory=str(whole - saved - 1)), comm)


def test_graphs_in_memory_and_in_files_agree(tmp_path):
    graph = make(n=300, sparse=True, directed=True, train=5)
    store.write_graph(tmp_path / "g.h5", graph)
    config = Config(model="sage", strategy="mop")
    assert forecast_of(graph, config) == forecast_of(store.load(tmp_path / "g.h5"), config)


def test_what_gpus_will_hold_is_told_without_one(few):
    report = dry_run(few, "--strategy", "2d", "--device", "cuda", "--ranks", 2)
    for gpu, host in zip(report["gpu_memory"], report["memory"], strict=True):
        assert set(gpu) == {*ON_GPU, "total"}
        assert gpu["total"] == sum(gpu[name] for name in ON_GPU if name != "staging")
        assert (gpu["matrix"], gpu["activations"]) == (host["matrix"], host["activations"])
    assert "MB of GPU memory" in table(report) and dry_run(few)["gpu_memory"] is None


def test_needs_no_features_and_no_labels(tmp_path):
    """For a file without features or labels the forecast assumes widths and says so."""
    whole = make(n=300, f=128)
    bare = Graph.from_scipy(whole.adjacency)
    half = Graph.from_scipy(whole.adjacency, whole.features)
    for name, graph, said in (("bare", bare, ["no features", "no labels"]),
                              ("half", half, ["no labels"])):
        store.write_graph(tmp_path / f"{name}.h5", graph)
        found = dry_run(tmp_path / f"{name}.h5", "--ranks", 2)
        assert found["widths"] == [128, 16, 40]
        assert [note.split(" in the")[0] for note in found["notes"]] == said
        assert all("`hpgcn plan --widths`" in note for note in found["notes"])
        assert "40 classes assumed" in table(found)
        text = succeed("plan", tmp_path / f"{name}.h5", "-k", 1)
        assert "widths 128,16,40" in text and "no labels in the graph: 40 classes assumed" in text
    text = succeed("plan", tmp_path / "bare.h5", "-k", 1, "--widths", "8,4")
    assert "assumed; `hpgcn" not in text
    assert "no labels" in refused(65, "train", tmp_path / "half.h5")
