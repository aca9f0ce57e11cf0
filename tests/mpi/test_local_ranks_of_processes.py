"""Local ranks of several processes give the bits and files of as many ranks of one process."""
from pathlib import Path

import fake_cupy
import numpy as np
import pytest
from cuda_ranks import real_or_fake
from graphs import make, scattered
from mpi4py import MPI
from test_equal_local_ranks import contents, on_rank_0

import hpgcn
from hpgcn import Config, run_on_ranks
from hpgcn.comm import as_comm, run_on_gpu
from hpgcn.errors import ConfigError, DataError, DivergedError, StoppedError, UsageError
from hpgcn.planning.counts import touches
from hpgcn.runtime.gpu import gpu_turns
from hpgcn.runtime.gpu.gpu_turns import GpuTurns

pytestmark = pytest.mark.mpi
SETTINGS = {"layers": 3, "hidden": 24, "epochs": 3, "eval_every": 2, "dropout": 0.3}
CASES = [("p2p", {}), ("p2p", {"model": "gat", "heads": 2, "attention_dropout": 0.3}),
         ("mop", {}), ("2d", {}), ("vertex-cut", {}),
         *(pytest.param(strategy, {}, marks=pytest.mark.long) for strategy in ("cover", "1d"))]


@pytest.fixture
def gpu(monkeypatch):
    """Provide a fake GPU whose copies are late, and let most arrays have homes."""
    monkeypatch.setattr(gpu_turns, "THRESHOLD", 1 << 8)
    with real_or_fake(late="kernels") as device:
        yield device


def work(comm, graph, config):
    """Train and predict; return losses, counts, weights and logits."""
    result = hpgcn.train(scattered(graph, as_comm(comm)), config, comm)
    found = hpgcn.predict(scattered(graph, as_comm(comm)), result, comm, device=config.device)
    rows = [(row["loss"], row["val_loss"], row["sent_bytes"]) for row in result.history]
    weights = {name: array.tobytes() for name, array in result.weights.items()}
    return rows, weights, found and found["logits"].tobytes()


def check(comm, run, graph, config, ranks):
    """Compare `run`, by which each process has local ranks, with as many of one process."""
    found = run(work, graph, config, processes=comm.mpi)
    expected = on_rank_0(comm, lambda: run_on_ranks(work, ranks * comm.size, graph, config))
    own = expected[comm.rank * ranks:(comm.rank + 1) * ranks]
    assert found == own


@pytest.mark.parametrize("strategy, changes", CASES, ids=str)
def test_bits_on_cpus(comm, strategy, changes):
    config = Config(**SETTINGS | changes, strategy=strategy, device="cpu")
    check(comm, lambda *given, **options: run_on_ranks(given[0], 2, *given[1:], **options),
          make(n=301, f=33, degree=12, directed=True), config, 2)


@pytest.mark.parametrize("strategy, changes", CASES, ids=str)
def test_bits_on_gpus(comm, gpu, strategy, changes):
    """Three ranks of each process take turns in two slots."""
    config = Config(**SETTINGS | changes, strategy=strategy, device="cuda")
    turns = GpuTurns(3, 2, 4 << 20)
    check(comm, lambda *given, **options: run_on_gpu(given[0], turns, *given[1:], **options),
          make(n=301, f=33, degree=6), config, 3)
    assert all(sum(each) > 0 for each in turns.copied.values())
