"""How long a training step takes on a machine of given rates: alpha, beta and gamma of each rank.

    compute        bytes of products with A, of element-wise work and of narrow dense products over
                   memory bandwidth; flops of dense products over their rate; a time per call
    communication  latency x messages + bytes / network bandwidth, of what the rank sends

The two are added: that messages travel while a rank multiplies is a gain that is
not counted on. The step takes as long as the rank for which the sum is largest.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpgcn.model import num_parameters
from hpgcn.parallel.csr import TILE_NONZEROS, TILES
from hpgcn.planning import mixed_devices
from hpgcn.planning.rates import ARRAYS, ROW_WIDTHS
from hpgcn.strategies.plan import INDEX


@dataclass(frozen=True)
class Machine:
    """Rates of ONE rank: of a node if each node runs one, of its share of a node otherwise.

    The defaults stand for one rank on each server of two sockets (56 cores, 12
    channels of DDR4), 100 Gb/s InfiniBand.
    """

    memory_bytes_per_s: float = 200e9  # streaming, of all its threads
    gemm_float32_flops_per_s: float = 3e12  # of a large dense product
    gemm_float64_flops_per_s: float = 1.5e12
    latency_s: float = 2e-6  # of a message between two ranks
    network_bytes_per_s: float = 12e9  # that it can send
    call_s: float = 1e-5  # fixed time of a kernel or library call from Python
    cores: int = 56  # behind these rates; told, not computed with
    devices: mixed_devices.MixedDevices | None = None  # if two compute, instead of those rates
    hidden: float = 0.0  # share of a message that travels while a rank computes
    compute_factor: float = 1.0  # by which a run was slower than these rates say
    communication_factor: float = 1.0
    rates: tuple = ()  # of hpgcn.planning.rates.Rates, by their numbers of ranks; () if not known

    def rates_of(self, ranks):
        """Return the Rates of most ranks side by side, not more than these; None if unknown."""
        fewer = [each for each in self.rates if each.ranks <= ranks] or self.rates[:1]
        return fewer[-1] if fewer else None


def compute_seconds(machine, footprint):
    """Seconds that each rank of a RankFootprint computes in a training step, (P,)."""
    if machine.devices is not None:
        return mixed_devices.compute_seconds(machine.devices, machine.call_s, footprint)
    rates = machine.rates_of(footprint.rows.size)
    if rates is None:
        return streamed_seconds(machine, footprint)
    return rated_seconds(machine, rates, footprint)


def streamed_seconds(machine, footprint):
    """Seconds that each rank computes, by the bandwidth of memory and the rate of dense products.

    A product with A reads a row of H for each entry, as if none were found in a cache again.
    """
    spec = footprint.spec
    itemsize = spec.itemsize
    row_itemsize = spec.row_itemsize
    plan = footprint.plan
    flops = (machine.gemm_float32_flops_per_s if itemsize == 4
             else machine.gemm_float64_flops_per_s)
    moved, seconds, calls = (np.zeros(footprint.rows.size) for _ in range(3))
    products = footprint.steps.products(spec, footprint.levels)
    for product in products:
        row_bytes = -(-product.width // plan.slices) * row_itemsize
        operand = footprint.train_plans[product.layer].operands[product.backward]
        moved += operand.multiplied * (INDEX + itemsize + row_bytes) + operand.results * row_bytes
        calls += 1 + operand.blocks
    moved += 2 * len(products) * plan.buffer_bytes(footprint.widest, row_itemsize)
    moved += 7 * num_parameters(spec) * itemsize  # the update
    for rank, step in enumerate(footprint.rank_steps):
        moved[rank] += step.work.moved
        calls[rank] += step.work.calls
        seconds[rank] = sum(max(work / flops, size / machine.memory_bytes_per_s)
                            for work, size in step.work.dense)
    return seconds + moved / machine.memory_bytes_per_s + calls * machine.call_s


def rated_seconds(machine, rates, footprint):
    """Seconds that each rank computes, by what kernels were measured to take."""
    spec = footprint.spec
    plan = footprint.plan
    itemsize = spec.row_itemsize
    seconds = rates.call_s * count_calls(footprint)
    for product in footprint.steps.products(spec, footprint.levels):
        width = -(-product.width // plan.slices)
        operand = footprint.train_plans[product.layer].operands[product.backward]
        columns = width * itemsize / 4  # of float32, which take as long
        read = footprint.locality.num_rows  # of x
        distances = footprint.locality.distances(width * itemsize, read)
        # each block of others' rows adds to the result again, where it has nonzeros
        passed = np.minimum(operand.results * operand.blocks, operand.results + operand.multiplied)
        for rank, (nonzeros, rows) in enumerate(zip(operand.multiplied, passed)):
            if product.heads:
                kernel = ("attend_backward" if product.backward else
                          "attend dropout" if spec.attention_dropout else "attend")
                seconds[rank] += rates.entry_seconds(kernel, nonzeros, rows, columns, distances)
            else:
                seconds[rank] += rates.product_seconds(nonzeros, rows, columns, distances)
    parameters = num_parameters(spec) * spec.itemsize / 4
    seconds += number_seconds(rates, "adam", parameters)
    for rank, sent in enumerate(footprint.prediction.of_kind("aggregation")):
        for name, copies in plan.copies.items():
            seconds[rank] += copies * number_seconds(rates, name, sent / 4)
    for rank, step in enumerate(footprint.rank_steps):
        for (name, *size), count in step.work.kernels.items():
            seconds[rank] += count * kernel_seconds(machine, rates, name, size, spec.itemsize)
    return seconds


def kernel_seconds(machine, rates, name, size, itemsize):
    """Seconds of one call of a kernel, of a `size` as in hpgcn.planning.shapes.Work."""
    wide = itemsize / 4
    if name == "matmul":
        slower = machine.gemm_float32_flops_per_s / machine.gemm_float64_flops_per_s
        return rates.dense_seconds(*size) * (1 if itemsize == 4 else slower)
    if name == "spmm":  # of sparse features, which read all of W or G in no order
        rows, nonzeros, read, width = size
        return rates.product_seconds(nonzeros, rows, width * wide, (1, read * width * itemsize))
    rows, width = size
    if name in rates.entries:  # dropout of sparse features
        return rates.entry_seconds(name, width, 0, 1)
    taken = rates.row_seconds(name, width * wide, ARRAYS * rows * width * itemsize)
    if taken is None:  # of no layer's own: as fast as memory
        return 2 * rows * width * itemsize / machine.memory_bytes_per_s
    if rows == 1:  # an array of one axis
        return number_seconds(rates, name, width * wide)
    return rows * taken


def number_seconds(rates, name, count):
    """Seconds of so many numbers, float32, in the widest rows that were measured."""
    return count * rates.row_seconds(name, ROW_WIDTHS[-1], ARRAYS * 4 * count) / ROW_WIDTHS[-1]


def count_calls(footprint):
    """Count the kernels and calls of products of each rank in a training step, (P,)."""
    calls = np.array([step.work.calls for step in footprint.rank_steps], float)
    for product in footprint.steps.products(footprint.spec, footprint.levels):
        operand = footprint.train_plans[product.layer].operands[product.backward]
        calls += 1 + operand.blocks
        if calls.size > 1:  # in tiles, while messages are under way
            calls += np.minimum(TILES - 1, operand.multiplied // TILE_NONZEROS)
    return calls


def step_seconds(machine, footprint):
    """Seconds of one training step: (compute, communication) of the rank that takes longest."""
    compute = machine.compute_factor * compute_seconds(machine, footprint)
    sent = footprint.prediction
    communication = machine.communication_factor * (
        sent.rank_messages() * machine.latency_s
        + sent.rank_bytes() / machine.network_bytes_per_s * (1 - machine.hidden))
    slowest = int(np.argmax(compute + communication))
    return float(compute[slowest]), float(communication[slowest])
