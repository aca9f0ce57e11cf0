"""Attention on any number of ranks: the oracle's losses, what is sent, and what is not."""
import numpy as np
import pytest
from graphs import make, scattered
from held import check_held, footprint_of
from test_contract import check_against_the_oracle, distributed
from training import assert_same_curves, run, start

import hpgcn
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.planning.survey import Survey
from hpgcn.strategies import STRATEGIES
from hpgcn.training.state import agree
from hpgcn.training.step import evaluate

GAT = {"model": "gat", "heads": 4, "hidden": 12, "dtype": "float64", "seed": 3, "dropout": 0.4,
       "lr": 0.01}
SERVING = [name for name, each in STRATEGIES.items() if not each.refuses([4], 1)]


@pytest.mark.parametrize("changes", [
    {}, {"attention_dropout": 0.5}, {"attention_dropout": 0.5, "layers": 3, "output_heads": 4},
    {"input_dropout": 0.0}, {"input_dropout": 0.0, "precompute": False, "layers": 1}], ids=str)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("strategy", SERVING)
def test_equals_the_oracle_and_the_prediction(comm, strategy, directed, changes):
    graph = make(directed=directed, weighted=True)
    config = Config(strategy=strategy, **{**GAT, **changes})
    history = check_against_the_oracle(graph, scattered(graph, comm), config, comm)
    alone, _ = run(graph, config.replace(strategy=Config.strategy), SerialComm(), 3)
    assert_same_curves(history[:3], alone, 1e-10)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("input_dropout", [0.0, 0.4])
@pytest.mark.parametrize("strategy", [name for name in SERVING if STRATEGIES[name].takes_parts])
def test_a_rank_without_rows_and_one_that_only_sends(comm, strategy, input_dropout, directed):
    graph = make(directed=directed)
    if directed:  # the first third is read by all, and reads nobody
        A = graph.adjacency.tolil()
        A[:70] = 0
        graph = Graph.from_scipy(A.tocsr(), graph.features, graph.labels,
                                 [np.flatnonzero(graph.masks[key]) for key in graph.masks],
                                 symmetrize=False)
    part = np.arange(graph.num_rows) * max(1, comm.size - 1) // graph.num_rows  # the last is empty
    config = Config(strategy=strategy, attention_dropout=0.5, **{**GAT, "dtype": "float32"})
    config = config.replace(input_dropout=input_dropout)
    check_against_the_oracle(graph, distributed(part, graph, comm), config, comm)


@pytest.mark.parametrize("directed, prune", [(False, True), (True, True), (False, False)])
@pytest.mark.parametrize("strategy", SERVING)
def test_rows_that_nobody_reads_change_nothing(comm, strategy, directed, prune):
    graph = make(n=400, directed=directed, train=12, degree=3)
    config = Config(strategy=strategy, prune=prune, attention_dropout=0.5, layers=3, **GAT)
    alone, _ = run(graph, config.replace(strategy=Config.strategy, prune=False), SerialComm(), 3)
    history, _ = run(scattered(graph, comm), config, comm, 3)
    assert_same_curves(history, alone, 1e-10)


@pytest.mark.parametrize("changes", [{}, {"input_dropout": 0.0}, {"layers": 3}], ids=str)
@pytest.mark.parametrize("directed, train", [(False, None), (True, None), (False, 8)])
@pytest.mark.parametrize("strategy", SERVING)
def test_what_ranks_hold_is_known_before(comm, strategy, directed, train, changes):
    graph = scattered(make(n=600, degree=3, train=train, directed=directed), comm)
    config = Config(strategy=strategy, **{**GAT, "hidden": 32, "attention_dropout": 0.5, **changes})
    trainer = start(graph, config, comm)
    for number in (1, 2):
        trainer.epoch(number)
        evaluate(trainer.evaluation)
    check_held(footprint_of(graph, config, comm, Survey(graph, config)), trainer, comm.rank)
    agree(comm, {"weights": trainer.parameters.flat})
    trainer.shard.close()


@pytest.mark.parametrize("strategy", SERVING)
def test_same_bits_twice(comm, strategy):
    graph = scattered(make(directed=True), comm)
    config = Config(strategy=strategy, attention_dropout=0.5, **GAT)
    (_, first), (_, again) = (run(graph, config, comm, 3) for _ in range(2))
    assert first.tobytes() == again.tobytes()


def test_bytes_by_hand(comm):
    """4 V K f forward and 4 V (K f + 3 K) backward a layer; none forward where X is constant."""
    graph = make()
    source = scattered(graph, comm)
    offsets = np.asarray(source.offsets)
    owner = np.searchsorted(offsets, np.arange(graph.num_rows), side="right") - 1
    rows, columns = source.adjacency.tocoo().coords
    volume = len({(owner[i], j) for i, j in zip(rows, columns) if owner[i] != owner[j]})
    for constant in (False, True):
        config = Config(strategy="p2p", prune=False, precompute=constant,
                        **{**GAT, "input_dropout": 0.0, "dtype": "float32"})
        history, _ = run(source, config, comm, 1)
        layers = 12 * (not constant) + (12 + 3 * 4) + 20 + (20 + 3 * 4)
        parameters = 13 * 12 + 2 * 12 + 12 + 12 * 20 + 2 * 20 + 5
        weights = 2 * parameters * (comm.size - 1)
        assert history[0]["sent_bytes"] == 4 * (volume * layers + weights)


def test_strategies_that_compute_no_attention_name_those_that_do(comm):
    for name in sorted(STRATEGIES.keys() - SERVING):
        with pytest.raises(UsageError, match=f"strategy = {name}: it computes no attention; "
                                             "model gat takes p2p, cover, vertex-cut, 1d"):
            hpgcn.train(make(), Config(strategy=name, **GAT), comm.mpi)
