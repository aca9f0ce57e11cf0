"""Strategies whose ranks send all rows through a Spool before they wait: bits and messages."""
import pytest
from graphs import make, scattered

from hpgcn import Config, run_on_ranks, train
from hpgcn.comm import as_comm, run_on_disk


@pytest.mark.parametrize("strategy, ranks", [
    ("mop", 3), ("mop:2", 4), ("1.5d:1", 3), ("1.5d:2", 4), ("1.5d:4", 4), ("2d:2x2", 4),
    ("2d:1x3", 3), ("3d:2x1x2", 4), ("3d:1x2x2", 4)])
@pytest.mark.parametrize("directed", [False, True])
def test_bits_and_messages_are_those_in_memory(strategy, ranks, directed, small):
    """Also the order of sums, on any grid, and the bytes to each rank."""
    graph = make(n=203, f=13, directed=directed)
    config = Config(layers=2, hidden=12, epochs=2, device="cpu", strategy=strategy,
                    masked_products="always")

    def work(comm):
        comm = as_comm(comm)
        history = train(scattered(graph, comm), config, comm).history
        return [each["loss"] for each in history], vars(comm.counters)

    assert run_on_disk(work, ranks, small) == run_on_ranks(work, ranks)
