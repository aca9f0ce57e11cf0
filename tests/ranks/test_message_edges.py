"""Links of validation as edges of the test: results, traffic, memory, predictions, refusals."""
from dataclasses import replace

import numpy as np
import pytest
from graphs import dealt, make, scattered, with_edges, with_links
from held import check_held, footprint_of
from training import on_ranks, start

import hpgcn
from hpgcn import store
from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.added_edges import AddedEdges
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.links import LinkSet
from hpgcn.partition import make_partition
from hpgcn.planning.answers.candidates import candidates, count_candidate
from hpgcn.planning.counts import plan_input
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.strategies import STRATEGIES, keeps_rows

CONFIG = Config(task="links", epochs=2, hidden=8, output_width=6, lr=0.05, dropout=0.3, seed=3,
                dtype="float64", message_edges="train+val")
WHOLE = [name for name, kind in STRATEGIES.items() if keeps_rows(kind)]


def weighted(graph, weight=None):
    """Return a graph whose links of validation have weights."""
    links = {**graph.links, "val": replace(graph.links["val"], weight=weight)}
    return replace(graph, links=links)


def with_val(graph):
    """Return the graph whose edges are those of training and of validation."""
    links = graph.links["val"]
    A = graph.adjacency.tolil()
    for (source, target), weight in zip(links.positive, np.ones(len(links)) if links.weight is None
                                        else links.weight):
        A[target, source] = weight
        if not graph.header.directed:
            A[source, target] = weight
    kept = {key: each for key, each in graph.links.items() if key != "val"}
    return Graph.from_scipy(A.tocsr(), graph.features, graph.labels, links=kept)


def weights_of(graph):
    return np.random.default_rng(2).random(len(graph.links["val"])).astype(np.float32) + 1


GRAPHS = {"undirected": with_links(make(n=90)), "directed": with_links(make(n=90, directed=True))}
GRAPHS["weighted"] = weighted(GRAPHS["directed"], weights_of(GRAPHS["directed"]))


def run(graph, config, comm=None):
    with start(graph, config, comm) as trainer:
        for epoch in (1, 2):
            metrics = trainer.train_epoch(epoch)
            trainer.evaluate_epoch(metrics)
        return trainer, metrics, trainer.comm.device.get(trainer.parameters.flat).copy()


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_figures_are_those_of_a_graph_with_these_edges(model, kind):
    graph = GRAPHS[kind]
    config = CONFIG.replace(model=model)
    result = hpgcn.train(graph, config)
    plain = hpgcn.train(graph, config.replace(message_edges="train"))
    other = with_val(graph)
    for name, array in plain.weights.items():
        np.testing.assert_allclose(result.weights[name], array, rtol=1e-12)
    assert result["val_auc"] == plain["val_auc"] and result["test_ap"] != plain["test_ap"]

    # the rows of predictions, and scores of pairs
    Z = hpgcn.predict(graph, result)["embedding"]
    expected = hpgcn.predict(other, plain)["embedding"]
    np.testing.assert_allclose(Z, expected, rtol=1e-12, atol=1e-14)
    source, target = graph.links["test"].positive.T
    found = hpgcn.predict(graph, result, pairs=graph.links["test"].positive, ranks=3)["score"]
    np.testing.assert_allclose(found, (expected[source] * expected[target]).sum(axis=1), rtol=1e-9,
                               atol=1e-12)


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("strategy", WHOLE)
@on_ranks(2, 3, 5)
def test_any_ranks_and_parts_agree(comm, strategy, kind):
    graph, config = GRAPHS[kind], CONFIG.replace(strategy=strategy)
    if strategy == "1.5d" and comm.size % 2:
        config = config.replace(strategy="1.5d:1")
    _, expected, weights = run(graph, config.replace(strategy="auto"))
    source = scattered(graph, comm) if STRATEGIES[strategy].accepts_partition else graph
    if STRATEGIES[strategy].accepts_nonzero_owners:
        source = dealt(graph, comm)
    inputs = PlanInput(source, config)
    with start(source, config, comm) as trainer:
        for epoch in (1, 2):
            metrics = trainer.train_epoch(epoch)
            trainer.evaluate_epoch(metrics)
        footprint = footprint_of(source, config, comm, inputs)
        check_held(footprint, trainer, comm.rank)
        np.testing.assert_allclose(trainer.parameters.flat, weights, rtol=1e-9, atol=1e-12)
    for name in ("loss", "val_loss", "val_auc", "test_auc", "test_ap"):
        assert metrics[name] == pytest.approx(expected[name], rel=1e-10)
    assert metrics["sent_bytes"] == footprint.prediction.total_bytes() > 0


