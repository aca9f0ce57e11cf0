"""Messages longer than a piece may be: the threshold is lowered to 1 KiB, and a whole training keeps its bits."""
import numpy as np
import pytest
from graphs import make

from hpgcn.comm import collectives
from hpgcn.config import Config
from hpgcn.strategies import STRATEGIES
from hpgcn.trainer import Trainer

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_training_in_pieces_has_the_same_bits(comm, strategy, monkeypatch):
    graph = make()
    n = graph.num_rows
    if strategy == "p2p":
        graph = graph.permuted(np.arange(n), np.arange(comm.size + 1) * n // comm.size)
    found = []
    for limit in (1 << 30, 1 << 10):
        monkeypatch.setattr(collectives, "MAX_MESSAGE_BYTES", limit)
        trainer = Trainer(graph, Config(strategy=strategy, hidden=60, dtype="float64"), comm, warm=False)
        losses = [trainer.step(epoch)["loss"] for epoch in (1, 2, 3)]
        found.append((losses, trainer.parameters.flat.tobytes()))
        trainer.rows.close()
    assert trainer.parameters.flat.nbytes > 8 << 10  # the gradients travel in pieces, too
    assert found[0] == found[1]
