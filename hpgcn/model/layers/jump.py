"""Jumping knowledge: the last layer reads the outputs of all layers.

Source: Xu, Li, Tian, Sonobe, Kawarabayashi and Jegelka 2018, section 4.

The outputs are concatenated, or their element-wise maximum is taken. The last layer
reads only the rows that it computes.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.record import ALL, derived, repeat
from hpgcn.model.stages import chain

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.layers.layer import Layer
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.stages import ForwardContext


class Jump:
    """A stage that runs all layers and combines their outputs.

    `behind` are the stages after it. A subclass combines the outputs of the groups and
    splits their gradient: `start`, `add`, `scatter_gradient`.
    """

    def __init__(self, groups: list[list], behind: list, layers: list[Layer]) -> None:
        self.groups = groups
        self.behind = behind
        self.layer = layers[-1]  # the layer that reads all outputs
        self.buffer = self.layer.buffer
        self.clock = self.layer.clock
        self.rows = []  # positions of the last layer's rows in each layer; None: all rows
        rows = None
        for layer in reversed(layers[1:]):
            here = layer.hop.self_rows
            if here is not None:
                rows = here if rows is None else here[rows]
            self.rows.insert(0, rows)

    def forward(self, H: Array, context: ForwardContext) -> tuple:
        backwards = []
        outputs = []
        for number, (stages, rows) in enumerate(zip(self.groups, self.rows)):
            H, backward = chain(stages, H, context)
            backwards.append(backward)
            outputs.append(H)
            self.add(number, self._part(H, rows), context)
        Z, backward = self.finish(context)
        return Z, partial(self._backward, backwards, outputs, backward)

    def _part(self, H: Array, rows: Array | None) -> Array:
        if rows is None:
            return H
        with self.clock("dense"):
            return kernels.backend(H).gather(H, rows, self.buffer("part", rows.size, H.shape[1]))

    def _backward(self, backwards: list[Callable], outputs: list, backward: Callable, G: Array,
                  gradient: Parameters) -> Array | None:
        whole = self.start(backward, G, gradient)
        G = None

        # from the last layer to the first; each adds the gradient from the next layer
        for number in reversed(range(len(backwards))):
            rows = self.rows[number]
            part = self._part(outputs[number], rows)
            own_gradient = self.scatter_gradient(number, part, whole, gradient)
            with self.clock("dense"):
                if G is None:
                    G = own_gradient  # gradient of the last layer, whose rows they are
                elif rows is None:
                    repeat(operator.iadd, G, own_gradient)
                else:
                    kernels.backend(G).scatter_add(own_gradient, rows, G)
            G = backwards[number](G, gradient)

        return G


class Concatenation(Jump):
    """Jumping knowledge by concatenation, [H_1, H_2, ...] W.

    The product is computed as a sum of one product per layer.
    """

    def add(self, number: int, H: Array, context: ForwardContext) -> None:
        layer = self.layer
        if layer.number and context.embedded is not None:
            context.embedded.append(derived(H.copy))
        total = self._total(context)
        if number == 0:
            layer.times_W(H, "W_0", total)
            return
        product = layer.times_W(H, f"W_{number}", self.buffer("scratch", *total.shape))
        with self.clock("dense"):
            repeat(operator.iadd, total, product)

    def _total(self, context: ForwardContext) -> Array:
        name = self.behind[0].kept if context.keep else "jumped"
        return self.buffer(name, self.layer.rows_out, self.layer.width_out)

    def finish(self, context: ForwardContext) -> tuple:
        _, *others = self.behind
        return chain(others, self._total(context), context)

    def start(self, backward: Callable, G: Array, gradient: Parameters) -> Array:
        """Return all columns of the gradient of the sum.

        Later calls do not overwrite the array.
        """
        layer = self.layer
        G = backward(G, gradient)
        with self.clock("dense"):
            db = gradient.arrays[layer.bias]
            repeat(operator.setitem, db, layer.columns.of(layer.fan_out),
                   kernels.backend(G).column_sum(G))
        whole = self.buffer("jump_G", G.shape[0], layer.fan_out)
        repeat(operator.setitem, whole, ALL, layer.gathered(G, layer.fan_out))
        return whole

    def scatter_gradient(self, number: int, H: Array, whole: Array, gradient: Parameters) -> Array:
        self.layer.weight_gradient(gradient, f"W_{number}", H, whole)
        return self.layer.times_W_transposed(whole, f"W_{number}", "jump")


class Maximum(Jump):
    """Jumping knowledge by element-wise maximum.

    Among equal elements only the first one gets the gradient.
    """

    def add(self, number: int, H: Array, context: ForwardContext) -> None:
        total, which = self._arrays()
        with self.clock("dense"):
            if number == 0:
                repeat(operator.setitem, total, ALL, H)
                repeat(operator.setitem, which, ALL, 0)
                return
            better = self.buffer("better", *H.shape, dtype=np.bool_)
            repeat(np.less_equal, H, total, better)
            repeat(np.logical_not, better, better)  # NaN passes on: the loss must see it
            repeat(_copy_where, better, total, H)
            repeat(_copy_where, better, which, number)

    def _arrays(self) -> tuple[Array, Array]:
        shape = self.layer.rows_in, self.layer.width_in
        return self.buffer("jumped", *shape), self.buffer("which", *shape, np.int16)

    def finish(self, context: ForwardContext) -> tuple:
        return chain(self.behind, self._arrays()[0], context)

    def start(self, backward: Callable, G: Array, gradient: Parameters) -> Array:
        G = backward(G, gradient)
        whole = self.buffer("jump_G", *G.shape)
        repeat(operator.setitem, whole, ALL, G)
        return whole

    def scatter_gradient(self, number: int, H: Array, whole: Array, gradient: Parameters) -> Array:
        with self.clock("dense"):
            from_layer = self.buffer("better", *whole.shape, dtype=np.bool_)
            repeat(np.equal, self._arrays()[1], number, from_layer)
            own = self.buffer("jump", *whole.shape)
            repeat(np.multiply, whole, from_layer, own)
            return own


def _copy_where(where: Array, to: Array, values: Any) -> None:
    np.copyto(to, values, where=where)


JUMPS = {"cat": Concatenation, "max": Maximum}
