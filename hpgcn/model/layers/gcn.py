"""Z = A H W + b: GCN (Kipf and Welling 2017), and GraphSAGE with the aggregator gcn."""
from functools import partial

from hpgcn import kernels
from hpgcn.model.layers.layer import Layer
from hpgcn.parallel.csr import Csr


class GraphConvolution(Layer):
    """A layer Z = A H W, computed as (A H) W or A (H W), whichever exchanges narrower
    rows; see Layer.
    """

    any_norm = takes_AX = supports_bf16 = masks_result = updates_rows = True

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.begun = None  # H W, if its rows were computed in batches

    def begin_times_W(self, H):
        """Return a function that multiplies rows [first, last) of H by W, to be called
        before `forward`.
        """
        W = self.parameter("W")
        self.begun = Y = self.buffer("scratch", self.rows_in, self.width_out)

        def multiply(first, last):
            with self.clock("dense"):
                self.columns.linear(H[first:last], W, Y[first:last])

        return multiply

    def forward(self, H, out, *, keep=False, AX=None, mask=None, update=None):
        if self.spmm_first:
            return self._aggregate_first(H, out, keep, AX, update)
        Y, self.begun = self.begun, None
        if Y is None:
            Y = self.times_W(H, "W", self.buffer("scratch", self.rows_in, self.width_out))
        updated = {} if update is None else {"update": update}
        out = self.A.forward(Y, mask=mask, out=out, **updated, **self.last_use)
        return out, partial(self._back_to_A, H)

    def _aggregate_first(self, H, out, keep, T, update):
        """Return (A H) W and its backward function. `T` is A H if it was computed
        before, else None.
        """
        formed = T is not None
        if not formed:
            T = self.kept("T", self.rows_out, self.width_in, keep and self.stores_AX)
        if update is None:
            T = T if formed else self.A.forward(H, out=T)
            Z = self.times_W(T, "W", out)
        else:
            Z = out

            def multiply(first, last):
                with self.clock("dense"):
                    self.columns.linear(T[first:last], self.parameter("W"), Z[first:last])
                update(first, last)

            self.A.forward(H, out=T, update=multiply)
        if self.stores_AX:
            return Z, partial(self._back_to_W, H, T)
        return Z, partial(self._back_to_A, H)

    def _back_to_W(self, H, T, G, below, gradient):
        """Compute the gradients if T = A H was stored: that of W is T^T G."""
        G = self.gathered(G, self.fan_out)
        self.weight_gradient(gradient, "W", T, G)
        if not self.number:
            return None
        dT = self.times_W_transposed(G, "W", "scratch", self.scale)
        self.discard(T)
        return self.A.backward(dT, mask=below, out=self.input_gradient(H), **self.last_use)

    def _back_to_A(self, H, G, below, gradient):
        """Compute the gradients if A H was not stored: that of W is H^T (A^T G)."""
        dY = self.buffer("scratch", self.rows_in, G.shape[1])
        if self.A.updates_in_batches and not isinstance(H, Csr):
            return self._back_in_batches(H, G, dY, below, gradient)
        dY = self.A.backward(G, out=dY, **self.last_use)
        whole = self.gathered(dY, self.fan_out)
        self.weight_gradient(gradient, "W", H, whole)
        dH = None
        if self.number:
            dH = self.input_gradient(H)
            self.times_W_transposed(whole, "W", dH, self.scale, below)
        self.discard(dY)
        return dH

    def _back_in_batches(self, H, G, dY, below, gradient):
        """Compute the same as `_back_to_A` in batches of rows, as the product A^T G
        returns them.
        """
        W, dW = self.parameter("W"), gradient.arrays[self.name_of("W")]
        if self.scale != 1:
            W = W * W.dtype.type(self.scale)
        ops = kernels.backend(G)
        part = self.columns.device.empty(dW.shape, dW.dtype)
        dW[...] = 0
        dH = self.input_gradient(H) if self.number else None

        def update(first, last):
            rows = slice(first, last)
            with self.clock("dense"):
                ops.add(ops.matmul(H[rows].T, dY[rows], part), dW)
                if self.number:
                    mask = None if below is None else below[rows]
                    ops.matmul(dY[rows], W.T, dH[rows], mask=mask)

        self.A.backward(G, out=dY, update=update)
        return dH


class MeanConvolution(GraphConvolution):
    """GraphConvolution with means over a vertex and its neighbors: each row of A is
    divided by its sum.
    """

    norm = "row"
    any_norm = False
