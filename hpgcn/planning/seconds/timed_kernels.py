"""Forecast the seconds of a step on a machine with timed kernels.

kernel_rates has the times. The seconds of a step are the sum of

    products with A   seconds of a nonzero at the reuse distance of its row of H, and of a
                      row, times their numbers; rows that are packed, or put in their place
    kernels           seconds of each kernel call of the step at its size; of the update
    calls             seconds of a call, times their number

Numbers of 8 bytes take as long as two of 4, except in dense products.
"""
import numpy as np

from hpgcn.model import num_parameters
from hpgcn.parallel.csr import TILE_NONZEROS, TILES
from hpgcn.planning.seconds.kernel_rates import ARRAYS, ROW_WIDTHS

# time of messages for each column of edge features, as a share of that of a sparse product
MESSAGE_SHARE = {"forward": 0.15, "backward": 0.3}
FLOAT = 4  # bytes of the numbers that were measured


def compute_seconds(machine, footprint):
    """Return the computing time of each rank in a training step, in seconds, (P,).

    Kernels that were not measured take the time of memory. A dense product in float64
    takes as much longer as the Machine has fewer flops for it.
    """
    spec, rates = footprint.spec, machine.rates_of(footprint.rows.size)
    update = number_seconds(rates, "adam", num_parameters(spec) * spec.itemsize / FLOAT)
    seconds = np.full(footprint.rows.size, update)

    # products with A
    for product in footprint.products:
        seconds += product_seconds(machine, footprint, product)

    # the dense part
    slower = machine.gemm_float32_flops_per_s / machine.gemm_float64_flops_per_s
    slower = 1 if spec.itemsize == FLOAT else slower
    for rank, step in enumerate(footprint.rank_steps):
        seconds[rank] += step.work.calls * rates.call_s
        for (name, *size), count in step.work.kernels.items():
            if name == "matmul":
                one = slower * rates.dense_seconds(*size)
            else:
                one = kernel_seconds(rates, name, size, spec.itemsize,
                                     machine.memory_bytes_per_s)
            seconds[rank] += count * one

    return seconds


def product_seconds(machine, footprint, product):
    """Return the computing seconds of one product with A, (P,)."""
    # the work of each rank, and the width of its rows
    spec, rates = footprint.spec, machine.rates_of(footprint.rows.size)
    itemsize = spec.row_itemsize
    plan = footprint.train_plans[product.layer]
    operand = plan.operands[product.backward]
    width = -(-product.width // plan.traffic.slices)
    columns = width * itemsize / FLOAT
    distances = footprint.locality.distances(width * itemsize)

    # the calls of kernels
    calls = 1 + operand.blocks
    if plan.num_ranks > 1:  # in tiles, while messages are under way
        calls = calls + np.minimum(TILES - 1, operand.entries_read // TILE_NONZEROS)
    seconds = calls * rates.call_s

    # each block of others' rows adds to the result again, where it has nonzeros
    passed = np.minimum(operand.results * operand.blocks, operand.results + operand.entries_read)

    # the kernel of each rank, then the packing of what it sends
    sent, _ = plan.traffic.counts(product, itemsize)
    for rank, (nonzeros, rows) in enumerate(zip(operand.entries_read, passed)):
        if product.heads:
            kernel = ("attend_backward" if product.backward else
                      "attend dropout" if spec.attention_dropout else "attend")
            seconds[rank] += rates.entry_seconds(kernel, nonzeros, rows, columns, distances)
        else:
            share = 1 + MESSAGE_SHARE[product.phase] * product.edge_width
            seconds[rank] += share * rates.product_seconds(nonzeros, rows, columns, distances)
        for name, times in plan.traffic.packing.items():
            seconds[rank] += times * number_seconds(rates, name, sent[rank] / FLOAT)
    return seconds


def kernel_seconds(rates, name, size, itemsize, bandwidth):
    """Return the seconds of a kernel call on arrays of this `size`.

    See hpgcn.planning.counts.shapes.Work.
    """
    wide = itemsize / FLOAT
    if name == "spmm":  # products of sparse features, which read all of W or G in no order
        rows, nonzeros, read, width = size
        return rates.product_seconds(nonzeros, rows, width * wide, (1, read * width * itemsize))
    rows, width = size
    if name in rates.entries:  # dropout of sparse features
        return rates.entry_seconds(name, width, 0, 1)
    taken = rates.row_seconds(name, width * wide, ARRAYS * rows * width * itemsize)
    if taken is None:  # kernels of no layer: as fast as memory
        return 2 * rows * width * itemsize / bandwidth
    if rows == 1:  # an array of one axis
        return number_seconds(rates, name, width * wide)
    return rows * taken


def number_seconds(rates, name, count):
    """Return the seconds of a kernel for `count` numbers.

    They are interpolated at the largest width that was measured.
    """
    return count * rates.row_seconds(name, ROW_WIDTHS[-1], ARRAYS * FLOAT * count) / ROW_WIDTHS[-1]
