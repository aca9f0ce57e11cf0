"""A program that uses the public names; mypy compares their types with those written here."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

import numpy as np
import scipy.sparse as sp

import hpgcn
from hpgcn.store import StoredGraph
from hpgcn.training.propagator import Propagator


def in_memory(A: sp.csr_array, X: np.ndarray, y: np.ndarray) -> None:
    graph = hpgcn.Graph.from_scipy(A, X, y, (np.arange(3), np.arange(3, 5), np.arange(5, 7)))
    assert_type(graph, hpgcn.Graph)
    assert_type(hpgcn.Graph.from_edge_index(np.zeros((2, 3), int), features=X), hpgcn.Graph)
    assert_type(graph.header.num_nodes, int)
    assert_type(graph.indptr, np.ndarray)
    hpgcn.save(graph, "graph.h5", overwrite=True)
    config = hpgcn.Config(model="gcn", hidden=64)
    assert_type(config.replace(epochs=3), hpgcn.Config)
    result = hpgcn.train(graph, config, callbacks=[lambda metrics: metrics["loss"] < 0.1])
    assert_type(result, hpgcn.Result)
    assert_type(result.weights, dict[str, np.ndarray])
    swept = hpgcn.sweep(graph, config, {"lr": [0.01, 0.1]}, seeds=range(3))
    assert_type(swept, hpgcn.Sweep)
    assert_type(swept[0], dict[str, Any])
    assert_type(swept.best_config, hpgcn.Config | None)
    found = hpgcn.predict(graph, result, vertices=[1, 2], probabilities=True)
    assert_type(found, dict[str, np.ndarray] | None)
    summary: Mapping[str, Any] = result
    print(summary["test_acc"])


def from_and_to_others(data: Any) -> None:
    graph = hpgcn.from_pyg(data, edge_weight="edge_attr")
    assert_type(graph, hpgcn.Graph)
    assert_type(hpgcn.from_networkx(data, "features", "label"), hpgcn.Graph)
    for source in (graph, hpgcn.load("graph.h5")):
        hpgcn.save(source, "copy.h5")
        print(hpgcn.to_pyg(source), hpgcn.to_networkx(source))


def from_files() -> None:
    stored = hpgcn.load("graph.h5")
    assert_type(stored, StoredGraph)
    assert_type(stored.read(), hpgcn.Graph)
    with hpgcn.propagation(stored, norm="row") as A:
        assert_type(A, Propagator)
        assert_type(A.forward(np.ones((len(A.rows), 2), np.float32)), np.ndarray)
        assert_type(A.traffic.bytes, int)
    run = hpgcn.read_run("run")
    assert_type(run.metrics["loss"], np.ndarray)
    assert_type(run.summary, dict[str, Any])
