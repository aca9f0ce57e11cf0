"""Later epochs allocate no new arrays, and set-up uses the predicted memory."""
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from held import peak_within, run_two_epochs
from mpi4py import MPI

from hpgcn import store
from hpgcn.comm import as_comm
from hpgcn.config import Config
from hpgcn.graphs.graph import Graph
from hpgcn.partition import Partition
from hpgcn.planning.answers.dry_run import forecast
from hpgcn.runtime.machine import return_freed_memory
from hpgcn.strategies import STRATEGIES
from hpgcn.training.setup.placement import assign_rows
from hpgcn.training.steps.training_step import evaluate
from hpgcn.training.trainer import make_trainer

pytestmark = pytest.mark.mpi
F = 48


@pytest.mark.parametrize("strategy, model, input_dropout, directed", [
    *((strategy, "gcn", 0.5, False) for strategy in STRATEGIES),
    ("p2p", "sage", 0, True), ("2d", "gin", 0.5, False), ("vertex-cut --delay 2", "sage", 0, True)])
def test_an_epoch_allocates_no_matrix(comm, strategy, model, input_dropout, directed):
    n = 8000 * comm.size
    offsets = [1, 3] if directed else [-3, -1, 1, 3]
    A = sp.diags_array([np.ones(n - abs(k)) for k in offsets], offsets=offsets)
    X = np.random.default_rng(0).standard_normal((n, F)).astype(np.float32)
    rows = np.arange(n)
    graph = Graph.from_scipy(A, X, rows % 40, (rows[::2], rows[1::4], rows[3::4]), name="chain")
    partition = Partition.from_parts(rows // 8000, comm.size)
    strategy, _, delay = strategy.partition(" --delay ")
    config = Config(strategy=strategy, delay=delay or "0", model=model, layers=3, hidden=44,
                    input_dropout=input_dropout, layer_norm=model == "gin")
    source = graph.permuted(partition.perm, partition.offsets)
    trainer, _ = run_two_epochs(source, config, comm)

    tracemalloc.start()
    trainer.train_epoch(3)
    evaluate(trainer.evaluation)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    shard = trainer.shard
    block = 4 * shard.train.sizes[0] * 40 // shard.columns.row.size  # the narrowest of a layer
    shard.close()
    assert peak < 0.75 * block + 300_000, f"{peak} bytes at once, the smallest matrix has {block}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a small graph, to load kernels, and a large one, written by rank 0."""
    ranks = as_comm(MPI.COMM_WORLD, timeout=300)
    path = Path(ranks.bcast(str(tmp_path_factory.mktemp("graphs"))))
    if ranks.rank == 0:
        n, entries = 40_000, 1_500_000
        rng = np.random.default_rng(0)
        A = sp.coo_array((np.ones(entries), rng.integers(0, n, (2, entries))), shape=(n, n))
        rows = np.arange(n)
        for name, matrix in (("small", A.tocsr()[:500, :500]), ("large", A)):
            m = matrix.shape[0]
            graph = Graph.from_scipy(matrix, np.ones((m, 4), np.float32), rows[:m] % 4,
                                     (rows[:m:2], rows[1:m:4], rows[3:m:4]), symmetrize=True)
            store.write_graph(path / f"{name}.h5", graph)
    ranks.barrier()
    yield path
    ranks.barrier()  # before pytest deletes the folder
    ranks.close()


@pytest.mark.parametrize("strategy", [
    name for name, each in STRATEGIES.items() if not each.requires_partition])
def test_setting_up_takes_what_is_said(comm, folder, strategy):
    """Set-up of a graph of 40,000 vertices needs no more memory than predicted."""
    for name in ("small", "large"):
        path = folder / f"{name}.h5"
        config = Config(strategy=strategy, hidden=4)
        placed = assign_rows(store.load(path), comm, config)
        expected = forecast(placed, config, comm)["memory"][comm.rank]["setup"]
        del placed
        source = store.load(path)
        return_freed_memory()
        with peak_within() as grown:
            trainer = make_trainer(source, config, comm, warm=False)
        peak, = grown
        trainer.close()
    assert abs(expected - peak) < 0.2 * peak + 10_000_000, f"{expected} bytes said, {peak} found"
