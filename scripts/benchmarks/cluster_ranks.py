"""Measure a cluster's network, forecast every strategy on it, and train with each.

Started on all ranks by `benchmarks.cluster` with one argument, a JSON object. With "cases" in it,
as from `benchmarks.node_gain`, these cases are trained only.
"""

import json
import statistics
import sys
import time
from pathlib import Path

from mpi4py import MPI

from hpgcn import Config, load
from hpgcn.bench import Settings, machine_rates, network
from hpgcn.bench.host import BenchHost
from hpgcn.bench.training_steps import count_strategies, train_in_turns
from hpgcn.comm.communicator import MpiComm
from hpgcn.planning.answers.choice import choose_strategy, run_machine
from hpgcn.planning.answers.options import Options
from hpgcn.planning.answers.report import row
from hpgcn.planning.seconds.machine_files import machine_path
from hpgcn.planning.seconds.step_seconds import factor_name
from hpgcn.store import read_json

TURNS = 2  # runs of each strategy
ENOUGH = 5.0  # seconds after which a run ends, with at least LEAST epochs
LEAST = 3
KERNELS = ("limits", "machine", "rates")  # objects of a machine file that are of one node


def main(settings):
    """Write the report of one case to settings["out"]; all ranks call this together."""
    comm = MpiComm(MPI.COMM_WORLD)
    begin = time.monotonic()
    machine = Path(settings["out"]).with_name("machine.json")
    measured = measure_machine(settings, comm)
    if comm.rank == 0:
        machine.write_text(json.dumps(measured))
    comm.barrier()
    bench_s = time.monotonic() - begin

    # the choice of a run, which reads these rates
    config = Config(hidden=settings["hidden"], layers=settings["layers"], eval_every=0,
                    epochs=settings["epochs"], machine=str(machine))
    with load(settings["graph"]) as source:
        chosen, node_aware, _ = choose_strategy(source, config, comm)

    # forecast on one rank, train on all in turns
    rows = forecasts(settings["graph"], config, comm) if comm.rank == 0 else []
    rows = comm.bcast(rows)
    runs = [(settings["graph"], entry.pop("config")) for entry in rows]
    found = train_in_turns(runs, MPI.COMM_WORLD, TURNS, LEAST, ENOUGH)
    for entry, epochs in zip(rows, found):
        seconds = [epoch["epoch_s"] for epoch in epochs]
        median = statistics.median(seconds)
        entry |= {"measured_s": median, "least_s": min(seconds), "most_s": max(seconds),
                  "ratio": median / entry["planned_s"]}
    if comm.rank == 0:
        report = {name: measured[name] for name in measured if name not in KERNELS}
        report |= {"bench_s": bench_s, "auto": factor_name(chosen.name, node_aware == "always"),
                   "rows": rows}
        Path(settings["out"]).write_text(json.dumps(report))


def train_cases(settings):
    """Train each of settings["cases"] in turns.

    Write a list with the metrics of the epochs of each to settings["out"].
    """
    runs = [(case["graph"], Config(hidden=settings["hidden"], layers=settings["layers"],
                                   eval_every=0, epochs=settings["epochs"],
                                   strategy=case["strategy"], node_aware=case["node_aware"]))
            for case in settings["cases"]]
    found = train_in_turns(runs, MPI.COMM_WORLD, settings["turns"], LEAST, ENOUGH)
    if MPI.COMM_WORLD.Get_rank() == 0:
        Path(settings["out"]).write_text(json.dumps(found))


def measure_machine(settings, comm):
    """Return the contents of a machine file for this cluster, a dict.

    Rates of memory and kernels are those of the machine file in the settings; without one, memory
    and dense products are measured. The network and the factors of strategies are measured.
    """
    bench = Settings(repeats=settings["repeats"])
    if settings["machine"]:
        known = read_json(machine_path(settings["machine"]))
        report = {name: known[name] for name in KERNELS if name in known}
    else:
        host = BenchHost()
        host.comm = comm
        report = {"limits": {**host.memory_limits(bench.repeats),
                             **host.dense_limits(bench.repeats, bench.seed)}}
    report |= network.measure_tiers(comm, bench.repeats)
    return report | {"steps": machine_rates.measure_steps(bench, report, comm)}


def forecasts(graph, config, comm):
    """Return a dict for each strategy and exchange.

    Its Config, its name by `factor_name`, the bytes of an epoch and planned seconds.
    """
    machine = run_machine(config, comm.nodes)
    options = Options((comm.size,), machine=machine, config=config)
    found = []
    for own, name, candidate, footprint in count_strategies(graph, config, machine, comm.size):
        told = row(candidate, footprint, options)
        found.append({
            "config": own, "name": name, "sent_bytes": told["bytes"]["total"],
            "bytes_between_nodes": told.get("bytes_between_nodes", told["bytes"]["total"]),
            "planned_s": told["seconds"]["epoch"], "computing_s": told["seconds"]["compute"]})
    return found


if __name__ == "__main__":
    words = json.loads(sys.argv[1])
    (train_cases if "cases" in words else main)(words)
