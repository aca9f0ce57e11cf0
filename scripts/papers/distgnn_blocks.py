"""Tables for distgnn-blocks.sh: aggregation time by the number of blocks of x, and by
the steps of Figure 4.
"""
import sys
from pathlib import Path

from results import cell, picture, read, show

REUSE = {  # distgnn-2021, Table 3, by number of blocks: Reddit, OGBN-Products
    1: (3.1, 2.3), 2: (4.3, 2.2), 4: (7.3, 2.2), 8: (16.1, 2.1), 16: (27.0, 2.1), 32: (16.7, 2.0),
    64: (9.6, 1.8)}


def main(folder):
    folder = Path(folder)
    report = read(folder / "blocks.json")
    rows, steps, machine = report["rows"], report["steps"], report["machine"]
    first = rows[0]
    cache = machine["last_level_cache_bytes"] / 2**20
    show(f"{first['graph']}: {first['vertices']:,} vertices, {first['nonzeros']:,} entries, width "
         f"{first['width']}, {machine['threads']} threads",
         ["blocks", "ms", "read MB", "written MB", "reuse", "Reddit (paper)", "Products (paper)"],
         [[cell(row["blocks"], "d"), cell(row["time_ms"]), cell(row["read_bytes"] / 1e6, ".1f"),
           cell(row["written_bytes"] / 1e6, ".1f"), cell(row["reuse"], ".1f"),
           *(cell(value, ".1f") for value in REUSE[row["blocks"]])] for row in rows])
    print(f"MB are those of an LRU cache of {cache:.0f} MiB. At best the reuse is the mean degree: "
          f"{first['nonzeros'] / first['vertices']:.1f} here, 492 and 50.5 in Table 3.")
    show("methods of Figure 4, one added after the other", ["method", "ms", "speed-up"],
         [[row["step"], cell(row["time_ms"]), cell(row["speedup"])] for row in steps])
    print("distgnn-2021, section 6.2: up to 4.41 by all of them, over DGL 0.5.3.")
    picture(folder / "distgnn-blocks.png", lambda axes: draw(axes, rows))


def draw(axes, rows):
    """Plot time and moved MB over the number of blocks, like Figure 3."""
    counts = [row["blocks"] for row in rows]
    time = axes.plot(counts, [row["time_ms"] for row in rows], "k--", label="ms")
    moved = axes.twinx()
    curves = [moved.plot(counts, [row[f"{name}_bytes"] / 1e6 for row in rows], marker="o",
                         markersize=3, label=f"MB {name}")[0] for name in ("read", "written")]
    axes.set_xscale("log", base=2)
    axes.set(title="aggregation by blocks of x", xlabel="blocks", ylabel="ms")
    moved.set(ylabel="MB")
    axes.legend(handles=time + curves)


if __name__ == "__main__":
    main(*sys.argv[1:])
