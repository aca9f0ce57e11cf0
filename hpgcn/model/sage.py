"""The layer of GraphSAGE with the aggregator mean (Hamilton, Ying and Leskovec 2017, Algorithm 1).

The concatenation of a vertex with the mean of its neighbours, times a matrix, is a sum of two products.
"""
from __future__ import annotations

from hpgcn.model.layer import Layer


class SageMean(Layer):
    """Z = H W_self + A H W_neighbour; A is the adjacency divided by its row sums, 0 for a vertex without neighbours.

    Parameters as Layer; weights "W{l}_self" and "W{l}_neighbour".
    """

    reads_own = True

    def forward(self, H, out, *, keep=False):
        """Return Z in `out` (m', f') and its backward; H (m, f), SparseRows, or (X, A X) where that was formed once."""
        H, T = H if self.aggregated else (H, None)
        own = self.times_W(self.own(H, "part"), "_self", self.take("own", self.rows_out, self.width_out))
        if self.aggregate_first:
            if T is None:
                T = self.times_A(H, self.kept("T", self.rows_out, self.width_in, keep and self.keeps_T))
            Z = self.times_W(T, "_neighbour", out)
        else:
            Z = self.times_A(self.times_W(H, "_neighbour", self.take("odd", self.rows_in, self.width_out)), out)
        with self.clock("dense"):
            Z += own
        return Z, lambda *given: self._backward(H, T, *given)

    def _backward(self, H, T, G, below, gradient):
        whole = self.gathered(G, self.fan_out)
        self.slope(gradient, "_self", self.own(H, "part"), whole)
        own = self.times_W_transposed(whole, "_self", "own", self.scale) if self.number else None
        if not self.keeps_T:
            whole = self.gathered(self.times_A_transposed(G, "odd"), self.fan_out)
        self.slope(gradient, "_neighbour", T if self.keeps_T else H, whole)
        if not self.number:
            return None
        if self.keeps_T:
            dT = self.times_W_transposed(whole, "_neighbour", "odd", self.scale)
            G = self.times_A_transposed(dT, "even")
        else:
            G = self.times_W_transposed(whole, "_neighbour", "even", self.scale)
        return self.masked(self.add_own(own, G), below)
