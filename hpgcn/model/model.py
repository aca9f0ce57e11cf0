"""A model as a list of layers, with explicit gradients: forward returns its backward.

Before each layer dropout, after each but the last ReLU: H' = dropout(relu(Z + b)), or with layer normalisation
H' = dropout(relu(norm(Z + b))).
"""
from __future__ import annotations

import numpy as np

from hpgcn import dense, kernels
from hpgcn.model.kinds import MODELS
from hpgcn.model.norm import LayerNorm
from hpgcn.model.parameters import Parameters


class Model:
    """Layers of one of MODELS on distributed matrices.

    Besides one activation a layer, and what its gradient reads, it takes work arrays of the widest layer: products
    with W go to one, products with A (which read it) to the other, or the other way round. Level l of its `reach` are
    the rows, m_l, that layer l reads.

    Parameters
    ----------
    step : hpgcn.cost.Step
        Its widths, model, layer_norm, sparse_features, and constant: the X given to `forward` and `infer` is then A X
        already, or the pair (X, A X) where the layer reads its own rows, too (`Layer.reads_own`).
    parameters : Parameters
    reach : hpgcn.reach.Reach
    columns : hpgcn.dense.Columns
    buffers : hpgcn.model.Buffers
        May be shared by models that are used in turn.
    vertex : (m,) int64
        ORIGINAL numbers of this rank's rows, all of them, on its device; they key dropout.
    first_dropout, dropout : float
        Before the first layer, before the others.
    seed : int
    """

    def __init__(self, step, parameters, reach, columns, buffers, vertex, *, first_dropout=0.0, dropout=0.0, seed=0):
        self.step, self.parameters, self.reach, self.buffers = step, parameters, reach, buffers
        self.columns, self.seed, self.num_layers = columns, seed, len(step.layers)
        self.clock, put = columns.comm.clock, columns.device.put
        self.vertex = [vertex if rows is None else vertex[put(rows)] for rows in reach.rows]
        self.drops = [first_dropout] + [dropout] * (self.num_layers - 1)
        scale = kernels.backend(parameters.flat).dropout_scale
        self.layers = [MODELS[step.model].layer(number, step, parameters, reach, columns, buffers, scale(p))
                       for number, p in enumerate(self.drops)]
        self.norms = [LayerNorm(layer) for layer in self.layers[:-1]] if step.layer_norm else []

    def infer(self, X, *, embed=False):
        """Return logits (m_L, c), and with `embed` the last layer's input (m, h) unless that is X; without dropout.

        X (m_0, f) are the rows of level 0. Both results are this rank's columns of them. Logits stay valid until the
        next step.
        """
        H, last = X, None
        for layer in self.layers:
            if embed and 0 < layer.number == self.num_layers - 1:
                last = H.copy()
            H, _ = layer.forward(H, self.buffers.take("even", layer.rows_out, layer.width_out))
            if self._normalised(layer):
                self.norms[layer.number].forward(self._add(layer.bias, H))
            self._activate(H, layer)
        return H, last

    def forward(self, X, epoch):
        """Training forward of rows X (m_0, f) of level 0.

        Returns
        -------
        logits : (m_L, c)
        backward : callable
            backward(G) takes the gradient of the logits and returns Parameters that hold this rank's partial sums of
            the gradient; their sum over ranks is the gradient.
        """
        H, take, saved = X, self.buffers.take, []
        if self.drops[0]:
            with self.clock("dense"):
                H = dense.dropout(X, self.vertex[0], take, seed=self.seed, epoch=epoch, layer=0, p=self.drops[0],
                                  first=self.columns.of(self.step.widths[0]).start)
        for layer in self.layers:
            last, mask = layer.number + 1 == self.num_layers, None
            self.clock.detail = f"layer {layer.number} forward"
            rows, level = layer.rows_out, layer.number + 1
            H, backward = layer.forward(H, take(f"H{level}", rows, layer.width_out), keep=True)
            if not last:
                mask = take(f"mask{level}", rows, -(-layer.width_out // 8), np.uint8)
            back_to_Z = None
            if self._normalised(layer):
                back_to_Z = self.norms[layer.number].forward(self._add(layer.bias, H), keep=True)
            H = self._activate(H, layer, epoch, mask)
            saved.append((backward, back_to_Z, mask))
        return H, lambda G: self._backward(G, saved)

    def outputs(self):
        """What each layer put out in the last training forward, (m, f) of this rank, as `forward` left it."""
        return [self.buffers.take(f"H{layer.number + 1}", layer.rows_out, layer.width_out) for layer in self.layers]

    def _normalised(self, layer):
        return layer.number < len(self.norms)

    def _add(self, name, Z, **then):
        """Add a bias to Z in place; `then`: what else kernels.activate does in the same pass."""
        bias = self.parameters.arrays[name]
        mine = self.columns.of(bias.size)
        with self.clock("dense"):
            return kernels.backend(Z).activate(Z, bias[mine], first=mine.start, **{"relu": False, **then})

    def _activate(self, Z, layer, epoch=0, mask=None):
        """In place bias, ReLU and the next layer's dropout (none without a mask); the last layer has the bias alone."""
        last = layer.number + 1 == self.num_layers
        bias = self.norms[layer.number].bias if self._normalised(layer) else layer.bias
        level = layer.number + 1
        return self._add(bias, Z, vertex=self.vertex[level], relu=not last, seed=self.seed, epoch=epoch, layer=level,
                         p=0.0 if mask is None else self.drops[layer.number + 1], mask=mask)

    def _backward(self, G, saved):
        step = self.step
        gradient = Parameters.zeros(step.widths, self.parameters.flat.dtype, step.model, step.layer_norm,
                                    self.columns.device)
        for layer in reversed(self.layers):
            backward, back_to_Z, _ = saved[layer.number]
            G = back_to_Z(G, gradient) if back_to_Z else G
            self.clock.detail = f"layer {layer.number} backward"
            with self.clock("dense"):
                gradient.arrays[layer.bias][self.columns.of(layer.fan_out)] = kernels.backend(G).column_sum(G)
            below = saved[layer.number - 1][2] if layer.number else None  # bits of this layer's input
            G = backward(G, below, gradient)
        return gradient
