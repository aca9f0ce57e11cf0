"""A model as a list of layers, with explicit gradients: forward returns its backward.

Before each layer dropout, after each but the last ReLU: H' = dropout(relu(Z +
b)), or with layer normalisation H' = dropout(relu(norm(Z + b))).
"""
from __future__ import annotations

from functools import partial

import numpy as np

from hpgcn import kernels
from hpgcn.model.norm import LayerNorm
from hpgcn.model.parameters import Parameters
from hpgcn.model.registry import MODELS


class Model:
    """Layers of one of MODELS on distributed matrices.

    Besides one activation a layer, and what its gradient reads, it takes work arrays
    of the widest layer: products with W go to one, products with A (which read it) to
    the other, or the other way round. Level l of its ReceptiveField are the rows, m_l,
    that layer l reads. Models that are used in turn may share a workspace. `vertex`
    (m,) int64, ORIGINAL numbers of all rows of this rank, on its device, key dropout.
    """

    def __init__(self, spec, parameters, field, columns, workspace, vertex):
        self.spec = spec
        self.parameters = parameters
        self.workspace = workspace
        self.columns = columns
        self.clock = columns.comm.clock
        put = columns.device.put
        self.vertex = [vertex if rows is None else vertex[put(rows)] for rows in field.rows]
        self.drops = [spec.first_dropout] + [spec.dropout] * (spec.num_layers - 1)
        scale = kernels.backend(parameters.flat).dropout_scale
        layer = MODELS[spec.architecture]
        self.layers = [layer(number, spec, parameters, hop, columns, workspace, scale(p),
                             vertex=self.vertex[number:number + 2])
                       for number, (hop, p) in enumerate(zip(field.hops, self.drops))]
        self.norms = [LayerNorm(each) for each in self.layers[:-1]] if spec.layer_norm else []

    def infer(self, features, *, embed=False):
        """Apply the model, without dropout, to the Features of level 0.

        Return this rank's columns of the logits (m_L, c), valid until the next step; and with
        `embed` the last layer's input (m, h), None of a model of one layer, whose input is X.
        """
        H = features.X
        embedding = None
        for layer in self.layers:
            if embed and 0 < layer.number == len(self.layers) - 1:
                embedding = H.copy()
            self.clock.detail = f"layer {layer.number} forward"
            out = self.workspace.take("even", layer.rows_out, layer.width_out)
            H, _ = layer.forward(H, out, **self._given(layer, features))
            if layer.number < len(self.norms):
                self.norms[layer.number].forward(self._add(layer.bias, H))
            self._activate(H, layer)
        return H, embedding

    def forward(self, features, step):
        """Training forward of the Features of level 0; the step, from 1, keys dropout.

        Return the logits (m_L, c) and backward: backward(G) takes the gradient of the logits and
        returns Parameters that hold this rank's partial sums; their sum over ranks is the gradient.
        """
        take = self.workspace.take
        H = features.X
        if self.drops[0]:
            with self.clock("dense"):
                first = self.columns.of(self.spec.widths[0]).start
                H = features.dropped(self.vertex[0], self.workspace, seed=self.spec.seed,
                                     epoch=step, layer=0, p=self.drops[0], first=first)
        saved = []
        for layer in self.layers:
            rows = layer.rows_out
            level = layer.number + 1
            self.clock.detail = f"layer {layer.number} forward"
            out = take(f"H{level}", rows, layer.width_out)
            H, backward = layer.forward(H, out, keep=True, **self._given(layer, features, step))
            mask = None
            if level < len(self.layers):
                mask = take(f"mask{level}", rows, -(-layer.width_out // 8), np.uint8)
            back_to_Z = None
            if layer.number < len(self.norms):
                back_to_Z = self.norms[layer.number].forward(self._add(layer.bias, H), keep=True)
            H = self._activate(H, layer, step, mask)
            saved.append((backward, back_to_Z, mask))
        return H, partial(self._backward, saved)

    def prepare(self, features, width):
        """Exchange what never changes of the Features of level 0; see `Layer`."""
        self.layers[0].prepare(features, width)

    def _given(self, layer, features, step=0):
        """What a layer is told besides its input: A X, where it was formed once; what it keys."""
        given = {"AX": features.AX} if layer.precomputed else {}
        return given | ({"epoch": step} if layer.attends else {})

    def outputs(self):
        """What each layer put out in the last training forward, (m, f), as `forward` left it."""
        return [self.workspace.take(f"H{layer.number + 1}", layer.rows_out, layer.width_out)
                for layer in self.layers]

    def _add(self, name, Z, **then):
        """Add a bias to Z in place; `then`: what else kernels.activate does in the same pass."""
        bias = self.parameters.arrays[name]
        mine = self.columns.of(bias.size)
        with self.clock("dense"):
            activate = kernels.backend(Z).activate
            return activate(Z, bias[mine], first=mine.start, **{"relu": False, **then})

    def _activate(self, Z, layer, step=0, mask=None):
        """In place bias, ReLU and the next dropout (none without a mask); last the bias alone."""
        level = layer.number + 1
        bias = layer.bias
        if layer.number < len(self.norms):
            bias = self.norms[layer.number].bias
        p = 0.0 if mask is None else self.drops[level]
        return self._add(bias, Z, vertex=self.vertex[level], relu=level < len(self.layers),
                         seed=self.spec.seed, epoch=step, layer=level, p=p, mask=mask)

    def _backward(self, saved, G):
        gradient = Parameters.zeros(self.spec, self.columns.device)
        for layer in reversed(self.layers):
            backward, back_to_Z, _ = saved[layer.number]
            if back_to_Z:
                G = back_to_Z(G, gradient)
            self.clock.detail = f"layer {layer.number} backward"
            with self.clock("dense"):
                db = gradient.arrays[layer.bias]
                db[self.columns.of(layer.fan_out)] = kernels.backend(G).column_sum(G)
            below = saved[layer.number - 1][2] if layer.number else None  # of this layer's input
            G = backward(G, below, gradient)
        return gradient
