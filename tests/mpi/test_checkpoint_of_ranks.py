"""Resumed runs have equal bits on the same ranks.

On other ranks they are equal up to rounding.
"""
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from graphs import make, scattered

import hpgcn
from hpgcn.errors import ConfigError, StorageError
from hpgcn.training.files.run_directory import RunDirectory, read_run

pytestmark = pytest.mark.mpi


@pytest.fixture
def folder(comm):
    """Return one temporary folder for all ranks."""
    path = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    yield Path(path)
    comm.barrier()
    if comm.rank == 0:
        shutil.rmtree(path)


def train(comm, out, **changes):
    resume = changes.pop("resume", None)
    settings = {"out": str(out), "epochs": 9, "hidden": 6, "checkpoint_every": 4,
                "strategy": "p2p", **changes}
    config = hpgcn.Config(**settings)
    graph = make(n=90, f=9)
    if comm is not None and config.strategy == "p2p":
        graph = scattered(graph, comm)
    return hpgcn.train(graph, config, comm and comm.mpi, resume=resume)


def weights(out):
    return {name: array.tobytes() for name, array in read_run(out)[0].items()}


# others resume on local ranks in tests/reliability and tests/ranks; test_equal_local_ranks.py
# shows that ranks of MPI write and compute the same
@pytest.mark.parametrize("changes", [
    {}, pytest.param(
        {"strategy": "2d", "optimizer": "adamw", "schedule": "step", "step_every": 2, "warmup": 5,
         "clip_norm": 0.1, "label_smoothing": 0.1, "class_weight": "balanced"},
        marks=pytest.mark.long),
    *(pytest.param(changes, marks=pytest.mark.release) for changes in (
        {"optimizer": "sgd", "lr": 0.5, "strategy": "1d"}, {"dtype": "float64", "patience": 3},
        {"strategy": "mop", "model": "sage"}))], ids=str)
def test_a_run_that_goes_on_has_the_bits_of_an_undisturbed_one(comm, folder, changes):
    whole = train(comm, folder / "whole", **changes)
    train(comm, folder / "cut", **{**changes, "epochs": 6})
    found = train(comm, folder / "cut", resume=folder / "cut", **changes)
    timed = {"epoch_s_median", "setup_s", "started_utc", "peak_rss_bytes", "out", "steps"}
    assert {name for name in whole if whole[name] != found[name]} <= timed
    assert weights(folder / "cut") == weights(folder / "whole")


@pytest.mark.long
@pytest.mark.parametrize("strategy, dtype, tolerance", [
    ("p2p", "float64", 1e-10), ("1.5d", "float32", 1e-5),
    pytest.param("p2p", "float32", 1e-5, marks=pytest.mark.release),
    pytest.param("1.5d", "float64", 1e-10, marks=pytest.mark.release)])
def test_other_ranks_and_strategies_are_equal_to_rounding(comm, folder, strategy, dtype, tolerance):
    if comm.rank == 0:
        train(None, folder / "whole", dtype=dtype)
        train(None, folder / "cut", dtype=dtype, epochs=5)
    comm.barrier()
    train(comm, folder / "cut", dtype=dtype, strategy=strategy, resume=folder / "cut")
    expected = read_run(folder / "whole")[0]
    for name, array in read_run(folder / "cut")[0].items():
        np.testing.assert_allclose(array, expected[name], rtol=0, atol=tolerance)


def test_the_first_rank_to_return_finds_a_whole_run_directory(comm, folder, monkeypatch):
    finish = RunDirectory.finish

    def late(self, *arguments, **options):
        time.sleep(0.2)  # on rank 0: without a wait the others would have returned by then
        finish(self, *arguments, **options)

    monkeypatch.setattr(RunDirectory, "finish", late)
    train(comm, folder / "run", epochs=2)
    assert (folder / "run/summary.json").exists() and (folder / "run/model.h5").exists()
    comm.barrier()

    def full(*_, **__):
        raise StorageError("the disk is full")

    monkeypatch.setattr(RunDirectory, "finish", full)
    with pytest.raises(StorageError, match="the disk is full"):
        train(comm, folder / "full", epochs=2)


def test_what_rank_0_finds_is_raised_on_all_ranks(comm, folder):
    train(comm, folder / "run", epochs=4)
    with pytest.raises(ConfigError, match="hidden is 7"):
        train(comm, folder / "run", hidden=7, resume=folder / "run")
    if comm.rank == 0:
        (folder / "run/checkpoints/step-00000004/manifest.json").unlink()
    comm.barrier()
    with pytest.raises(StorageError, match="none of 1 checkpoints can be read"):
        train(comm, folder / "run", resume=folder / "run")
