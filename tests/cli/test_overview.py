"""`hpgcn inspect` describes each file of a run and suggests the next command."""
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from graphs import make, with_links

import hpgcn
from hpgcn import store
from hpgcn.cli.inspect_paths import describe
from hpgcn.errors import ConfigError, DataError, InputNotFoundError, StorageError
from hpgcn.partition import make_partition
from hpgcn.runtime.temporary import remove

CONFIG = hpgcn.Config(epochs=6, hidden=6, lr=0.02, patience=50, checkpoint_every=2,
                      graph="/data/my graph.h5")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the directory of a finished run of 6 epochs with checkpoints after 4 and 6."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    hpgcn.train(make(), CONFIG.replace(out=str(folder)))
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """Return a copy of the finished run, which a test may change."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def words(path, **options):
    """Return the output of `describe` as a dict of label -> text."""
    found = {}
    label = ""
    for line in describe(path, **options).splitlines():
        first, _, text = re.match(r"(\S.*?|)(  +|$)(.*)", line).groups()
        label = first or label
        found[label] = f"{found[label]}\n{text}" if label in found else text
    return found


def test_a_finished_run(run):
    found = words(run, verify=True)
    summary = hpgcn.train(make(), resume=run)
    assert found["kind"] == "run directory, finished"
    assert found["epochs"] == "6 of 6 at most"
    assert found["best epoch"] == (
        f"{summary['best_epoch']}, validation {100 * summary['best_val_acc']:.2f}%, "
        f"test {100 * summary['test_acc']:.2f}%")
    assert found["model"] == "gcn, layers 2, hidden 6, dropout 0.5"
    assert "adam, learning rate 0.02, weight decay 0.0005 on the first layer" in found["training"]
    assert found["settings"] == ("strategy = 'p2p', patience = 50, checkpoint_every = 2; "
                                 "all other settings have their defaults")
    assert (found["graph"], found["data"]) == ("/data/my graph.h5", "made")
    assert found["ranks"].endswith("threads on cpu, strategy p2p, grid 1")
    assert re.match(r"started 20\d\d-.* on .+, last epoch 20\d\d-", found["when"])
    assert found["checkpoint"] == ("step-00000004: valid, --resume continues after it\n"
                                   "step-00000006: valid, --resume continues after it")
    assert found["checksums"] == "all match: model.h5"
    assert found["next"].splitlines()[0] == f"hpgcn predict {run}"
    longer = f"hpgcn train '/data/my graph.h5' --out {run} --resume --epochs 12    # trains longer"
    assert longer in found["next"]


@pytest.mark.parametrize("changes, stop, why", [
    ({"patience": 1, "lr": 0.0}, 9, "2 of 6 at most, ended by patience 1"),
    ({}, 3, "3 of 6 at most, ended early")])
def test_a_run_that_ended_early(tmp_path, changes, stop, why):
    config = CONFIG.replace(out=str(tmp_path / "run"), **changes)
    hpgcn.train(make(), config, callbacks=[lambda metrics: metrics["epoch"] == stop])
    assert words(tmp_path / "run")["epochs"] == why


@pytest.mark.parametrize("kept, line", [(True, "continues"), (False, "starts at epoch 1")])
def test_a_run_that_was_killed(run, kept, line):
    for name in ("summary.json", "model.h5"):
        (run / name).unlink()
    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text()[:-9])
    if kept:
        (run / "checkpoints/step-00000006/manifest.json").unlink()
        listed = r"step-00000004: valid, .*\nstep-00000006: damaged, --resume skips it: .*"
    else:
        (run / "checkpoints").rename(run.parent / "elsewhere")
        listed = "none"
    found = words(run)
    assert found["kind"] == "run directory, not finished"
    assert found["epochs"] == "5 of 6 at most"
    assert found["next"].splitlines()[0] == (
        f"hpgcn train '/data/my graph.h5' --out {run} --resume    # {line}, if no job is running")
    assert "hpgcn predict" not in found["next"]
    assert re.fullmatch(listed, found["checkpoint"])


@pytest.mark.parametrize("removed, launcher", [
    ((), "--ranks 3"), (("summary.json",), "mpiexec"),
    (("summary.json", "checkpoints"), "mpiexec")])
def test_the_next_command_starts_the_ranks_of_the_run(tmp_path, removed, launcher):
    """Those of the summary, else of a checkpoint, else one for each part of the graph."""
    graph, path, run = make(), tmp_path / "g.p3.h5", tmp_path / "run"
    store.write_partitioned(path, graph, make_partition(graph, 3, method="block"))
    config = hpgcn.Config(epochs=1, hidden=4, checkpoint_every=1, graph=str(path), out=str(run))
    hpgcn.train(path, config, ranks=3)
    for name in removed:
        remove(run / name)
    command = f"hpgcn train {path} --out {run} --resume"
    command = f"mpiexec -n 3 {command}" if launcher == "mpiexec" else f"{command} {launcher}"
    assert any(line.startswith(command) for line in words(run)["next"].splitlines())


def test_a_resumed_run_says_who_changed_a_setting(run, tmp_path):
    with pytest.raises(ConfigError, match="continue with hidden=6"):
        hpgcn.train(make(), CONFIG.replace(epochs=9, hidden=7), resume=run)
    config = run / "config.toml"
    config.write_text(config.read_text().replace("hidden = 6", "hidden = 7"))
    with pytest.raises(ConfigError, match=r"hidden is 7, but .* with 6; undo the change in config"):
        hpgcn.train(make(), resume=run)


@pytest.mark.parametrize("metric", ["auto", "hits@3"])
def test_a_run_on_links(tmp_path, metric):
    """The metric and the decoder are named, also before a summary is written."""
    out = tmp_path / "run"
    result = hpgcn.train(with_links(make(n=60)), hpgcn.Config(
        task="links", epochs=2, hidden=6, output_width=5, decoder="distmult", metric=metric,
        checkpoint_every=1, out=str(out)))
    name = "auc" if metric == "auto" else metric
    for changed in range(2):
        found = words(out)
        assert found["best epoch"].startswith(
            f"{result['best_epoch']}, validation {name} {100 * result['best_val_acc']:.2f}%, test ")
        assert found["model"].endswith("dropout 0.5, output width 5, decoder distmult")
        assert f"hpgcn predict {out} --top 10" in found["next"]
        assert f"validation {name} " in words(out / "checkpoints/step-00000002")["best epoch"]
        if not changed:
            (out / "summary.json").unlink()


def test_a_checkpoint(finished, run):
    assert list(words(run / "checkpoints")) == ["folder", "kind", "checkpoint"]
    folder = run / "checkpoints" / "step-00000004"
    assert describe(folder).splitlines()[0] == "step-00000004: valid, --resume continues after it"
    found = words(folder, verify=True)
    assert found["kind"] == "checkpoint" and found["after epoch"].startswith("4, loss 1.")
    assert "validation" in found["best epoch"]
    assert found["weights"] == "119 numbers (float32): W0 13 x 6, W1 6 x 5, b0 6, b1 5"
    assert found["optimizer"].startswith("238 numbers (float32): ")
    # the folder of the run when it was trained
    assert found["next"] == f"hpgcn train '/data/my graph.h5' --out {finished} --resume continues"
    assert not {"metrics", "config_toml", "layout_sha256", "max_sent_bytes"} & found.keys()
    (folder / "manifest.json").write_text("{}")
    assert describe(folder).startswith("step-00000004: damaged, --resume skips it: ")


def test_predictions(run):
    store.write_predictions(run / "predictions.h5", hpgcn.predict(make(), run),
                            attributes={"graph": "made", "model": "run"})
    said = words(run / "predictions.h5")
    assert said["vertices"] == "203, in their original order"
    assert said["embedding"] == "input of the last layer, 203 x 6 float32"
    assert (said["graph"], said["by"]) == ("made", "the model in run")
    assert words(run, verify=True)["checksums"] == "all match: model.h5, predictions.h5"


def test_what_is_none_of_these(run, tmp_path):
    for folder in (tmp_path, tmp_path / "empty"):
        folder.mkdir(exist_ok=True)
        with pytest.raises(DataError, match="neither a run directory"):
            describe(folder)
    for name in ("nothing", "x" * 300):
        with pytest.raises(InputNotFoundError):
            describe(tmp_path / name)
    raw = (run / "model.h5").read_bytes()
    at = raw.index(np.float32(store.read_model(run / "model.h5")[0]["W1"][0, 0]).tobytes())
    (run / "model.h5").write_bytes(raw[:at] + b"\0\1\2\3" + raw[at + 4:])
    with pytest.raises(StorageError, match="checksum"):
        describe(run, verify=True)
    (run / "config.toml").write_text("hiden = 3\n")
    with pytest.raises(DataError, match="did you mean hidden"):
        describe(run)
