"""Table for stochastic.sh: traffic and seconds of mini-batches with two kinds of
partitions.
"""
import sys
from pathlib import Path

from results import lines, show, summary

import hpgcn
from hpgcn.partition.rows.stochastic import batch_size


def batch(graph):
    """Print the batch size: that of the paper, or a tenth of the vertices if that is
    less.
    """
    print(batch_size(hpgcn.load(graph).header.num_nodes))


def table(folder, ranks, batch):
    """Print the bytes and the seconds of an epoch by the number of ranks."""
    records, ratios = [], []
    for p in ranks.split():
        runs = [summary(Path(folder) / f"{method}-P{p}") for method in ("hypergraph", "stochastic")]
        sent, seconds = ([run[key] for run in runs]
                         for key in ("sent_bytes_per_epoch", "epoch_s_median"))
        ratios.append(sent[0] / max(sent[1], 1))
        records.append({"ranks": int(p), "hp_mb": sent[0] / 1e6, "shp_mb": sent[1] / 1e6,
                        "volume_ratio": ratios[-1], "hp_seconds": seconds[0],
                        "shp_seconds": seconds[1], "seconds_ratio": seconds[0] / seconds[1]})
    show("batches", f"mini-batches of {batch} vertices; the paper: HP / SHP of MB is 1.10 in the mean",
         {"ranks": ("ranks", "d"), "hp_mb": ("MB, HP", ",.3f"), "shp_mb": ("MB, SHP", ",.3f"),
          "volume_ratio": ("HP / SHP", ".2f"), "hp_seconds": ("s/epoch, HP", ".4g"),
          "shp_seconds": ("s/epoch, SHP", ".4g"), "seconds_ratio": ("HP / SHP", ".2f")}, records)
    lines("bytes of HP over SHP", "ranks", "ratio",
          {"here": ([int(p) for p in ranks.split()], ratios)})


if __name__ == "__main__":
    {"batch": batch, "table": table}[sys.argv[1]](*sys.argv[2:])
