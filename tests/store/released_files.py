"""Write the files that later releases must read.

Usage, once for each release: python tests/store/released_files.py tests/store/released/VERSION
"""
import json
import os
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import hpgcn
from hpgcn import store
from hpgcn.partition import make_partition

SETTINGS = {"epochs": 2, "hidden": 4, "dtype": "float64", "model": "gine", "strategy": "p2p",
            "checkpoint_every": 2, "out": "run"}


def make_graph():
    """Return a graph with every array that a file may have, except targets in place of labels."""
    draws = np.random.default_rng(7)
    n = 12
    A = np.triu(draws.random((n, n)) < 0.4, 1) * draws.integers(1, 9, (n, n))
    A = sp.csr_array((A + A.T).astype(np.float32))
    edges = A.data[:, None] / 4
    return hpgcn.Graph.from_scipy(
        A, draws.random((n, 3), np.float32), np.arange(n) % 3, ([0, 1, 2, 3, 4, 5], [6, 7, 8], [9]),
        original_ids=np.array([f"v{i}" for i in range(n)]), name="released",
        class_names=["red", "green", "blue"], edge_features=edges,
        feature_names=["a", "b", "c"],
        links={"train": np.array([[0, 1], [2, 3]]), "test": np.array([[4, 11]])})


def write(folder):
    """Write a graph in two parts, a run with a checkpoint, and the losses and logits of the run."""
    graph = make_graph()
    folder.mkdir(parents=True)
    os.chdir(folder)  # no file has the path of this machine
    store.write_partitioned("graph.h5", graph, make_partition(graph, 2, method="block"))
    run = hpgcn.train("graph.h5", hpgcn.Config(**SETTINGS), ranks=2)
    found = hpgcn.predict("graph.h5", "run")
    summary = Path("run/summary.json")
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"hosts": ["host"]}))
    expected = {"loss": [each["loss"] for each in run.history],
                "logits": found["logits"].tolist(), "id": [*map(str, found["id"])]}
    Path("expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
