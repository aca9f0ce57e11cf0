"""Local ranks that take turns on a GPU, real or fake, with arrays at home in a file."""
import mmap

import numpy as np
import pytest
from cuda_ranks import cuda, real_or_fake
from graphs import make
from test_gpu_turns import SETTINGS, check, poisoned

from hpgcn import Config
from hpgcn.runtime.gpu import file_homes
from hpgcn.runtime.gpu.file_homes import PAGE, FileHomes
from hpgcn.runtime.gpu.host_memory import Scratch

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
