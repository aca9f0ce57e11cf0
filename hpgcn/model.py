"""GCN as a list of layers, with explicit gradients: forward returns its backward.

A layer: Z = A-hat H W + b, then H' = dropout(relu(Z)) except after the last (Kipf and Welling 2017).
"""
from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpgcn import dense, kernels
from hpgcn.cost import aggregate_first, num_parameters


@dataclass(frozen=True, eq=False)
class Parameters:
    """All weights and biases in one flat array (weights first), so that one reduction and one optimiser step do.

    Attributes
    ----------
    flat : (p,)
    weights, biases : lists of views into flat, (f_l, f_(l+1)) and (f_(l+1),)
    """

    flat: np.ndarray
    weights: list
    biases: list

    @staticmethod
    def zeros(widths, dtype):
        """Parameters of a GCN of these widths, all 0."""
        flat = np.zeros(num_parameters(widths), dtype)
        shapes = [*pairwise(widths), *((width,) for width in widths[1:])]
        ends = np.cumsum([np.prod(shape) for shape in shapes])
        views = [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes)]
        return Parameters(flat, views[:len(widths) - 1], views[len(widths) - 1:])

    @staticmethod
    def initial(widths, dtype, seed):
        """Glorot uniform weights keyed by (seed, name of the weight), biases 0: equal on every rank."""
        parameters = Parameters.zeros(widths, dtype)
        for layer, W in enumerate(parameters.weights):
            limit = np.sqrt(6 / sum(W.shape))
            W[:] = ((2 * keyed_uniform(seed, f"W{layer}", W.size) - 1) * limit).reshape(W.shape)
        return parameters

    def named(self):
        """Dict of views by name: W0, b0, W1..."""
        return {name + str(layer): array for name, arrays in (("W", self.weights), ("b", self.biases))
                for layer, array in enumerate(arrays)}


def keyed_uniform(seed, name, count):
    """`count` float64 in [0, 1) that depend on (seed, name) alone; NumPy keeps the raw bits of Philox stable."""
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:16], "little")
    return (np.random.Philox(key=key).random_raw(count) >> np.uint64(11)) * 2.0**-53


class Buffers:
    """Dense arrays of this rank's rows, made once and used in every step: fresh memory costs page faults each time.

    They begin at multiples of 64 bytes, so that rows take as few cache lines as they can.

    Parameters
    ----------
    num_rows : int
        m.
    dtype : numpy dtype
    """

    def __init__(self, num_rows, dtype):
        self.num_rows, self.dtype, self.flat = num_rows, dtype, {}

    def take(self, name, width, dtype=None):
        """Return the (m, width) array called `name`; its contents are what was last left there."""
        size = self.num_rows * width
        if name not in self.flat or self.flat[name].size < size:
            dtype = np.dtype(dtype or self.dtype)
            memory = np.empty(size * dtype.itemsize + 64, np.uint8)
            self.flat[name] = memory[-memory.ctypes.data % 64:][:size * dtype.itemsize].view(dtype)
        return self.flat[name][:size].reshape(self.num_rows, width)


