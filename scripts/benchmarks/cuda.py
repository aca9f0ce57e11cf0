"""Benchmark of the CUDA kernels, with their speed relative to other libraries."""

from statistics import geometric_mean

from benchmarks import products, row_gathers
from benchmarks.checks import OURS, TOLERANCE
from benchmarks.products import MASKED


def measure(settings, gpu, limits):
    """Time SpMM, S-SpMM, gather and scatter_add on the GPU.

    Return a dict: "rows" and "absent" from benchmarks.products, "ratios" from
    `compare`, "summary" from `summarize`, and "copies", the rows of
    benchmarks.row_gathers.
    """
    report = products.measure(settings, gpu, limits)
    ratios = compare(report["rows"])
    return {**report, "ratios": ratios, "summary": summarize(ratios),
            "copies": row_gathers.measure(settings, gpu, limits)["rows"]}


def compare(rows):
    """Return the times of libraries divided by that of SpMM.

    Only libraries with a right result count, and S-SpMM.

    Return one dict for each graph and width. Its keys are graph, width, fastest_peer,
    peer_ratio (its time over SpMM's; both None without a peer), masked_ratio (S-SpMM
    over SpMM), peer_ratios (all).
    """
    ratios = []
    for graph, width in dict.fromkeys((row["graph"], row["width"]) for row in rows):
        here = {row["kernel"]: row for row in rows
                if (row["graph"], row["width"]) == (graph, width)}
        over_ours = {name: row["time_ms"] / here[OURS]["time_ms"] for name, row in here.items()}
        peers = {name: over_ours[name] for name, row in here.items() if is_right_peer(row)}
        fastest = min(peers, key=peers.get, default=None)
        ratios.append({"graph": graph, "width": width, "fastest_peer": fastest,
                       "peer_ratio": peers.get(fastest), "masked_ratio": over_ours[MASKED],
                       "peer_ratios": peers})
    return ratios


def is_right_peer(row):
    error = row["relative_error"]
    return not row["kernel"].startswith(OURS) and error is not None and error <= TOLERANCE


def summarize(ratios):
    """Return means, minima and maxima of the ratios, a dict.

    They are over all graphs and widths.

    Keys are KIND_mean_ratio (geometric mean), KIND_least_ratio and KIND_most_ratio;
    KIND is "peer", "masked" or the name of a library.
    """
    kinds = {"peer": [row["peer_ratio"] for row in ratios if row["peer_ratio"] is not None],
             "masked": [row["masked_ratio"] for row in ratios]}
    for name in dict.fromkeys(name for row in ratios for name in row["peer_ratios"]):
        kinds[name] = [row["peer_ratios"][name] for row in ratios if name in row["peer_ratios"]]
    functions = {"mean": geometric_mean, "least": min, "most": max}
    return {f"{kind}_{name}_ratio": function(values) for kind, values in kinds.items() if values
            for name, function in functions.items()}
