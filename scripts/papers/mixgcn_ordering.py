"""Table for mixgcn-ordering.sh: the cost of reordering rows, and the gain in a
pipeline.
"""
import json
import sys
import time
from pathlib import Path

from results import bars, cell, read, show, summary

import hpgcn
from hpgcn.graphs.vertex_order import rcm
from hpgcn.partition import make_partition

# METIS and RCM in seconds, stages, speed-up (Tables 5 and 4)
PAPER = (("Reddit", "342", "4.25", "11", "1.01"), ("Orkut", "1009", "9.39", "11", "1.07"),
         ("Twitter", "23473", "175", "19", "1.02"), ("Friendster", "32490", "209", "6", "1.13"),
         ("papers100M", "13660", "201", "4", "1.18"))


def seconds(path, ranks):
    """Print as JSON the seconds that METIS and RCM take on a graph in memory."""
    with hpgcn.load(path) as stored:
        graph = stored.read()
    begin = time.perf_counter()
    make_partition(graph, max(2, int(ranks)), method="graph", refine=False, rcm=False)
    metis = time.perf_counter() - begin
    begin = time.perf_counter()
    rcm(graph)
    print(json.dumps({"metis": metis, "rcm": time.perf_counter() - begin,
                      "vertices": graph.num_rows}))


def table(folder):
    """Print the cost of reordering each graph, and its gain."""
    folder, rows = Path(folder), []
    names = sorted(path.name.removesuffix(".seconds.json")
                   for path in folder.glob("*.seconds.json"))
    epochs = {order: [] for order in ("stored", "rcm")}
    for name in names:
        cost, order = read(folder / f"{name}.seconds.json"), read(folder / f"{name}.rcm.json")
        for kind, held in epochs.items():
            held.append(min(summary(run)["epoch_s_median"]
                            for run in folder.glob(f"{name}-{kind}-*")))
        rows.append([name, cell(cost["metis"], ".3g"), cell(cost["rcm"], ".3g"),
                     *(cell(order[key] / cost["vertices"])
                       for key in ("bandwidth_stored", "bandwidth")),
                     str(order["stages_stored"]), str(order["stages"]),
                     *(cell(held[-1], ".4g") for held in epochs.values()),
                     cell(epochs["stored"][-1] / epochs["rcm"][-1])])
    rows += [[f"{name} (paper)", metis, order, None, None, None, stages, None, None, faster]
             for name, metis, order, stages, faster in PAPER]
    show("METIS and RCM in seconds; bandwidth b / n and stages before and after; seconds of an "
         "epoch of mop", ["graph", "METIS s", "RCM s", "b / n", "after", "stages", "after",
                          "s/epoch", "after", "faster by"], rows)
    bars(folder / "mixgcn-ordering.png", "an epoch of mop", "s",
         [f"{name} {kind}" for name in names for kind in epochs],
         {"epoch": [epochs[kind][number] for number in range(len(names)) for kind in epochs]})


if __name__ == "__main__":
    {"seconds": seconds, "table": table}[sys.argv[1]](*sys.argv[2:])
