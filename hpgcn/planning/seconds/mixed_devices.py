"""Forecast the seconds of a training step on two devices per rank.

One device is for sparse work: it aggregates, that is, multiplies by A. The other is for
dense work: it updates, that is, does all else. Rows go from the first to the second in
batches, so that both work at once (mixgcn, section 3.2). A step is a chain of updates
and products. It begins with the update before the first product with A; each product is
followed by its update:

    seconds = u_0 + sum over products i of pipeline_seconds(a_i, u_i, s) + calls x time of a call

The link between the two devices of a rank is not counted, because the paper gives no
rate for it.
"""
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpgcn.model import num_parameters
from hpgcn.strategies.plan import INDEX

UPDATE = 7  # times the parameters are read or written when Adam updates them


@dataclass(frozen=True)
class Aggregator:
    """A device that adds up rows.

    It treats A as binary and reads only the column numbers of entries. Sources: mixgcn,
    section 4.1 (adders, clock, memory, cache) and 3.2.1 (masks).
    """

    adders: float  # numbers that it adds in a cycle
    clock_hz: float
    memory_bytes_per_s: float
    cache_bytes: float  # on the chip, for rows of what is multiplied
    masked_share: float = 1.0  # share of additions that are left if a mask drops results (S-SpMM)

    def seconds(self, entries, results, row_bytes, itemsize, rows, masked=False):
        """Return the seconds of a product with A: the maximum of additions and memory.

        Arguments broadcast. Entries read rows at random. The cache stores a share of
        the rows that are read, and this share is the probability of a hit. Each row is
        read from memory at least once.

        Parameters
        ----------
        entries, results : int
            Entries of A that are multiplied, rows of the result.
        row_bytes, itemsize : int
            Bytes of a row of the dense matrix, and of a number in it.
        rows : int
            Rows of the dense matrix: entries read no more different ones.
        masked : bool
            Whether a mask drops a part of the result.
        """
        # bytes from memory
        distinct = np.minimum(entries, rows)
        held = np.minimum(1, self.cache_bytes / np.maximum(distinct * row_bytes, 1))
        read = distinct + (entries - distinct) * (1 - held)
        moved = entries * INDEX + (read + results) * row_bytes

        # additions
        share = self.masked_share if masked else 1
        additions = share * entries * (row_bytes // itemsize)
        return np.maximum(additions / (self.adders * self.clock_hz),
                          moved / self.memory_bytes_per_s)


@dataclass(frozen=True)
class Updater:
    """A device for dense products and element-wise work."""

    gemm_float32_flops_per_s: float
    gemm_float64_flops_per_s: float
    memory_bytes_per_s: float

    def seconds(self, dense, moved, itemsize):
        """Return the seconds of dense products and other work.

        `dense` lists (flops, bytes) of products; `moved` are the bytes of other work.
        """
        flops = (self.gemm_float32_flops_per_s if itemsize == 4
                 else self.gemm_float64_flops_per_s)
        products = sum(max(work / flops, size / self.memory_bytes_per_s) for work, size in dense)
        return products + moved / self.memory_bytes_per_s


@dataclass(frozen=True)
class MixedDevices:
    """The two devices of a rank, and the number of row batches between them."""

    aggregate: Aggregator
    update: Updater
    stages: int = 1


def pipeline_seconds(first, second, stages):
    """Return the seconds of two devices in sequence that process equal batches.

    The formula is exact. The first device takes `stages` batches in order, and the
    second a batch once the first has finished it. So it is the slower device that is
    never idle between batches; the faster adds one batch, the first or the last:

        max(a, u) + min(a, u) / s

    Section 3.2.2 of mixgcn gives no time, but a condition for the NEXT product not to
    wait for all batches of this update. At a bandwidth b of A it is n/s + b <= (s - 1)
    n/s, which is its Proposition 3.5, (n - b) / 2n >= 1 / s. (The inequality printed
    before the proposition has <= for >=.) In that case min(a, u) / s is paid about once
    instead of in each layer. So an order of rows saves less than a factor of 1 + 1 / s.
    Strategy mop begins the next product early between some layers. That gain is not
    counted on here.
    """
    return np.maximum(first, second) + np.minimum(first, second) / stages


def compute_seconds(machine, footprint):
    """Return the computing time of each rank in a training step, in seconds, (P,).

    Source: mixgcn, section 3.2.
    """
    devices, spec = machine.devices, footprint.spec
    products = footprint.steps.products(spec, footprint.levels)
    aggregated = [product_seconds(machine, footprint, product) for product in products]
    seconds = np.zeros(footprint.rows.size)
    calls = sum(1 + footprint.train_plans[product.layer].operands[product.backward].blocks
                for product in products)
    # rows are packed, and unpacked, by the device that updates them
    plans = [footprint.training.plan_for_product(product.layer) for product in products]
    packed = [2 * plan.buffer_bytes(footprint.widest, spec.row_itemsize) for plan in plans]
    stages = [plan.pipeline_batches or devices.stages for plan in plans]
    for rank, step in enumerate(footprint.rank_steps):
        before, *after = _updates(step.work)
        seconds[rank] = devices.update.seconds(*before, spec.itemsize)
        for product, rows, batches, (dense, moved) in zip(aggregated, packed, stages, after,
                                                          strict=True):
            updated = devices.update.seconds(dense, moved + rows[rank], spec.itemsize)
            seconds[rank] += pipeline_seconds(product[rank], updated, batches)
    parameters = UPDATE * num_parameters(spec) * spec.itemsize
    calls = calls + np.array([step.work.calls for step in footprint.rank_steps])
    return seconds + parameters / devices.update.memory_bytes_per_s + calls * machine.call_s


def product_seconds(machine, footprint, product):
    """Return the time of one product with A on each rank, in seconds, (P,)."""
    itemsize = footprint.spec.row_itemsize
    plan = footprint.train_plans[product.layer]
    operand = plan.operands[product.backward]
    layout = plan.layout if product.backward else plan.layout_in
    width = -(-product.width // plan.traffic.slices)
    return machine.devices.aggregate.seconds(
        operand.entries_read, operand.results, width * itemsize, itemsize,
        int(layout.offsets[-1]), product.masked)


def _updates(work):
    """Yield (dense, moved) before, between and after products with A.

    They are parts of the Work of a step.
    """
    marks = [(0, 0), *work.marks, (len(work.dense), work.moved)]
    for (first, moved), (last, moved_then) in pairwise(marks):
        yield work.dense[first:last], moved_then - moved
