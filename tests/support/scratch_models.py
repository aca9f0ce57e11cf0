"""Train models with arrays in files, and let accesses fault that the plan of a turn leaves out.

    HPGCN_CHECK_RESIDENCY=1 python scratch_models.py FOLDER SHAPE [SETTINGS ...]

SHAPE is a key of SHAPES. SETTINGS are JSON objects as in scratch_settings.py. Losses, weights,
predictions and counts of messages must be those in memory. Settings that a strategy does not
take are named.
"""
import faulthandler
import json
import sys

import numpy as np
from graphs import (
    dealt,
    in_blocks,
    make,
    scattered,
    several_labels,
    with_edges,
    with_links,
    with_targets,
)

from hpgcn import Config, predict, run_on_ranks, train
from hpgcn.comm import as_comm, run_on_disk
from hpgcn.errors import UsageError
from hpgcn.planning.counts import touches
from hpgcn.runtime.disk import scratch_folder

SHAPES = {  # ranks, ranks in memory, partition, graph
    "symmetric": (3, 0, scattered, {"n": 601, "f": 33, "degree": 12}),
    "directed": (5, 1, in_blocks, {"n": 1203, "f": 20, "degree": 5, "directed": True,
                                   "weighted": True})}


def graph_of(kind, edges=0, targets=0, labels=0, links=False, **more):
    """Return a random graph with edge features, targets, several labels, or links."""
    graph = with_edges(edges, **kind, **more) if edges else make(**kind, **more)
    if targets:
        return with_targets(graph, targets)
    if labels:
        return several_labels(graph, labels)
    return with_links(graph) if links else graph


def nonzero(counts):
    """Return counts in dicts of dicts without those of nothing."""
    if not isinstance(counts, dict):
        return counts
    found = {name: nonzero(each) for name, each in counts.items()}
    return {name: each for name, each in found.items() if each}


def check(folder, shape, settings):
    """Train with a shape and settings."""
    ranks, kept, divided, kind = SHAPES[shape]
    settings = dict(settings)
    graph = graph_of(kind, **settings.pop("graph", {}))
    config = Config(**{"layers": 3, "hidden": 32, "epochs": 2, "device": "cpu"} | settings)
    if config.strategy == "vertex-cut":
        divided = dealt

    def work(comm):
        comm = as_comm(comm)
        source = divided(graph, comm)
        result = train(source, config, comm)
        found = predict(source, result, comm) if config.task == "vertices" else {}
        return ([(each["loss"], each.get("val_loss")) for each in result.history], result.weights,
                found and found.get("logits", found.get("value")), nonzero(vars(comm.counters)))

    all_expected = run_on_ranks(work, ranks)
    results = run_on_disk(work, ranks, folder, kept=kept)
    for (*_, counted), (*_, counts) in zip(results, all_expected):
        assert counted == counts, (counted, counts)
    expected, (losses, weights, logits, _) = all_expected[0], results[0]
    assert losses == expected[0], (losses, expected[0])
    for name, array in expected[1].items():
        np.testing.assert_array_equal(weights[name], array, name)
    np.testing.assert_array_equal(logits, expected[2])


if __name__ == "__main__":
    faulthandler.enable()
    scratch_folder.THRESHOLD = 1 << 12
    touches.LEAST = (1 << 12) - 64  # an array may take some bytes more, so that it is aligned
    scratch, shape, *texts = sys.argv[1:]
    for text in texts:
        print(text, flush=True)
        try:
            check(scratch, shape, json.loads(text))
        except UsageError as error:  # a strategy does not take all settings
            print(f"refused: {error}", flush=True)
