"""Table and curves for accuracy.sh: the number of ranks changes results only by
rounding.
"""
import sys
from pathlib import Path

import numpy as np
from results import cell, lines, show

import hpgcn


def main(folder, ranks):
    runs = {int(p): hpgcn.read_run(Path(folder) / f"P{p}").metrics for p in ranks.split()}
    first = next(iter(runs.values()))
    rows = [[str(p), cell(100 * metrics["test_acc"].max()), cell(metrics["loss"][-1], ".6f"),
             cell(float(np.abs(metrics["loss"] / first["loss"] - 1).max()), ".1e")]
            for p, metrics in runs.items()]
    show("accuracy by ranks; demirci-2022, Figure 4c: about 75% on Cora on 1 to 27 ranks",
         ["ranks", "best test %", "last loss", "largest difference of a loss"], rows, left=())
    lines(Path(folder) / "accuracy.png", "test accuracy", "epoch", "%", {
        f"P = {p}": (metrics["epoch"], 100 * metrics["test_acc"]) for p, metrics in runs.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
