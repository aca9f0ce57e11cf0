"""The commands of mg-gcn-2021."""
from papers.runs.outcome import Run, plan_row

PRODUCTS = "--vertices 2449029 --edges 61859140 --widths 104,512,47"


def copies(outcome):
    """Return communication and epoch of 1.5d over 1d, by machine."""
    found = {"communication": [], "epoch": []}
    for plan in outcome.objects:
        more, one = (plan_row(plan, strategy=name)["seconds"] for name in ("1.5d", "1d"))
        for kind, held in found.items():
            held.append(more[kind] / one[kind])
    return found


def memory(outcome):
    """Return the GB of the largest rank by layers, shared and with buffers of their own."""
    rows = outcome.table("memory")
    return {"shared": [row["shared_gb"] for row in rows],
            "own": [row["own_buffers_gb"] for row in rows],
            "measured": next((row["measured_gb"] for row in rows if row["measured_gb"]), None)}


def permutation(outcome):
    """Return milliseconds and balance as stored and permuted, with overlap and without."""
    rows = {(row["order"], row["overlap"]): row for row in outcome.table("orders")}
    cases = [("as stored", "yes"), ("permuted", "yes"), ("permuted", "no")]
    found = {name: [rows[case][column] * factor for case in cases]
             for name, column, factor in (("ms", "seconds", 1e3), ("worst", "worst_stage", 1))}
    return found | {"gain": found["ms"][0] / found["ms"][1],
                    "overlap_gain": found["ms"][2] / found["ms"][1]}


def density(outcome):
    """Return the speed-up of two ranks by the factor of the density."""
    rows = outcome.table("density")
    return {name: [row[name] for row in rows if row["ranks"] == 2]
            for name in ("factor", "speedup")}


def gpu_epochs(outcome):
    """Return milliseconds of an epoch and the share of products with A, by hidden width."""
    rows = outcome.object["rows"]
    return {"hidden": [row["hidden"] for row in rows], "ms": [row["epoch_ms"] for row in rows],
            "spmm_percent": [100 * row["spmm_share"] for row in rows]}


def pyg_layers(outcome):
    """Return by how much layers are faster than PyG's, the least and the mean."""
    return {name: outcome.object["summary"][name] for name in ("least_ratio", "mean_ratio")}


def dgx_a100(outcome):
    """Return the forecast of Products on 8 GPUs, and the paper's seconds over forecasts."""
    rows = outcome.object["mg_gcn"]
    wide = [row["claim / ours"] for row in rows if row["graph"] != "Reddit"]
    (products,) = [row["ours s"] for row in rows if (row["graph"], row["GPUs"]) == ("Products", 8)]
    return {"products": products, "least": 100 * (min(wide) - 1), "most": 100 * (max(wide) - 1)}


RUNS = {
    "G1": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy 1d"),
    "G2": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy 1d --hidden 512 --dry-run"),
    "G3": Run("for m in mg-gcn-dgx-v100 mg-gcn-dgx-a100; do "
              f"hpgcn plan {PRODUCTS} -k 8 --machine $m --json; done", copies,
              "for m in mg-gcn-dgx-v100 mg-gcn-dgx-a100; do hpgcn plan --vertices 100k --edges 1M "
              "--widths 104,512,47 -k 8 --machine $m --json; done"),
    "G4": Run("scripts/papers/mggcn-memory.sh email-Enron.h5", memory),
    "G5": Run("scripts/papers/mggcn-permutation.sh email-Enron.h5", permutation),
    "G6": Run("scripts/papers/mggcn-density.sh email-Enron.h5", density),
    "G7": Run("python scripts/benchmarks/run.py cuda-epoch --json", gpu_epochs),
    "G8": Run("python scripts/benchmarks/run.py torch --graphs prod --widths 64 --json",
              pyg_layers),
    "G9": Run("python scripts/paper_machines.py --json", dgx_a100,
              "python scripts/paper_machines.py --json"),
    "G10": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy 2d:1x4"),
}