class GCN:
    """Graph convolutional network on distributed rows.

    Besides one activation a layer it holds two work arrays of the widest layer: products with W go to one, products
    with A (which read it) to the other, or the other way round.

    Parameters
    ----------
    widths : list of L + 1 int
        Features, hidden widths, classes.
    parameters : Parameters
    strategy : hpgcn.strategies.Strategy
    vertex : (m,) int64
        ORIGINAL numbers of this rank's rows; they key dropout.
    first_dropout, dropout : float
        Before the first layer, before the others.
    seed : int
    sparse_features : bool
    aggregated : bool
        The X given to `forward` and `infer` is A X already: layer 1 only multiplies by W.
    """

    def __init__(self, widths, parameters, strategy, vertex, *, first_dropout=0.0, dropout=0.0, seed=0,
                 sparse_features=False, aggregated=False):
        self.widths, self.parameters, self.strategy, self.vertex = widths, parameters, strategy, vertex
        self.drops = [first_dropout] + [dropout] * (len(widths) - 2)
        self.seed, self.aggregated = seed, aggregated
        self.aggregate_first = [aggregate_first(fan_in, fan_out, sparse_features and layer == 0)
                                for layer, (fan_in, fan_out) in enumerate(pairwise(widths))]
        self.aggregate_first[0] |= aggregated
        self.buffers = Buffers(vertex.size, parameters.flat.dtype)

    @property
    def num_layers(self):
        """L."""
        return len(self.widths) - 1

    def infer(self, X, *, embed=False):
        """Return logits (m, c), and with `embed` the last layer's input (m, h) unless that is X; without dropout.

        Logits stay valid until the next step.
        """
        H = X
        for layer in range(self.num_layers):
            last = H.copy() if embed and 0 < layer == self.num_layers - 1 else None
            H, _ = self._layer(H, layer, self.buffers.take("even", self.widths[layer + 1]))
            self._activate(H, layer)
        return H, last

    def forward(self, X, epoch):
        """Training forward.

        Returns
        -------
        logits : (m, c)
        backward : callable
            backward(G) takes the gradient of the logits and returns Parameters that hold this rank's partial sums of
            the gradient; their sum over ranks is the gradient.
        """
        clock, H = self.strategy.comm.clock, X
        if self.drops[0]:
            with clock("dense"):
                H = dense.dropout(X, self.vertex, seed=self.seed, epoch=epoch, layer=0, p=self.drops[0])
        saved = []
        for layer in range(self.num_layers):
            width, mask = self.widths[layer + 1], None
            Z, kept = self._layer(H, layer, self.buffers.take(f"H{layer + 1}", width), keep=True)
            if layer + 1 < self.num_layers:
                mask = self.buffers.take(f"mask{layer + 1}", -(-width // 8), np.uint8)
            H = self._activate(Z, layer, epoch, mask)
            saved.append((kept, mask))
        return H, lambda G: self._backward(G, saved)

    def _layer(self, H, layer, out, *, keep=False):
        """Write Z without bias to `out`; return it and what the gradient of W needs: A H if A came first, else H."""
        W, clock, take = self.parameters.weights[layer], self.strategy.comm.clock, self.buffers.take
        if self.aggregate_first[layer]:
            T = H
            if layer or not self.aggregated:
                T = self.strategy.forward(H, layer=layer, out=take(f"T{layer}" if keep else "odd", H.shape[1]))
            with clock("dense"):
                return np.matmul(T, W, out=out), T
        with clock("dense"):
            Y = dense.times(H, W, take("odd", W.shape[1]))
        return self.strategy.forward(Y, layer=layer, out=out), H

    def _activate(self, Z, layer, epoch=0, mask=None):
        """In place bias, ReLU and the next layer's dropout (none without a mask); the last layer has the bias alone."""
        last = layer + 1 == self.num_layers
        p = 0.0 if mask is None else self.drops[layer + 1]
        with self.strategy.comm.clock("dense"):
            return kernels.backend(Z).activate(Z, self.parameters.biases[layer], self.vertex, relu=not last,
                                               seed=self.seed, epoch=epoch, layer=layer + 1, p=p, mask=mask)

    def _backward(self, G, saved):
        gradient = Parameters.zeros(self.widths, self.parameters.flat.dtype)
        ops, clock, strategy, take = kernels.backend(G), self.strategy.comm.clock, self.strategy, self.buffers.take
        for layer in reversed(range(self.num_layers)):
            kept, width = saved[layer][0], self.widths[layer]
            below = saved[layer - 1][1] if layer else None  # bits of this layer's input
            with clock("dense"):
                gradient.biases[layer][:] = ops.column_sum(G)
                # kept inputs were scaled by 1 / (1 - p): on the way back W takes the factor, it is the smallest operand
                W = self.parameters.weights[layer] * G.dtype.type(ops.dropout_scale(self.drops[layer]))
            if self.aggregate_first[layer]:
                with clock("dense"):
                    np.matmul(kept.T, G, out=gradient.weights[layer])
                    dT = np.matmul(G, W.T, out=take("odd", width)) if layer else None
                if layer:
                    G = strategy.backward(dT, layer=layer, mask=below, out=take("even", width))
                continue
            dY = strategy.backward(G, layer=layer, out=take("odd", G.shape[1]))
            with clock("dense"):
                gradient.weights[layer][:] = dense.transposed_times(kept, dY)
                if layer:
                    G = ops.apply_mask(np.matmul(dY, W.T, out=take("even", width)), below)
        return gradient
