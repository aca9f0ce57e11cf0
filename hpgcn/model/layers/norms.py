"""Layer and batch normalization, also for rows whose columns are distributed over ranks."""
from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.accesses import accessed
from hpgcn.kernels.host.record import derived, repeat
from hpgcn.model.layers.layer import indexed
from hpgcn.model.model_parts import MOMENTS

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.layers.layer import Layer
    from hpgcn.model.model_parts import LayerBlock
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.stages import ForwardContext

EPSILON = 1e-5
MOMENTUM = 0.1  # share of a step's moments in the running ones


class Norm:
    """A stage that computes gain * (z - mean) / sqrt(variance + 1e-5) + shift.

    After a layer it works in place on the layer's result plus bias, and the activation
    adds the shift. Before a layer it writes to an array of its own, and adds the shift
    itself. See hpgcn.model.stages.
    """

    keeps_moments = False

    def __init__(self, layer: Layer, block: LayerBlock, count: int) -> None:
        self.layer = layer
        self.number = layer.number
        self.count = count  # number of elements in a moment: columns, or rows of all ranks
        self.first = block.norm_first
        self.columns = layer.columns
        self.buffer = layer.buffer
        self.arrays = layer.parameter_arrays
        self.bias = self.name_of("shift")
        self.clock = layer.clock
        self.own_columns = self.columns.of(block.norm_width)

    def name_of(self, name: str) -> str:
        return indexed(name, self.number)

    def forward(self, Z: Array, context: ForwardContext) -> tuple:
        """Normalize Z (m, f_j) of this rank.

        Return the result and its backward function.
        """
        ops = kernels.backend(Z)
        gain, shift = (self.arrays[self.name_of(name)][self.own_columns]
                       for name in ("gain", "shift"))
        with self.clock("dense"):
            out = Z
            if self.first:
                out = self.buffer(f"N{self.number}" if context.keep else "normed", *Z.shape)
            else:
                bias = self.arrays[self.layer.bias][self.own_columns]
                ops.activate(Z, bias, first=self.own_columns.start, relu=False)
                shift = np.zeros_like(gain)

            mean, variance = self.moments(ops, Z, context.keep)
            inv_std = derived(_inverse_root, variance)
            normal = self.buffer(f"normal{self.number}", *Z.shape) if context.keep else None
            self.normalize(ops)(Z, mean, inv_std, gain, shift, out, xhat=normal)

        moments = (mean, variance) if self.keeps_moments else None
        return out, partial(self._backward, normal, moments, inv_std, gain)

    def _backward(self, normal: Array, moments: tuple | None, inv_std: Array, gain: Array, G: Array,
                  gradient: Parameters) -> Array | None:
        """Compute the gradient of Z in the array G.

        The gradients of gain and shift are written to `gradient`.
        """
        ops = kernels.backend(G)
        dgain, dshift = (gradient.arrays[self.name_of(name)] for name in ("gain", "shift"))
        with self.clock("dense"):
            found = ops.layer_norm_backward_sums(G, normal, gain)
            for slope, each in zip((dgain, dshift), found[1:]):
                repeat(operator.setitem, slope, self.own_columns, each)
            if moments is not None:
                self.keep(moments, gradient)
            return self.back(ops, found, G, normal, inv_std, gain)

    def update_running_moments(self, gradient: Parameters) -> None:
        """Update the running moments from those in the gradient.

        The backward has stored the moments of the batch there.
        """


class LayerNorm(Norm):
    """Normalization of rows (Ba, Kiros and Hinton 2016, section 3).

    Moments are over all columns of a row.
    """

    def __init__(self, layer: Layer, block: LayerBlock, rows: Array | None) -> None:
        super().__init__(layer, block, block.norm_width)

    def moments(self, ops: Any, Z: Array, _: bool) -> tuple[Array, Array]:
        row = self.columns.row
        mean = ops.row_sum(Z)
        row.allreduce(mean, "dense")
        repeat(operator.itruediv, mean, self.count)
        squares = ops.row_squares(Z, mean)
        row.allreduce(squares, "dense")
        return mean, derived(operator.truediv, squares, self.count)

    def normalize(self, ops: Any) -> Callable:
        return ops.layer_norm

    def back(self, ops: Any, found: tuple, G: Array, normal: Array, inv_std: Array,
             gain: Array) -> Array:
        sums = found[0]
        self.columns.row.allreduce(sums, "dense")
        means = derived(operator.truediv, sums, self.count)
        return ops.layer_norm_backward(G, normal, inv_std, gain, means, G)


class BatchNorm(Norm):
    """Normalization of columns (Ioffe and Szegedy 2015, Algorithm 1).

    Moments are over all rows of a column.

    An evaluation uses running moments. They are parameters, "mean{l}" and
    "variance{l}", but have no gradient. Their slots in the gradient carry the moments
    of the current step from one rank to all ranks.
    """

    keeps_moments = True

    def moments(self, ops: Any, Z: Array, training: bool) -> tuple[Array, Array]:
        if not training:
            mean, variance = (self.arrays[self.name_of(name)][self.own_columns] for name in MOMENTS)
            return derived(mean.astype, np.float64), derived(variance.astype, np.float64)
        mean = ops.column_sum(Z)
        self.columns.column.allreduce(mean, "dense")
        repeat(operator.itruediv, mean, self.count)
        squares = ops.column_squares(Z, mean)
        self.columns.column.allreduce(squares, "dense")
        return mean, derived(operator.truediv, squares, self.count)

    def normalize(self, ops: Any) -> Callable:
        return ops.batch_norm

    def back(self, ops: Any, found: tuple, G: Array, normal: Array, inv_std: Array,
             gain: Array) -> Array:
        means = derived(np.concatenate, (found[2], found[1]))
        self.columns.column.allreduce(means, "dense")
        means = derived(operator.truediv, means, self.count).reshape(2, gain.size)
        return ops.batch_norm_backward(G, normal, inv_std, gain, means, G)

    def keep(self, moments: tuple | None, gradient: Parameters) -> None:
        """Store the batch moments of a step in `gradient`.

        Their sums over ranks update the running moments.
        """
        if self.columns.column.rank == 0:
            mean, variance = moments
            as_kept = self.count / max(self.count - 1, 1)  # as PyTorch keeps it
            variance = derived(operator.mul, variance, as_kept)
            for name, found in zip(MOMENTS, (mean, variance)):
                repeat(operator.setitem, gradient.arrays[self.name_of(name)], self.own_columns,
                       found)

    def update_running_moments(self, gradient: Parameters) -> None:
        """Update the running moments from the batch moments in `gradient`.

        The batch moments are then set to 0.
        """
        for name in map(self.name_of, MOMENTS):
            running = self.arrays[name]
            found = gradient.arrays[name]
            accessed((), (running, found))
            running += MOMENTUM * (found - running)
            found[:] = 0


def _inverse_root(variance: Array) -> Array:
    return 1 / np.sqrt(variance + EPSILON)


NORMS = {"layer": LayerNorm, "batch": BatchNorm}
