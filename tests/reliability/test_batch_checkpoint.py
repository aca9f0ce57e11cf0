"""A run resumed within an epoch of mini-batches has the same bits.

They are those of an uninterrupted run.
"""
import json
import signal

import numpy as np
import pytest
from commands import hpgcn, succeed
from graphs import make, with_links
from resuming import left_behind, lines, settings, steps

from hpgcn import predict, store, train
from hpgcn.comm import spool
from hpgcn.errors import DataError, StoppedError
from hpgcn.partition import make_partition
from hpgcn.planning.answers import scratch_plan
from hpgcn.runtime import faults
from hpgcn.training.steps.loop_state import EpochSums

BATCHES = ["vertices:45", "neighbors:4,3:15"]  # five steps an epoch


@pytest.fixture
def graph():
    return make()


@pytest.mark.long
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("changes", [
    {}, {"schedule": "cosine", "warmup": 2, "norm": "batch", "patience": 4, "lr": 0.05}], ids=str)
@pytest.mark.parametrize("epoch, newest", [
    (1, None), *(pytest.param(*case, marks=pytest.mark.long) for case in ((2, 3), (3, 12)))])
def test_a_run_goes_on_within_an_epoch(graph, tmp_path, fault, batch, changes, epoch, newest):
    changes = {"batch": batch, "epochs": 7, "checkpoint_every": 3, **changes}
    train(graph, settings(tmp_path / "whole", **changes))
    fault(f"raise:0:{epoch}:checkpoint.begin")  # before the first one of this epoch is written
    with pytest.raises(RuntimeError, match="on purpose"):
        train(graph, settings(tmp_path / "cut", **changes))
    if newest is None:
        assert not (tmp_path / "cut/checkpoints").exists()
    else:
        found = steps(tmp_path / "cut")[-1]
        assert newest - 3 <= int(found.removeprefix("step-")) <= newest
    train(graph, resume=tmp_path / "cut")
    assert left_behind(tmp_path / "cut") == left_behind(tmp_path / "whole")


def test_a_metrics_line_is_an_epoch_and_sums_its_steps(graph, tmp_path):
    train(graph, settings(tmp_path / "run", batch=BATCHES[0], epochs=3))
    assert [line["epoch"] for line in lines(tmp_path / "run")] == [1, 2, 3]
    assert [line["steps"] for line in lines(tmp_path / "run")] == [5, 5, 5]
    assert steps(tmp_path / "run") == ["step-00000012", "step-00000015"]


@pytest.mark.parametrize("task", ["vertices", "links"])
def test_a_signal_stops_after_a_step(graph, tmp_path, monkeypatch, task):
    """A signal during an epoch of mini-batches stops the run after the current step."""
    from hpgcn.training.steps import training_epoch as module

    taken = module.take_step

    def interrupted(trainer, epoch):
        taken(trainer, epoch)
        trainer.state.pending_signal = signal.SIGUSR1 if trainer.state.steps == 7 else 0

    monkeypatch.setattr("hpgcn.training.trainer.take_step", interrupted)
    changes = {"batch": BATCHES[0], "epochs": 3, "checkpoint_every": 0, "task": task}
    if task == "links":
        graph = with_links(graph)
        changes["batch"] = f"links:{-(-len(graph.links['train']) // 5)}"
    with pytest.raises(StoppedError, match="after step 2 of epoch 2, with a checkpoint"):
        train(graph, settings(tmp_path / "cut", **changes))
    assert steps(tmp_path / "cut") == ["step-00000007"]
    assert len(lines(tmp_path / "cut")) == 1
    monkeypatch.setattr("hpgcn.training.trainer.take_step", taken)
    train(graph, resume=tmp_path / "cut")
    train(graph, settings(tmp_path / "whole", **changes))
    assert left_behind(tmp_path / "cut") == left_behind(tmp_path / "whole")


