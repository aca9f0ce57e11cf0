"""Table and curves for accuracy.sh.

The number of ranks changes results only by rounding.
"""
import sys
from pathlib import Path

import numpy as np
from results import curves, picture, show

import hpgcn


def main(folder, ranks):
    runs = {int(p): hpgcn.read_run(Path(folder) / f"P{p}").metrics for p in ranks.split()}
    first = next(iter(runs.values()))
    show("accuracy",
         "accuracy by ranks; demirci-2022, Figure 4c: about 75% on Cora on 1 to 27 ranks",
         {"ranks": ("ranks", "d"), "test_percent": ("best test %", ".2f"),
          "last_percent": ("last test %", ".2f"), "last_loss": ("last loss", ".6f"),
          "loss_difference": ("largest difference of a loss", ".1e")},
         [{"ranks": p, "test_percent": 100 * metrics["test_acc"].max(),
           "last_percent": 100 * metrics["test_acc"][-1], "last_loss": metrics["loss"][-1],
           "loss_difference": np.abs(metrics["loss"] / first["loss"] - 1).max()}
          for p, metrics in runs.items()])
    picture(lambda axes: draw(axes, runs))


def draw(axes, runs):
    """Plot the test accuracy by epoch, like Figure 4c."""
    axes.axhline(75, color="gray", linewidth=1, label="paper, Cora: about 75%")
    curves(axes, {f"P = {p}": (metrics["epoch"], 100 * metrics["test_acc"])
                  for p, metrics in runs.items()},
           title="Test accuracy by ranks (demirci-2022, Figure 4c)", xlabel="epoch", ylabel="%")


if __name__ == "__main__":
    main(*sys.argv[1:])
