"""Forecast the seconds of a training step from latency, bandwidth and computing rates.

    compute        by one of three modules: `mixed_devices`, if two devices share the work;
                   `timed_kernels`, if the machine has timed kernels; else `memory_rates`
    communication  latency x messages + bytes / network bandwidth of each exchange, of
                   the rank that needs longest, and the seconds of collectives that MPI
                   executes by itself (`message_seconds`). The measured share of bytes
                   that computation hides is subtracted

The two are added. The step takes as long as the rank with the largest sum. Both sums
have factors of the strategy, if `hpgcn bench machine` has measured steps on the
machine. A factor is the seconds of a training step on a small generated graph over
their forecast: one for computing, one for messages. A strategy without factors has 1.
"""
from dataclasses import dataclass, field, replace

import numpy as np

from hpgcn.planning.seconds import memory_rates, message_seconds, mixed_devices, timed_kernels
from hpgcn.planning.seconds.message_seconds import Tier
from hpgcn.runtime.disk.scratch_folder import Disk

NODE_AWARE = " node-aware"
FACTORS = ("computing", "messages")  # names in a machine file


@dataclass(frozen=True)
class Machine:
    """Rates of ONE rank. If a node runs several ranks, each has its share of the node.

    The defaults describe one rank on each server with two sockets (56 cores, 12
    channels of DDR4) and 100 Gb/s InfiniBand.
    """

    memory_bytes_per_s: float = 200e9  # streaming, of all its threads
    gemm_float32_flops_per_s: float = 3e12  # rate of a large dense product
    gemm_float64_flops_per_s: float = 1.5e12
    latency_s: float = 2e-6  # latency of a message between two ranks, or between two nodes
    network_bytes_per_s: float = 12e9  # rate at which a rank sends
    call_s: float = 1e-5  # fixed time of a kernel or library call from Python
    cores: int = 56  # cores behind these rates; only shown
    devices: mixed_devices.MixedDevices | None = None  # rates of two devices, in place of the above
    # the same of a broadcast, reduce or allreduce in the formulas of `message_seconds`;
    # None: as of a message
    collective_latency_s: float | None = None
    collective_bytes_per_s: float | None = None
    hidden: float = 0.0  # share of a message that passes while a rank computes
    compute_factor: float = 1.0  # factor by which a measured run was slower than forecast
    communication_factor: float = 1.0
    # the same two factors of strategies on several ranks, by `factor_name`
    steps: dict = field(default_factory=dict)
    disk: Disk | None = None  # rates of the disk of --scratch; None: not measured
    gpu_copy_bytes_per_s: float | None = None  # between host and GPU, each way; None: unknown
    rates: tuple = ()  # kernel_rates.Rates by their numbers of ranks; () if unknown
    within: Tier | None = None  # rates between ranks of one node; None: those above
    ranks_per_node: int = 0  # ranks that share a node, in blocks; 0: unknown, one tier
    layout: tuple[int, ...] = ()  # node of each rank of a run, instead of blocks
    shared_memory: bool = True  # whether ranks of a node can share memory: not that of GPUs

    @property
    def network(self):
        """The Tier between nodes, or of all ranks."""
        return Tier(self.latency_s, self.network_bytes_per_s, self.collective_latency_s,
                    self.collective_bytes_per_s, self.hidden)

    def nodes(self, ranks):
        """Return the node of each of `ranks` ranks, (P,) int64; None if there is one tier."""
        if len(self.layout) == ranks:
            return np.array(self.layout, np.int64)
        return np.arange(ranks) // self.ranks_per_node if self.ranks_per_node else None

    def rates_of(self, ranks):
        """Return the Rates measured with most ranks side by side, up to `ranks`.

        Return None if there are no Rates.
        """
        fewer = [each for each in self.rates if each.ranks <= ranks] or self.rates[:1]
        return fewer[-1] if fewer else None


def factor_name(strategy, node_aware):
    """Return the name under which a machine file has the factors of a strategy."""
    return strategy + NODE_AWARE * bool(node_aware)