@pytest.mark.long
@pytest.mark.parametrize("batch", ["vertices:120", "neighbors:4,3:45"])
def test_arrays_in_files(small, tmp_path, fault, monkeypatch, batch):
    """A run with --scratch that ended within an epoch goes on in memory, and the reverse."""
    for module, name in ((scratch_plan, "PROCESS"), (scratch_plan, "RANK"), (spool, "WINDOW")):
        monkeypatch.setattr(module, name, 0)
    graph = make(n=601, f=33)
    parts = make_partition(graph, 3, method="random")
    graph = graph.permuted(parts.perm, parts.offsets)
    changes = {"batch": batch, "epochs": 3, "checkpoint_every": 3, "strategy": "p2p"}
    disk = {"memory": "800K", "scratch": str(small)}
    train(graph, settings(tmp_path / "whole", **changes), ranks=3)
    for first, second, name in ((disk, {}, "a"), ({}, disk, "b")):
        out = tmp_path / name
        fault("raise:0:2:checkpoint.begin")
        with pytest.raises(Exception, match="on purpose"):
            train(graph, settings(out, **changes, **first), ranks=3)
        fault("")
        train(graph, settings(out, **changes, **second), ranks=3, resume=out)
        assert left_behind(out) == left_behind(tmp_path / "whole")
    logits = [predict(graph, out, ranks=3, **where)["logits"] for where in ({}, disk)]
    np.testing.assert_array_equal(*logits)


@pytest.mark.long
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("batch, ranks", [(BATCHES[0], 3), (BATCHES[1], 1)])
def test_killed_within_an_epoch(tmp_path, batch, ranks):
    """A run killed at a checkpoint within an epoch resumes to the same weights, on local ranks."""
    succeed("generate", "sbm", "--scale", 8, "--features", 12, "--classes", 4, "g.h5", cwd=tmp_path)
    succeed("partition", "g.h5", "-k", ranks, "--method", "random", "-o", "parts.h5", cwd=tmp_path)
    command = ("train", "parts.h5", "--batch", batch, "--epochs", 4, "--checkpoint-every", 2,
               "--strategy", "cover", "--ranks", ranks)
    succeed(*command, "--out", "whole", cwd=tmp_path)
    done = hpgcn(*command, "--out", "cut", cwd=tmp_path,
                 **{faults.VARIABLE: "kill:0:3:checkpoint.end"})
    assert done.returncode == -signal.SIGKILL, done.stderr
    state = sorted((tmp_path / "cut/checkpoints").glob("step-*"))[-1]
    _, attributes = store.read_state(state / "state.h5")
    assert json.loads(attributes["under_way"])["steps"] > 0
    succeed("train", "parts.h5", "--resume", "--out", "cut", "--ranks", ranks, cwd=tmp_path)
    assert left_behind(tmp_path / "cut") == left_behind(tmp_path / "whole")


def test_what_is_said_of_an_epoch_under_way_is_checked(graph, tmp_path, fault):
    from hpgcn.training.saved.checkpoint_state import parse

    fault("raise:0:2:checkpoint.end")
    with pytest.raises(RuntimeError, match="on purpose"):
        train(graph, settings(tmp_path / "cut", batch=BATCHES[0], checkpoint_every=3))
    path = tmp_path / "cut/checkpoints" / steps(tmp_path / "cut")[-1] / "state.h5"
    arrays, attributes = store.read_state(path)
    told = json.loads(attributes["under_way"])
    assert told.keys() == vars(EpochSums()).keys()
    for name, value, words in (("steps", -1, "steps is -1"), ("loss", "x", "loss is 'x'")):
        wrong = {**attributes, "under_way": json.dumps({**told, name: value})}
        with pytest.raises(DataError, match=f"under_way: {words}"):
            parse(path, arrays, wrong)
    wrong = {**attributes, "under_way": json.dumps({**told, "parts": {"spmm": "x"}})}
    with pytest.raises(DataError, match="under_way: parts: spmm is 'x'"):
        parse(path, arrays, wrong)
    older = json.dumps({name: value for name, value in told.items() if name != "parts"})
    parse(path, arrays, {**attributes, "under_way": older})
    without = {name: value for name, value in attributes.items() if name != "under_way"}
    with pytest.raises(DataError, match="epoch is 0, expected"):
        parse(path, arrays, {**without, "epoch": 0})
