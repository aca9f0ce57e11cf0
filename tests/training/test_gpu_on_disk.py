"""Local ranks that take turns on a GPU, real or fake, with arrays at home in a file."""
import mmap
import os
import resource
import shutil
from functools import partial

import numpy as np
import pytest
from commands import refused, succeed
from cuda_ranks import cuda, real_or_fake
from graphs import make, scattered
from test_gpu_turns import SETTINGS, SLOT, check, poisoned

from hpgcn import Config, run_on_ranks, save, train
from hpgcn.comm import as_comm, run_on_disk, run_on_gpu
from hpgcn.errors import ConfigError, StorageError, UsageError
from hpgcn.partition import make_partition
from hpgcn.planning.answers import gpu_plan, scratch_plan
from hpgcn.planning.counts import touches
from hpgcn.runtime.copy_rates import CopyRates
from hpgcn.runtime.disk import scratch_folder
from hpgcn.runtime.gpu import file_homes, gpu_turns
from hpgcn.runtime.gpu.file_homes import PAGE, FileHomes
from hpgcn.runtime.gpu.gpu_turns import GpuTurns
from hpgcn.runtime.gpu.host_memory import ScratchSpace
from hpgcn.store import write_partitioned

__all__ = ["cuda", "poisoned"]
POOL = 48 * PAGE


@pytest.fixture
def folder(poisoned, monkeypatch, tmp_path):
    """Return a scratch folder; a file and a pool that must not be read are 0xFF."""
    monkeypatch.setattr(file_homes, "PIECE", 4 * PAGE)
    monkeypatch.setattr(file_homes, "LEAST", 20 * PAGE)
    take_place, free = FileHomes.take_place, FileHomes._free

    def fill_file(homes, pages):
        place = take_place(homes, pages)
        filled = np.frombuffer(mmap.mmap(-1, pages), np.uint8)  # begins at a page
        filled[:] = 255
        homes.writer.submit(homes.file.write_array, filled, place).result()
        return place

    def fill_pool(homes, piece):
        free(homes, piece)
        piece.memory[:] = 255

    monkeypatch.setattr(FileHomes, "take_place", fill_file)
    monkeypatch.setattr(FileHomes, "_free", fill_pool)
    (tmp_path / "scratch").mkdir()
    return str(tmp_path / "scratch")


@pytest.mark.parametrize("ranks, slots, kept", [(3, 2, 0), (5, 2, 0), (5, 2, 2), (4, 3, 0),
                                                (3, 1, 0), (2, 1, 0)])
def test_results_are_those_of_ranks_that_stay(cuda, folder, ranks, slots, kept):
    turns = check(make(n=601, f=33, degree=12), Config(**SETTINGS), ranks, slots,
                  ScratchSpace(folder, ranks - kept, POOL))
    assert min(turns.host.files.moved.values()) > 10 * POOL and not os.listdir(folder)
    assert (turns.host.pinned.nbytes > 100_000) == (kept > 0)  # else messages to next ranks


@pytest.mark.parametrize("strategy, changes", [
    *(("p2p", {"model": model}) for model in ("sage", "gin")),
    ("p2p", {"model": "gat", "heads": 2, "attention_dropout": 0.3}),
    *((strategy, {}) for strategy in (
        "cover", "vertex-cut", "1d", "mop", "1.5d", "2d", "3d:2x1x2"))], ids=str)
def test_models_and_strategies(cuda, folder, strategy, changes):
    check(make(n=301, f=33, degree=12, directed=True),
          Config(**SETTINGS | {"epochs": 3, "strategy": strategy} | changes), ranks=4,
          scratch=ScratchSpace(folder, 3, POOL))


@pytest.mark.parametrize("late", ["all", "kernels"])
def test_copies_kernels_and_the_disk_wait_for_each_other(folder, late):
    with real_or_fake(late=late):
        check(make(n=601, f=33, degree=12), Config(**SETTINGS), 4, 2, ScratchSpace(folder, 4, POOL))


@pytest.fixture
def plain(monkeypatch):
    """Let small arrays have homes and files, and the process take no memory."""
    for module, name in ((gpu_turns, "THRESHOLD"), (touches, "LEAST"), (file_homes, "PIECE")):
        monkeypatch.setattr(module, name, 1 << 14)
    monkeypatch.setattr(scratch_folder, "THRESHOLD", 1 << 14)
    monkeypatch.setattr(file_homes, "LEAST", 1 << 17)
    monkeypatch.setattr(scratch_plan, "measure_disk", lambda folder: CopyRates(1e9, 1e9, 1e9))
    for module, name in ((scratch_plan, "PROCESS"), (scratch_plan, "RANK"), (gpu_plan, "PAIR"),
                         (gpu_plan, "CONTEXT")):
        monkeypatch.setattr(module, name, 0)


