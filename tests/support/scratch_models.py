"""Train models with arrays in files, and let accesses fault that the plan of a turn leaves out.

    HPGCN_CHECK_RESIDENCY=1 python scratch_models.py FOLDER STRATEGY [SETTINGS ...]

SETTINGS are JSON objects. Losses, weights and counts of messages must be those in memory.
RANKS in the environment is their number, by default 3.
"""
import faulthandler
import json
import os
import sys

import numpy as np
from graphs import make, scattered

from hpgcn import Config, run_on_ranks, train
from hpgcn.comm import as_comm, run_on_disk
from hpgcn.planning.counts import touches
from hpgcn.runtime.disk import scratch_folder

RANKS = int(os.environ.get("RANKS", "3"))


def check(folder, settings):
    """Train on a symmetric graph and on a directed one."""
    config = Config(**{"layers": 3, "hidden": 32, "epochs": 2, "device": "cpu"} | settings)
    for directed in (False, True):
        graph = make(n=601, f=33, degree=12, directed=directed)

        def work(comm, graph=graph):
            comm = as_comm(comm)
            result = train(scattered(graph, comm), config, comm)
            losses = [(each["loss"], each.get("val_loss")) for each in result.history]
            return losses, result.weights, vars(comm.counters)

        expected = run_on_ranks(work, RANKS)
        results = run_on_disk(work, RANKS, folder, kept=directed)
        for (*_, counted), (*_, counts) in zip(results, expected):
            assert counted == counts, (settings, directed, counted, counts)
        (losses, weights, _), (found, found_weights, _) = expected[0], results[0]
        assert found == losses, (settings, directed, found, losses)
        for name, array in weights.items():
            np.testing.assert_array_equal(found_weights[name], array, str(settings))


if __name__ == "__main__":
    faulthandler.enable()
    scratch_folder.THRESHOLD = 1 << 12
    touches.LEAST = (1 << 12) - 64  # an array may take some bytes more, so that it is aligned
    scratch, strategy, *texts = sys.argv[1:]
    for text in texts:
        check(scratch, {"strategy": strategy} | json.loads(text))
