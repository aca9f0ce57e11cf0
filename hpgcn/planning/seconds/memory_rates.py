"""Forecast the seconds of a step from memory bandwidth and flops.

It is the sum of bytes over memory bandwidth, flops of dense products over their rate,
and a time per call. The bytes are those of products with A, of element-wise work and of
narrow dense products.
"""
import numpy as np

from hpgcn.model import num_parameters
from hpgcn.planning.seconds.mixed_devices import UPDATE, Updater
from hpgcn.strategies.plan import INDEX


def compute_seconds(machine, footprint):
    """Return the computing time of each rank in seconds.

    It follows from memory bandwidth and the rate of dense products. A product with A is
    assumed to read a row of H from memory for each entry, without reuse in caches.
    """
    spec = footprint.spec
    update = Updater(machine.gemm_float32_flops_per_s, machine.gemm_float64_flops_per_s,
                     machine.memory_bytes_per_s)
    seconds = np.zeros(footprint.rows.size)
    moved = np.full(footprint.rows.size, float(UPDATE * num_parameters(spec) * spec.itemsize))
    calls = np.zeros(footprint.rows.size)

    # products with A
    for product in footprint.products:
        of_product, calls_of_product = _bytes_and_calls(footprint, product)
        moved += of_product
        calls += calls_of_product

    # the dense part
    for rank, step in enumerate(footprint.rank_steps):
        moved[rank] += step.work.moved
        calls[rank] += step.work.calls
        seconds[rank] = update.seconds(step.work.dense, 0, spec.itemsize)

    return seconds + moved / machine.memory_bytes_per_s + calls * machine.call_s


def product_seconds(machine, footprint, product):
    """Return the computing seconds of one product with A, (P,)."""
    moved, calls = _bytes_and_calls(footprint, product)
    return moved / machine.memory_bytes_per_s + calls * machine.call_s


def _bytes_and_calls(footprint, product):
    """Return the bytes and kernel calls of each rank in a product with A.

    They are two arrays, (P,) int64.
    """
    itemsize = footprint.spec.itemsize
    row_itemsize = footprint.spec.row_itemsize
    plan = footprint.train_plans[product.layer]
    operand = plan.operands[product.backward]
    row_bytes = -(-product.width // plan.traffic.slices) * row_itemsize
    moved = operand.entries_read * (INDEX + itemsize + row_bytes) + operand.results * row_bytes
    whole = footprint.training.plan_for_product(product.layer)
    packed = whole.buffer_bytes(footprint.widest, row_itemsize)
    return moved + 2 * packed, 1 + operand.blocks
