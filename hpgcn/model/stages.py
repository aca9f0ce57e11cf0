"""The stages of a model, each of which returns its backward function.

`chain` combines several stages.

A stage has `forward(H, context)`, which returns its result (m', f'_j) of H (m, f_j) and
backward(G, gradient). This writes the stage's parts of `gradient`, Parameters of this
rank's partial sums, and returns the gradient of H, None for features. `context` is a
ForwardContext.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.record import ALL, derived, repeat
from hpgcn.model.row_pipeline import RowPipeline

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.kernels import Array
    from hpgcn.model.layers.layer import Layer
    from hpgcn.model.parameters import Parameters


class ForwardContext(NamedTuple):
    """Arguments of a forward that all stages receive."""

    step: int = 0  # from 1: it keys dropout
    keep: bool = False  # for the backward; there is no dropout otherwise
    AX: object = None  # A X, if it was computed in advance
    embedded: list | None = None  # receives copies of the last layer's inputs


def chain(stages: list, H: Array, context: ForwardContext) -> tuple:
    """Apply stages one after another.

    Return the result and the backward function of the whole chain.
    """
    backwards = []
    for stage in stages:
        H, backward = stage.forward(H, context)
        backwards.append(backward)
    return H, partial(_backward_of_all, backwards)


def _backward_of_all(backwards: list[Callable], G: Array, gradient: Parameters) -> Array | None:
    for backward in reversed(backwards):
        G = backward(G, gradient)
    return G


class LayerStage:
    """The stage of a Layer, with the gradient of its last bias.

    A later stage adds the bias. `kept` is the name of the output array in training,
    `place` that of the work array used otherwise. `before` is the Activation whose mask
    the layer's backward applies, if any. `masked_by` is the Activation behind the
    layer, if its dropout masks the product with A. `pipeline` is the RowPipeline of a
    bare layer. If `centered`, the next stage subtracts the mean of each column. The
    gradient of the bias is then set to exactly 0, because Adam would amplify rounding
    errors. `dtype` is that of the output.
    """

    def __init__(self, layer: Layer, kept: str, place: str,
                 before: Activation | None = None, *, last: bool = False, centered: bool = False,
                 dtype: DTypeLike | None = None) -> None:
        self.masked_by = None
        self.pipeline = RowPipeline(layer) if layer.bare else None
        self.layer = layer
        self.kept = kept
        self.place = place
        self.before = before
        self.last = last and layer.number > 0
        self.dtype = dtype
        self.learns_bias = bool(layer.bias) and not centered

    def forward(self, H: Array, context: ForwardContext) -> tuple:
        layer = self.layer
        if self.last and context.embedded is not None:
            context.embedded.append(derived(H.copy))
        layer.clock.detail = f"layer {layer.number} forward"
        name = self.kept if context.keep else self.place
        out = layer.buffer(name, layer.rows_out, layer.width_out, self.dtype)
        options = {"AX": context.AX} if layer.precomputed else {}
        if layer.uses_attention:
            options["epoch"] = context.step
        if self.masked_by and context.keep:
            options["mask"] = self.masked_by.draw(out, context)
        if self.pipeline and context.keep:
            self.pipeline.begin(out, context)
        Z, backward = layer.forward(H, out, keep=context.keep, **options)
        return Z, partial(self._backward, backward, H)

    def _backward(self, backward: Callable, H: Array, G: Array,
                  gradient: Parameters) -> Array | None:
        layer = self.layer
        layer.clock.detail = f"layer {layer.number} backward"
        if self.learns_bias:
            with layer.clock("dense"):
                db = gradient.arrays[layer.bias]
                repeat(operator.setitem, db, layer.columns.of(layer.fan_out),
                       kernels.backend(G).column_sum(G))
        if self.pipeline and self.pipeline.serves(H):
            backward = partial(self.pipeline.backward, H)
        return backward(G, self.before and self.before.mask, gradient)


class Activation:
    """A stage that computes dropout(act(Z + b)) in place.

    The LayerStage before it computes the gradient of b. `kind` is one of ACTIVATIONS,
    or "" for none. `vertex`, (m,) the numbers of the rows, and `key` are keys of
    dropout. The backward of ReLU and dropout needs only a mask; if `fused`, the next
    layer applies it. The slope of ELU follows from its result, that of GELU is stored.
    """

    def __init__(self, layer: Layer, bias: str, kind: str, p: float, vertex: Array,
                 seed: int, key: int, *, name: int, fused: bool = False) -> None:
        self.layer = layer
        self.bias = layer.parameter_arrays[bias]
        self.kind = kind
        self.drawn = {"seed": seed, "layer": key}
        self.p = p
        self.vertex = vertex
        self.name = name
        self.fused = fused
        self.mask = self.slope = None
        self.drawn_before = False  # whether the mask was drawn for the current result
        self.begun = False  # whether rows are activated in batches

    def draw(self, Z: Array, context: ForwardContext) -> Array:
        """Draw and return the dropout mask for Z before Z is computed."""
        layer = self.layer
        with layer.clock("dense"):
            bits = kernels.backend(Z).dropout_bits(
                self.vertex, Z.shape[1], first=layer.columns.of(self.bias.size).start,
                epoch=context.step, p=self.p, **self.drawn)
            self.mask = layer.buffer(f"mask{self.name}", *bits.shape, dtype=np.uint8)
            repeat(operator.setitem, self.mask, ALL, bits)
        self.drawn_before = True
        return self.mask

    def begin(self, Z: Array, context: ForwardContext) -> Callable:
        """Return a function that activates rows [first, last) of Z.

        It is called before `forward`.
        """
        layer = self.layer
        columns = layer.columns.of(self.bias.size)
        options = {"first": columns.start}
        by_row = {"vertex": self.vertex}
        drawn = self.drawn_before
        self.drawn_before, self.begun = False, True

        # a training step draws a mask, and stores values for the backward
        if context.keep:
            options |= {**self.drawn, "epoch": context.step, "p": self.p}
            if self.kind == "relu" or self.p:
                by_row["mask"] = self.mask = layer.buffer(
                    f"mask{self.name}", Z.shape[0], -(-Z.shape[1] // 8), np.uint8)
            if self.kind == "gelu":
                by_row["slopes"] = self.slope = layer.buffer(f"slope{self.name}", *Z.shape)

        ops = kernels.backend(Z)
        if self.kind in ("", "relu"):
            apply = partial(ops.activate, relu=self.kind == "relu", drawn=drawn, **options)
        else:
            apply = partial(ops.activate_smooth, kind=self.kind, **options)

        def activate(first: int, last: int) -> None:
            rows = slice(first, last)
            with layer.clock("dense", part="activation"):
                apply(Z[rows], self.bias[columns],
                      **{name: array[rows] for name, array in by_row.items()})

        return activate

    def forward(self, Z: Array, context: ForwardContext) -> tuple:
        if not self.begun:
            self.begin(Z, context)(0, len(Z))
        self.begun = False
        return Z, partial(self._backward, Z, self.slope)

    def _backward(self, Z: Array, slope: Array | None, G: Array, gradient: Parameters) -> Array:
        if self.fused:
            return G
        ops = kernels.backend(G)
        scale = ops.dropout_scale(self.p)
        with self.layer.clock("dense", part="activation"):
            if slope is not None:
                repeat(operator.imul, G, slope)
            elif self.kind == "elu":
                ops.elu_backward(G, Z, self.mask, scale)
            elif self.mask is not None:
                ops.apply_mask(G, self.mask, scale)
        return G


class Residual:
    """A skip connection around the stages F: H + F(H), or H W_res + F(H).

    Only the rows of H that the layer computes are added. Source: He et al. 2016,
    equation 1.
    """

    def __init__(self, stages: list, layer: Layer, *, matrix: bool) -> None:
        self.stages = stages
        self.layer = layer
        self.matrix = matrix

    def forward(self, H: Array, context: ForwardContext) -> tuple:
        layer = self.layer
        buffer = partial(layer.buffer, "residual", layer.rows_out, layer.width_out)
        if self.matrix:
            added = layer.times_W(layer.self_rows(H, "part"), "W_res", buffer())
        else:
            added = layer.self_rows(H, "residual")
            if added is H and not context.keep:  # the output of F may use the array of H
                added = buffer()
                repeat(operator.setitem, added, ALL, H)
        Z, backward = chain(self.stages, H, context)
        with layer.clock("dense"):
            repeat(operator.iadd, Z, added)
        return Z, partial(self._backward, H, backward)

    def _backward(self, H: Array, backward: Callable, G: Array,
                  gradient: Parameters) -> Array | None:
        layer = self.layer
        own = None
        if self.matrix:
            whole = layer.gathered(G, layer.fan_out)
            layer.weight_gradient(gradient, "W_res", layer.self_rows(H, "part"), whole)
            if layer.needs_gradient:
                own = layer.times_W_transposed(whole, "W_res", "residual")
        elif layer.needs_gradient:
            own = layer.buffer("residual", *G.shape)
            repeat(operator.setitem, own, ALL, G)
        G = backward(G, gradient)
        return None if own is None else layer.add_self(own, G)
