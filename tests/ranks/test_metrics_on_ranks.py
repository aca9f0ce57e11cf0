"""Metrics on several ranks equal those of one rank, for any distribution of rows and columns."""
import numpy as np
import pytest
from graphs import make, scattered, several_labels
from training import alone, assert_same_curves, run

from hpgcn import Config
from hpgcn.graphs.graph import Graph
from hpgcn.strategies import STRATEGIES


@pytest.mark.long
@pytest.mark.parametrize("comm", [3, 4], indirect=True)
@pytest.mark.parametrize("metric, several", [
    ("macro-f1", False), ("roc-auc", False), ("macro-f1", True), ("roc-auc", True)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_equal_those_of_one_rank(comm, strategy, metric, several):
    graph = make(directed=True)
    classes = 2 if metric == "roc-auc" else 5
    y = np.random.default_rng(1).integers(0, classes, graph.num_rows)
    graph = Graph.from_scipy(graph.adjacency, graph.features, y, graph.masks)
    if several:
        graph = several_labels(graph, 3)
    config = Config(strategy=strategy, metric=metric, dtype="float64", lr=0.3, seed=2)
    history, _ = run(scattered(graph, comm), config, comm)
    expected, _ = alone(graph, config)
    assert_same_curves(history, expected, 1e-9)
    assert 0 < expected[-1]["val_acc"] < 1
