"""Z = A H W + b: GCN (Kipf and Welling 2017), and GraphSAGE with the aggregator gcn."""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hpgcn.model.layers.layer import Layer

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.parameters import Parameters


class GraphConvolution(Layer):
    """A layer Z = A H W, computed as (A H) W or A (H W).

    The order is the one that exchanges narrower rows; see Layer.
    """

    any_norm = takes_AX = supports_bf16 = masks_result = bare = True

    def forward(self, H: Array, out: Array, *, keep: bool = False, AX: Array | None = None,
                mask: Array | None = None) -> tuple:
        if self.spmm_first:
            T = AX
            if T is None:
                T = self.kept("T", self.rows_out, self.width_in, keep and self.stores_AX)
                T = self.A.forward(H, out=T)
            back = partial(self._back_to_W, H, T) if self.stores_AX else None
            return self.times_W(T, "W", out), back or partial(self._back_to_A, H)
        Y = self.times_W(H, "W", self.buffer("scratch", self.rows_in, self.width_out))
        out = self.A.forward(Y, mask=mask, out=out)
        return out, partial(self._back_to_A, H)

    def _back_to_W(self, H: Array, T: Array, G: Array, below: Array | None,
                   gradient: Parameters) -> Array | None:
        """Compute the gradients if T = A H was stored: that of W is T^T G."""
        G = self.gathered(G, self.fan_out)
        self.weight_gradient(gradient, "W", T, G)
        if not self.needs_gradient:
            return None
        dT = self.times_W_transposed(G, "W", "scratch", self.scale)
        return self.A.backward(dT, mask=below, out=self.input_gradient(H))

    def _back_to_A(self, H: Array, G: Array, below: Array | None,
                   gradient: Parameters) -> Array | None:
        """Compute the gradients if A H was not stored: that of W is H^T (A^T G)."""
        dY = self.buffer("scratch", self.rows_in, G.shape[1])
        dY = self.A.backward(G, out=dY)
        whole = self.gathered(dY, self.fan_out)
        self.weight_gradient(gradient, "W", H, whole)
        if not self.needs_gradient:
            return None
        return self.times_W_transposed(whole, "W", self.input_gradient(H), self.scale, below)


class MeanConvolution(GraphConvolution):
    """A GraphConvolution with means over a vertex and its neighbors.

    Each row of A is divided by its sum.
    """

    norm = "row"
    any_norm = False
