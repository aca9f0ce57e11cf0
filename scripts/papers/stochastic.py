"""Table for stochastic.sh: traffic and seconds of mini-batches with two kinds of
partitions.
"""
import sys
from pathlib import Path

from results import cell, lines, show, summary

import hpgcn
from hpgcn.partition.rows.stochastic import batch_size


def batch(graph):
    """Print the batch size: that of the paper, or a tenth of the vertices if that is
    less.
    """
    print(batch_size(hpgcn.load(graph).header.num_nodes))


def table(folder, ranks, batch):
    """Print the bytes and the seconds of an epoch by the number of ranks."""
    rows, ratios = [], []
    for p in ranks.split():
        runs = [summary(Path(folder) / f"{method}-P{p}") for method in ("hypergraph", "stochastic")]
        sent, seconds = ([run[key] for run in runs]
                         for key in ("sent_bytes_per_epoch", "epoch_s_median"))
        ratios.append(sent[0] / max(sent[1], 1))
        rows.append([p, *(cell(value / 1e6, ",.3f") for value in sent), cell(ratios[-1]),
                     *(cell(value, ".4g") for value in seconds), cell(seconds[0] / seconds[1])])
    show(f"mini-batches of {batch} vertices; the paper: HP / SHP of MB is 1.10 in the mean",
         ["ranks", "MB, HP", "MB, SHP", "HP / SHP", "s/epoch, HP", "s/epoch, SHP", "HP / SHP"],
         rows, left=())
    lines(Path(folder) / "stochastic.png", "bytes of HP over SHP", "ranks", "ratio",
          {"here": ([int(p) for p in ranks.split()], ratios)})


if __name__ == "__main__":
    {"batch": batch, "table": table}[sys.argv[1]](*sys.argv[2:])
