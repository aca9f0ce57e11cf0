"""Measure a cluster's network, forecast every strategy on it, and train with each.

Started on all ranks by `benchmarks.cluster` with one argument, a JSON object.
"""

import dataclasses
import json
import sys
import time
from pathlib import Path

from mpi4py import MPI

from hpgcn import Config, load, train
from hpgcn.bench import network
from hpgcn.bench.host import BenchHost
from hpgcn.comm.communicator import MpiComm
from hpgcn.planning.answers.candidates import candidates, count_candidate
from hpgcn.planning.answers.choice import choose_strategy
from hpgcn.planning.answers.options import NETWORK_ATTRIBUTES, Options, read_machine
from hpgcn.planning.answers.report import row
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.node_tiers import Tier
from hpgcn.planning.seconds.step_seconds import Machine

ENOUGH = 10.0  # seconds after which a run ends, with at least LEAST epochs
LEAST = 2
# figures of a tier, in the order of the fields of Tier
TIER = ("latency_s", "bytes_per_s", "collective_latency_s", "collective_bytes_per_s",
        "hidden_share")


def main(settings):
    """Write the report of one case to settings["out"]; all ranks call this together."""
    comm = MpiComm(MPI.COMM_WORLD)
    machine, measured = machine_of(settings, comm)
    config = Config(hidden=settings["hidden"], layers=settings["layers"], eval_every=0,
                    epochs=settings["epochs"])
    with load(settings["graph"]) as source:
        chosen, _ = choose_strategy(source, config, comm)

    # forecast on one rank, train on all
    rows = []
    if comm.rank == 0:
        rows = forecasts(settings["graph"], config, machine, comm.size)
    rows = comm.bcast(rows)
    for entry in rows:
        seconds = epoch_seconds(settings["graph"], config.replace(strategy=entry["name"]))
        entry |= {"measured_s": seconds, "ratio": seconds / entry["planned_s"]}
    if comm.rank == 0:
        report = {**measured, "auto": chosen.name, "rows": rows}
        Path(settings["out"]).write_text(json.dumps(report))


def machine_of(settings, comm):
    """Return the Machine of a rank, and the figures of `hpgcn.bench.network.measure_tiers`.

    Rates of memory and kernels are those of the machine file in the settings; without one, memory
    and dense products are measured.
    """
    measured = network.measure_tiers(comm, settings["repeats"])
    if settings["machine"]:
        machine, _ = read_machine(settings["machine"])
    else:
        host = BenchHost()
        host.comm = comm
        limits = host.memory_limits(settings["repeats"]) | host.dense_limits(settings["repeats"], 0)
        names = {field.name for field in dataclasses.fields(Machine)} & limits.keys()
        machine = Machine(**{name: limits[name] for name in names})
    tier = measured["network"]
    rates = {attribute: tier[name] for name, attribute in NETWORK_ATTRIBUTES.items()}
    if "within_node" in measured:
        tier = measured["within_node"]
        rates["within"] = Tier(*(tier[name] for name in TIER))
    return dataclasses.replace(machine, layout=tuple(comm.nodes.tolist()), **rates), measured


def forecasts(graph, config, machine, ranks):
    """Return a dict for each strategy: its name, title, bytes of an epoch and planned seconds."""
    inputs = PlanInput(graph, config)
    options = Options((ranks,), machine=machine, config=config)
    found = {}
    for candidate in candidates(inputs, (ranks,)):
        if candidate.strategy not in found:
            footprint = count_candidate(inputs, candidate, nodes=machine.nodes(ranks))
            told = row(candidate, footprint, options)
            found[candidate.strategy] = {
                "name": candidate.strategy, "strategy": told["strategy"],
                "sent_bytes": told["bytes"]["total"], "planned_s": told["seconds"]["epoch"]}
    return list(found.values())


def epoch_seconds(graph, config):
    """Return the seconds of the fastest epoch of a run."""
    start = time.monotonic()

    def enough(metrics):
        return metrics["epoch"] >= LEAST and time.monotonic() - start > ENOUGH

    result = train(graph, config, MPI.COMM_WORLD, callbacks=[enough])
    return min(epoch["epoch_s"] for epoch in result.history)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
