"""Measure the rates that `hpgcn plan` reads: memory, dense products, kernels and network."""
from contextlib import suppress
from dataclasses import asdict, replace

from hpgcn.bench import network, rates, training_steps
from hpgcn.errors import MissingError
from hpgcn.kernels.host.threads import set_num_threads
from hpgcn.planning.answers.options import parse_machine
from hpgcn.runtime.copy_rates import measure_disk, measure_pcie
from hpgcn.runtime.device import Cuda
from hpgcn.runtime.disk.scratch_folder import check_scratch
from hpgcn.runtime.launcher import ranks_on_node

BIG_SAMPLE = 1 << 30  # bytes by which a disk is measured
ALONE = 3600.0  # seconds that ranks wait, beyond their timeout, while only rank 0 measures


def measure(settings, host, comm):
    """Time memory, dense products, the kernels of a training step, and messages between ranks.

    All ranks of `comm` call this function. The dict has

    limits : rates of memory and of dense products, as of `BenchHost`.
    rates : a list of the dicts of `rates.measure`. On one rank it has one entry. On several ranks
        the first entry is of rank 0 with the cores of all ranks of its node, while the
        other ranks sleep; the second entry is of all ranks at once.
    network : as of `network.measure`, if there are several ranks. If they are on several nodes,
        it is of messages between nodes, and `within_node` is of those within, with
        `ranks_per_node`, the ranks of the node with most.
    steps : factors of strategies, as of `training_steps.measure`, if there are several ranks.
    disk : rates of the folder settings.scratch in bytes per second, if it is given.
    pcie : the same between pinned host memory and GPU 0, if there is one.
    """
    # limits that need no other rank
    host.comm = comm if comm.size > 1 else None
    report = {"limits": {**host.memory_limits(settings.repeats),
                         **host.dense_limits(settings.repeats, settings.seed)}}
    with comm.collective_errors():
        if comm.rank == 0:
            report |= copy_rates(settings.scratch)
    if comm.size == 1:
        return report | {"rates": [rates.measure(settings, host)]}

    # only rank 0, with all cores
    host.comm = None
    alone = None
    if comm.rank == 0:
        set_num_threads(settings.threads * ranks_on_node())
        alone = rates.measure(settings, host)
        set_num_threads(settings.threads)
    with comm.extended_timeout(ALONE):
        comm.barrier()

    # all ranks at once
    host.comm = comm
    together = rates.measure(settings, host, ranks_on_node())
    report |= {"rates": [alone, together], **network.measure_tiers(comm, settings.repeats)}
    return report | {"steps": measure_steps(settings, report, comm)}


def copy_rates(scratch):
    """Return the rates of a folder's disk and of PCIe, each if there is one; a dict of dicts."""
    found = {}
    if scratch:
        check_scratch(scratch)
        found["disk"] = measure_disk(scratch, BIG_SAMPLE)
    with suppress(MissingError):
        found["pcie"] = measure_pcie(Cuda())
    return {name: {f"{way}_bytes_per_s": rate for way, rate in asdict(rates).items()}
            for name, rates in found.items()}


def measure_steps(settings, report, comm):
    """Return the factors of strategies; all ranks call this together.

    `report` has the other rates of the machine.
    """
    machine = None
    with comm.collective_errors():
        if comm.rank == 0:
            machine, _ = parse_machine("bench machine", report)
            nodes = tuple(comm.nodes.tolist()) if comm.nodes.max() else ()
            machine = replace(machine, layout=nodes, steps={})
    return training_steps.measure(machine, comm, settings.seed)
