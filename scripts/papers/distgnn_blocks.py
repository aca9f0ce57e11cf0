"""Tables and picture of distgnn-blocks.sh: the paper's cells beside ours."""
import json
import sys
from pathlib import Path

from hpgcn.report.figures import figure, png, style
from hpgcn.runtime import text_table

REUSE = {  # Table 3, by number of blocks: Reddit, OGBN-Products
    1: (3.1, 2.3), 2: (4.3, 2.2), 4: (7.3, 2.2), 8: (16.1, 2.1), 16: (27.0, 2.1), 32: (16.7, 2.0),
    64: (9.6, 1.8)}


def main(folder):
    folder = Path(folder)
    report = json.loads((folder / "blocks.json").read_text())
    rows, steps = report["rows"], report["steps"]
    first = rows[0]
    print(f"{first['graph']}: {first['vertices']:,} vertices, {first['nonzeros']:,} entries, "
          f"width {first['width']}, {report['machine']['threads']} threads\n")
    show(["blocks", "ms", "read MB", "written MB", "reuse", "paper: Reddit", "OGBN-Products"],
         [[row["blocks"], f"{row['time_ms']:.2f}", f"{row['read_bytes'] / 1e6:.1f}",
           f"{row['written_bytes'] / 1e6:.1f}", f"{row['reuse']:.1f}", *REUSE[row["blocks"]]]
          for row in rows])
    cache = report["machine"]["last_level_cache_bytes"] / 2**20
    print(f"\nBytes are those of an LRU cache of {cache:.0f} MiB; "
          f"at best the reuse is {first['nonzeros'] / first['vertices']:.1f}, the mean degree\n"
          "(paper: 492 and 50.5).\n")
    show(["step (Figure 4)", "ms", "speed-up"],
         [[row["step"], f"{row['time_ms']:.2f}", f"{row['speedup']:.2f}"] for row in steps])
    print("\nPaper: up to 4.41 for all steps, over DGL 0.5.3.")

    with style():
        drawing = figure(9, 3.6)
        left, right = drawing.subplots(1, 2)
        draw_blocks(left, rows)
        right.barh([row["step"] for row in steps][::-1], [row["time_ms"] for row in steps][::-1])
        right.set(title="one method added after the other", xlabel="ms")
        (folder / "distgnn-blocks.png").write_bytes(png(drawing))
    print(f"\npicture: {folder / 'distgnn-blocks.png'}")


def show(header, rows):
    print(text_table.table([header, *([str(cell) for cell in row] for row in rows)], left=(0,),
                           rule=True))


def draw_blocks(axes, rows):
    """Draw time and bytes by number of blocks, as Figure 3."""
    counts = [row["blocks"] for row in rows]
    moved = axes.twinx()
    for name in ("read", "written"):
        moved.plot(counts, [row[f"{name}_bytes"] / 1e6 for row in rows], marker="o", markersize=3,
                   label=f"{name}, MB")
    axes.plot(counts, [row["time_ms"] for row in rows], "k--", label="ms")
    axes.set_xscale("log", base=2)
    axes.set(title="by number of blocks", xlabel="blocks of x", ylabel="ms")
    moved.set(ylabel="MB")
    axes.legend(*(a + b for a, b in zip(*(each.get_legend_handles_labels()
                                          for each in (axes, moved)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
