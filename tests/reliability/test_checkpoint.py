"""On one rank, a run that is stopped and resumed ends with the results of an uninterrupted run."""
import errno
import fcntl
import json
import os
import re

import numpy as np
import pytest
from graphs import make
from resuming import left_behind, lines, settings, steps

import hpgcn
from hpgcn import store
from hpgcn.cli.inspect_files import describe_file
from hpgcn.comm import SerialComm
from hpgcn.errors import ConfigError, InternalError, OutputError, StorageError, UsageError
from hpgcn.partition import make_partition
from hpgcn.training.files.run_directory import RunDirectory, read_run
from hpgcn.training.saved.checkpoint_state import agree, describe_differences


@pytest.mark.parametrize("changes", [
    {}, {"patience": 6, "lr": 0.0, "epochs": 30},
    {"optimizer": "adamw", "schedule": "cosine", "warmup": 5, "clip_norm": 0.1,
     "label_smoothing": 0.1, "class_weight": "balanced", "eval_every": 3},
    *(pytest.param(each, marks=pytest.mark.long) for each in (
        {"optimizer": "sgd", "lr": 0.5}, {"dtype": "float64", "layers": 3},
        {"model": "sage", "layer_norm": True, "input_dropout": 0.0},
        {"model": "gin", "strategy": "mop"}))], ids=str)
def test_a_run_that_goes_on_ends_as_an_undisturbed_one(graph, tmp_path, fault, changes):
    hpgcn.train(graph, settings(tmp_path / "whole", **changes))
    fault("raise:0:6:checkpoint.begin")  # with checkpoint_every 3: after that of epoch 3
    with pytest.raises(RuntimeError, match="on purpose"):
        hpgcn.train(graph, settings(tmp_path / "cut", **changes, checkpoint_every=3))
    assert steps(tmp_path / "cut") == ["step-00000003"]
    assert len(lines(tmp_path / "cut")) == 6
    hpgcn.train(graph, resume=tmp_path / "cut")
    assert left_behind(tmp_path / "cut") == left_behind(tmp_path / "whole")
    assert len(steps(tmp_path / "cut")) == 2


def test_resume_says_whether_the_bits_are_the_same(graph, tmp_path, caplog):
    caplog.set_level("INFO", "hpgcn")
    out = tmp_path / "run"
    hpgcn.train(graph, settings(out, epochs=4))
    hpgcn.train(graph, settings(out, epochs=5), resume=out)
    assert "continuing after epoch 4" in caplog.text
    assert "rounding" not in caplog.text
    hpgcn.train(graph, settings(out, epochs=6, strategy="1d"), resume=out)
    assert "continuing after epoch 5 with another strategy: results are equal up" in caplog.text
    reordered = graph.permuted(np.random.default_rng(1).permutation(120), np.array([0, 120]))
    hpgcn.train(reordered, settings(out, epochs=7, strategy="1d"), resume=out)
    assert "continuing after epoch 6 with another partition: results are equal up" in caplog.text


def test_the_newest_two_are_kept_and_the_last_is_written(graph, tmp_path):
    out = tmp_path / "run"
    hpgcn.train(graph, settings(out, epochs=11, checkpoint_every=3))
    assert steps(out) == ["step-00000009", "step-00000011"]
    manifest = json.loads((out / "checkpoints/step-00000011/manifest.json").read_text())
    file = out / "checkpoints/step-00000011/state.h5"
    told = {"bytes": file.stat().st_size, "sha256": store.file_sha256(file)}
    assert manifest["files"] == {"state.h5": told}
    assert "checkpoint" in describe_file(file, verify=True)
    hpgcn.train(graph, settings(out, epochs=2), overwrite=True)
    assert steps(out) == ["step-00000002"]


def test_a_finished_run_is_left_alone_and_one_of_more_epochs_goes_on(graph, out, two, caplog):
    def contents():
        return {path: path.read_bytes() for path in out.rglob("*.*") if path.is_file()}

    caplog.set_level("INFO", "hpgcn")
    before = contents()
    summary = hpgcn.train(graph, settings(out), resume=out)
    assert summary == json.loads((out / "summary.json").read_text())
    assert "finished after epoch 12, nothing to do" in caplog.text
    assert contents() == before
    hpgcn.train(graph, settings(out, epochs=16), resume=out)
    assert left_behind(out) == left_behind(two / "whole")
    with pytest.raises(ConfigError, match="epoch 16, but epochs=15; expected a number of"):
        hpgcn.train(graph, settings(out, epochs=15), resume=out)


