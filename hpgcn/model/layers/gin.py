"""The layer of GIN with a learned epsilon (Xu, Hu, Leskovec and Jegelka 2019, equation 4.1)."""
from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.record import ALL, derived, repeat
from hpgcn.model.layers.layer import Layer

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.spec import ModelSpec


class GraphIsomorphism(Layer):
    """A layer Z = relu(((1 + eps) H + A H) W_a + b_a) W_b.

    A is the adjacency without normalization. Because W_a is linear, A may multiply H or
    H W_a: the narrower matrix is exchanged.
    """

    norm = "none"
    self_loops = one_matrix_deep = False
    takes_AX = reads_self = True
    last_bias = "b_b"

    @classmethod
    def shapes(cls, spec: ModelSpec, number: int) -> dict[str, tuple]:
        fan_in, fan_out = spec.layers[number]
        inner = cls.inner_width(spec, number)
        return {"W_a": (fan_in, inner), "W_b": (inner, fan_out), "b_a": (inner,), "b_b": (fan_out,),
                "eps": (1,)}

    @classmethod
    def inner_width(cls, spec: ModelSpec, number: int) -> int:
        """Return the width between the two linear maps.

        It is the width of the adjacent hidden layer. In the last layer this is its
        input width: classes may be few, and a ReLU with few units is often 0
        everywhere. A single layer has no adjacent hidden layer and uses the number of
        classes.
        """
        widths = spec.widths
        return widths[min(number + 1, len(widths) - 2)] if len(widths) > 2 else widths[1]

    def forward(self, H: Array, out: Array, *, keep: bool = False,
                AX: Array | None = None) -> tuple:
        inner = self.inner_buffer(keep)
        if self.spmm_first:
            S = self.kept("T", self.rows_out, self.width_in, keep and self.stores_AX)
            T = self.A.forward(H, out=S) if AX is None else AX
            kept = self._with_self(T, H, S)
            self.times_W(kept, "W_a", inner)
        else:
            kept = self.times_W(H, "W_a", self.kept("T", self.rows_in, self.width_inner, keep))
            self._with_self(self.A.forward(kept, out=inner), kept, inner)

        Z, bits = self._second_map(inner, out, keep)
        return Z, partial(self._backward, H, kept, inner, bits)

    def inner_buffer(self, keep: bool) -> Array:
        """Return the array between the two linear maps, which the backward reads if `keep`."""
        name = f"inner{self.number}" if keep else "inner"
        return self.buffer(name, self.rows_out, self.width_inner)

    def _second_map(self, inner: Array, out: Array, keep: bool) -> tuple:
        """Apply the ReLU to `inner` in place and multiply it by W_b.

        Return the result, and the bits of the ReLU if `keep`.
        """
        bits = None
        if keep:
            width = -(-self.width_inner // 8)
            bits = self.buffer(f"bits{self.number}", self.rows_out, width, np.uint8)

        with self.clock("dense", part="activation"):
            b = self.parameter("b_a")[self.columns.of(self.inner)]
            kernels.backend(inner).activate(inner, b, relu=True, mask=bits)
        return self.times_W(inner, "W_b", out), bits

    def _second_map_backward(self, inner: Array, bits: Array, G: Array,
                             gradient: Parameters) -> Array:
        """Store the gradients of W_b and b_a.

        Return the gradient of the sums before the ReLU.
        """
        whole = self.gathered(G, self.fan_out)
        self.weight_gradient(gradient, "W_b", inner, whole)
        dU = self.times_W_transposed(whole, "W_b", "scratch2", mask=bits)
        with self.clock("dense"):
            db = gradient.arrays[self.name_of("b_a")]
            repeat(operator.setitem, db, self.columns.of(self.inner),
                   kernels.backend(dU).column_sum(dU))
        return dU

    def _backward(self, H: Array, kept: Array, inner: Array, bits: Array, G: Array,
                  below: Array | None, gradient: Parameters) -> Array | None:
        dU = self._second_map_backward(inner, bits, G, gradient)

        # the sum of a vertex and its neighbors
        if self.spmm_first:
            whole = self.gathered(dU, self.inner)
            dS = self.times_W_transposed(whole, "W_a", "scratch", self.scale)
            self._epsilon_gradient(gradient, dS, H, 1 / self.scale)
        else:
            self._epsilon_gradient(gradient, dU, kept)

        # the first linear layer, whichever side the product with A is on
        if self.stores_AX:
            self.weight_gradient(gradient, "W_a", kept, whole)
            if not self.needs_gradient:
                return None
            G = self.A.backward(dS, out=self.buffer("ping", self.rows_in, dS.shape[1]))
            return self.masked(self._add_self(G, dS), below)
        dY = self.A.backward(dU, out=self.buffer("scratch", self.rows_in, dU.shape[1]))
        dY = self.gathered(self._add_self(dY, dU), self.inner)
        self.weight_gradient(gradient, "W_a", H, dY)
        if not self.needs_gradient:
            return None
        return self.times_W_transposed(dY, "W_a", "ping", self.scale, below)

    @property
    def _factor(self) -> Array:
        return derived(operator.add, 1, self.parameter("eps"))

    def _with_self(self, T: Array, H: Array, out: Array) -> Array:
        """Write T + (1 + eps) H to `out`, which may be T.

        `out` has the rows that the layer computes.
        """
        H = self.self_rows(H, "scratch2")
        with self.clock("dense"):
            scaled = self.buffer("scratch2", self.rows_out, H.shape[1])
            repeat(np.multiply, H, self._factor, scaled)
            repeat(np.add, T, scaled, out)
            return out

    def _add_self(self, T: Array, G: Array) -> Array:
        """Add (1 + eps) G to T. This overwrites G."""
        with self.clock("dense"):
            repeat(operator.imul, G, self._factor)
        return self.add_self(G, T)

    def _epsilon_gradient(self, gradient: Parameters, dS: Array, H: Array,
                          factor: float = 1.0) -> None:
        """Store the gradient of eps.

        The sum of dS * H over this rank's rows and all columns of the matrix.
        """
        H = self.self_rows(H, "part")
        with self.clock("dense"):
            total = derived(operator.mul, factor, kernels.backend(dS).inner(dS, H))
            self.columns.row.allreduce(total, None)
            repeat(operator.setitem, gradient.arrays[self.name_of("eps")], ALL, total)
