"""The layer of GCN (Kipf and Welling 2017), and of GraphSAGE with the aggregator gcn: Z = A H W + b."""
from __future__ import annotations

from hpgcn.model.layer import Layer


class GraphConvolution(Layer):
    """Z = A H W, as (A H) W or A (H W): the narrower side is exchanged. Parameters as Layer; weights "W{l}"."""

    def forward(self, H, out, *, keep=False):
        """Return Z in `out` (m', f'), and its backward; H (m, f), SparseRows, or A X where that was formed once."""
        if self.aggregate_first:
            T = H if self.aggregated else self.times_A(
                H, self.kept("T", self.rows_out, self.width_in, keep and self.keeps_T))
            Z = self.times_W(T, "", out)
            return Z, lambda *given: self._back_to_W(T, *given) if self.keeps_T else self._back_to_A(H, *given)
        Y = self.times_W(H, "", self.take("odd", self.rows_in, self.width_out))
        return self.times_A(Y, out), lambda *given: self._back_to_A(H, *given)

    def _back_to_W(self, T, G, below, gradient):
        G = self.gathered(G, self.fan_out)
        self.slope(gradient, "", T, G)
        if not self.number:
            return None
        dT = self.times_W_transposed(G, "", "odd", self.scale)
        return self.times_A_transposed(dT, "even", below)

    def _back_to_A(self, H, G, below, gradient):
        dY = self.gathered(self.times_A_transposed(G, "odd"), self.fan_out)
        self.slope(gradient, "", H, dY)
        return self.masked(self.times_W_transposed(dY, "", "even", self.scale), below) if self.number else None