def test_a_run_killed_before_its_summary_is_finished_without_a_further_epoch(graph, out, two):
    for name in ("summary.json", "model.h5"):
        (out / name).unlink()
    hpgcn.train(graph, settings(out), resume=out)
    assert left_behind(out) == left_behind(two / "run")


def test_without_a_checkpoint_it_starts_anew_and_says_so(graph, tmp_path, caplog):
    caplog.set_level("INFO", "hpgcn")
    out = tmp_path / "run"
    hpgcn.train(graph, settings(out, checkpoint_every=0, epochs=3), resume=out)
    assert "no checkpoint, starting at epoch 1" in caplog.text
    assert not (out / "checkpoints").exists()
    with pytest.raises(ConfigError, match="finished after epoch 3 and has no checkpoint"):
        hpgcn.train(graph, settings(out, epochs=5), resume=out)
    with pytest.raises(OutputError, match="run directory exists"):
        hpgcn.train(graph, settings(out))


def test_a_directory_that_another_job_writes_to_is_refused(graph, tmp_path):
    out = tmp_path / "run"
    with RunDirectory(settings(out)) as record:
        record.append({"epoch": 1})
        for options in ({"overwrite": True}, {"resume": out}):
            with pytest.raises(OutputError, match="run: another job writes to it; wait for its"):
                hpgcn.train(graph, settings(out), **options)
        assert lines(out) == [{"epoch": 1}]
        assert sorted(path.name for path in out.iterdir()) == ["config.toml", "metrics.jsonl"]
    hpgcn.train(graph, settings(out), overwrite=True)
    hpgcn.train(graph, settings(out, epochs=13), resume=out)
    assert len(lines(out)) == 13


