"""Tables for distgnn-blocks.sh: aggregation time by the number of blocks of x, and by
the steps of Figure 4.
"""
import sys
from pathlib import Path

from results import picture, read, show

REUSE = {  # distgnn-2021, Table 3, by number of blocks: Reddit, OGBN-Products
    1: (3.1, 2.3), 2: (4.3, 2.2), 4: (7.3, 2.2), 8: (16.1, 2.1), 16: (27.0, 2.1), 32: (16.7, 2.0),
    64: (9.6, 1.8)}


def main(folder):
    folder = Path(folder)
    report = read(folder / "blocks.json")
    rows, steps, machine = report["rows"], report["steps"], report["machine"]
    first = rows[0]
    cache = machine["last_level_cache_bytes"] / 2**20
    show("blocks", f"{first['graph']}: {first['vertices']:,} vertices, {first['nonzeros']:,} entries, width "
         f"{first['width']}, {machine['threads']} threads",
         {"blocks": ("blocks", "d"), "ms": ("ms", ".2f"), "read_mb": ("read MB", ".1f"),
          "written_mb": ("written MB", ".1f"), "reuse": ("reuse", ".1f"),
          "reddit_reuse": ("Reddit (paper)", ".1f"),
          "products_reuse": ("Products (paper)", ".1f")},
         [{"blocks": row["blocks"], "ms": row["time_ms"], "read_mb": row["read_bytes"] / 1e6,
           "written_mb": row["written_bytes"] / 1e6, "reuse": row["reuse"],
           **dict(zip(("reddit_reuse", "products_reuse"), REUSE[row["blocks"]]))}
          for row in rows])
    print(f"MB are those of an LRU cache of {cache:.0f} MiB. At best the reuse is the mean degree: "
          f"{first['nonzeros'] / first['vertices']:.1f} here, 492 and 50.5 in Table 3.")
    show("methods", "methods of Figure 4, one added after the other",
         {"method": ("method", ""), "ms": ("ms", ".2f"), "speedup": ("speed-up", ".2f")},
         [{"method": row["step"], "ms": row["time_ms"], "speedup": row["speedup"]}
          for row in steps])
    print("distgnn-2021, section 6.2: up to 4.41 by all of them, over DGL 0.5.3.")
    picture(lambda axes: draw(axes, rows))


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
