"""Z = A H W + b: GCN (Kipf and Welling 2017), and GraphSAGE with the aggregator gcn."""
from functools import partial

from hpgcn.model.layers.layer import Layer


class GraphConvolution(Layer):
    """Z = A H W, as (A H) W or A (H W): the narrower side is exchanged; see Layer."""

    any_norm = takes_AX = supports_bf16 = masks_result = True

    def forward(self, H, out, *, keep=False, AX=None, mask=None):
        if self.spmm_first:
            T = AX
            if T is None:
                T = self.kept("T", self.rows_out, self.width_in, keep and self.stores_AX)
                T = self.A.forward(H, out=T)
            Z = self.times_W(T, "W", out)
            if self.stores_AX:
                return Z, partial(self._back_to_W, T)
            return Z, partial(self._back_to_A, H)
        Y = self.times_W(H, "W", self.buffer("scratch", self.rows_in, self.width_out))
        return self.A.forward(Y, mask=mask, out=out), partial(self._back_to_A, H)

    def _back_to_W(self, T, G, below, gradient):
        """Compute the gradient of W as T^T G: A was first, and T = A H was kept."""
        G = self.gathered(G, self.fan_out)
        self.weight_gradient(gradient, "W", T, G)
        if not self.number:
            return None
        dT = self.times_W_transposed(G, "W", "scratch", self.scale)
        return self.A.backward(dT, mask=below, out=self.buffer("ping", self.rows_in, dT.shape[1]))

    def _back_to_A(self, H, G, below, gradient):
        """Compute the gradient of W as H^T (A^T G)."""
        dY = self.A.backward(G, out=self.buffer("scratch", self.rows_in, G.shape[1]))
        dY = self.gathered(dY, self.fan_out)
        self.weight_gradient(gradient, "W", H, dY)
        if not self.number:
            return None
        return self.times_W_transposed(dY, "W", "ping", self.scale, below)


class MeanConvolution(GraphConvolution):
    """The same with the mean of a vertex and its neighbours: A is divided by its row sums."""

    norm = "row"
    any_norm = False
