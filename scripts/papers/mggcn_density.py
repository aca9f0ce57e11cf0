"""Table for mggcn-density.sh.

The seconds of an epoch and the speed-up, by density and number of ranks.
"""
import sys
from pathlib import Path

from results import count_axis, curves, picture, show, summary

import hpgcn


def main(folder, factors, ranks):
    folder = Path(folder)
    factors, ranks = factors.split(), ranks.split()
    records, speedups = [], {p: [] for p in ranks}
    for factor in factors:
        header = hpgcn.load(folder / f"x{factor}.h5").header
        seconds = [min(summary(run)["epoch_s_median"] for run in folder.glob(f"x{factor}-P{p}-*"))
                   for p in ranks]
        for p, value in zip(ranks, seconds):
            speedups[p].append(seconds[0] / value)
            records.append({"factor": float(factor), "ranks": int(p),
                            "entries_per_vertex": header.num_edges / header.num_nodes,
                            "seconds": value, "speedup": seconds[0] / value})
    show("density", "seconds of an epoch, and speed-up over the fewest ranks",
         {"factor": ("factor", "g"), "entries_per_vertex": ("entries/vertex", ".1f"),
          "ranks": ("ranks", "d"), "seconds": ("s/epoch", ".4f"), "speedup": ("speed-up", ".2f")},
         records)
    print("mg-gcn-2021, Figure 9 (2 to 8 GPUs): the speed-up grows with density and passes the\n"
          "number of GPUs from 32 times the edges of Arxiv on.")
    picture(lambda axes: draw(axes, [float(factor) for factor in factors], speedups))


def draw(axes, factors, speedups):
    """Plot the speed-up by density, like Figure 9, with a line at each number of ranks."""
    curves(axes, {f"P = {p}": (factors, values) for p, values in speedups.items()},
           title="Speed-up by density; thin: number of ranks (mg-gcn-2021, Figure 9)",
           xlabel="times the edges", ylabel="speed-up")
    for p in speedups:
        axes.axhline(int(p) / int(next(iter(speedups))), color="gray", linewidth=1)
    count_axis(axes.xaxis, factors)


if __name__ == "__main__":
    main(*sys.argv[1:])
