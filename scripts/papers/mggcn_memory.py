"""Table for mggcn-memory.sh.

Memory by the number of layers, with and without shared buffers.
"""
import sys
from pathlib import Path

from results import bars, picture, read, show, summary

LAYERS = ("activations", "buffers")
KINDS = ("matrix", "features", "parameters", *LAYERS)


def main(folder, layers):
    records, stacks = [], {}
    for count in layers.split():
        forecast = read(Path(folder) / f"layers{count}.json")
        largest = max(forecast["memory"], key=lambda rank: rank["peak"])
        # two results a layer, HW and A H W, and the gradients of both: buffers of their own
        widths, (n, *_) = forecast["widths"], forecast["rows_per_level"]
        per_rank = n / forecast["ranks"]
        own = 4 * per_rank * sum(4 * width for width in widths[1:])
        kept = {kind: largest[kind] / 1e9 for kind in KINDS if kind not in LAYERS}
        stacks[f"{count} layers, shared"] = {kind: largest[kind] / 1e9 for kind in KINDS}
        stacks[f"{count} layers, own"] = {**kept, "buffers": own / 1e9}
        run = Path(folder) / f"layers{count}"
        measured = summary(run)["peak_rss_bytes"] / 1e9 if (run / "summary.json").exists() else None
        records.append({"layers": int(count),
                        **{f"{kind}_gb": largest[kind] / 1e9 for kind in KINDS},
                        "shared_gb": sum(largest[kind] for kind in KINDS) / 1e9,
                        "own_buffers_gb": sum(kept.values()) + own / 1e9,
                        "peak_gb": largest["peak"] / 1e9, "measured_gb": measured})
    show("memory",
         "GB of the largest rank by layers; measured: the process with Python and libraries",
         {"layers": ("layers", "d"), **{f"{kind}_gb": (kind, ".3g") for kind in KINDS},
          "shared_gb": ("sum, shared", ".3g"), "own_buffers_gb": ("sum, own buffers", ".3g"),
          "peak_gb": ("peak", ".3g"), "measured_gb": ("measured", ".3g")}, records)
    print("mg-gcn-2021, section 4.2: memory grows by one buffer a layer, not by four.")
    parts = {kind: [stack.get(kind, 0) for stack in stacks.values()] for kind in KINDS}
    picture(lambda axes: bars(axes, list(stacks), parts, xlabel="GB of the largest rank",
                              title="Shared buffers, and own ones (mg-gcn-2021, section 4.2)"),
            height=2 + 0.3 * len(stacks))


if __name__ == "__main__":
    main(*sys.argv[1:])
