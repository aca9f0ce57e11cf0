"""Model gine: all strategies equal one rank, and bytes and memory equal the plan."""
from dataclasses import replace

import numpy as np
import pytest
from graphs import dealt, make, scattered, with_edges
from held import check_held, footprint_of, run_two_epochs
from training import alone, assert_same_curves, loss_and_gradient, on_ranks, run, start

import hpgcn
from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.strategies import STRATEGIES

GINE = {"model": "gine", "hidden": 7, "dtype": "float64", "dropout": 0.4,
        "effort": "default"}  # parts that are no blocks of rows
SERVING = [name for name, each in STRATEGIES.items() if not each.unsupported_reason([0], 1, True)]


def test_strategies():
    assert SERVING == ["p2p", "cover", "vertex-cut", "1d", "1.5d"]


@pytest.mark.parametrize("strategy", SERVING)
@on_ranks(2, 3, 4)
def test_ranks_equal_one(comm, strategy):
    """Losses equal those of one rank, and bytes those that were predicted."""
    graph = with_edges(directed=comm.size == 3)
    config = Config(strategy=strategy, **GINE)
    ours, weights = run(scattered(graph, comm), config, comm)
    theirs, expected = alone(graph, config)
    assert_same_curves(ours, theirs, 1e-12)
    np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-12)


@on_ranks(3)
def test_dealt_entries(comm):
    """Each entry is on a random rank: rows, sums and gradients are sent."""
    graph = with_edges()
    config = Config(strategy="vertex-cut", **GINE)
    assert_same_curves(run(dealt(graph, comm), config, comm)[0], alone(graph, config)[0], 1e-12)


@on_ranks(2)
def test_strategies_of_layers(comm):
    graph = with_edges()
    config = Config(strategy="1d+p2p", **GINE)
    assert_same_curves(run(scattered(graph, comm), config, comm)[0], alone(graph, config)[0], 1e-12)


@pytest.mark.long
@pytest.mark.parametrize("strategy", [*SERVING, "1d+p2p"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@on_ranks(1, 4)
def test_memory_is_planned(comm, strategy, dtype):
    graph = scattered(with_edges(), comm)
    config = Config(strategy=strategy, **GINE | {"dtype": dtype})
    inputs = PlanInput(graph, config)
    trainer, _ = run_two_epochs(graph, config, comm)
    check_held(footprint_of(graph, config, comm, inputs), trainer, comm.rank)
    trainer.close()


@pytest.mark.parametrize("settings", [{}, *(
    pytest.param(each, marks=pytest.mark.long)
    for each in ({"layers": 1, "input_dropout": 0.0}, {"residual": True}))], ids=str)
def test_finite_differences(settings):
    graph = with_edges(n=24, f=4, c=3, directed=True)
    with start(graph, Config(**GINE | settings | {"hidden": 4})) as trainer:
        flat = trainer.parameters.flat
        rng = np.random.default_rng(1)
        flat += 0.1 * rng.standard_normal(flat.size)
        gradient = loss_and_gradient(trainer)[1].copy()
        before = flat.copy()
        for place in range(flat.size):
            losses = []
            for step in (1e-6, -1e-6):
                flat[place] = before[place] + step
                losses.append(loss_and_gradient(trainer)[0])
            flat[place] = before[place]
            slope = (losses[0] - losses[1]) / 2e-6
            np.testing.assert_allclose(slope, gradient[place], rtol=1e-5, atol=1e-7)


@on_ranks(2)
def test_predictions_and_stored_partitions(comm, tmp_path):
    """A run from a file reads the rows of edge features that each rank stores."""
    path = comm.bcast(str(tmp_path / "graph.h5"))
    graph = with_edges()
    if comm.rank == 0:
        hpgcn.save(graph, path)
    comm.barrier()
    config = Config(strategy="p2p", epochs=2, **GINE)
    with hpgcn.load(path) as stored:
        assert_same_curves(run(stored, config, comm)[0], alone(graph, config)[0], 1e-12)


def test_predict():
    graph = with_edges()
    result = hpgcn.train(graph, Config(epochs=2, **GINE))
    one, three = (hpgcn.predict(graph, result, ranks=ranks) for ranks in (1, 3))
    np.testing.assert_allclose(one["logits"], three["logits"], rtol=1e-10, atol=1e-12)
    other = with_edges(columns=2)
    with pytest.raises(DataError, match="2 edge features, but the model was trained on 3"):
        hpgcn.predict(other, result)


@pytest.mark.parametrize("settings, message", [
    ({"strategy": "2d"}, "strategy = '2d': it reads no edge features; model gine supports p2p, "
                         "cover, vertex-cut, 1d, 1.5d"),
    ({"strategy": "mop"}, "it reads no edge features"),
    ({"strategy": "vertex-cut", "delay": "2"}, "it reads no edge features"),
    ({"batch": "vertices:9"}, "batch='vertices:9': model gine supports only full batches"),
    ({"dtype": "bf16"}, "model gine does not support bf16")], ids=str)
def test_refusals(settings, message):
    with pytest.raises(UsageError, match=message):
        hpgcn.train(with_edges(), Config(**GINE | settings))


def test_graphs_without_edge_features():
    with pytest.raises(UsageError, match="made: model gine needs edge features"):
        hpgcn.train(make(), Config(**GINE))
    sparse = with_edges(sparse=True)
    with pytest.raises(UsageError, match="model gine needs dense features in its first layer"):
        hpgcn.train(sparse, Config(**GINE))
    hpgcn.train(sparse, Config(epochs=1, input_layer=True, **GINE))


def test_other_models_do_not_read_them(caplog):
    graph = with_edges()
    plain = replace(graph, edge_features=None, header=replace(graph.header, num_edge_features=0))
    with caplog.at_level("INFO", "hpgcn"):
        histories = [hpgcn.train(each, Config(epochs=2)).history for each in (graph, plain)]
    assert "has 3 edge features, which model gcn does not read" in caplog.text
    assert [entry["loss"] for entry in histories[0]] == [entry["loss"] for entry in histories[1]]