def test_a_run_chooses_ranks_that_fit_both_tiers(cuda, plain, monkeypatch, tmp_path):
    """Each limit needs more ranks, or is named; a run has the bits of these ranks."""
    graph = make(n=4001, f=512, degree=4)
    path, parts = str(tmp_path / "g.h5"), str(tmp_path / "p.h5")
    save(graph, path)
    write_partitioned(parts, graph, make_partition(graph, 8, method="random", refine=False))
    (folder := tmp_path / "scratch").mkdir()
    config = Config(hidden=8, epochs=2, device="cuda", strategy="p2p", gpu_memory="30M",
                    memory="1G", scratch=str(folder))
    assert gpu_plan.plan_gpu(path, config).ranks == 1
    in_host = gpu_plan.plan_gpu(path, config.replace(gpu_memory="24M"))
    assert in_host.ranks == in_host.kept > 1 and not in_host.pool
    config = config.replace(gpu_memory="18M", memory="20M")
    plan = gpu_plan.plan_gpu(path, config)
    assert 0 < plan.kept < plan.ranks and plan.host <= 20 << 20 and plan.disk_s > plan.copy_s

    made, finish = [], GpuTurns.close
    monkeypatch.setattr(GpuTurns, "close", lambda turns: made.append(turns) or finish(turns))
    plan = gpu_plan.plan_gpu(parts, config)
    found = train(parts, config)
    assert made[0].host.nbytes <= plan.pinned and not os.listdir(folder)
    assert made[0].host.files.nbytes == plan.pool and made[0].host.files.reserved <= plan.scratch
    assert found["turns"]["pinned_bytes"] == made[0].host.nbytes
    expected = train(parts, config.replace(gpu_memory="", memory="", scratch=""), ranks=plan.ranks)
    assert [each["loss"] for each in found.history] == [each["loss"] for each in expected.history]
    assert "turns" not in expected

    with pytest.raises(ConfigError, match=r"g\.h5: 8 ranks need [\d,]+ bytes of host memory, but "
                       r"memory= is 10,485,760: no number of ranks from 2 to 512 fits$"):
        gpu_plan.plan_gpu(path, config.replace(memory="10M"))
    with pytest.raises(ConfigError, match=r"2 ranks need [\d,]+ bytes of GPU memory, .*: 8 ranks "):
        gpu_plan.plan_gpu(path, config, [2])


def test_a_run_moves_down_through_the_tiers_and_up_again(cuda, folder, tmp_path):
    """From files of a CPU to a GPU with turns, to one above a file, and to one without.

    From the same checkpoint on, all on the GPU are equal to the bit.
    """
    graph, out = make(n=601, f=33, degree=12), str(tmp_path / "run")
    config = Config(**SETTINGS | {"epochs": 2}, checkpoint_every=1)

    def run(start, out=out, **changes):
        resumed = {"resume": out} if changes["epochs"] > 2 else {}
        return start(lambda comm: train(scattered(graph, as_comm(comm)),
                                        config.replace(out=out, **changes), comm, **resumed))

    assert "turns" not in run(lambda work: run_on_disk(work, 4, folder), epochs=2, device="cpu")[0]
    shutil.copytree(out, straight := str(tmp_path / "straight"))
    run(lambda work: run_on_gpu(work, GpuTurns(4, 2, SLOT)), epochs=3)
    run(lambda work: run_on_gpu(work, GpuTurns(4, 2, SLOT, scratch=ScratchSpace(folder, 3, POOL))),
        epochs=5)
    on_ranks = partial(run_on_ranks, ranks=4)
    found, expected = run(on_ranks, epochs=6)[0], run(on_ranks, out=straight, epochs=6)[0]
    on_cpu = run_on_ranks(lambda comm: train(
        scattered(graph, as_comm(comm)),
        config.replace(epochs=6, device="cpu", checkpoint_every=0), comm), 4)[0]
    for name, weights in expected.weights.items():
        np.testing.assert_array_equal(found.weights[name], weights)
        np.testing.assert_allclose(found.weights[name], on_cpu.weights[name], rtol=1e-3, atol=1e-5)


def test_a_full_disk_is_one_line(cuda, folder):
    """Whatever file does not fit, and on whatever rank; nothing remains in the folder."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    graph = make(n=601, f=33)
    turns = GpuTurns(3, 1, SLOT, scratch=ScratchSpace(folder, 3, POOL))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
        with pytest.raises(StorageError, match=r"^scratch='.*': File too large"):
            run_on_gpu(lambda comm: train(scattered(graph, as_comm(comm)), Config(**SETTINGS),
                                          comm), turns)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not os.listdir(folder)


def test_settings_that_do_not_go_together(tmp_path):
    config = Config(device="cuda", gpu_memory="8M", scratch=str(tmp_path))
    with pytest.raises(UsageError, match=r"^scratch='.*': needs memory="):
        train(make(), config)


def test_commands(plain, tmp_path):
    """`plan` and `train --dry-run` plan all tiers; refusals have their codes."""
    path = tmp_path / "g.h5"
    save(make(n=4001, f=512, degree=4), path)
    tiers = ["--device", "cuda", "--gpu-memory", "18M", "--scratch", tmp_path]
    settings = ["--hidden", 8, "--strategy", "p2p"]
    said = succeed("train", path, *settings, *tiers, "--memory", "20M", "--dry-run")
    assert "disk per epoch" in said and "of 3 ranks" in said
    widths = ["--widths", "512,8,5"]
    assert "disk per epoch" in succeed("plan", path, *widths, *tiers, "--memory", "20M")
    assert "ranks need" in refused(78, "plan", path, *widths, *tiers, "--memory", "10M")
    assert "needs --memory" in refused(2, "plan", path, *tiers)
    none = [*tiers[:-1], tmp_path / "none"]
    assert "No such file" in refused(74, "plan", path, *none, "--memory", "1G")
