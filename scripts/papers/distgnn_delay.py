"""Table for distgnn-delay.sh: costs and savings of delayed and omitted partial sums."""
import sys
from pathlib import Path

from results import count_axis, curves, picture, read, show, summary

import hpgcn

NAMES = {"0": "cd-0", "5": "cd-5", "none": "0c", "5-paper": "cd-5, paper",
         "none-paper": "0c, paper"}
PAPERS = {"reddit_percent": "Reddit (paper), %", "products_percent": "Products (paper), %"}
# test accuracy of Reddit and OGBN-Products by sockets: cd-0, cd-5, 0c (Table 5)
ACCURACY = {
    2: ((93.70, 93.59, 93.58), (77.12, 77.65, 78.42)),
    4: ((93.44, 93.25, 93.39), (77.35, 79.14, 78.91)),
    8: ((93.14, 93.33, 93.14), (77.49, 79.18, 79.10)),
    16: ((92.86, 92.62, 92.38), (77.47, 78.00, 78.95))}
# over cd-0, OGBN-Papers on 32, 64 and 128 sockets (Table 6)
MEMORY = "Table 6, memory over cd-0: cd-5 1.54 to 1.58, 0c 0.90; 90 to 93% of vertices are split"


def main(folder, ranks):
    records = []
    for p in map(int, ranks.split()):
        quality = read(Path(folder) / f"p{p}.json")
        for delay, name in NAMES.items():
            run = Path(folder) / f"P{p}-{delay}"
            found, forecast = summary(run), read(f"{run}.json")
            number = ("cd-0", "cd-5", "0c").index(name.split(",")[0])
            records.append({
                "ranks": p, "case": name, "lr": hpgcn.read_run(run).settings["lr"],
                "test_percent": 100 * found["test_acc"],
                **{column: values[number] for column, values in zip(PAPERS, ACCURACY.get(p, ()))},
                "seconds": found["epoch_s_median"], "sent_mb": found["sent_bytes_per_epoch"] / 1e6,
                "memory_mb": max(rank["peak"] for rank in forecast["memory"]) / 1e6,
                "replication": quality["replication_factor"],
                "split_percent": 100 * quality["split_share_avg"]})
    show("accuracy", "test accuracy at the best epoch (here; the paper's Reddit and OGBN-Products),"
         " MB sent in an epoch, MB of the largest rank", {
             "ranks": ("ranks", "d"), "case": ("sums", ""), "lr": ("lr", "g"),
             "test_percent": ("test %", ".2f"), "reddit_percent": ("Reddit %", ".2f"),
             "products_percent": ("Products %", ".2f"), "seconds": ("s/epoch", ".4g"),
             "sent_mb": ("MB sent", ",.3f"), "memory_mb": ("MB held", ",.3f"),
             "replication": ("replication", ".3f"), "split_percent": ("split %", ".1f")}, records)
    print(MEMORY)
    picture(lambda *axes: draw(axes, records), width=11, panels=3)


def draw(axes, records):
    """Plot the accuracy by ranks, here and in the paper (Table 5)."""
    panels = {"test_percent": "Test accuracy here, %", **PAPERS}
    for each, (column, title) in zip(axes, panels.items()):
        points = {name: [(record["ranks"], record[column]) for record in records
                         if record["case"] == name and column in record] for name in NAMES.values()}
        curves(each, {name: list(zip(*points[name])) for name in points
                      if points[name] and ("paper" not in name or column == "test_percent")},
               title=title, xlabel="ranks")
        count_axis(each.xaxis, sorted({record["ranks"] for record in records}))


if __name__ == "__main__":
    main(*sys.argv[1:])
