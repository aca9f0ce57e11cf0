"""Messages longer than a piece may be, here of 1 KiB: a whole training keeps its bits."""
import pytest
from graphs import make, scattered
from training import run

from hpgcn.comm import collectives
from hpgcn.config import Config
from hpgcn.strategies import STRATEGIES

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_training_in_pieces_has_the_same_bits(comm, strategy, monkeypatch):
    graph = scattered(make(), comm)
    results = []
    for limit in (1 << 30, 1 << 10):
        monkeypatch.setattr(collectives, "MAX_MESSAGE_BYTES", limit)
        history, parameters = run(graph, Config(strategy=strategy, hidden=60, dtype="float64"),
                                  comm, 3)
        results.append(([metrics["loss"] for metrics in history], parameters.tobytes()))
    assert parameters.nbytes > 8 << 10  # the gradients travel in pieces, too
    assert results[0] == results[1]
