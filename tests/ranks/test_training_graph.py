"""Training on the graph that training vertices induce: losses, traffic, batches, evaluation."""
import numpy as np
import pytest
from graphs import dealt, make, scattered, with_edges
from held import check_held, footprint_of, run_two_epochs
from training import (
    WIDE,
    alone,
    assert_same_curves,
    assert_same_on_one_rank,
    on_ranks,
    run,
    served,
    start,
)

import hpgcn
from hpgcn import store
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.partition import Partition
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.strategies import STRATEGIES

KIND = {"n": 150, "directed": True, "weighted": True}


def subgraph(graph, masks):
    """Return the graph that the vertices of some masks induce, as a graph of its own."""
    A, X, y, split = graph.to_scipy()
    kept = np.flatnonzero(np.any([split[name] for name in masks.split("+")], axis=0))
    return Graph.from_scipy(A[kept][:, kept], X[kept], y[kept],
                            {name: mask[kept] for name, mask in split.items()}, classes=True)


def settings(strategy, model, masks, **changes):
    return Config(**{"strategy": strategy, "layers": 2, "hidden": 12, "dropout": 0.0, "seed": 1,
                     "dtype": "float64", "training_graph": masks, **WIDE[model],
                     "attention_dropout": 0.0, **changes})


def check(graph, config, comm, source=None):
    """Compare a run on the whole graph with one on its subgraph, on one rank."""
    inner = subgraph(graph, config.training_graph)
    history, weights = run(graph if source is None else source, config, comm)
    alone = config.replace(training_graph="all", strategy="auto")
    expected, expected_weights = run(inner, alone)
    for ours, theirs in zip(history, expected):
        np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=1e-10)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-7, atol=1e-10)
    return history


@pytest.mark.parametrize("masks", ["train", "train+val"])
@served(ranks=(1, 2, 3, 5), rare="long")
def test_losses_are_those_of_the_subgraph(comm, strategy, model, masks):
    heads = {}
    if "heads" in WIDE[model]:
        heads = {"heads": comm.size, "output_heads": comm.size, "hidden": 4 * comm.size}
    graph = make(**KIND)
    source = scattered(graph, comm) if STRATEGIES[strategy].requires_partition else graph
    check(graph, settings(strategy, model, masks, **heads), comm, source)


@pytest.mark.parametrize("kind, changes", [
    ({"train": 12}, {"input_dropout": 0.0}),
    ({"train": 40, "directed": True}, {"layers": 3, "norm": "batch", "residual": True}),
    ({"sparse": True}, {"jump": "cat", "output_layer": True, "optimizer": "sgd"}),
    ({}, {"prune": False}), ({"weighted": True}, {"input_layer": True})], ids=str)
@pytest.mark.parametrize("strategy", ["p2p", "2d", "mop", "1d+p2p"])
@on_ranks(2, 3)
def test_other_settings(comm, strategy, kind, changes):
    graph = make(**{"n": 150, **kind})
    check(graph, settings(strategy, "gcn", "train", **changes), comm, scattered(graph, comm))


@pytest.mark.parametrize("batch", ["vertices:20", "neighbors:-1:15"])
@pytest.mark.parametrize("strategy", ["p2p", "cover", "vertex-cut"])
@on_ranks(1, 2, 3, 5)
def test_batches_are_those_of_the_subgraph(comm, strategy, batch):
    graph = make(**KIND)
    source = scattered(graph, comm)
    config = settings(strategy, "sage-mean", "train+val", batch=batch)
    inner = subgraph(graph, "train+val")
    histories = []
    for given, trained, ranks in ((source, config, comm),
                                  (inner, config.replace(training_graph="all"), None)):
        with start(given, trained, ranks) as trainer:
            histories.append([trainer.train_epoch(epoch)["loss"] for epoch in (1, 2)])
    np.testing.assert_allclose(*histories, rtol=1e-10)


@pytest.mark.parametrize("changes", [{}, {"batch": "vertices:20"}, {"batch": "neighbors:2,3:15"},
                                     {"batch": "parts:2:"}], ids=str)
@on_ranks(2, 3)
def test_draws_are_of_original_vertices(comm, changes, tmp_path):
    """Losses with dropout, and metrics of the whole graph, are those of one rank."""
    graph = make(**KIND)
    if "parts" in changes.get("batch", ""):
        path = comm.bcast(tmp_path / "batches.h5")
        if comm.rank == 0:
            store.write_partitioned(path, graph, Partition.from_parts(np.arange(150) % 6, 6))
        comm.barrier()
        changes = {"batch": f"parts:2:{path}"}
    config = settings("cover", "gat", "train", dropout=0.4, attention_dropout=0.3, **changes)
    assert_same_on_one_rank(graph, scattered(graph, comm), config, comm)


@on_ranks(3)
def test_edge_features_of_entries_with_owners(comm):
    graph = with_edges(n=150)
    config = settings("vertex-cut", "gcn", "train+val", hidden=7).replace(model="gine")
    A, X, y, masks = graph.to_scipy()
    kept = np.flatnonzero(masks["train"] | masks["val"])
    rows = np.repeat(np.arange(150), np.diff(graph.indptr))
    inside = np.isin(rows, kept) & np.isin(graph.indices, kept)
    inner = Graph.from_scipy(A[kept][:, kept], X[kept], y[kept],
                             {name: mask[kept] for name, mask in masks.items()}, classes=True,
                             edge_features=graph.edge_features[inside])
    ours, weights = run(dealt(graph, comm), config, comm)
    _, expected = run(inner, config.replace(training_graph="all", strategy="auto"))
    np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-12)
    assert_same_curves(ours, alone(graph, config)[0], 1e-12)


@pytest.mark.parametrize("strategy", ["p2p", "cover", "vertex-cut", "2d", "3d", "mop"])
@pytest.mark.parametrize("changes", [{"input_dropout": 0.0}, {"norm": "batch"}], ids=str)
@pytest.mark.parametrize("kind", [{"train": 20}, {"sparse": True, "directed": True}], ids=str)
@on_ranks(1, 2, 5)
def test_memory_and_traffic_are_planned(comm, strategy, changes, kind):
    graph = scattered(make(**{"n": 150, **kind}), comm)
    config = settings(strategy, "gcn", "train", **changes)
    footprint = footprint_of(graph, config, comm, PlanInput(graph, config))
    trainer, metrics = run_two_epochs(graph, config, comm)
    total = footprint.prediction.total_bytes(), footprint.prediction.total_messages()
    assert all((one["sent_bytes"], one["sent_messages"]) == total for one in metrics)
    check_held(footprint, trainer, comm.rank)
    trainer.close()


def test_delayed_sums_are_refused():
    config = settings("vertex-cut", "gcn", "train", delay="2")
    with pytest.raises(UsageError, match="keeps rows of the whole graph; remove"):
        hpgcn.train(make(**KIND), config)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_run_that_is_resumed_has_the_same_bits(tmp_path, ranks):
    graph = make(**KIND)
    weights = []
    for name, epochs in (("whole", (4,)), ("resumed", (2, 4))):
        for number in epochs:
            config = settings("cover", "gcn", "train", dropout=0.4, out=str(tmp_path / name),
                              epochs=number, checkpoint_every=1)
            resume = config.out if number != epochs[0] else None
            result = hpgcn.train(graph, config, ranks=ranks, resume=resume)
        weights.append({name: array.tobytes() for name, array in result.weights.items()})
    assert weights[0] == weights[1]
