"""Ranks of one process compute what MPI's ranks compute, to the bit, in as many messages."""
import numpy as np
import pytest
from graphs import make, scattered
from training import SETTINGS, run, skip_refused

from hpgcn.comm import as_comm, run_on_ranks
from hpgcn.config import Config
from hpgcn.strategies import STRATEGIES

pytestmark = pytest.mark.mpi
RUNS = [(strategy, "gcn") for strategy in STRATEGIES] + [("p2p", model) for model in SETTINGS]


def on_rank_0(comm, function):
    """Return on all ranks what a function returns on rank 0; none of them waits in vain."""
    with comm.extended_timeout(600):
        return comm.bcast(function() if comm.rank == 0 else None)


@pytest.mark.parametrize("strategy, model", dict.fromkeys(RUNS))
def test_a_run_of_three_epochs(comm, strategy, model):
    graph = make(directed=model == "gcn")
    config = Config(strategy=strategy, layers=3, hidden=12, dropout=0.3, **SETTINGS[model])
    skip_refused(graph, config, comm)

    def train(communicator):
        history, flat = run(scattered(graph, communicator), config, communicator, 3)
        counted = [(row["loss"], row["val_loss"], row["sent_bytes"], row["sent_messages"])
                   for row in history]
        return counted, flat.tobytes()

    local = on_rank_0(comm, lambda: run_on_ranks(lambda mpi: train(as_comm(mpi)), comm.size)[0])
    assert train(comm) == local


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
