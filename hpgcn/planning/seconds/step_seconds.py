"""Forecast the seconds of a training step from the latency, bandwidth and computing
rates of a rank.

    compute        by one of three modules: `mixed_devices`, if two devices share the work;
                   `timed_kernels`, if the kernels were timed there; else `memory_rates`
    communication  latency x messages + bytes / network bandwidth of each exchange, of
                   the rank that needs longest, and the seconds of collectives that MPI
                   executes by itself (`collective_seconds`). The share of the bytes that
                   was measured to be hidden behind computation is left out

The two are added. The step takes as long as the rank for which the sum is largest. Both
have factors of the strategy, if steps were measured on the machine (`strategy_factors`).
"""
from dataclasses import dataclass, field

import numpy as np

from hpgcn.parallel.counts import Collective
from hpgcn.planning.seconds import memory_rates, mixed_devices, node_tiers, timed_kernels
from hpgcn.planning.seconds.collective_seconds import collective_seconds
from hpgcn.planning.seconds.node_tiers import Tier
from hpgcn.planning.seconds.strategy_factors import corrected
from hpgcn.runtime.disk.scratch_folder import Disk


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
    # the same of a broadcast, reduce or allreduce in the formulas of `collective_seconds`;
    # None: as of a message
    collective_latency_s: float | None = None
    collective_bytes_per_s: float | None = None
    hidden: float = 0.0  # share of a message that travels while a rank computes
    compute_factor: float = 1.0  # factor by which a measured run was slower than forecast
    communication_factor: float = 1.0
    # the same two factors of strategies on several ranks, by `strategy_factors.factor_name`
    steps: dict = field(default_factory=dict)
    disk: Disk | None = None  # rates of the disk of --scratch; None: not measured
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
        """Return the Rates measured with most ranks side by side, up to `ranks` ranks;
        None if unknown.
        """
        fewer = [each for each in self.rates if each.ranks <= ranks] or self.rates[:1]
        return fewer[-1] if fewer else None


def compute_seconds(machine, footprint):
    """Return the computing time of each rank in a training step, in seconds, (P,)."""
    if machine.devices is not None:
        return mixed_devices.compute_seconds(machine.devices, machine.call_s, footprint)
    rates = machine.rates_of(footprint.rows.size)
    if rates is None:
        return memory_rates.compute_seconds(machine, footprint)
    slower = machine.gemm_float32_flops_per_s / machine.gemm_float64_flops_per_s
    return timed_kernels.compute_seconds(rates, footprint, slower, machine.memory_bytes_per_s)


def product_seconds(machine, footprint, product):
    """Return the time of one product with A on each rank, computing and sending, in
    seconds, (P,).

    With two devices per rank, only the time of the aggregating device is counted.
    """
    machine = corrected(machine, footprint)
    if machine.devices is not None:
        compute = mixed_devices.product_seconds(machine.devices.aggregate, footprint, product)
    elif (rates := machine.rates_of(footprint.rows.size)) is not None:
        compute = timed_kernels.product_seconds(rates, footprint, product)
    else:
        compute = memory_rates.product_seconds(machine, footprint, product)
    traffic = footprint.train_plans[product.layer].traffic
    communication = np.zeros(traffic.num_ranks)
    for call in traffic.calls(product, footprint.spec.row_itemsize):
        if isinstance(call, Collective):
            communication += seconds_of_collectives(machine, call)
        else:
            each = seconds_of_messages(machine, *map(np.ravel, call[:2]))
            communication += each if footprint.plan.is_floor else each.max()
    return machine.compute_factor * compute + machine.communication_factor * communication


def seconds_of_messages(machine, sent, messages):
    """Return the seconds that each rank needs to send `sent` bytes in `messages`
    messages, (P,).
    """
    passing = sent / machine.network_bytes_per_s * (1 - machine.hidden)
    return messages * machine.latency_s + passing


