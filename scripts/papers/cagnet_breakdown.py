"""Table of cagnet-breakdown.sh: what the seconds of an epoch go to, by strategy."""
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from results import bars, cell, read, show, summary

MESSAGES = ("comm", "wait", "reduce")  # kinds of a trace that are not local


def main(folder, *cases):
    rows, parts = [], {name: [] for name in ("dense broadcast", "reduction", "local")}
    for case in cases:
        run = Path(folder) / case
        means = seconds(read(run / "trace.json"))
        found = summary(run)
        traffic = np.load(run / "traffic.npy")
        for name, held in parts.items():
            held.append(means[name])
        rows.append([case, found["grid"], cell(found["epoch_s_median"], ".4g"),
                     *(cell(means[name], ".4g") for name in parts),
                     "in dense" if case.startswith(("2d", "3d")) else "0",
                     cell(found["sent_bytes_per_epoch"] / 1e6, ",.3f"),
                     cell(found["setup_bytes"] / 1e6, ",.3f"), cell(traffic.sum() / 1e6, ",.3f")])
    show("seconds of an epoch, mean over ranks; MB of all ranks", [
        "case", "grid", "s/epoch", *parts, "sparse broadcast", "MB an epoch", "MB in set-up",
        "MB by destination"], rows, left=(0, 1))
    print("2d and 3d broadcast blocks of A in every product, as in cagnet-2020; here their seconds "
          "are in dense broadcast.\n"
          "The paper: 2d is never faster than 1.5d; the constants of its dense broadcasts are four "
          "times those of 1d.")
    bars(Path(folder) / "cagnet-breakdown.png", "an epoch", "s, mean over ranks", list(cases),
         parts)


def seconds(trace):
    """Return the seconds of an epoch by purpose, the mean over ranks and epochs but the first."""
    sums, epochs = Counter(), trace["otherData"]["epochs_recorded"]
    first = 2 if epochs > 1 else 1
    for event in trace["traceEvents"]:
        name, args = event["name"], event.get("args", {})
        whole = name.startswith(("epoch", "evaluate"))
        if event["ph"] != "X" or whole or args.get("epoch", 0) < first:
            continue
        place = "local"
        if any(name.startswith(kind) for kind in MESSAGES):
            place = "reduction" if name.startswith("reduce") else "dense broadcast"
        sums[place] += event["dur"]
    return {name: sums[name] / 1e6 / trace["otherData"]["ranks"] / (epochs - first + 1)
            for name in ("dense broadcast", "reduction", "local")}


if __name__ == "__main__":
    main(*sys.argv[1:])
