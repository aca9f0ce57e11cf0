"""Tables for scaling.sh.

The seconds of an epoch and the speed-up, by strategy and number of ranks.
"""
import json
import sys
from pathlib import Path

import numpy as np
from results import count_axis, curves, picture, read, show, summary

import hpgcn
from hpgcn.comm.slow_network import parse

PARTS = {"HP": "p2p", "GP": "p2p", "RP": "p2p"}  # strategy of those that are named by their parts
# what the papers say of their figures: a sentence each
PAPERS = (
    "demirci-2022, Figure 3: HP is almost linear up to 512 CPUs and never slower than GP or RP; "
    "GP is slower than RP on com-Youtube, flickr and soc-Slashdot0902.",
    "cagnet-2020, Figures 1 to 3: broadcasts of 1.5d shrink with c where each rank has a link of "
    "its own; 2d is never faster than 1.5d up to 100 GPUs.")


def machine(path, network, target):
    """Write a machine file.

    A copy of the file `path`, or defaults if it is missing, with the rates of
    `network`.
    """
    held = read(path) if Path(path).exists() else None
    if held is None:
        held = {"limits": {"memory_bytes_per_s": 1e10, "gemm_float32_flops_per_s": 5e10,
                           "gemm_float64_flops_per_s": 2.5e10}}
    if network:
        slow = parse(network)
        held["network"] = {"latency_s": slow.latency_s, "bytes_per_s": slow.bytes_per_s}
    Path(target).write_text(json.dumps(held))


def widths(graph, *flags):
    """Print the features, hidden widths and classes of a model."""
    model = dict(zip(flags[::2], flags[1::2]))
    header = hpgcn.load(graph).header
    hidden = [model["--hidden"]] * (int(model["--layers"]) - 1)
    print(",".join(map(str, [header.num_features, *hidden, header.num_classes])))


def table(folder, cases, ranks, forecast):
    """Print the measured and the forecast seconds and speed-up of each case."""
    folder, cases, ranks = Path(folder), cases.split(), [int(p) for p in ranks.split()]
    counts = [*ranks, *map(int, forecast.split())]
    measured = {(case, p): min(summary(run)["epoch_s_median"]
                               for run in folder.glob(f"{case}-P{p}-*"))
                for case in cases for p in ranks}
    expected = {(case, p): forecast_seconds(folder, case, p) for case in cases for p in counts}

    # forecasts take the messages of the plan, and its computation times one factor
    first = [(case, ranks[0]) for case in cases if expected[case, ranks[0]]]
    factor = (sum(measured[key] - expected[key]["communication"] for key in first)
              / sum(expected[key]["compute"] for key in first))
    base = float(np.median([measured[case, ranks[0]] for case in cases]))

    records = []
    for (case, p), plan in expected.items():
        seconds = measured.get((case, p))
        if seconds is None and plan:
            seconds = factor * plan["compute"] + plan["communication"]
        records.append({"case": case, "ranks": p,
                        "source": "measured" if p in ranks else "forecast", "seconds": seconds,
                        "message_seconds": plan and plan["communication"],
                        "speedup": seconds and base / seconds})
    show("scaling", "seconds of an epoch; speed-up over the median case on the fewest ranks",
         {"case": ("case", ""), "ranks": ("ranks", "d"), "source": ("", ""),
          "seconds": ("s/epoch", ".4g"), "message_seconds": ("messages (forecast)", ".4g"),
          "speedup": ("speed-up", ".2f")}, records)
    print(f"Computation takes {factor:.2f} times the forecast of the plan on {ranks[0]} ranks; "
          "forecasts are scaled by that.", *PAPERS, sep="\n")
    picture(lambda axes: draw(axes, cases, counts, [record for record in records
                                                    if record["seconds"]]), height=5)


def draw(axes, cases, counts, records):
    """Plot the speed-up by ranks; forecasts have hollow marks."""
    axes.plot(counts, [p / counts[0] for p in counts], color="gray", linewidth=1, label="linear")
    curves(axes, {case: ([record["ranks"] for record in records if record["case"] == case],
                         [record["speedup"] for record in records if record["case"] == case])
                  for case in cases}, xlabel="ranks", ylabel="speed-up",
           title="Speed-up; hollow: forecast (demirci-2022, Figure 3)")
    points = [record for record in records if record["source"] == "forecast"]
    axes.plot([record["ranks"] for record in points], [record["speedup"] for record in points], "o",
              markersize=3, color="white", zorder=3)
    count_axis(axes.xaxis, counts)
    axes.set_yscale("log")


def forecast_seconds(folder, case, p):
    """Return a case's forecast seconds of an epoch, a dict, or None."""
    wanted = PARTS.get(case, case)
    plan = f"{case}-P{p}.plan.json" if case in PARTS else "graph.plan.json"
    found = [row["seconds"] for row in read(folder / plan)["rows"]
             if row["ranks"] == p and (p == 1 or row["strategy"] == wanted)]
    return min(found, key=lambda seconds: seconds["epoch"], default=None)


if __name__ == "__main__":
    {"machine": machine, "widths": widths, "table": table}[sys.argv[1]](*sys.argv[2:])