def corrected(machine, footprint):
    """Return the Machine with the factors of a RankFootprint's strategy in its own.

    A mixture such as mop+p2p takes the means of its strategies. One rank has no factors.
    """
    if footprint.rows.size == 1:
        return machine
    names = [factor_name(name, footprint.node_aware) for name in footprint.strategy.split("+")]
    found = [machine.steps[name] for name in names if name in machine.steps]
    if not found:
        return machine
    computing, sending = np.mean(found, 0)
    return replace(machine, steps={}, compute_factor=machine.compute_factor * float(computing),
                   communication_factor=machine.communication_factor * float(sending))


def computing(machine, ranks):
    """Return the module that forecasts computing on this many ranks."""
    if machine.devices is not None:
        return mixed_devices
    return memory_rates if machine.rates_of(ranks) is None else timed_kernels


def compute_seconds(machine, footprint):
    """Return the computing time of each rank in a training step, in seconds, (P,)."""
    return computing(machine, footprint.rows.size).compute_seconds(machine, footprint)


def product_seconds(machine, footprint, product):
    """Return the seconds of one product with A on each rank, (P,).

    They are those of computing and sending. With two devices per rank, only the time of
    the aggregating device is counted.
    """
    machine = corrected(machine, footprint)
    ranks = footprint.rows.size
    compute = computing(machine, ranks).product_seconds(machine, footprint, product)
    traffic = footprint.train_plans[product.layer].traffic
    calls = [(call, 1) for call in traffic.calls(product, footprint.spec.row_itemsize)]
    network = machine.network
    communication, _ = message_seconds.of_calls(calls, ranks, None, network, network,
                                                floor=footprint.plan.is_floor)
    return machine.compute_factor * compute + machine.communication_factor * communication


def communication_seconds(machine, prediction, floor=False):
    """Return each rank's seconds of messages between and within nodes, (2, P).

    The nodes of ranks are those of `machine.nodes`; without nodes the second is 0.
    `floor` is as in `message_seconds.of_calls`.
    """
    within = machine.within or machine.network
    copied = within.by_copies(machine.memory_bytes_per_s) if machine.shared_memory else None
    calls, ranks = [*prediction.collectives, *prediction.exchanges], prediction.ranks
    seconds = message_seconds.of_calls(calls, ranks, machine.nodes(ranks), machine.network, within,
                                       copied=copied, floor=floor)
    return machine.communication_factor * seconds / prediction.period


def other_seconds(machine, footprint):
    """Return the mean seconds of a step without its products with A.

    The mean is over ranks. It is 0 with two devices per rank, which compute side by
    side.
    """
    if machine.devices is not None:
        return 0.0
    machine = corrected(machine, footprint)
    floor = footprint.plan.is_floor
    seconds = machine.compute_factor * compute_seconds(machine, footprint)
    seconds = seconds + communication_seconds(machine, footprint.prediction, floor).sum(0)
    products = (product_seconds(machine, footprint, each) for each in footprint.products)
    return float(np.mean(seconds - sum(products)))


def step_seconds(machine, footprint):
    """Return the seconds of one training step: (compute, communication) of the slowest rank.

    If the plan has lower bounds, they are means over ranks, which no slowest rank falls
    below.
    """
    return tuple(_of_slowest(machine, footprint)[:2])


def tier_seconds(machine, footprint):
    """Return the seconds of messages between nodes, and within them.

    Both are parts of `step_seconds`.
    """
    return tuple(_of_slowest(machine, footprint)[2:])


def _of_slowest(machine, footprint):
    """Return compute, communication and both tiers of the slowest rank."""
    machine = corrected(machine, footprint)
    floor = footprint.plan.is_floor
    prediction = footprint.prediction
    tiers = communication_seconds(machine, prediction, floor)
    found = [machine.compute_factor * compute_seconds(machine, footprint), tiers.sum(0), *tiers]
    if floor:
        return [float(each.mean()) for each in found]
    slowest = int(np.argmax(found[0] + found[1]))
    return [float(each[slowest]) for each in found]
