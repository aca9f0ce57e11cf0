"""Mini-batches with arrays in files: results, bytes read, and the plan."""
import os

import numpy as np
import pytest
from graphs import make

from hpgcn import Config, run_on_ranks, save, store, train
from hpgcn.comm import run_on_disk
from hpgcn.errors import ConfigError
from hpgcn.kernels.disk.file_table import row_of
from hpgcn.partition import Partition
from hpgcn.planning.answers import scratch_plan as plans
from hpgcn.planning.counts import touches
from hpgcn.planning.counts.batch_reads import GAP, PAGE, READS, span_bytes
from hpgcn.planning.seconds.step_seconds import Machine
from hpgcn.runtime.copy_rates import CopyRates
from hpgcn.runtime.disk import scratch_folder
from hpgcn.runtime.disk.mapped_pages import pages_of, put_out
from hpgcn.training.trainer import Trainer

pytestmark = pytest.mark.long

SETTINGS = {"layers": 3, "hidden": 32, "epochs": 2, "device": "cpu", "strategy": "p2p",
            "dropout": 0.3, "effort": "default"}  # parts that are no blocks of rows
BATCHES = {"vertices": "vertices:150", "neighbors": "neighbors:4,3,2:70", "parts": "parts:1:4"}


def test_rows_are_read_without_their_array(tmp_path):
    """Rows of an array come from its file, also those that were changed and not written yet."""
    from hpgcn.kernels.disk.file_arrays import FileArrays

    files = FileArrays(tmp_path, PAGE)
    with files.use():
        x = np.arange(1 << 20, dtype=np.int16)[:264 * 3900].reshape(-1, 264)[1:]  # within a page
        with files.in_memory():
            assert row_of(np.empty(PAGE)) is None
    expected = x.copy()
    put_out([pages_of(x.base)])
    x[5] = expected[5] = -1
    for rows in (np.random.default_rng(0).permutation(len(x))[:500], [5, 5, 6], [], [len(x) - 1]):
        rows = np.array(rows, int)
        np.testing.assert_array_equal(files.take(x, rows), expected[rows])
    np.testing.assert_array_equal(files.take(expected, np.array([3])), expected[[3]])
    np.testing.assert_array_equal(x, expected)


def test_bytes_of_reads():
    """Pages that are near are one read, with the bytes between them."""
    places = np.array([10, 5000, 2 * PAGE + GAP, 10 * PAGE + GAP])
    shares = (np.arange(READS)[:, None] * (1 << 18) + places).reshape(-1)
    assert span_bytes(shares, 100) == READS * (3 * PAGE + GAP + PAGE)
    assert span_bytes(places[:1], 2 * PAGE) == 3 * PAGE
    assert span_bytes(places[:0], 9) == 0


CASES = [  # sampler, strategy, other settings
    *((name, strategy, {}) for name in BATCHES for strategy in ("p2p", "cover", "vertex-cut")),
    ("neighbors", "p2p", {"model": "gat", "heads": 2}),
    ("vertices", "vertex-cut", {"dtype": "bf16"}),
    ("vertices", "p2p", {"sparse": True})]


@pytest.mark.parametrize("sampler, strategy, more", CASES)
def test_results_are_those_in_memory(sampler, strategy, more, small):
    """Losses and weights are equal to the bit, also those of a rank that stays in memory."""
    more = dict(more)
    graph = make(n=601, f=33, degree=12, sparse=more.pop("sparse", False))
    config = Config(**SETTINGS | {"strategy": strategy, "batch": BATCHES[sampler]} | more)

    def work(comm):
        result = train(graph, config, comm)
        return [each["loss"] for each in result.history], result.weights

    losses, weights = run_on_ranks(work, 3)[0]
    found, found_weights = run_on_disk(work, 3, small, kept=1)[0]
    assert found == losses
    for name, array in weights.items():
        np.testing.assert_array_equal(found_weights[name], array)
    assert not os.listdir(small)


def plan_of(path, config, ranks=(4,)):
    """Return the ScratchPlan of a disk that need not be measured."""
    return plans.plan_scratch(path, config, ranks, machine=Machine(disk=CopyRates(1e9, 1e9, 1e9)))


def in_four_parts(n, folder):
    """Return the path of a graph in four parts."""
    path = str(folder / "p.h5")
    store.write_partitioned(path, make(n=n, f=128, degree=8),
                            Partition.from_parts(np.arange(n) * 4 // n, 4))
    return path


@pytest.mark.parametrize("batch, strategy, memory", [
    ("vertices:1000", "p2p", "60M"),
    pytest.param("neighbors:3,3:500", "cover", "63M", marks=pytest.mark.release)])
def test_bytes_are_those_of_the_plan(batch, strategy, memory, monkeypatch, tmp_path):
    """Bytes that Linux counts follow the batches: within 10% of the plan, and none written."""
    monkeypatch.setattr(scratch_folder, "THRESHOLD", 1 << 14)
    monkeypatch.setattr(touches, "LEAST", 1 << 14)
    monkeypatch.setattr(plans, "PROCESS", 0)
    monkeypatch.setattr(plans, "RANK", 0)
    config = Config(**SETTINGS | {"layers": 2, "hidden": 64, "batch": batch, "eval_every": 0,
                                  "epochs": 3, "strategy": strategy})
    stored = in_four_parts(30001, tmp_path)
    counts, train_epoch = [], Trainer.train_epoch

    def count(trainer, epoch, *others):
        if trainer.comm.rank == 0 and trainer.comm.size == 4:  # not in the warm-up
            counts.append(scratch_folder.disk_bytes())
        return train_epoch(trainer, epoch, *others)

    monkeypatch.setattr(Trainer, "train_epoch", count)
    run_on_disk(lambda comm: train(stored, config, comm), 4, str(tmp_path))
    read, written = np.array(counts[2]) - counts[1]
    if not read:
        pytest.skip("files of this folder are in memory")
    plan = plan_of(stored, config.replace(memory=memory, scratch=str(tmp_path)))
    assert plan.kept == 0  # as in the run
    assert read == pytest.approx(plan.nbytes[0], rel=0.1)
    assert written < read / 100


def test_the_plan_of_batches(monkeypatch, tmp_path):
    """A batch is in memory, or the run is refused."""
    monkeypatch.setattr(plans, "PROCESS", 0)
    monkeypatch.setattr(plans, "RANK", 0)
    config = Config(**SETTINGS, batch="vertices:100", memory="20M", scratch=str(tmp_path))
    stored = in_four_parts(6001, tmp_path)
    plan = plan_of(stored, config)
    assert plan.steps == 61 and plan.seconds is None and plan.as_dict()["batches_memory"] > 0
    assert f"61 per epoch, {plan.batches_memory / 1e9:.3g} GB" in plans.table(plan)
    larger = plan_of(stored, config.replace(batch="vertices:200", eval_every=0))
    assert larger.batches_memory > plan.batches_memory
    with pytest.raises(ConfigError, match=r"needs [\d,]+ bytes, but memory= is 1,048,576"):
        plan_of(stored, config.replace(memory="1M"))
    save(make(n=600), tmp_path / "whole.h5")
    assert plan_of(str(tmp_path / "whole.h5"), config, None).ranks == 1


def test_batches_that_fit_train_in_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(plans, "measure_disk", lambda folder: CopyRates(1e9, 1e9, 1e9))
    config = Config(**SETTINGS, batch="vertices:150")
    fits = config.replace(memory="2G", scratch=str(tmp_path))
    losses = [[each["loss"] for each in train(make(n=601, f=33), each).history]
              for each in (config, fits)]
    assert losses[0] == losses[1]
