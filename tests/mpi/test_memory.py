"""After the first epoch nothing of the size of a dense matrix is allocated: work arrays are made once."""
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from hpgcn.config import Config
from hpgcn.graph import Graph
from hpgcn.partition import Partition
from hpgcn.strategies import STRATEGIES
from hpgcn.trainer import Trainer

pytestmark = pytest.mark.mpi
F = 48


def chain(n, directed):
    offsets = [1, 3] if directed else [-3, -1, 1, 3]
    A = sp.diags_array([np.ones(n - abs(k)) for k in offsets], offsets=offsets)
    X = np.random.default_rng(0).standard_normal((n, F)).astype(np.float32)
    rows = np.arange(n)
    return Graph.from_scipy(A, X, rows % 40, (rows[::2], rows[1::4], rows[3::4]), name="chain")


@pytest.mark.parametrize("strategy, model, input_dropout, directed", [
    *((strategy, "gcn", 0.5, False) for strategy in STRATEGIES), ("p2p", "sage", 0, True), ("2d", "gin", 0.5, False)])
def test_an_epoch_allocates_no_matrix(comm, strategy, model, input_dropout, directed):
    graph = chain(8000 * comm.size, directed)
    partition = Partition.from_parts(np.arange(graph.num_rows) // 8000, comm.size)
    source = graph.permuted(partition.perm, partition.offsets)
    config = Config(strategy=strategy, model=model, input_dropout=input_dropout, layers=3,
                    hidden=44, layer_norm=model == "gin")
    trainer = Trainer(source, config, comm, warm=False)
    for epoch in (1, 2):
        trainer.step(epoch)
        trainer.evaluate()
    tracemalloc.start()
    trainer.step(3)
    trainer.evaluate()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    block = 4 * trainer.rows.train.sizes[0] * 40 // trainer.rows.columns.row.size  # the narrowest matrix of a layer
    trainer.rows.close()
    assert peak < 0.75 * block + 300_000, f"{peak} bytes at once, the smallest matrix has {block}"
