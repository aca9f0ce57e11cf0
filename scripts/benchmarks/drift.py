"""Benchmark of how far training in bf16, or another --dtype, deviates from float32."""

import dataclasses
from statistics import fmean, stdev

import numpy as np

from hpgcn.bench.host import BenchHost
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.runtime.progress_bar import bar

EXACT = Config.dtype
EPOCHS = (1, 2, 3, 10, 30, 100)  # whose losses are shown, and the last


def measure(path, config, seeds=(0,)):
    """Train in float32 and in the dtype of `config`, with each seed.

    Runs follow each other in this process.

    Parameters
    ----------
    path : str
        Graph (.h5).
    config : hpgcn.Config
        All but seed and out, which are set here; its dtype is what is held against float32.
    seeds : sequence of int
        They key weights and dropout, alike in both.

    Returns
    -------
    dict
        "bench", "settings", "machine", "graph", "rows", "losses", "summary". A row of a seed and
        dtype has first_loss, last_loss, val_acc (best), test_acc (of that epoch) and
        last_test_acc. A line of losses is of an epoch: float32 (mean over seeds), off (mean of the
        absolute difference), most_off. The summary has texts.

    Raises
    ------
    UsageError
        The dtype is float32.
    HpgcnError
        Whatever training raises.
    """
    if config.dtype == EXACT:
        raise UsageError(f"dtype = {EXACT}: is the reference; expected another dtype")
    from hpgcn import store

    config = config.replace(out="")
    rows = []
    curves = {EXACT: [], config.dtype: []}
    todo = [(seed, dtype) for seed in seeds for dtype in curves]
    for seed, dtype in bar(todo, desc="drift", unit="run", leave=False):
        row, losses = train_once(path, config.replace(seed=seed, dtype=dtype))
        rows.append({"seed": str(seed), "dtype": dtype, **row})
        curves[dtype].append(losses)
    header = store.load(path).header
    return {
        "bench": "drift", "settings": dataclasses.asdict(config) | {"seed": list(seeds)},
        "machine": BenchHost().describe(),
        "graph": {"name": header.name, "vertices": header.num_nodes, "entries": header.num_edges,
                  "features": header.num_features, "classes": header.num_classes},
        "rows": rows, "losses": compared(*curves.values()),
        "summary": summarize(header.name, rows, config.dtype)}


def train_once(path, config):
    """Train; return accuracies and losses of a row, and all losses."""
    from hpgcn.training.run import train

    result = train(path, config)
    losses = [line["loss"] for line in result.history]
    row = {"first_loss": losses[0], "last_loss": losses[-1], "val_acc": result["best_val_acc"],
           "test_acc": result["test_acc"], "last_test_acc": result.history[-1]["test_acc"]}
    return row, losses


def compared(exact, others):
    """Return the deviation of losses in some epochs, a list of dict.

    All runs reached these epochs.
    """
    last = min(map(len, (*exact, *others)))
    exact, others = (np.array([losses[:last] for losses in curves]) for curves in (exact, others))
    away = np.abs(others - exact)
    return [{"epoch": epoch, "float32_loss": float(exact[:, epoch - 1].mean()),
             "off_error": float(away[:, epoch - 1].mean()),
             "most_off_error": float(away[:, epoch - 1].max())}
            for epoch in sorted({*(each for each in EPOCHS if each < last), last})]


def summarize(name, rows, dtype):
    """Return the mean test accuracies of both dtypes, and their difference.

    They come with standard deviations.
    """
    texts = {"graph": name}
    for which, called in (("test_acc", "test accuracy, best epoch"),
                          ("last_test_acc", "test accuracy, last epoch")):
        found = [[row[which] for row in rows if row["dtype"] == each] for each in (EXACT, dtype)]
        if None in found[0] + found[1]:
            continue
        off = [theirs - mine for mine, theirs in zip(*found)]
        texts[called] = (f"{EXACT} {spread(found[0])}, {dtype} {spread(found[1])}, difference "
                         f"{100 * fmean(off):+.2f}%")
    return texts


def spread(shares):
    """Return the mean of shares in per cent as text.

    It has the standard deviation if there are several.
    """
    text = f"{100 * fmean(shares):.2f}"
    return text + (f" ± {100 * stdev(shares):.2f}%" if len(shares) > 1 else "%")
