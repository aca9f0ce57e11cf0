"""Attention on several ranks.

Results without dropout, bytes by hand, and ranks without attention.
"""
import numpy as np
import pytest
from graphs import make, scattered
from test_contract import check_against_the_oracle
from training import LATER, run, start

import hpgcn
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.strategies import STRATEGIES

GAT = {"model": "gat", "heads": 4, "hidden": 12, "dtype": "float64", "seed": 3, "dropout": 0.4,
       "lr": 0.01}
SERVING = [name for name, each in STRATEGIES.items() if not each.unsupported_reason([4], 1)]


@pytest.mark.parametrize("changes", [{}, {"input_dropout": 0.0}], ids=str)
@pytest.mark.parametrize("comm", [1, 4], indirect=True)
@pytest.mark.parametrize("strategy", SERVING)
def test_all_weights_of_attention_equal_the_oracle(comm, strategy, changes):
    """Attention without dropped weights equals the dense oracle.

    It uses other work arrays than with dropout.
    """
    graph = make(weighted=True)
    config = Config(strategy=strategy, **{**GAT, **changes})
    check_against_the_oracle(graph, scattered(graph, comm), config, comm)


@pytest.mark.parametrize("comm", [1, 2, 5], indirect=True)
def test_bytes_by_hand(comm):
    """Layers of K heads of width f send 8 V K f bytes forward and 8 V (K f + 3 K) backward.

    V is the number of ghost rows. The first layer sends no rows forward if X is
    constant.
    """
    graph = make()
    source = scattered(graph, comm)
    offsets = np.asarray(source.offsets)
    owner = np.searchsorted(offsets, np.arange(graph.num_rows), side="right") - 1
    rows, columns = source.adjacency.tocoo().coords
    volume = len({(owner[i], j) for i, j in zip(rows, columns) if owner[i] != owner[j]})
    for constant in (False, True):
        config = Config(strategy="p2p", prune=False, precompute=constant,
                        **{**GAT, "input_dropout": 0.0})
        history, _ = run(source, config, comm, 1)
        layers = 12 * (not constant) + (12 + 3 * 4) + 20 + (20 + 3 * 4)
        parameters = 13 * 12 + 2 * 12 + 12 + 12 * 20 + 2 * 20 + 5
        weights = 2 * parameters * (comm.size - 1)
        assert history[0]["sent_bytes"] == 8 * (volume * layers + weights)


@pytest.mark.parametrize("comm", [4], indirect=True)
@pytest.mark.parametrize("strategy", [
    pytest.param(name, marks=[pytest.mark.long] * (name in LATER)) for name in SERVING])
def test_messages_fit_the_buffers_that_set_up_made(comm, strategy):
    source = scattered(make(), comm)
    trainer = start(source, Config(strategy=strategy, input_dropout=0.0, prune=False, **GAT), comm)
    with trainer:
        before = trainer.shard.strategy.buffer_bytes
        trainer.train_epoch(1)
        assert trainer.shard.strategy.buffer_bytes == before > 0


@pytest.mark.parametrize("comm", [1, 3], indirect=True)
def test_strategies_that_compute_no_attention_name_those_that_do(comm):
    for name in sorted(STRATEGIES.keys() - SERVING):
        with pytest.raises(UsageError, match=f"strategy = '{name}': it computes no attention; "
                                             "model gat supports p2p, cover, vertex-cut, 1d"):
            hpgcn.train(make(), Config(strategy=name, **GAT), comm.mpi)
