"""What the layers of all models are made of."""
from __future__ import annotations

from hpgcn import dense, kernels


class Layer:
    """A linear map with A in it, of this rank's rows and columns; dropout, ReLU and the last bias are the model's.

    It reads the rows of one level of a hpgcn.reach.Reach and computes those of the next: m and m' of this rank.
    `forward(H, out, keep)` returns Z without its last bias, and backward(G, below, gradient): from the gradient G of
    Z it writes the layer's parts of `gradient` (this rank's partial sums) and returns the gradient of what came before
    dropout and ReLU, None for layer 0. `below` are the bits that these two kept of the layer's input. What the
    backward reads is kept if `keep`; otherwise it may not be called.

    Work arrays: H, or G, may lie in "even", and so may the result: a layer writes there last. "odd" and "own" are free.

    Parameters
    ----------
    number : int
        From 0.
    step : hpgcn.cost.Step
    parameters : hpgcn.model.Parameters
    reach : hpgcn.reach.Reach
    columns : hpgcn.dense.Columns
    buffers : hpgcn.model.Buffers
    scale : float
        What dropout has multiplied the layer's input by.
    """

    reads_own = False  # whether the rows themselves are read beside A H: then both are kept where A X is formed once
    last = ""  # suffix of the bias that the model adds

    def __init__(self, number, step, parameters, reach, columns, buffers, scale):
        self.number, (self.fan_in, self.fan_out), self.scale = number, step.layers[number], scale
        self.arrays, self.columns, self.take = parameters.arrays, columns, buffers.take
        self.strategy = reach.maps[number]
        self.rows_in, self.rows_out = reach.sizes[number:number + 2]
        self.within = columns.device.put(reach.within[number])
        self.width_in, self.width_out = columns.width(self.fan_in), columns.width(self.fan_out)
        self.aggregated = step.constant and number == 0  # A X is given
        self.aggregate_first, self.keeps_T = step.aggregates_early(number), step.keeps_T(number)
        self.inner = step.inner(number)
        self.width_inner = columns.width(self.inner)
        self.clock, self.bias = columns.comm.clock, f"b{number}{self.last}"

    def kept(self, name, rows, width, keep):
        """An array for what the backward reads: the layer's own, or a work array."""
        return self.take(f"{name}{self.number}" if keep else "odd", rows, width)

    def own(self, H, name):
        """Of rows that the layer reads those that it computes: H, or the work array `name` with some rows of H."""
        if self.within is None:
            return H
        with self.clock("dense"):
            if isinstance(H, dense.SparseRows):
                return H.part(self.within)
            return kernels.backend(H).gather(H, self.within, self.take(name, self.rows_out, H.shape[1]))

    def add_own(self, G, to):
        """Add rows that the layer computes to those that it reads, in place: the transpose of `own`."""
        with self.clock("dense"):
            if self.within is None:
                to += G
                return to
            return kernels.backend(G).scatter_add(G, self.within, to)

    def times_A(self, H, out):
        """A H."""
        return self.strategy.forward(H, layer=self.number, out=out)

    def times_A_transposed(self, G, out, mask=None):
        """A^T G; `out`: name of a work array."""
        return self.strategy.backward(G, layer=self.number, mask=mask,
                                      out=self.take(out, self.rows_in, G.shape[1]))

    def times_W(self, H, name, out):
        """H W, W being matrix `name` of this layer."""
        with self.clock("dense"):
            return self.columns.linear(H, self.arrays[f"W{self.number}{name}"], out)

    def gathered(self, G, width):
        """All columns of a gradient; valid until the next call."""
        with self.clock("dense"):
            return self.columns.gathered(G, width)

    def slope(self, gradient, name, H, G):
        """Write H^T G to the gradient of matrix `name`."""
        with self.clock("dense"):
            dW = gradient.arrays[f"W{self.number}{name}"]
            dW = dW[self.columns.of(dW.shape[0])]
            if isinstance(H, dense.SparseRows):
                dW[:] = H.transposed_times(G)
            else:
                kernels.backend(G).matmul(H.T, G, dW)

    def times_W_transposed(self, G, name, out, scale=1.0):
        """G W^T times a factor, W being matrix `name` and `out` the name of a work array."""
        with self.clock("dense"):
            W = self.arrays[f"W{self.number}{name}"]
            W = W[self.columns.of(W.shape[0])]
            if scale != 1:
                W = W * G.dtype.type(scale)  # the smallest operand takes the factor
            return kernels.backend(G).matmul(G, W.T, self.take(out, len(G), W.shape[0]))

    def masked(self, G, mask):
        """Apply the bits of a mask in place."""
        with self.clock("dense"):
            return kernels.backend(G).apply_mask(G, mask)
