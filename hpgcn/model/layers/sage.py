"""The layer of GraphSAGE with the aggregator mean (Hamilton, Ying and Leskovec 2017, Algorithm 1).

Multiplying the concatenation of a vertex and the mean of its neighbors by a matrix
equals a sum of two products.
"""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hpgcn import kernels
from hpgcn.model.layers.layer import Layer

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.spec import ModelSpec


class SageMean(Layer):
    """A layer Z = H W_self + A H W_neighbour; see Layer.

    Rows of A are divided by their sums, or 0 for a vertex without neighbors.
    """

    norm = "row"
    self_loops = False
    takes_AX = reads_self = supports_bf16 = masks_result = True

    @classmethod
    def shapes(cls, spec: ModelSpec, number: int) -> dict[str, tuple]:
        fan_in, fan_out = spec.layers[number]
        return {"W_self": (fan_in, fan_out), "W_neighbour": (fan_in, fan_out), "b": (fan_out,)}

    def forward(self, H: Array, out: Array, *, keep: bool = False, AX: Array | None = None,
                mask: Array | None = None) -> tuple:
        own_rows = self.self_rows(H, "part")
        scratch = self.buffer("scratch2", self.rows_out, self.width_out, out.dtype)
        own_rows = self.times_W(own_rows, "W_self", scratch)

        # the neighbors, on whichever side of W is cheaper
        T = AX
        if self.spmm_first:
            if T is None:
                T = self.kept("T", self.rows_out, self.width_in, keep and self.stores_AX)
                T = self.A.forward(H, out=T)
            Z = self.times_W(T, "W_neighbour", out)
        else:
            Y = self.times_W(H, "W_neighbour", self.buffer("scratch", self.rows_in, self.width_out))
            Z = self.A.forward(Y, mask=mask, out=out)

        with self.clock("dense"):
            kernels.backend(Z).add(own_rows, Z)
        return Z, partial(self._backward, H, T)

    def _backward(self, H: Array, T: Array, G: Array, below: Array | None,
                  gradient: Parameters) -> Array | None:
        whole = self.gathered(G, self.fan_out)
        self.weight_gradient(gradient, "W_self", self.self_rows(H, "part"), whole)

        own_gradient = None
        if self.needs_gradient:
            own_gradient = self.times_W_transposed(whole, "W_self", "scratch2", self.scale)

        # the neighbors
        if not self.stores_AX:
            dY = self.buffer("scratch", self.rows_in, G.shape[1])
            dY = self.A.backward(G, out=dY)
            whole = self.gathered(dY, self.fan_out)
        self.weight_gradient(gradient, "W_neighbour", T if self.stores_AX else H, whole)
        if not self.needs_gradient:
            return None

        if self.stores_AX:
            dT = self.times_W_transposed(whole, "W_neighbour", "scratch", self.scale)
            G = self.A.backward(dT, out=self.input_gradient(H))
        else:
            G = self.times_W_transposed(whole, "W_neighbour", self.input_gradient(H), self.scale)
        return self.masked(self.add_self(own_gradient, G), below)
