"""Table for cagnet-breakdown.sh: the seconds of an epoch by purpose and strategy."""
import sys
from pathlib import Path

import numpy as np
from results import bars, cell, read, show, summary

import hpgcn
from hpgcn.report.breakdown import parts_of


def main(folder, *cases):
    rows, parts = [], {name: [] for name in ("dense broadcast", "reduction", "local")}
    for case in cases:
        run = Path(folder) / case
        means = seconds(run, read(run / "trace.json"))
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


def seconds(run, trace):
    """Return the seconds that an epoch spends on broadcasts, reductions and local work,
    averaged over ranks.
    """
    parts = parts_of(hpgcn.read_run(run))
    messages = sum(value for name, value in parts.items()
                   if name.startswith("messages") or name == "wait")
    ranks, epochs = trace["otherData"]["ranks"], trace["otherData"]["epochs_recorded"]
    # waits for reductions have a name of their own in the trace
    reduction = sum(event["dur"] for event in trace["traceEvents"] if event["ph"] == "X"
                    and event["name"].startswith("reduce")) / 1e6 / ranks / epochs
    reduction = min(reduction, messages)
    return {"dense broadcast": messages - reduction, "reduction": reduction,
            "local": sum(parts.values()) - messages}


if __name__ == "__main__":
    main(*sys.argv[1:])
