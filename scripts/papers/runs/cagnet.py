"""The commands of cagnet-2020."""
from papers.runs.outcome import Run, plan_row

RANKS = 64


def same_results(outcome):
    """Return the accuracies of the runs, and the largest difference of their last losses."""
    runs = list(outcome.summaries().values())
    first = runs[0]["final_loss"]
    return {"accuracy": [100 * run["test_acc"] for run in runs],
            "loss_difference": max(abs(run["final_loss"] / first - 1) for run in runs)}


def words_of_a_layer(outcome):
    """Return the millions of words that a rank sends for a layer f -> f, and the paper's formulas.

    A plan of three layers less one of two is a layer, forward and backward; section IV. Memory
    is that of two layers, in MB.
    """
    plan = outcome.object
    n, nnz = plan["graph"]["num_nodes"], plan["graph"]["num_edges"]
    f = plan["models"][0]["hidden"]
    two, three = plan["models"]
    P = two["rows"][0]["ranks"]
    found = {}
    for strategy in ("1d", "1.5d", "2d", "3d", "mop"):
        less, more = (plan_row(model, strategy=strategy) for model in (two, three))
        name = "words_" + strategy.replace(".", "")
        found[name] = (more["bytes"]["total"] - less["bytes"]["total"]) / 4 / P / 1e6
        found["memory_" + strategy.replace(".", "")] = less["memory"]["max_bytes"] / 1e6
    c = plan_row(two, strategy="1.5d")["grid"][1]

    # those of 1d in units of n f and f^2
    one_d = [plan_row(model, strategy="1d")["bytes"] for model in (two, three)]
    rows, weights = ([sum(each[kind].values()) / 4 / P for each in one_d]
                     for kind in ("aggregation", "weights"))
    found |= {
        "rows_1d": (rows[1] - rows[0]) / (n * f), "weights_1d": (weights[1] - weights[0]) / f**2,
        "copies": c,
        "ours_15d": (2 * n * f * (1 / c - 1 / P) + 4 * n * f * (c - 1) / P) / 1e6,
        "paper_1d": (2 * n * f + f**2) / 1e6,
        "paper_15d": (2 * n * f / c + 2 * n * f * c / P) / 1e6,
        "paper_2d": ((8 * n * f + 2 * nnz) / P**.5 + f**2) / 1e6,
        "paper_3d": (2 * nnz + 12 * n * f) / P**(2 / 3) / 1e6}

    # memory of two layers, words of all ranks, as section IV has it
    plain = nnz + 2 * n * f
    return found | {"memory_15d_ratio": found["memory_15d"] / found["memory_1d"],
                    "memory_3d_ratio": found["memory_3d"] / found["memory_2d"],
                    "paper_memory_3d_ratio": (nnz + n * f + P**(1 / 3) * n * f) / plain}


def metis(outcome):
    """Return by how many percent graph parts lower the volume and the maximum of random parts."""
    relative = outcome.object["graph"]["relative"]
    return {"less": 100 * (1 - relative["volume"]), "max_less": 100 * (1 - relative["volume_max"])}


def scaling(outcome):
    """Return the speed-up of 2 ranks over one of 1d, 1.5d, 2d and 3d."""
    return {"speedup": [row["speedup"] for row in outcome.table("scaling")
                        if row["ranks"] == 2 and row["source"] == "measured"]}


def breakdown(outcome):
    """Return the milliseconds of an epoch by strategy, and of broadcasts of 2d."""
    rows = {row["case"]: row for row in outcome.table("epochs")}
    found = {f"{name}_ms": [1e3 * rows[case]["seconds"] for case in cases]
             for name, cases in (("line", ("1d", "1.5d", "2d")), ("grid", ("2d", "3d")))}
    return found | {f"{name}_2d": 1e3 * rows["2d"][f"{name}_broadcast_seconds"]
                    for name in ("dense", "sparse")}


def replicas(outcome):
    """Return the milliseconds of communication of 1.5d by the number of copies."""
    return {"ms": [1e3 * plan_row(plan, strategy="1.5d")["seconds"]["communication"]
                   for plan in outcome.objects]}


def orders(outcome):
    """Return the MB that the busiest rank of 2d sends, as stored and permuted, and all ranks'."""
    rows = [plan_row(plan, strategy="2d") for plan in outcome.objects]
    return {"max_mb": [row["bytes"]["max"] / 1e6 for row in rows],
            "ms": [1e3 * row["seconds"]["epoch"] for row in rows],
            "mean_mb": rows[0]["bytes"]["total"] / 1e6 / rows[0]["ranks"]}


def two_orders(graph, ranks):
    """Return the command that plans a graph as stored and in random order."""
    return (f"hpgcn plan {graph} -k {ranks} --json\nhpgcn partition {graph} -k {ranks} "
            f"--method random --no-rcm -o C12.h5 --overwrite -q\nhpgcn plan C12.h5 --json")


def layer_plan(vertices, edges, ranks):
    """Return the command that plans two and three layers of width 128."""
    return (f"hpgcn plan --vertices {vertices} --edges {edges} --features 128 --classes 128 "
            f"-k {ranks} --sweep 128:2,3 --json")


def trains(graph, strategies, ranks, epochs):
    """Return the command that trains one rank and each strategy on several."""
    return (f"hpgcn train {graph} --epochs {epochs} --out $OUT/0 --overwrite -q\n"
            f"for s in {strategies}; do hpgcn train {graph} --ranks {ranks} --strategy $s "
            f"--epochs {epochs} --out $OUT/$s --overwrite -q; done")


RUNS = {
    "C1": Run(trains("cora.h5", "1d 1.5d 2d 3d", 8, 30), same_results,
              trains("cora.h5", "1d 2d", 4, 10), .01),
    "C2": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy 1.5d:2"),
    "C3": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy 2d"),
    "C4": Run("mpiexec -n 8 hpgcn train cora.h5 --strategy 3d"),
    "C5": Run("mpiexec -n 8 hpgcn train cora.h5 --strategy 2d:4x2"),
    "C6": Run(layer_plan("1048576", "8388608", RANKS), words_of_a_layer,
              layer_plan("16384", "131072", RANKS)),
    "C7": Run("hpgcn partition email-Enron.h5 -k 64 --compare graph,random --no-refine --json",
              metis, "hpgcn partition sbm9.h5 -k 8 --compare graph,random --no-refine --json", .1),
    "C8": Run("CASES='1d 1.5d 2d 3d' FORECAST=64 scripts/papers/scaling.sh sbm16.h5",
              scaling),
    "C9": Run("scripts/papers/cagnet-breakdown.sh email-Enron.h5", breakdown),
    "C10": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy 2d:1x4"),
    "C11": Run("for c in 1 2 4; do hpgcn plan rmat12.h5 -k 16 --strategy 1.5d:$c --json; done",
               replicas,
               "for c in 1 2; do hpgcn plan sbm9.h5 -k 4 --strategy 1.5d:$c --json; done"),
    "C12": Run(two_orders("email-Enron.h5", 16), orders, two_orders("sbm9.h5", 4)),
}
