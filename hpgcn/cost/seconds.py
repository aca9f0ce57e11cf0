"""How long a training step takes on a machine of given rates: an alpha-beta-gamma model of each rank (pure).

    compute        bytes of products with A, of element-wise work and of narrow dense products over memory bandwidth;
                   flops of dense products over their rate; a fixed time per call
    communication  latency x messages + bytes / network bandwidth, of what the rank sends

The two are added: that messages travel while a rank multiplies is a gain that is not counted on. The step takes as long
as the rank for which the sum is largest.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpgcn.cost.memory import INDEX, widest
from hpgcn.cost.step import num_parameters

LAYER_CALLS = 8  # kernels and BLAS calls of a layer besides its products with A


@dataclass(frozen=True)
class Machine:
    """Rates of ONE rank: of a node if each node runs one, of its share of a node otherwise.

    The defaults stand for one rank on each server of two sockets (56 cores, 12 channels of DDR4), 100 Gb/s InfiniBand.

    Attributes
    ----------
    memory_bytes_per_s : float
        Streaming bandwidth of all its threads.
    gemm_float32_flops_per_s, gemm_float64_flops_per_s : float
        Rate of a large dense product.
    latency_s : float
        Of a message between two ranks.
    network_bytes_per_s : float
        That it can send.
    call_s : float
        Fixed time of a kernel or library call from Python.
    cores : int
        Behind these rates; told, not computed with.
    """

    memory_bytes_per_s: float = 200e9
    gemm_float32_flops_per_s: float = 3e12
    gemm_float64_flops_per_s: float = 1.5e12
    latency_s: float = 2e-6
    network_bytes_per_s: float = 12e9
    call_s: float = 1e-5
    cores: int = 56


def compute_seconds(machine, step, share):
    """Seconds that each rank computes in one training step, (P,) float64.

    A product with A reads a row of H for each entry, as if none were found in a cache again.
    """
    b, train = step.itemsize, share.train
    flops = machine.gemm_float32_flops_per_s if b == 4 else machine.gemm_float64_flops_per_s
    moved, seconds, calls = (np.zeros(share.rows.size) for _ in range(3))
    for phase in ("forward", "backward"):
        for product in getattr(step, phase):
            width = -(-product.width // share.slices)
            operand = getattr(train.maps[product.layer], phase)
            moved += operand.multiplied * (INDEX + b + width * b) + operand.results * width * b
            calls += 1 + operand.blocks
    for (level, _), (layer, fan_in, fan_out) in zip(step.linear, _matrices(step)):
        fan_in = -(-fan_in // share.columns)
        if layer == 0 and step.sparse_features and fan_in == -(-step.widths[0] // share.columns):
            moved += 2 * train.feature_entries[0] * (INDEX + b + fan_out * b)  # X W and X^T G are sparse products
            continue
        rows = train.rows[level]
        once = np.maximum(2.0 * rows * fan_in * fan_out / flops,
                          rows * (fan_in + fan_out) * b / machine.memory_bytes_per_s)
        seconds += once * (2 + bool(layer))  # T W, T^T G, and G W^T unless it is the input
    moved += _elementwise_bytes(step, share) + 7 * num_parameters(step.widths, step.model, step.layer_norm) * b
    calls += LAYER_CALLS * len(step.layers)
    return seconds + moved / machine.memory_bytes_per_s + calls * machine.call_s


def communication_seconds(machine, prediction):
    """Seconds that each rank sends in one training step, (P,) float64."""
    return (prediction.rank_messages() * machine.latency_s + prediction.rank_bytes() / machine.network_bytes_per_s)


def step_seconds(machine, step, share, prediction):
    """Seconds of one training step: (compute, communication) of the rank that takes longest."""
    compute = compute_seconds(machine, step, share)
    communication = communication_seconds(machine, prediction)
    slowest = int(np.argmax(compute + communication))
    return float(compute[slowest]), float(communication[slowest])


def _matrices(step):
    """(layer, rows, columns) of each matrix of a model, in the order of `step.linear`."""
    found = []
    for layer, (fan_in, fan_out) in enumerate(step.layers):
        inner = step.inner(layer)
        found += {"gin": [(layer, fan_in, inner), (layer, inner, fan_out)],
                  "sage-mean": [(layer, fan_in, fan_out)] * 2}.get(step.model, [(layer, fan_in, fan_out)])
    return found


def _elementwise_bytes(step, share):
    """Bytes of dropout, activations, loss and buffers, (P,)."""
    b, widths, rows = step.itemsize, [-(-width // share.columns) for width in step.widths], share.train.rows
    numbers = sum(2 * rows[level] * widths[level] for level in range(1, len(widths) - 1)) + 4 * rows[-1] * widths[-1]
    if not step.constant:
        numbers = numbers + (share.train.feature_entries[0] if step.sparse_features else rows[0] * widths[0]) * 2
    whole, products = widest(step), len(step.forward + step.backward)
    buffered = share.buffers.rows * whole + share.buffers.sliced * -(-whole // share.slices)
    return (numbers + 2 * buffered * products) * b
