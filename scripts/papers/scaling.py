"""Tables for scaling.sh: the seconds of an epoch and the speed-up, by strategy and
number of ranks.
"""
import json
import sys
from pathlib import Path

from results import lines, read, show, summary

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
    """Write a machine file: a copy of the file `path`, or defaults if it is missing,
    with the rates of `network`.
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
    """Print the widths of a model, separated by commas: features, hidden layers,
    classes.
    """
    model = dict(zip(flags[::2], flags[1::2]))
    header = hpgcn.load(graph).header
    hidden = [model["--hidden"]] * (int(model["--layers"]) - 1)
    print(",".join(map(str, [header.num_features, *hidden, header.num_classes])))


def table(folder, cases, ranks, forecast):
    """Print the measured and the forecast seconds and speed-up of each case."""
    folder = Path(folder)
    measured = {case: {int(p): min(summary(run)["epoch_s_median"]
                                   for run in folder.glob(f"{case}-P{p}-*")) for p in ranks.split()}
                for case in cases.split()}
    expected = {case: {int(p): forecast_seconds(folder, case, p)
                       for p in [*ranks.split(), *forecast.split()]} for case in cases.split()}

    first = int(ranks.split()[0])
    records = []
    for case in cases.split():
        # forecasts are scaled so that the first one is what was measured
        scale = measured[case][first] / (expected[case][first] or measured[case][first])
        for p, seconds in expected[case].items():
            seen = measured[case].get(p)
            value = seen if seen is not None else None if seconds is None else scale * seconds
            records.append({"case": case, "ranks": p,
                            "source": "forecast" if seen is None else "measured",
                            "seconds": value,
                            "speedup": value and measured[case][first] / value})
    show("scaling", "seconds of an epoch, and speed-up over the fewest ranks",
         {"case": ("case", ""), "ranks": ("ranks", "d"), "source": ("", ""),
          "seconds": ("s/epoch", ".4g"), "speedup": ("speed-up", ".2f")}, records)
    print(*PAPERS, sep="\n")
    points = [record for record in records if record["speedup"] is not None]
    lines("speed-up", "ranks", "speed-up", {
        case: ([point["ranks"] for point in points if point["case"] == case],
               [point["speedup"] for point in points if point["case"] == case])
        for case in cases.split()}, log=True)


def forecast_seconds(folder, case, p):
    """Return the seconds of an epoch that the plan of a case forecasts; None without a
    forecast.
    """
    wanted = PARTS.get(case, case)
    plan = f"{case}-P{p}.plan.json" if case in PARTS else "graph.plan.json"
    found = [row["seconds"]["epoch"] for row in read(folder / plan)["rows"]
             if row["ranks"] == int(p) and (p == "1" or row["strategy"] == wanted)]
    return min(found, default=None)


if __name__ == "__main__":
    {"machine": machine, "widths": widths, "table": table}[sys.argv[1]](*sys.argv[2:])
