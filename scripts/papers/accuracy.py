"""Table and curves for accuracy.sh: the number of ranks changes results only by
rounding.
"""
import sys
from pathlib import Path

import numpy as np
from results import lines, show

import hpgcn


def main(folder, ranks):
    runs = {int(p): hpgcn.read_run(Path(folder) / f"P{p}").metrics for p in ranks.split()}
    first = next(iter(runs.values()))
    show("accuracy", "accuracy by ranks; demirci-2022, Figure 4c: about 75% on Cora on 1 to 27 ranks",
         {"ranks": ("ranks", "d"), "test_percent": ("best test %", ".2f"),
          "last_loss": ("last loss", ".6f"),
          "loss_difference": ("largest difference of a loss", ".1e")},
         [{"ranks": p, "test_percent": 100 * metrics["test_acc"].max(),
           "last_loss": metrics["loss"][-1],
           "loss_difference": np.abs(metrics["loss"] / first["loss"] - 1).max()}
          for p, metrics in runs.items()])
    lines("test accuracy", "epoch", "%", {
        f"P = {p}": (metrics["epoch"], 100 * metrics["test_acc"]) for p, metrics in runs.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
