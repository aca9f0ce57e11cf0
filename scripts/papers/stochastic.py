"""Table for stochastic.sh: rows that mini-batches send with two kinds of partitions."""
import sys
from pathlib import Path

from results import count_axis, curves, picture, read, show

CASES = {"hp": "hypergraph", "shp": "stochastic", "best": "best, refined"}


def main(folder):
    report = read(Path(folder) / "batches.json")
    rows = {(row["parts"], row["ranks"]): row for row in report["rows"]}
    records = []
    for p in sorted({row["ranks"] for row in report["rows"]}):
        found = {name: rows[parts, p] for name, parts in CASES.items()}
        records.append({"ranks": p, **{f"{name}_rows": row["rows_a_batch"]
                                       for name, row in found.items()},
                        "volume_ratio": found["hp"]["ratio"],
                        "busiest_ratio": found["hp"]["busiest_ratio"]})
    summary = report["summary"]
    show("batches", f"rows that a product sends in a batch of {summary['vertices_of_a_batch']:,} "
         f"vertices; the paper: HP / SHP is {summary['paper_ratio']:.2f} in the mean",
         {"ranks": ("ranks", "d"), "hp_rows": ("HP", ",.1f"), "shp_rows": ("SHP", ",.1f"),
          "best_rows": ("best", ",.1f"), "volume_ratio": ("HP / SHP", ".3f"),
          "busiest_ratio": ("of the busiest rank", ".3f")}, records)
    print(f"mean of HP / SHP here: {summary['mean_ratio']:.3f}")
    picture(lambda *axes: draw(axes, records, summary["paper_ratio"]), width=9, panels=2)


def draw(axes, records, paper):
    """Plot the rows of a batch and their ratio by ranks, like Figure 5."""
    ranks = [record["ranks"] for record in records]
    volume, ratio = axes
    curves(volume, {name.upper(): (ranks, [record[f"{name}_rows"] for record in records])
                    for name in ("hp", "shp")},
           title="Rows sent in a batch", xlabel="ranks", ylabel="rows")
    ratio.axhline(paper, color="gray", linewidth=1, label="paper, com-Amazon: mean of HP / SHP")
    curves(ratio, {"HP / SHP here": (ranks, [record["volume_ratio"] for record in records])},
           title="HP over SHP (demirci-2022, Figure 5)", xlabel="ranks")
    for each in axes:
        count_axis(each.xaxis, ranks)


if __name__ == "__main__":
    main(*sys.argv[1:])
