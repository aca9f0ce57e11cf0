"""Table and timeline for mggcn-permutation.sh: products and messages in each stage."""
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from results import groups, median_epoch, picture, show, summary

CASES = {"block-1": ("as stored", "yes"), "block-0": ("as stored", "no"),
         "random-1": ("permuted", "yes"), "random-0": ("permuted", "no")}
COLORS = {"spmm": "tab:blue", "comm": "gold", "wait": "gold", "reduce": "gold"}
# ms of a product of Products on 4 V100 (Figures 6 and 8)
PAPER = {"block-0": 50, "random-0": 38, "random-1": 30}


def main(folder):
    folder, records, stages, epochs = Path(folder), [], [], {}
    for case, (order, overlap) in CASES.items():
        ranks = summary(folder / case)["ranks"]
        events, seconds = median_epoch(folder / case)
        events = epochs[case] = [event for event in events if kind(event) in COLORS
                                 and event["args"].get("at") != "update"]
        computed = by_stage(events, ranks)
        whole = np.bincount([event["pid"] for event in events],
                            [event["dur"] / 1e6 for event in events])
        imbalance = computed.max(axis=0) / computed.mean(axis=0)
        records.append({
            "order": order, "overlap": overlap, "seconds": seconds,
            "spmm_seconds": whole.max(), "products_seconds": computed.sum(axis=1).max(),
            "messages_seconds": (whole - computed.sum(axis=1)).max(),
            "worst_stage": imbalance.max(),
            "all_stages": computed.max(axis=0).sum() / computed.mean(axis=0).sum(),
            "paper_ms": PAPER.get(case)})
        stages += [{"order": order, "overlap": overlap, "stage": stage, "imbalance": value}
                   for stage, value in enumerate(imbalance)]
    show("orders", "1d, training step of median length: seconds of the slowest rank; the busiest "
         "rank over the mean in products, in the worst stage and summed over stages",
         {"order": ("order", ""), "overlap": ("overlap", ""), "seconds": ("s/epoch", ".4g"),
          "spmm_seconds": ("SpMM", ".4g"), "products_seconds": ("products", ".4g"),
          "messages_seconds": ("messages", ".4g"), "worst_stage": ("worst stage", ".2f"),
          "all_stages": ("all stages", ".2f"), "paper_ms": ("paper, ms of a SpMM", "g")}, records)
    show("stages", "the busiest rank over the mean in each stage",
         {"order": ("order", ""), "overlap": ("overlap", ""), "stage": ("stage", "d"),
          "imbalance": ("busiest / mean", ".2f")}, stages)
    print("mg-gcn-2021, Products on 4 V100: products take 50 ms as stored and 38 ms permuted, with "
          "overlap 30 ms.\nPermuting gains 1.5 times on Products and Reddit at 8 GPUs.")
    picture(lambda *axes: draw(axes, records, stages, epochs), width=13,
            height=3 + 0.8 * ranks, panels=3)


def draw(axes, records, stages, epochs):
    """Plot timelines, the imbalance of stages, and the length of products beside the paper's."""
    timelines(axes[0], epochs)
    names = [f"stage {stage['stage']}" for stage in stages[:len(stages) // len(CASES)]]
    groups(axes[1], names, {
        f"{order}, overlap: {overlap}": [stage["imbalance"] for stage in stages
                                         if (stage["order"], stage["overlap"]) == (order, overlap)]
        for order, overlap in CASES.values()}, title="Busiest rank over the mean, by stage")
    found = {case: record["spmm_seconds"] for case, record in zip(CASES, records)}
    groups(axes[2], [f"{order}\noverlap: {overlap}" for order, overlap in map(CASES.get, PAPER)], {
        "SpMM here": [found[case] / found["block-0"] for case in PAPER],
        "paper: Products, 4 V100": [PAPER[case] / PAPER["block-0"] for case in PAPER]},
        title="SpMM over that as stored, no overlap")


def kind(event):
    """Return the kind of an event, such as "spmm" for the name "spmm, stage 1"."""
    return event["name"].partition(",")[0]


def by_stage(events, ranks):
    """Return the seconds of products by rank and stage, (ranks, ranks)."""
    found, counts = np.zeros((ranks, ranks)), defaultdict(int)
    for event in events:
        if kind(event) == "spmm":
            place = event["pid"], event["args"].get("at")
            stage = event["args"].get("stage", counts[place]) % ranks
            counts[place] += 1
            found[event["pid"], stage] += event["dur"] / 1e6
    return found


def timelines(axes, epochs):
    """Plot the products (blue) and messages (yellow), with a line for each rank."""
    labels = []
    for case, events in epochs.items():
        begin = min(event["ts"] for event in events)
        order, overlap = CASES[case]
        for rank in sorted({event["pid"] for event in events}):
            for color in sorted(set(COLORS.values())):
                spans = [((event["ts"] - begin) / 1e3, event["dur"] / 1e3) for event in events
                         if event["pid"] == rank and COLORS[kind(event)] == color]
                axes.broken_barh(spans, (len(labels) - 0.4, 0.8), color=color)
            labels.append(f"{order}, overlap: {overlap}, rank {rank}")
    axes.set(yticks=range(len(labels)), yticklabels=labels, xlabel="ms of a training step",
             title="SpMM: products blue, messages yellow")
    axes.invert_yaxis()


if __name__ == "__main__":
    main(*sys.argv[1:])
