"""Table for mggcn-density.sh: the seconds of an epoch and the speed-up, by density and
number of ranks.
"""
import sys
from pathlib import Path

from results import cell, lines, show, summary

import hpgcn


def main(folder, factors, ranks):
    folder = Path(folder)
    factors, ranks = factors.split(), ranks.split()
    rows, curves = [], {p: [] for p in ranks}
    for factor in factors:
        header = hpgcn.load(folder / f"x{factor}.h5").header
        seconds = [min(summary(run)["epoch_s_median"] for run in folder.glob(f"x{factor}-P{p}-*"))
                   for p in ranks]
        for p, value in zip(ranks, seconds):
            curves[p].append(seconds[0] / value)
        pairs = [text for value in seconds
                 for text in (cell(value, ".4f"), cell(seconds[0] / value))]
        rows.append([factor, cell(header.num_edges / header.num_nodes, ".1f"), *pairs])
    show("seconds of an epoch, and speed-up over the fewest ranks", [
        "factor", "entries/vertex",
        *(text for p in ranks for text in (f"s/epoch, P={p}", "speed-up"))], rows, left=())
    print("mg-gcn-2021, Figure 9 (2 to 8 GPUs): the speed-up grows with density and passes the\n"
          "number of GPUs from 32 times the edges of Arxiv on.")
    lines(Path(folder) / "mggcn-density.png", "speed-up by density", "factor", "speed-up",
          {f"P = {p}": ([float(factor) for factor in factors], curve)
           for p, curve in curves.items()}, log=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
