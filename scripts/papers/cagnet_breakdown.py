"""Table for cagnet-breakdown.sh: the seconds of an epoch by purpose and strategy."""
import sys
from pathlib import Path

import numpy as np
from results import bars, read, show, summary

import hpgcn
from hpgcn.report.breakdown import parts_of


def main(folder, *cases):
    records, parts = [], {name: [] for name in ("dense broadcast", "reduction", "local")}
    for case in cases:
        run = Path(folder) / case
        means = seconds(run, read(run / "trace.json"))
        found = summary(run)
        traffic = np.load(run / "traffic.npy")
        for name, held in parts.items():
            held.append(means[name])
        records.append({
            "case": case.rpartition("-")[0], "ranks": found["ranks"], "grid": found["grid"],
            "seconds": found["epoch_s_median"],
            **{f"{name.replace(' ', '_')}_seconds": value for name, value in means.items()},
            "sent_mb": found["sent_bytes_per_epoch"] / 1e6, "setup_mb": found["setup_bytes"] / 1e6,
            "destination_mb": traffic.sum() / 1e6})
    show("epochs", "seconds of an epoch, mean over ranks; MB of all ranks", {
        "case": ("case", ""), "ranks": ("ranks", "d"), "grid": ("grid", ""),
        "seconds": ("s/epoch", ".4g"), "dense_broadcast_seconds": ("dense broadcast", ".4g"),
        "reduction_seconds": ("reduction", ".4g"), "local_seconds": ("local", ".4g"),
        "sent_mb": ("MB an epoch", ",.3f"), "setup_mb": ("MB in set-up", ",.3f"),
        "destination_mb": ("MB by destination", ",.3f")}, records)
    print("2d and 3d broadcast blocks of A in every product, as in cagnet-2020; here their seconds "
          "are in dense broadcast.\n"
          "The paper: 2d is never faster than 1.5d; the constants of its dense broadcasts are four "
          "times those of 1d.")
    bars("an epoch", "s, mean over ranks", list(cases), parts)


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
