"""Bytes that full batches read from files of a scratch folder and write to them: run and plan."""
import os
import threading
from contextlib import contextmanager, suppress

import pytest
from commands import succeed
from epoch_bytes import count_before_epochs, footprint_of
from graphs import make, with_edges

from hpgcn import Config, save, train
from hpgcn.comm import run_on_disk
from hpgcn.kernels.disk.file_table import ARRAYS, ROWS, TABLE
from hpgcn.planning.answers.scratch_plan import file_bytes
from hpgcn.planning.counts.disk_traffic import disk_traffic
from hpgcn.runtime.disk import scratch_folder
from hpgcn.strategies import STRATEGIES

pytestmark = pytest.mark.long


BATCH_NORM = {"norm": "batch"}  # whose sums over ranks end turns within a layer
CASES = [  # strategy, settings, directed, vertices, ranks, width
    *((strategy, {"model": model, "heads": 1 + (model == "gat")}, model == "gat", 16001, 4, 128)
      for strategy in ("p2p", "cover", "vertex-cut", "1d") for model in ("gcn", "gat")),
    ("p2p", {"model": "gin"}, True, 24001, 3, 256),
    ("p2p", BATCH_NORM, False, 16001, 4, 128),
    ("p2p", {"sparse": True}, False, 16001, 4, 128),
    ("mop", {"model": "gcn"}, False, 16001, 4, 128),
    ("mop", {"model": "gat", "heads": 4}, True, 16001, 4, 128),
    ("1.5d", {"model": "gin"}, True, 16001, 4, 128),
    ("2d", {"model": "gcn"}, False, 16001, 4, 128),
    ("3d", BATCH_NORM, True, 24001, 8, 128),
    *(pytest.param(strategy, {"model": "gin", **BATCH_NORM}, True, 24001, 6, 192,
                   marks=pytest.mark.release) for strategy in ("mop:3", "1.5d:2", "2d:2x3",
                                                                    "3d:3x1x2")),
    # learned rows are small, but not beside weights
    pytest.param("1d", {"embedding": 16}, False, 20001, 5, 96, marks=pytest.mark.release),
    # the matrix weighs more, and the numbers of its rows
    ("1d", {"model": "gcn"}, True, 48001, 4, 32),
    ("cover", {"model": "gat", "heads": 2}, True, 48001, 4, 32),
    pytest.param("p2p", {"model": "gine"}, True, 48001, 4, 32, marks=pytest.mark.release),
    # rows of others are kept, or ranks find all messages and wait for none
    *(pytest.param(strategy, {"model": "gat", "heads": 2, "dropout": 0, "input_dropout": 0}, False,
                   16001, 4, 128, marks=[] if strategy == "p2p" else pytest.mark.release)
      for strategy in ("p2p", "cover", "1d")),
    # rows weigh more than weights, which are read by demand in each turn
    *(pytest.param(strategy, BATCH_NORM, True, 24001, 6, 128, marks=pytest.mark.release)
      for strategy in ("cover", "vertex-cut", "1d")),
    pytest.param("p2p", {"model": "gine"}, True, 24001, 6, 128, marks=pytest.mark.release),
    *(pytest.param(strategy, {"model": "gin"}, directed, 24001, 6, 128, marks=pytest.mark.release)
      for strategy, directed in (("cover", False), ("vertex-cut", True), ("1d", True)))]


@contextmanager
def writing():
    """Context manager: let Linux write changed pages of all arrays again and again."""
    ended = threading.Event()

    def write():
        while not ended.wait(0.01):
            for address, _, descriptor, _ in ROWS[:TABLE[ARRAYS]].tolist():
                with suppress(OSError):  # the array has ended
                    os.fdatasync(descriptor if address else 1 << 30)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def size_of_files(folder):
    """Return the bytes of open files in a folder that have no name."""
    links = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    return sum(os.stat(each).st_size for each in filter(os.path.islink, links)
               if os.readlink(each).startswith(f"{folder}/") and not os.path.exists(
                   os.readlink(each)))


@pytest.mark.parametrize("strategy", ["p2p", "cover"])
def test_early_writes_add_no_bytes(strategy, monkeypatch, tmp_path):
    """Linux writes changed pages before a turn ends if memory is short."""
    with writing():
        test_bytes_are_those_of_the_plan(strategy, {"model": "gcn"}, False, 24001, 4, 128,
                                         monkeypatch, tmp_path, bound=0.01)


@pytest.mark.parametrize("strategy, settings, directed, n, ranks, width", CASES)
def test_bytes_are_those_of_the_plan(strategy, settings, directed, n, ranks, width,
                                     monkeypatch, tmp_path, bound=0.03):
    """Bytes that Linux counts in an epoch with an evaluation are within 3% of the plan.

    The files have no more bytes than planned.
    """
    kind = STRATEGIES[strategy.split(":")[0]]
    path = str(tmp_path / "g.h5")
    graph = with_edges if settings.get("model") == "gine" else make
    settings = dict(settings)
    sparse = settings.pop("sparse", False)
    save(graph(n=n, f=width, degree=8, directed=directed, sparse=sparse), path)
    if kind.accepts_partition:
        method = strategy if strategy == "vertex-cut" else "random"
        succeed("partition", path, "-k", ranks, "--method", method, "--no-refine",
                "--out", tmp_path / "p.h5")
        path = str(tmp_path / "p.h5")
    config = Config(layers=3, hidden=width, epochs=3, device="cpu", strategy=strategy, **settings)
    counts = count_before_epochs(monkeypatch, ranks, lambda: (*scratch_folder.disk_bytes(),
                                                              size_of_files(tmp_path)))
    run_on_disk(lambda comm: train(path, config, comm), ranks, str(tmp_path))
    footprint = footprint_of(path, config, ranks)
    steps = disk_traffic(footprint, kind)

    planned = [sum(int(getattr(each, name).sum()) for each in steps)
               for name in ("read", "written")]
    counted = (counts[2] - counts[1])[:2]
    if not counted.any():
        pytest.skip("files of this folder are in memory")
    assert counted == pytest.approx(planned, rel=bound)
    assert 0.3 < counts[2][2] / file_bytes(footprint, kind, steps, ranks) <= 1