@pytest.mark.parametrize("kind", GRAPHS)
def test_rows_that_are_not_moved_count_alike(kind, monkeypatch):
    found = []
    for large in (plan_input.LARGE, 0):
        monkeypatch.setattr(plan_input, "LARGE", large)
        inputs = PlanInput(GRAPHS[kind], CONFIG)
        for case in candidates(inputs, [3], ("random", "vertex-cut")):
            footprint = count_candidate(inputs, case)
            found.append((case, footprint.prediction.total_bytes(),
                          *(footprint.parts[name].tolist() for name in ("matrix", "plan"))))
    half = len(found) // 2
    assert found[:half] == found[half:] and half > 4


@pytest.mark.parametrize("method", ["random", "cover"])
@pytest.mark.parametrize("kind", GRAPHS)
def test_rows_of_the_source(tmp_path, kind, method):
    graph = GRAPHS[kind]
    made = make_partition(graph, 3, method=method)
    store.write_partitioned(tmp_path / "g.h5", graph, made)
    order = made.perm
    expected = with_val(graph).adjacency[order][:, order]
    expected.sort_indices()
    with hpgcn.load(tmp_path / "g.h5") as stored:
        added = AddedEdges(stored, stored.slab(0, 90))
        for start_, stop in ((0, 90), (0, 0), (31, 64), (90, 90)):
            slab = added.slab(start_, stop)
            rows = expected[start_:stop]
            np.testing.assert_array_equal(slab.indptr, rows.indptr)
            np.testing.assert_array_equal(slab.indices, rows.indices)
            np.testing.assert_allclose(1 if slab.data is None else slab.data,
                                       rows.data if rows.nnz else 1)
            np.testing.assert_array_equal(np.diff(added.pointers(start_, stop)),
                                          np.diff(rows.indptr))
            parts = added.edge_part(start_, stop)
            assert parts is None or parts.size == rows.nnz
        degrees = added.degrees()
        np.testing.assert_allclose(degrees["row"], expected.sum(axis=1))
        np.testing.assert_allclose(degrees["column"], expected.sum(axis=0))
        assert added.header.num_edges == expected.nnz
        with pytest.raises(DataError, match="no edge features"):
            added.read_edge_features(0, 1)


def test_repeated_links_are_added_once():
    graph = GRAPHS["undirected"]
    positive = graph.links["val"].positive
    again = replace(graph, links={**graph.links, "val": LinkSet(
        np.concatenate([positive, positive[:, ::-1]]))})
    for each in (graph, again):
        assert AddedEdges(each, each).header.num_edges == with_val(graph).header.num_edges


def test_graphs_without_links_of_validation(caplog):
    graph = GRAPHS["undirected"]
    few = replace(graph, links={key: graph.links[key] for key in ("train", "test")})
    with pytest.raises(UsageError, match=r"message_edges='train\+val': linked has no links of val"):
        hpgcn.train(few, CONFIG)
    with pytest.raises(UsageError, match="no links of validation to add"):
        PlanInput(few, CONFIG)
    found, expected = (hpgcn.predict(few, hpgcn.train(graph, CONFIG.replace(
        message_edges=word)))["embedding"] for word in ("train+val", "train"))
    np.testing.assert_array_equal(found, expected)
    assert "linked: no links of validation, so that messages pass along its edges" in caplog.text


def test_refusals():
    graph = GRAPHS["undirected"]
    known = {**graph.links, "val": LinkSet(graph.links["train"].positive[:3])}
    with pytest.raises(DataError, match=r"links of val are edges of the graph already"):
        hpgcn.train(replace(graph, links=known), CONFIG, ranks=3)
    with pytest.raises(UsageError, match=r"message_edges = 'train\+val': only for task='links'"):
        hpgcn.train(make(), Config(message_edges="train+val"))
    edges = with_edges(n=90)
    with pytest.raises(UsageError, match="edge features, which links of validation lack"):
        hpgcn.train(replace(edges, links=graph.links), CONFIG.replace(model="gine"))
