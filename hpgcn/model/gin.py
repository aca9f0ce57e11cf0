"""The layer of GIN with a learned epsilon (Xu, Hu, Leskovec and Jegelka 2019, equation 4.1)."""
from __future__ import annotations

import numpy as np

from hpgcn import kernels
from hpgcn.model.layer import Layer


class GraphIsomorphism(Layer):
    """Z = relu(((1 + eps) H + A H) W_a + b_a) W_b; A is the adjacency as it is.

    As W_a is linear, A multiplies H or H W_a: the narrower one is exchanged. The width between W_a and W_b is i =
    hpgcn.cost.step.gin_inner. Parameters as Layer; weights "W{l}_a", "W{l}_b", biases "b{l}_a", "b{l}_b", and "eps{l}"
    of one element.
    """

    reads_own = True
    last = "_b"

    def forward(self, H, out, *, keep=False):
        """Return Z in `out` (m', f') and its backward; H (m, f), SparseRows, or (X, A X) where that was formed once."""
        H, T = H if self.aggregated else (H, None)
        inner = self.take(f"inner{self.number}" if keep else "inner", self.rows_out, self.width_inner)
        if self.aggregate_first:
            S = self.kept("T", self.rows_out, self.width_in, keep and self.keeps_T)
            T = self.times_A(H, S) if T is None else T
            S = kept = self._with_own(T, H, S)
            self.times_W(S, "_a", inner)
        else:
            Y = kept = self.times_W(H, "_a", self.kept("T", self.rows_in, self.width_inner, keep))
            self._with_own(self.times_A(Y, inner), Y, inner)
        bits = self.take(f"bits{self.number}", self.rows_out, -(-self.width_inner // 8), np.uint8) if keep else None
        with self.clock("dense"):
            b = self.arrays[f"b{self.number}_a"][self.columns.of(self.inner)]
            kernels.backend(inner).activate(inner, b, relu=True, mask=bits)
        return self.times_W(inner, "_b", out), lambda *given: self._backward(H, kept, inner, bits, *given)

    def _backward(self, H, kept, inner, bits, G, below, gradient):
        whole = self.gathered(G, self.fan_out)
        self.slope(gradient, "_b", inner, whole)
        dU = self.masked(self.times_W_transposed(whole, "_b", "own"), bits)
        with self.clock("dense"):
            gradient.arrays[f"b{self.number}_a"][self.columns.of(self.inner)] = kernels.backend(dU).column_sum(dU)
        if self.aggregate_first:
            whole = self.gathered(dU, self.inner)
            dS = self.times_W_transposed(whole, "_a", "odd", self.scale)
            self._slope_of_epsilon(gradient, dS, H, 1 / self.scale)
        else:
            self._slope_of_epsilon(gradient, dU, kept)
        if self.keeps_T:
            self.slope(gradient, "_a", kept, whole)
            if not self.number:
                return None
            G = self._add_own(self.times_A_transposed(dS, "even"), dS)
        else:
            dY = self.gathered(self._add_own(self.times_A_transposed(dU, "odd"), dU), self.inner)
            self.slope(gradient, "_a", H, dY)
            if not self.number:
                return None
            G = self.times_W_transposed(dY, "_a", "even", self.scale)
        return self.masked(G, below)

    @property
    def _factor(self):
        return 1 + self.arrays[f"eps{self.number}"]

    def _with_own(self, T, H, out):
        """T + (1 + eps) H in `out`, which may be T; of H the rows that the layer computes."""
        H = self.own(H, "own")
        with self.clock("dense"):
            own = np.multiply(H, self._factor, out=self.take("own", self.rows_out, H.shape[1]))
            return np.add(T, own, out=out)

    def _add_own(self, T, G):
        """T + (1 + eps) G in T; G is lost."""
        with self.clock("dense"):
            G *= self._factor
        return self.add_own(G, T)

    def _slope_of_epsilon(self, gradient, dS, H, factor=1.0):
        """Sum of dS * H over this rank's rows and ALL columns: of the ranks that share rows each knows its columns."""
        H = self.own(H, "part")
        with self.clock("dense"):
            found = factor * kernels.backend(dS).inner(dS, H)
            self.columns.row.allreduce(found, None)
            gradient.arrays[f"eps{self.number}"][:] = found
