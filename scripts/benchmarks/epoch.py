"""Benchmark of training epochs on the benchmark graphs, in memory."""

import dataclasses
import json
import tempfile

import numpy as np

from benchmarks.benchmark_graphs import make
from benchmarks.process import alone
from hpgcn.config import Config
from hpgcn.runtime.progress_bar import bar
from hpgcn.runtime.temporary import temporary_folder


def measure(settings, host, limits):
    """Train a GCN with dropout 0.5 and Adam on every vertex of each graph.

    Each graph has a process of its own, so that peak memory is that of this run,
    including the generation of the graph. "rows": graph, vertices, nonzeros (of A-hat),
    widths, epochs (timed, after another), epoch_s, spmm_s, dense_s (medians),
    spmm_share, dense_share, peak_rss_bytes.
    """
    rows = []
    for name in bar(settings.graphs, desc="epoch", unit="graph", leave=False):
        rows.append(alone(f"bench epoch: the process that trained on {name}", "use --scale-down",
                          train_on, name, settings))
    return {"rows": rows}


def with_all_in_training(graph):
    """Return a graph whose vertices all train, and none is evaluated."""
    nobody = np.zeros(graph.num_rows, bool)
    return dataclasses.replace(graph, masks={"train": ~nobody, "val": nobody, "test": nobody})


def train_epochs(graph, hidden, epochs, seed, threads):
    """Train a GCN with dropout 0.5 and Adam; return the metrics of each epoch, a list of dicts."""
    from hpgcn.training.run import train

    with temporary_folder(tempfile.gettempdir()) as folder:
        out = folder / "run"
        train(graph, Config(out=str(out), layers=len(hidden) + 1, hidden=hidden[0],
                            dropout=0.5, epochs=epochs, eval_every=0, optimizer="adam",
                            seed=seed, threads=threads))
        return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def train_on(name, settings):
    features, *hidden, classes = settings.widths
    graph = with_all_in_training(
        make(name, settings.scale_down, settings.seed, features=features, classes=classes))
    epochs = train_epochs(graph, hidden or [1], settings.repeats + 1, settings.seed,
                          settings.threads)
    median = {key: float(np.median([epoch[key] for epoch in epochs[1:]]))
              for key in ("epoch_s", "spmm_s", "dense_s")}
    return {"graph": name, "vertices": graph.num_rows,
            "nonzeros": graph.header.num_edges + graph.num_rows,
            "widths": list(settings.widths), "epochs": settings.repeats, **median,
            "spmm_share": median["spmm_s"] / median["epoch_s"],
            "dense_share": median["dense_s"] / median["epoch_s"],
            "peak_rss_bytes": max(epoch["peak_rss_bytes"] for epoch in epochs)}
