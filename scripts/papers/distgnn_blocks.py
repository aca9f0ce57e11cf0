"""Tables for distgnn-blocks.sh.

Aggregation time by the number of blocks of x, and by the steps of Figure 4.
"""
import sys
from pathlib import Path

from results import count_axis, curves, groups, picture, read, show

REUSE = {  # distgnn-2021, Table 3, by number of blocks: Reddit, OGBN-Products
    1: (3.1, 2.3), 2: (4.3, 2.2), 4: (7.3, 2.2), 8: (16.1, 2.1), 16: (27.0, 2.1), 32: (16.7, 2.0),
    64: (9.6, 1.8)}
STEPS_OF_ONE_BLOCK = 2  # the baseline and dynamic scheduling (Figure 4)


def main(folder):
    report = read(Path(folder) / "blocks.json")
    first = report["rows"][0]
    blocks = [{"blocks": row["blocks"], "ms": row["time_ms"], "read_mb": row["read_bytes"] / 1e6,
               "written_mb": row["written_bytes"] / 1e6,
               "total_mb": (row["read_bytes"] + row["written_bytes"]) / 1e6, "reuse": row["reuse"],
               **dict(zip(("reddit_reuse", "products_reuse"), REUSE[row["blocks"]]))}
              for row in report["rows"]]
    show("blocks", f"{first['graph']}: {first['vertices']:,} vertices, {first['nonzeros']:,} "
         f"entries, width {first['width']}, {report['machine']['threads']} threads",
         {"blocks": ("blocks", "d"), "ms": ("ms", ".2f"), "read_mb": ("read MB", ".1f"),
          "written_mb": ("written MB", ".1f"), "total_mb": ("sum", ".1f"),
          "reuse": ("reuse", ".1f"), "reddit_reuse": ("Reddit (paper)", ".1f"),
          "products_reuse": ("Products (paper)", ".1f")}, blocks)
    cache = report["machine"]["last_level_cache_bytes"] / 2**20
    print(f"MB are those of an LRU cache of {cache:.0f} MiB. At best the reuse is the mean degree: "
          f"{first['nonzeros'] / first['vertices']:.1f} here, 492 and 50.5 in Table 3.")

    moved = {row["blocks"]: row["total_mb"] for row in blocks}
    methods = [{"method": step["step"], "ms": step["time_ms"], "speedup": step["speedup"],
                "total_mb": moved[1 if number < STEPS_OF_ONE_BLOCK else step["blocks"]]}
               for number, step in enumerate(report["variants"])]
    show("methods", "methods of Figure 4, one added after the other",
         {"method": ("method", ""), "ms": ("ms", ".2f"), "speedup": ("speed-up", ".2f"),
          "total_mb": ("MB", ".1f")}, methods)
    print("distgnn-2021, section 6.2: up to 4.41 by all of them, over DGL 0.5.3.")
    picture(lambda *axes: draw(axes, blocks, methods), width=13, panels=4)


def draw(axes, blocks, methods):
    """Plot time and moved MB by blocks (Figure 3), reuse (Table 3), and methods (Figure 4)."""
    time, moved, reuse, steps = axes
    counts = [row["blocks"] for row in blocks]

    def plot(panel, names, **labels):
        curves(panel, {label: (counts, [row[key] for row in blocks])
                       for label, key in names.items()}, xlabel="blocks", **labels)
        count_axis(panel.xaxis, counts)

    plot(time, {"ms": "ms"}, title="Time, ms (Figure 3)")
    plot(moved, {"MB read": "read_mb", "MB written": "written_mb", "MB in total": "total_mb"},
         title="Moved MB (Figure 3)")
    plot(reuse, {"reuse here": "reuse", "Reddit (paper)": "reddit_reuse",
                 "Products (paper)": "products_reuse"}, title="Reuse (Table 3)")
    reuse.set_yscale("log")
    groups(steps, [step["method"] for step in methods], {
        f"{label} over the baseline": [step[key] / methods[0][key] for step in methods]
        for label, key in (("time", "ms"), ("MB", "total_mb"))}, title="Methods (Figure 4)")


if __name__ == "__main__":
    main(*sys.argv[1:])