def test_a_file_system_without_locks_is_no_reason_to_refuse(graph, tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    hpgcn.train(graph, settings(tmp_path / "run"))
    assert len(lines(tmp_path / "run")) == 12


def test_checkpoints_need_a_run_directory(graph):
    with pytest.raises(UsageError, match="checkpoint_every = 4: needs a run directory"):
        hpgcn.train(graph, settings(""))


def flip(folder):
    content = bytearray((folder / "state.h5").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "state.h5").write_bytes(content)


SPOILT = {
    "flipped": flip, "truncated": lambda folder: os.truncate(folder / "state.h5", 5_000),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "no state": lambda folder: (folder / "state.h5").unlink(),
    "empty": lambda folder: [path.unlink() for path in folder.iterdir()]}


@pytest.mark.long
@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_checkpoint_falls_back_to_the_one_before(graph, out, two, caplog, how):
    SPOILT[how](out / "checkpoints/step-00000012")
    hpgcn.train(graph, settings(out, epochs=16), resume=out)
    assert re.search("falling back to step-00000008: .*step-00000012", caplog.text)
    assert left_behind(out) == left_behind(two / "whole")
    assert steps(out) == ["step-00000012", "step-00000016"]


def test_no_checkpoint_that_can_be_read_is_one_clear_error(graph, out):
    flip(out / "checkpoints/step-00000012")
    (out / "checkpoints/step-00000008/manifest.json").unlink()
    reasons = (r"none of 2 checkpoints can be read: .*step-00000012/state.h5: SHA-256 is.*; "
               r".*step-00000008/manifest.json: No such file")
    with pytest.raises(StorageError, match=reasons):
        hpgcn.train(graph, settings(out, epochs=16), resume=out)
    assert json.loads((out / "summary.json").read_text())["epochs"] == 12


@pytest.mark.long
@pytest.mark.parametrize("tail", [b'{"epoch": 13, "loss": 0.2}\n{"epo', b"\xff\xfe", b"[1]\n", b""])
def test_metrics_are_cut_back_to_the_checkpoint(graph, out, two, tail):
    with (out / "metrics.jsonl").open("ab") as file:
        file.write(tail)
    hpgcn.train(graph, settings(out, epochs=16), resume=out)
    assert left_behind(out)[2] == left_behind(two / "whole")[2]


def test_lost_metrics_cost_a_warning(graph, out, two, caplog):
    (out / "metrics.jsonl").unlink()
    hpgcn.train(graph, settings(out, epochs=16), resume=out)
    assert "metrics.jsonl: has only 0 of the 11 earlier epochs" in caplog.text
    assert [line["epoch"] for line in lines(out)] == [12, 13, 14, 15, 16]
    assert left_behind(out)[0] == left_behind(two / "whole")[0]


@pytest.mark.parametrize("changes", [
    {"lr": 0.02}, {"hidden": 7}, {"seed": 1}, {"warmup": 1}, {"clip_norm": 1.0},
    {"label_smoothing": 0.1}, {"class_weight": "balanced"}, {"dtype": "float64"},
    {"optimizer": "sgd"}, {"eval_every": 2}, {"dropout": 0.1}, {"model": "gin"},
    {"weight_decay": 0.0}], ids=str)
def test_other_settings_are_refused(graph, two, changes):
    (name, _), = changes.items()
    with pytest.raises(ConfigError, match=rf"run: {name} is .*, but the run was started with"):
        hpgcn.train(graph, settings(two / "run", epochs=16, **changes), resume=two / "run")


@pytest.mark.parametrize("other", [
    {"seed": 3}, {"weighted": True}, {"sparse": True}, {"train": 30}], ids=str)
def test_other_data_is_refused(graph, two, other):
    with pytest.raises(ConfigError, match="was trained on other data than made"):
        hpgcn.train(make(n=120, f=9, **other), settings(two / "run", epochs=16), resume=two / "run")


@pytest.mark.long
def test_a_file_and_its_partitions_are_the_same_data(graph, tmp_path):
    store.write_graph(tmp_path / "g.h5", graph)
    store.write_partitioned(tmp_path / "g.p1.h5", graph, make_partition(graph, 1, method="random"),
                            source=store.load(tmp_path / "g.h5"))
    out = tmp_path / "run"
    hpgcn.train(hpgcn.load(tmp_path / "g.h5"), settings(out, epochs=4))
    hpgcn.train(hpgcn.load(tmp_path / "g.p1.h5"), settings(out, epochs=8), resume=out)
    state, told = store.read_state(out / "checkpoints/step-00000008/state.h5")
    assert told["source_sha256"] == store.file_sha256(tmp_path / "g.h5")
    assert told["graph_sha256"] == store.file_sha256(tmp_path / "g.p1.h5")
    assert {"weights/W0", "best/W0", "optimizer/mean/W0", "optimizer/variance/W0"} <= set(state)
    hpgcn.train(graph, settings(tmp_path / "whole", epochs=8))
    for name, array in read_run(tmp_path / "whole")[0].items():
        np.testing.assert_allclose(read_run(out)[0][name], array, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("phase", ["begin", "write", "written", "manifest", "fsync", "rename"])
def test_a_full_disk_leaves_the_checkpoint_before(graph, tmp_path, fault, phase):
    out = tmp_path / "run"
    fault(f"full:0:8:checkpoint.{phase}")
    with pytest.raises(StorageError, match=r"checkpoints.*No space left on device"):
        hpgcn.train(graph, settings(out))
    assert steps(out) == ["step-00000004"]


@pytest.mark.parametrize("names, words", [
    (["ranks", "grid"], "another number of ranks and another grid"),
    (["ranks", "grid", "versions", "layout_sha256"],
     "another number of ranks, another grid and other versions"),
    (["layout_sha256"], "another partition"),
    (["strategy", "memory"], "another strategy and another memory limit")])
def test_what_differs_is_said_in_english(names, words):
    assert describe_differences(names) == words


class Disagreeing(SerialComm):
    """A communicator of rank 0 of three on which rank 2 reports other weights."""

    rank, size, ranks = 0, 3, (0, 1, 2)

    def allgather(self, thing):
        return [thing, dict(thing), {**thing, "weights": thing["weights"] ^ 1}]


def test_ranks_that_disagree_write_no_checkpoint():
    with pytest.raises(InternalError,
                       match=r"no checkpoint: rank 2 \(weights\) differ from rank 0"):
        agree(Disagreeing(), {"weights": np.ones(3), "optimizer/mean": np.zeros(3)})
