"""The commands of mixgcn."""
import json

from papers.runs.outcome import Run, plan_rows

RANKS = "2,4,8,16,32,64"


def volumes(outcome):
    """Return the MB of a step and the MB of a rank's memory, by ranks, of p2p and mop."""
    found = {}
    for strategy in ("p2p", "mop"):
        rows = sorted(plan_rows(outcome.object, strategy=strategy), key=lambda row: row["ranks"])
        found[f"{strategy}_mb"] = [row["bytes"]["total"] / 1e6 for row in rows]
        found[f"{strategy}_rows_mb"] = [sum(row["bytes"]["aggregation"].values()) / 1e6
                                        for row in rows]
        found[f"{strategy}_memory"] = [row["memory"]["max_bytes"] / 1e6 for row in rows]
        found[f"{strategy}_matrix"] = [row["memory"]["matrix"] / 1e6 for row in rows]
    return found


def early_layers(outcome):
    """Return how often a rank begins layer 2 before the end of layer 1, in percent.

    Backward it is layer 1 before the end of layer 2. The end is the last update.
    """
    trace = json.loads((outcome.out / "run" / "trace.json").read_text())
    times = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["name"].startswith(("spmm", "dense")):
            key = event["args"]["epoch"], event["pid"], event["args"].get("at")
            times.setdefault((event["name"][:4], *key), []).append(event["ts"])
    found = {}
    for name, before, after in (("forward", 1, 2), ("backward", 2, 1)):
        early = [min(times["spmm", epoch, rank, f"layer {after} {name}"]) < max(last)
                 for (kind, epoch, rank, place), last in times.items()
                 if kind == "dens" and place == f"layer {before} {name}"]
        found[name] = 100 * sum(early) / len(early)
    return found


def masked(outcome):
    """Return the least and the most time of S-SpMM over SpMM at 128 columns."""
    times = {}
    for row in outcome.object["rows"]:
        times.setdefault(row["graph"], {})[row["kernel"]] = row["time_ms"]
    ratios = [kernels["hpgcn"] / kernels["hpgcn_spmm"] for kernels in times.values()]
    return {"least": min(ratios), "most": max(ratios)}


def stages(outcome):
    """Return the pipeline's batches by graph, as reordered and as stored."""
    return {name: [each[name] for each in outcome.objects] for name in ("stages", "stages_stored")}


def ordering(outcome):
    """Return seconds of METIS and RCM, waits of the first batch, and the gain, by graph."""
    rows = [row for row in outcome.table("ordering") if row["first"] is not None]
    return {name: [row[name] for row in rows] for name in (
        "metis_seconds", "rcm_seconds", "first_stored", "first", "batches", "speedup")}


def balance(outcome):
    """Return the busiest rank over the mean by ranks, by case."""
    return {row["case"].split()[0]: [value for name, value in row.items() if name != "case"]
            for row in outcome.table("balance")}


def machines(outcome):
    """Return the forecasts of Figures 7 and 12 and Table 4: the least and the most."""
    found = outcome.object
    columns = {"unit": [row["ratio"] for row in found["figure_7"]],
               "aggregation": [row["CPU, 4"] for row in found["figure_12"]],
               "ordering": [row["CPU, pipelined"] for row in found["table_4"]]}
    return {f"{name}_{end.__name__}": end(values) for name, values in columns.items()
            for end in (min, max)}


RUNS = {
    "X1": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy mop"),
    "X2": Run("hpgcn partition usroads.h5 -k 4 --method block --pipeline-batches 16 -o X2.h5 "
              "--overwrite -q\nmpiexec -n 4 hpgcn train X2.h5 --strategy mop:16 "
              "--layers 3 --hidden 128 --threads 1 --epochs 4 --eval-every 0 --trace "
              "--out $OUT/run --overwrite", early_layers),
    "X3": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy mop --aggregate-on cpu "
              "--update-on cuda"),
    "X4": Run(f"hpgcn plan rmat14.h5 -k {RANKS} --method random --widths 128,128,40 --json",
              volumes, "hpgcn plan sbm9.h5 -k 2,4,8 --method random --widths 128,128,40 --json"),
    "X5": Run("python scripts/benchmarks/run.py sspmm --widths 128 --json", masked),
    "X6": Run("for graph in email-Enron.h5 soc-Slashdot0902.h5; do hpgcn partition $graph -k 1 "
              "-o X6.h5 --overwrite --json; done", stages,
              "hpgcn partition sbm9.h5 -k 1 -o X6.h5 --overwrite --json"),
    "X7": Run("scripts/papers/mixgcn-ordering.sh email-Enron.h5 usroads.h5", ordering),
    "X8": Run("RANKS='4 8 16' scripts/papers/mixgcn-balance.sh amazon_computers.h5", balance,
              "RANKS='3 4' scripts/papers/mixgcn-balance.sh --small sbm9.h5", .1),
    "X9": Run("python scripts/paper_machines.py --json", machines,
              "python scripts/paper_machines.py --json"),
    "X10": Run("mpiexec -n 4 hpgcn train cora.h5 --strategy p2p"),
    "X11": Run("hpgcn train cora.h5 --ranks 4 --strategy mop --scratch $OUT --memory 1G"),
}
