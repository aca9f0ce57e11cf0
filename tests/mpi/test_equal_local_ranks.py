"""Ranks of one process compute what MPI's ranks compute, to the bit, in as many messages."""
import numpy as np
import pytest
from graphs import make, scattered
from training import SETTINGS, skip_refused

import hpgcn
from hpgcn.comm import as_comm, run_on_ranks
from hpgcn.config import Config
from hpgcn.strategies import STRATEGIES

pytestmark = pytest.mark.mpi
RUNS = [*({"strategy": strategy} for strategy in STRATEGIES),
        *({"strategy": "p2p", **SETTINGS[model]} for model in SETTINGS),
        {"strategy": "vertex-cut", "delay": "2"}, {"strategy": "mop+p2p+cover"},
        {"strategy": "p2p", "dtype": "bf16"},
        *({"strategy": "cover", "batch": batch}
          for batch in ("vertices:60", "parts:1", "neighbours:3,2,2:40"))]


def on_rank_0(comm, function):
    """Return on all ranks what a function returns on rank 0; none of them waits in vain."""
    with comm.extended_timeout(600):
        return comm.bcast(function() if comm.rank == 0 else None)


@pytest.mark.parametrize("settings", RUNS, ids=str)
def test_a_run_of_three_epochs(comm, settings):
    graph = make(directed=settings.get("model", "gcn") == "gcn")
    config = Config(layers=3, hidden=12, dropout=0.3, epochs=3, device="cpu", **settings)
    skip_refused(graph, config, comm)

    def train(communicator):
        result = hpgcn.train(scattered(graph, as_comm(communicator)), config, communicator)
        counted = [(row["loss"], row["val_loss"], row["sent_bytes"], row["sent_messages"])
                   for row in result.history]
        return counted, {name: array.tobytes() for name, array in result.weights.items()}

    local = on_rank_0(comm, lambda: run_on_ranks(train, comm.size)[0])
    assert train(comm.mpi) == local


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 8, 511, 512, 513, 3000, 1 << 21])  # the last is sent in pieces
def test_reductions_add_in_the_same_order(comm, size, dtype):
    def reduce(communicator):
        rng = np.random.default_rng(communicator.rank)
        total = rng.standard_normal(size).astype(dtype)
        communicator.allreduce(total, None)
        sums = [total]
        for root in range(communicator.size):
            part = rng.standard_normal(size).astype(dtype)
            communicator.start_reduce(part, None, root, None).wait("a sum")
            sums.append(communicator.bcast(part if communicator.rank == root else None)
                        if root == 0 else part if communicator.rank == root else total)
        return [array.tobytes() for array in sums]

    local = on_rank_0(comm, lambda: run_on_ranks(lambda mpi: reduce(as_comm(mpi)), comm.size))
    assert reduce(comm) == (local[comm.rank] if comm.size > 1 else local[0])
