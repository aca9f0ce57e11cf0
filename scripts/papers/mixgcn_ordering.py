"""Table for mixgcn-ordering.sh.

The cost of reordering rows, and the gain in a pipeline.
"""
import json
import sys
import time
from pathlib import Path

from results import groups, picture, read, show, summary

import hpgcn
from hpgcn.graphs.reordering import rcm
from hpgcn.partition import make_partition

# METIS and RCM in seconds, stages, speed-up (Tables 5 and 4)
PAPER = {"Reddit": (342, 4.25, 11, 1.01), "Orkut": (1009, 9.39, 11, 1.07),
         "Twitter": (23473, 175, 19, 1.02), "Friendster": (32490, 209, 6, 1.13),
         "papers100M": (13660, 201, 4, 1.18)}
COLUMNS = {
    "graph": ("graph", ""), "metis_seconds": ("METIS s", ",.2f"), "rcm_seconds": ("RCM s", ",.2f"),
    "bandwidth_stored": ("b / n", ".2f"), "bandwidth": ("by RCM", ".2f"),
    "stages_stored": ("stages", "d"), "stages": ("by RCM", "d"), "batches": ("batches", "d"),
    "first_stored": ("first waits for", "d"), "first": ("by RCM", "d"),
    "seconds_stored": ("s/epoch", ".4g"), "seconds": ("by RCM", ".4g"),
    "speedup": ("faster by", ".2f")}


def seconds(path, parts):
    """Print as JSON the seconds that METIS and RCM take on a graph in memory."""
    with hpgcn.load(path) as stored:
        graph = stored.read()
    begin = time.perf_counter()
    make_partition(graph, int(parts), method="graph", refine=False, rcm=False)
    metis = time.perf_counter() - begin
    begin = time.perf_counter()
    rcm(graph)
    print(json.dumps({"metis": metis, "rcm": time.perf_counter() - begin,
                      "vertices": graph.num_rows}))


def table(folder):
    """Print the cost of reordering each graph, and its gain."""
    folder, records = Path(folder), []
    for path in sorted(folder.glob("*.seconds.json")):
        name, cost = path.name.removesuffix(".seconds.json"), read(path)
        stored, order = (read(folder / f"{name}.{order}.json") for order in ("stored", "rcm"))
        slow, fast = (min(summary(run)["epoch_s_median"] for run in folder.glob(pattern))
                      for pattern in (f"{name}-stored-*", f"{name}-rcm-*"))
        records.append({
            "graph": name, "metis_seconds": cost["metis"], "rcm_seconds": cost["rcm"],
            "bandwidth_stored": stored["bandwidth"] / cost["vertices"],
            "bandwidth": order["bandwidth"] / cost["vertices"],
            "stages_stored": stored["stages"], "stages": order["stages"],
            "batches": order["pipeline_batches"], "first_stored": stored["first_batches"],
            "first": order["first_batches"], "seconds_stored": slow, "seconds": fast,
            "speedup": slow / fast})
    names = ("metis_seconds", "rcm_seconds", "stages", "speedup")
    records += [{"graph": f"{name} (paper)", **dict(zip(names, values))}
                for name, values in PAPER.items()]
    show("ordering", "METIS and RCM in seconds; bandwidth b / n and stages before and after; how "
         "many batches the first one waits for; seconds of an epoch of mop in batches", COLUMNS,
         records)
    picture(lambda *axes: draw(axes, records), width=12, height=2 + 0.5 * len(records), panels=4)


def draw(axes, records):
    """Plot Tables 5 and 4: seconds of both methods, batches of the first wait, stages, gain."""
    names = [record["graph"] for record in records]

    def panel(place, series, style, **labels):
        groups(axes[place], names if place == 0 else [""] * len(names),
               {kind: [record.get(key) for record in records] for kind, key in series.items()},
               style, **labels)

    panel(0, {"METIS": "metis_seconds", "RCM": "rcm_seconds"}, ",.2f", title="Seconds (Table 5)")
    panel(1, {"as stored": "first_stored", "by RCM": "first"}, "d",
          title="Batches that the first waits for")
    panel(2, {"stages by RCM": "stages"}, "d", title="Stages (Table 4)")
    panel(3, {"gain": "speedup"}, ".2f", title="Faster by (Table 4)")
    axes[0].set_xscale("log")


if __name__ == "__main__":
    {"seconds": seconds, "table": table}[sys.argv[1]](*sys.argv[2:])
