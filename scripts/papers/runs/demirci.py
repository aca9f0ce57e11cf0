"""The commands of demirci-2022."""
from papers.runs.outcome import Run, plan_row, plan_rows

SLASHDOT = "soc-Slashdot0902.h5"


def accuracy(outcome):
    """Return the accuracies by ranks, and the largest difference of a loss."""
    rows = outcome.table("accuracy")
    return {"accuracy": [row["test_percent"] for row in rows],
            "loss_difference": max(row["loss_difference"] for row in rows)}


def exchange(outcome):
    """Return the MB and messages of an epoch, sent and planned."""
    (run,) = outcome.summaries().values()
    return {"sent_mb": run["sent_bytes_per_epoch"] / 1e6,
            "plan_mb": run["predicted_bytes_per_epoch"] / 1e6,
            "messages": run["sent_messages_per_epoch"],
            "plan_messages": run["predicted_messages_per_epoch"]}


def imbalance(outcome):
    """Return the largest excess of a part's nonzeros over the mean, by method."""
    compared = outcome.object
    return {name: compared[name]["imbalance_nnz"] for name in ("hypergraph", "graph", "random")}


def stochastic_nets(outcome):
    """Return theta, delta and the number of nets."""
    return {name: outcome.object[name] for name in ("theta", "delta", "nets")}


def table_2(outcome):
    """Return the cells of Table 2: volume and messages, mean and maximum, raw and refined."""
    found = {}
    for row in outcome.table("table2"):
        if row["source"].startswith("here") and row["graph"] != "mean":
            name = f"{row['model'].lower().replace('/', '_')}_{row['source'].split()[-1]}"
            found |= {f"{name}_{column}": row[column] for column in (
                "volume_avg", "volume_max", "messages_avg", "messages_max")}
    return found


def scaling(outcome):
    """Return the speed-up of HP, GP and RP on 2 ranks, and forecasts for 512."""
    rows = outcome.table("scaling")
    return {source: [row["speedup"] for row in rows
                     if row["ranks"] == ranks and row["source"] == source]
            for source, ranks in (("measured", 2), ("forecast", 512))}


def batches(outcome):
    """Return the mean ratio of HP over SHP by rows of batches on 3 to 27 ranks, by graph."""
    return {"ratio": [each["summary"]["mean_ratio"] for each in outcome.objects]}


def busiest_of_batches(outcome):
    """Return rows of the busiest rank on HP parts over those on SHP parts, by ranks."""
    return {name: [row[name] for row in outcome.table("batches")]
            for name in ("ranks", "volume_ratio", "busiest_ratio")}


def deeper(outcome):
    """Return the speed-up of 64 ranks by layers, for both widths of Figure 4b."""
    found = {}
    for model in outcome.object["models"]:
        one, many = (plan_row(model, strategy="p2p", ranks=ranks)["seconds"]["epoch"]
                     for ranks in (1, 64))
        found.setdefault(f"width_{model['hidden']}", []).append(one / many)
    return found


def against_broadcasts(outcome):
    """Return seconds and bytes of 1d over those of p2p on parts, at the most ranks."""
    plan = outcome.object
    most = max(row["ranks"] for row in plan["rows"])
    found = {}
    one_d = plan_row(plan, strategy="1d", ranks=most)
    for row in plan_rows(plan, strategy="p2p", ranks=most):
        found[f"{row['parts']}_communication"] = (
            one_d["seconds"]["communication"] / row["seconds"]["communication"])
        found[f"{row['parts']}_epoch"] = one_d["seconds"]["epoch"] / row["seconds"]["epoch"]
        found[f"{row['parts']}_bytes"] = one_d["bytes"]["total"] / row["bytes"]["total"]
    return found


RUNS = {
    "D1": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy p2p --epochs 5 --out $OUT/run "
              "--overwrite", exchange,
              "hpgcn train sbm9.h5 --strategy p2p --ranks 4 --epochs 2 --out $OUT/run --overwrite",
              .1),
    "D2": Run(f"hpgcn partition {SLASHDOT} -k 512 --compare hypergraph,graph,random --no-refine "
              "--json", imbalance,
              "hpgcn partition sbm9.h5 -k 4 --compare hypergraph,graph,random --no-refine --json",
              .1),
    "D3": Run(f"hpgcn partition {SLASHDOT} -k 27 --method stochastic --batch vertices:20000 "
              "--theta .5 -o D3.h5 --overwrite --json", stochastic_nets,
              "hpgcn partition sbm9.h5 -k 4 --method stochastic --batch vertices:50 --theta .5 "
              "-o D3.h5 --overwrite --json"),
    "D4": Run("hpgcn train cora.h5 --model gat --heads 8"),
    "D5": Run(f"scripts/papers/demirci-table2.sh {SLASHDOT}", table_2,
              "PARTS=8 scripts/papers/demirci-table2.sh --small sbm9.h5", .1),
    "D6": Run(f"CASES='HP GP RP' FORECAST=512 scripts/papers/scaling.sh {SLASHDOT}", scaling),
    "D7": Run("scripts/papers/accuracy.sh cora.h5", accuracy,
              "RANKS='1 3' scripts/papers/accuracy.sh cora.h5", .01),
    "D8": Run("for graph in amazon_computers.h5 email-Enron.h5; do python "
              "scripts/benchmarks/run.py batches $graph --ranks 3,9,27 --json; done", batches,
              "python scripts/benchmarks/run.py batches sbm9.h5 --ranks 3 --json", .1),
    "D9": Run("hpgcn plan usroads.h5 -k 1,64 --method graph --widths 50,50,50 "
              "--sweep 50,100:2,3,4,8 --json", deeper,
              "hpgcn plan sbm9.h5 -k 1,64 --method graph --widths 50,50,50 --sweep 50,100:2,3 "
              "--json", .1),
    "D10": Run(f"scripts/papers/stochastic.sh {SLASHDOT}", busiest_of_batches,
               "RANKS=3 scripts/papers/stochastic.sh --small sbm9.h5", .1),
    "D11": Run("hpgcn train cora.h5 --batch vertices:500"),
    "D12": Run(f"hpgcn plan {SLASHDOT} -k 512 --method hypergraph,graph,random --json",
               against_broadcasts,
               "hpgcn plan sbm9.h5 -k 16 --method hypergraph,graph,random --json", .1),
}