def seconds_of_collectives(machine, call):
    """Return the seconds of a Collective on each rank that takes part, (P,)."""
    latency, rate = machine.collective_latency_s, machine.collective_bytes_per_s
    latency = machine.latency_s if latency is None else latency
    rate = machine.network_bytes_per_s if rate is None else rate
    seconds = collective_seconds(call.kind, call.ranks, call.sizes, latency,
                                 (1 - machine.hidden) / rate)
    return np.broadcast_to(seconds.sum(0), call.bytes.shape).ravel()


def communication_seconds(machine, prediction, *, floor=False):
    """Return the seconds that each rank needs for the messages of a Prediction,
    (P,).

    An exchange takes as long as its slowest rank: other ranks wait for its messages. If
    `floor`, only the messages of the rank itself are counted.
    """
    if machine.nodes(prediction.ranks) is not None:
        return sum(seconds_of_tiers(machine, prediction, floor))
    seconds = np.zeros(prediction.ranks)
    for call, times in prediction.collectives:
        seconds += times * seconds_of_collectives(machine, call)
    for call, times in prediction.exchanges:
        each = times * seconds_of_messages(machine, *map(np.ravel, call[:2]))
        seconds += each if floor else each.max()
    return machine.communication_factor * seconds / prediction.period


def seconds_of_tiers(machine, prediction, floor=False):
    """Return the seconds that each rank needs for messages between nodes, and for those
    within nodes, two (P,).

    The nodes of ranks are those of `machine.nodes`. `floor`: as of `communication_seconds`.
    """
    nodes = machine.nodes(prediction.ranks)
    within = machine.within or machine.network
    seconds = np.zeros((2, prediction.ranks))
    for call, times in prediction.collectives:
        seconds += times * np.array(node_tiers.of_collectives(call, nodes, machine.network,
                                                              within))

    # an exchange takes as long as its slowest rank
    for call, times in prediction.exchanges:
        away, near = node_tiers.split_by_tier(call, nodes, floor)
        copied = machine.shared_memory and getattr(call, "shared", False)
        tier = within.by_copies(machine.memory_bytes_per_s) if copied else within
        each = np.array([machine.network.of_messages(*away), tier.of_messages(*near)])
        seconds += times * (each if floor else each[:, [np.argmax(each.sum(0))]])
    return [machine.communication_factor * each / prediction.period for each in seconds]


def other_seconds(machine, footprint):
    """Return the mean over ranks of the seconds of a step without its products with A.

    It is 0 with two devices per rank, which compute side by side.
    """
    if machine.devices is not None:
        return 0.0
    machine = corrected(machine, footprint)
    floor = footprint.plan.is_floor
    seconds = machine.compute_factor * compute_seconds(machine, footprint)
    seconds = seconds + communication_seconds(machine, footprint.prediction, floor=floor)
    products = (product_seconds(machine, footprint, each) for each in footprint.products)
    return float(np.mean(seconds - sum(products)))


def step_seconds(machine, footprint):
    """Return the seconds of one training step: (compute, communication) of the slowest
    rank.

    If the plan has lower bounds, they are means over ranks, which no slowest rank falls
    below.
    """
    compute, communication, *_ = _of_slowest(machine, footprint)
    return compute, communication


def tier_seconds(machine, footprint):
    """Return the seconds of `step_seconds` that are messages between nodes, and within
    them: two float.
    """
    return tuple(_of_slowest(machine, footprint)[2:])


def _of_slowest(machine, footprint):
    """Return compute and communication of the slowest rank, then those of both tiers
    unless there is one.
    """
    machine = corrected(machine, footprint)
    floor = footprint.plan.is_floor
    prediction = footprint.prediction
    found = [machine.compute_factor * compute_seconds(machine, footprint),
             communication_seconds(machine, prediction, floor=floor)]
    if machine.nodes(prediction.ranks) is not None:
        found += seconds_of_tiers(machine, prediction, floor)
    if floor:
        return [float(each.mean()) for each in found]
    slowest = int(np.argmax(found[0] + found[1]))
    return [float(each[slowest]) for each in found]
