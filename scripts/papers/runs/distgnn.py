"""The commands of distgnn-2021."""
from itertools import pairwise

from papers.runs.outcome import Run, plan_row


def against_peers(outcome):
    """Return the time of the fastest peer of an SpMM over ours: the least and the most."""
    times = {}
    for row in outcome.object["rows"]:
        times.setdefault((row["graph"], row["width"]), {})[row["kernel"]] = row["time_ms"]
    ratios = [min(value for name, value in row.items() if not name.startswith("hpgcn"))
              / row["hpgcn"] for row in times.values()]
    return {"least": min(ratios), "most": max(ratios), "peers": sorted(
        {name for row in times.values() for name in row if not name.startswith("hpgcn")})}


def replication(outcome):
    """Return the replication factor by parts."""
    return {"factor": [each["replication_factor"] for each in outcome.objects]}


def blocks(outcome):
    """Return the best reuse, its bound, the best number of blocks, and the largest gain."""
    rows, steps = outcome.table("blocks"), outcome.table("methods")
    gains = {row["method"].removeprefix("+ "): row["speedup"] / before["speedup"]
             for before, row in pairwise(steps)}
    best = max(rows, key=lambda row: row["reuse"])
    fastest = min(rows, key=lambda row: row["ms"])
    return {"reuse": best["reuse"], "reuse_blocks": best["blocks"],
            "fastest": fastest["blocks"],
            "gain": max(gains.values()), "method": max(gains, key=gains.get)}


def delays(outcome):
    """Return accuracy, MB and seconds of cd-0, cd-5 and 0c by ranks, and memory."""
    found = {}
    for row in outcome.table("accuracy"):
        if row["case"] in ("cd-0", "cd-5", "0c"):
            for name, column in (("accuracy", "test_percent"), ("sent", "sent_mb"),
                                 ("memory", "memory_mb"), ("split", "split_percent"),
                                 ("rate", "lr")):
                found.setdefault(f"{name}_{row['ranks']}", []).append(row[column])
    # all cases are of the same parts
    return {name: values[0] if name.startswith("split") else values
            for name, values in found.items()}


def batches(outcome):
    """Return the seconds of an epoch of batches and of full batches."""
    runs = outcome.summaries()
    return {"batch": runs["batch"]["epoch_s_median"], "full": runs["full"]["epoch_s_median"]}


def bytes_of_types(outcome):
    """Return the bytes of aggregation with bf16 over those with float32."""
    float32, bf16 = (sum(plan_row(plan, strategy="1d")["bytes"]["aggregation"].values())
                     for plan in outcome.objects)
    return {"ratio": bf16 / float32}


def two_types(graph, ranks):
    """Return the command that plans for both types of numbers."""
    return f"for d in float32 bf16; do hpgcn plan {graph} -k {ranks} --dtype $d --json; done"


def vertex_cuts(graph, ranks):
    """Return the command that cuts a graph by Libra, without refinement."""
    return (f"for k in {ranks}; do hpgcn partition {graph} -k $k --method vertex-cut --no-refine "
            "-o N4.h5 --overwrite --json; done")


RUNS = {
    "N1": Run("python scripts/benchmarks/run.py kernels"),
    "N2": Run("python scripts/benchmarks/run.py spmm --widths 64,128 --json", against_peers),
    "N3": Run(two_types("rmat14.h5", 16), bytes_of_types, two_types("sbm9.h5", 4)),
    "N4": Run(vertex_cuts("amazon_computers.h5", "2 4 8 16"), replication,
              vertex_cuts("sbm9.h5", "2 4")),
    "N5": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy vertex-cut"),
    "N6": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy vertex-cut --delay 5"),
    "N7": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy vertex-cut --delay none"),
    "N8": Run("scripts/papers/distgnn-blocks.sh email-Enron.h5", blocks),
    "N9": Run("RANKS='4 16' scripts/papers/distgnn-delay.sh amazon_computers.h5", delays),
    "N10": Run("hpgcn train sbm20.h5 --layers 3 --hidden 256 --epochs 3 --eval-every 0 "
               "--out $OUT/full --overwrite\nhpgcn train sbm20.h5 --layers 3 --hidden 256 "
               "--epochs 1 --eval-every 0 --batch neighbors:15,10,5:2000 --out $OUT/batch "
               "--overwrite", batches),
    "N11": Run("hpgcn report RUN OTHER-RUN --breakdown times.png"),
    "N12": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy vertex-cut --delay paper:5"),
    "N13": Run("hpgcn partition amazon_computers.h5 -k 4 --method distgnn"),
    "N14": Run("hpgcn convert EDGES.csv am.h5 --features identity"),
}
