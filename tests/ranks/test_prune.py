"""Rows that nobody reads are left out: losses and metrics stay, bytes shrink as predicted."""
import numpy as np
import pytest
from graphs import make, scattered
from training import SETTINGS, assert_same_curves, metrics_of, run, start

from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.strategies import STRATEGIES


def same(comm, graph, config, *, smaller):
    """Train with and without the rows that nobody reads; return the rows of each level."""
    source = scattered(graph, comm)
    trainer = start(source, config, comm)
    with trainer.shard:
        pruned = metrics_of(trainer, 8)
        totals = trainer.shard.train.totals
    whole, _ = run(source, config.replace(prune=False), comm)
    assert_same_curves(pruned, whole, 1e-5 if config.dtype == "float32" else 1e-10)
    assert not smaller or comm.size == 1 or pruned[0]["sent_bytes"] < whole[0]["sent_bytes"]
    return totals


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("directed, sparse, input_dropout",
                         [(False, False, 0), (True, False, 0.3), (False, True, 0.3)])
def test_the_loss_curve_is_unchanged(comm, strategy, directed, sparse, input_dropout):
    graph = make(n=500, degree=1.5, directed=directed, weighted=directed, sparse=sparse, train=6)
    config = Config(strategy=strategy, layers=3, hidden=10, input_dropout=input_dropout,
                    dtype="float64", seed=1)
    totals = same(comm, graph, config, smaller=True)
    assert totals[-1] == 6 and np.all(np.diff(totals) <= 0)


@pytest.mark.parametrize("strategy", ["p2p", "1.5d", "2d", "mop"])
@pytest.mark.parametrize("model", ["sage-mean", "sage-gcn", "gin"])
@pytest.mark.parametrize("hidden, sparse, input_dropout",
                         [(40, False, 0), (20, False, 0.5), (6, True, 0.5)])
def test_of_other_models_too(comm, strategy, model, hidden, sparse, input_dropout):
    graph = make(n=500, degree=1.5, directed=hidden == 20, sparse=sparse, train=6)
    config = Config(strategy=strategy, layers=3, hidden=hidden, dtype="float64",
                    input_dropout=input_dropout, layer_norm=hidden == 20, **SETTINGS[model])
    same(comm, graph, config, smaller=False)


def test_float32_and_four_layers(comm):
    config = Config(strategy="p2p", layers=4, hidden=16)
    same(comm, make(n=3000, degree=1.2, train=5), config, smaller=True)


def test_one_training_vertex_of_all(comm):
    """Most ranks compute nothing in the last layer."""
    config = Config(strategy="p2p", layers=2, hidden=16, dtype="float64")
    same(comm, make(n=400, degree=1.5, train=1), config, smaller=False)


def test_on_one_rank_without_mpi():
    graph = make(n=500, degree=1.5, train=6)
    same(SerialComm(), graph, Config(layers=3, hidden=10, dtype="float64"), smaller=False)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("model", ["gcn", "sage-mean", "gin"])
def test_without_A_H_what_is_sent_is_predicted(comm, strategy, model, monkeypatch):
    """Each layer multiplies by A first; if A H is not kept the backward takes the wider way."""
    graph = make(n=300, f=4, c=19, degree=2, train=9)
    config = Config(strategy=strategy, layers=3, hidden=11, input_dropout=0, dtype="float64",
                    prune=False, **SETTINGS[model])
    source = scattered(graph, comm) if STRATEGIES[strategy].needs_parts else graph
    histories = []
    for drops in (False, True):
        comm.barrier()  # no rank is in the other run
        monkeypatch.setattr("hpgcn.training.trainer.drops_AX", lambda *_, drops=drops: drops)
        histories.append(run(source, config, comm, 4)[0])
    assert_same_curves(*histories, 1e-10)
    kept, dropped = (history[-1]["sent_bytes"] for history in histories)
    assert kept < dropped or comm.size == 1 or model == "gin"  # whose inner width does not rise
