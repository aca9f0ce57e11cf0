"""Local ranks that take turns on a GPU, real or fake, with arrays at home in a file."""
import mmap
import os

import numpy as np
import pytest
from cuda_ranks import cuda, real_or_fake
from graphs import make
from test_gpu_turns import SETTINGS, check, poisoned

from hpgcn import Config, save, train
from hpgcn.errors import ConfigError
from hpgcn.partition import make_partition
from hpgcn.planning.answers import gpu_plan, scratch_plan
from hpgcn.planning.counts import touches
from hpgcn.runtime.copy_rates import CopyRates
from hpgcn.runtime.disk import scratch_folder
from hpgcn.runtime.gpu import file_homes, gpu_turns
from hpgcn.runtime.gpu.file_homes import PAGE, FileHomes
from hpgcn.runtime.gpu.gpu_turns import GpuTurns
from hpgcn.runtime.gpu.host_memory import Scratch
from hpgcn.store import write_partitioned

__all__ = ["cuda", "poisoned"]
POOL = 48 * PAGE


@pytest.fixture
def folder(poisoned, monkeypatch, tmp_path):
    """Return a scratch folder; a file and a pool that must not be read are 0xFF."""
    monkeypatch.setattr(file_homes, "PIECE", 4 * PAGE)
    monkeypatch.setattr(file_homes, "LEAST", 20 * PAGE)
    reserve, free = FileHomes.reserve, FileHomes._free

    def fill_file(homes, nbytes):
        place = reserve(homes, nbytes)
        pages = file_homes.whole_pages((0, nbytes))[1]
        filled = np.frombuffer(mmap.mmap(-1, pages), np.uint8)  # begins at a page
        filled[:] = 255
        homes.writer.submit(homes.file.write_array, filled, place).result()
        return place

    def fill_pool(homes, piece):
        free(homes, piece)
        piece.memory[:] = 255

    monkeypatch.setattr(FileHomes, "reserve", fill_file)
    monkeypatch.setattr(FileHomes, "_free", fill_pool)
    (tmp_path / "scratch").mkdir()
    return str(tmp_path / "scratch")


@pytest.mark.parametrize("ranks, slots, kept", [(3, 2, 0), (5, 2, 0), (5, 2, 2), (4, 3, 0),
                                                (3, 1, 0), (2, 1, 0)])
def test_results_are_those_of_ranks_that_stay(cuda, folder, ranks, slots, kept):
    turns = check(make(n=601, f=33, degree=12), Config(**SETTINGS), ranks, slots,
                  Scratch(folder, ranks - kept, POOL))
    print(turns.host.files.moved, turns.copied, turns.unforeseen, turns.host.files.waited)


@pytest.mark.parametrize("strategy, changes", [
    *(("p2p", {"model": model}) for model in ("sage", "gin")),
    ("p2p", {"model": "gat", "heads": 2, "attention_dropout": 0.3}),
    *((strategy, {}) for strategy in ("cover", "vertex-cut", "1d", "mop"))], ids=str)
def test_models_and_strategies(cuda, folder, strategy, changes):
    turns = check(make(n=301, f=33, degree=12, directed=True),
          Config(**SETTINGS | {"epochs": 3, "strategy": strategy} | changes), ranks=4,
          scratch=Scratch(folder, 3, POOL))
    print(turns.host.files.moved, turns.copied, turns.unforeseen, turns.host.files.waited)


@pytest.mark.parametrize("late", ["all", "kernels"])
def test_copies_kernels_and_the_disk_wait_for_each_other(folder, late):
    with real_or_fake(late=late):
        check(make(n=601, f=33, degree=12), Config(**SETTINGS), 4, 2, Scratch(folder, 4, POOL))


@pytest.fixture
def plain(monkeypatch):
    """Let small arrays have homes and files, and the process take no memory."""
    for module, name in ((gpu_turns, "THRESHOLD"), (touches, "LEAST"), (file_homes, "PIECE")):
        monkeypatch.setattr(module, name, 1 << 14)
    monkeypatch.setattr(scratch_folder, "THRESHOLD", 1 << 14)
    monkeypatch.setattr(file_homes, "LEAST", 1 << 17)
    monkeypatch.setattr(gpu_plan, "measure_disk", lambda folder: CopyRates(1e9, 1e9, 1e9))
    for module, name in ((scratch_plan, "PROCESS"), (scratch_plan, "RANK"), (gpu_plan, "PAIR"),
                         (gpu_plan, "CONTEXT")):
        monkeypatch.setattr(module, name, 0)


def test_a_run_chooses_ranks_that_fit_both_tiers(cuda, plain, monkeypatch, tmp_path):
    """Each limit needs more ranks, or is named; a run has the bits of these ranks."""
    graph, path, parts = make(n=4001, f=512, degree=4), *map(str, (tmp_path / "g.h5", tmp_path / "p.h5"))
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
    with pytest.raises(ConfigError, match=r"2 ranks need [\d,]+ bytes of GPU memory, .*: 8 ranks fit"):
        gpu_plan.plan_gpu(path, config, [2])
