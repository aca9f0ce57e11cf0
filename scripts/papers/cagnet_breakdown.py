"""Table for cagnet-breakdown.sh: the seconds of an epoch by purpose and strategy."""
import sys
from pathlib import Path

from results import bars, median_epoch, picture, show, summary

# dense broadcasts have an allgather of 1.5d as well; reductions are those of products
PURPOSES = ("dense broadcast", "sparse broadcast", "reduction", "gradients", "local")


def main(folder, *cases):
    records = []
    for case in cases:
        run = Path(folder) / case
        found = summary(run)
        purposes = dict.fromkeys(PURPOSES, 0.0)
        events, seconds = median_epoch(run)
        for event in events:
            if purpose := purpose_of(event):
                purposes[purpose] += event["dur"] / 1e6 / found["ranks"]
        purposes["local"] = seconds - sum(purposes.values())
        records.append({
            "case": found["strategy"], "ranks": found["ranks"], "grid": found["grid"],
            "seconds": seconds, **{column(name): value for name, value in purposes.items()},
            "sent_mb": found["sent_bytes_per_epoch"] / 1e6,
            "setup_mb": found["setup_bytes"] / 1e6})
    show("epochs", "seconds of the epoch of median length, mean over ranks; MB of all ranks", {
        "case": ("case", ""), "ranks": ("ranks", "d"), "grid": ("grid", ""),
        "seconds": ("s/epoch", ".4g"), **{column(name): (name, ".4g") for name in PURPOSES},
        "sent_mb": ("MB an epoch", ",.3f"), "setup_mb": ("MB in set-up", ",.3f")}, records)
    print("2d and 3d broadcast blocks of A along the columns of their grid, RxC or RxCxL.\n"
          "The paper: 2d is never faster than 1.5d; the constants of its dense broadcasts are four "
          "times those of 1d.")
    names = [f"{record['case']}, {record['grid']}" for record in records]
    parts = {name: [record[column(name)] for record in records] for name in PURPOSES}
    picture(lambda axes: bars(axes, names, parts, xlabel="s, mean over ranks",
                              title="Time of an epoch by purpose (cagnet-2020, Figures 1 and 3)"),
            height=2 + 0.3 * len(records))


def purpose_of(event):
    """Return the purpose of a message or a wait; "" for other events."""
    kind = event["name"].partition(",")[0]
    if kind == "sparse_comm":
        return "sparse broadcast"
    if kind not in ("comm", "wait", "reduce"):
        return ""
    if event["args"].get("at") == "update":
        return "gradients"
    return "reduction" if kind == "reduce" else "dense broadcast"


def column(purpose):
    return f"{purpose.replace(' ', '_')}_seconds"


if __name__ == "__main__":
    main(*sys.argv[1:])
