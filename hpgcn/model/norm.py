"""Layer normalisation (Ba, Kiros and Hinton 2016, section 3) of rows spread over ranks or not."""
from __future__ import annotations

from functools import partial

import numpy as np

from hpgcn import kernels

EPSILON = 1e-5


class LayerNorm:
    """y = gain * (z - mean) / sqrt(variance + 1e-5), moments over all columns of a row.

    It normalises the result of a layer, by the parameter "gain{l}"; "shift{l}" the model adds.
    """

    def __init__(self, layer):
        self.number = layer.number
        self.width = layer.fan_out
        self.columns = layer.columns
        self.take = layer.take
        self.arrays = layer.parameter_arrays
        self.bias = f"shift{layer.number}"
        self.clock = layer.clock
        self.mine = self.columns.of(self.width)

    def forward(self, Z, *, keep=False):
        """Normalise Z (m, f_j) in place; the backward takes G, in place too, and the gradient."""
        ops = kernels.backend(Z)
        row = self.columns.row
        gain = self.arrays[f"gain{self.number}"][self.mine]
        with self.clock("dense"):
            mean = ops.row_sum(Z)
            row.allreduce(mean, "dense")
            mean /= self.width
            squares = ops.row_squares(Z, mean)
            row.allreduce(squares, "dense")
            inv_std = 1 / np.sqrt(squares / self.width + EPSILON)
            normal = self.take(f"normal{self.number}", *Z.shape) if keep else None
            ops.layer_norm(Z, mean, inv_std, gain, np.zeros_like(gain), Z, xhat=normal)
        return partial(self._backward, normal, inv_std, gain)

    def _backward(self, normal, inv_std, gain, G, gradient):
        ops = kernels.backend(G)
        dgain, dshift = (gradient.arrays[f"{name}{self.number}"] for name in ("gain", "shift"))
        with self.clock("dense"):
            found = ops.layer_norm_backward_sums(G, normal, gain)
            sums, dgain[self.mine], dshift[self.mine] = found
            self.columns.row.allreduce(sums, "dense")
            return ops.layer_norm_backward(G, normal, inv_std, gain, sums / self.width, G)
