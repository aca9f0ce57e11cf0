"""Work on rows of a layer A H W while its product with A still returns other rows.

A strategy that returns rows in batches (`returns_batches`) calls `rows_done` for each
batch while the next one is aggregated (mixgcn, section 3.2.2). It may begin the next
product with A with these rows. The layers contain none of this: their products with W are
already formed when they read them.
"""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from hpgcn import kernels
from hpgcn.kernels.host.record import ALL, derived, repeat
from hpgcn.model.layers.layer import Layer
from hpgcn.parallel.csr import Csr

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.stages import ForwardContext


class RowPipeline:
    """The work on rows that follows the product of a bare layer with A.

    In the forward: the product with the layer's W if A comes first, bias, activation,
    dropout and the next layer's product with its W. In the backward: the gradients of W
    and of the layer's input.

    Attributes
    ----------
    activation : Activation or None
        Directly behind the layer; None: the forward is not split.
    following : hpgcn.model.layers.layer.Layer or None
        The next layer, if it multiplies the result by W before anything else.
    expected : hpgcn.model.layers.layer.Layer or None
        The next layer, if its product with A follows, without a mask.
    lower : hpgcn.model.layers.layer.Layer or None
        The layer before, if its backward begins with a product that may begin early.
    """

    activation = following = expected = lower = None

    def __init__(self, layer: Layer) -> None:
        self.layer = layer

    @property
    def _in_batches(self) -> bool:
        return self.layer.A and self.layer.A.returns_batches

    def begin(self, Z: Array, context: ForwardContext) -> None:
        """Let the next product with A complete the rows of Z, (m, f')."""
        layer, following = self.layer, self.following
        if not (self.activation and self._in_batches):
            return
        activate = self.activation.begin(Z, context)
        if layer.spmm_first:
            layer.formed = Z
        if following:
            following.formed = following.buffer("scratch", following.rows_in, following.width_out)
            Y = following.formed
        if self.expected:
            expect(self.expected, Y if following else Z, "forward")

        def rows_done(T: Array, first: int, last: int) -> None:
            if layer.spmm_first:
                times_W(layer, T, Z, first, last)
            activate(first, last)
            if following:
                times_W(following, Z, Y, first, last)

        layer.A.rows_done = rows_done

    def serves(self, H: Array) -> bool:
        """Return whether `backward` computes the gradients of a layer with input H."""
        return not (self.layer.stores_AX or isinstance(H, Csr)) and self._in_batches

    def backward(self, H: Array, G: Array, below: Array | None,
                 gradient: Parameters) -> Array | None:
        """Compute the gradients of W and of H as rows of A^T G return."""
        layer = self.layer
        W, dW = layer.parameter("W")[layer.constant:], gradient.arrays[layer.name_of("W")]
        if layer.scale != 1:
            W = derived(operator.mul, W, W.dtype.type(layer.scale))
        ops = kernels.backend(G)
        part = layer.columns.device.empty(dW.shape, dW.dtype)
        repeat(operator.setitem, dW, ALL, 0)
        dH = layer.input_gradient(H) if layer.needs_gradient else None
        if self.lower:
            expect(self.lower, dH, "backward")

        def rows_done(dY: Array, first: int, last: int) -> None:
            rows = slice(first, last)
            with layer.clock("dense"):
                ops.add(ops.matmul(H[rows].T, dY[rows], part), dW)
                if layer.needs_gradient:
                    mask = None if below is None else below[rows]
                    ops.matmul(dY[rows], W.T, dH[rows], mask=mask)

        layer.A.rows_done = rows_done
        layer.A.backward(G, out=layer.buffer("scratch", layer.rows_in, G.shape[1]))
        return dH


def times_W(layer: Layer, H: Array, out: Array, first: int, last: int) -> None:
    """Write rows [first, last) of H W to `out`."""
    with layer.clock("dense"):
        layer.columns.linear(H[first:last], layer.parameter("W"), out[first:last])


def expect(layer: Layer, H: Array, phase: str) -> None:
    """Note that `layer` takes the next product with A, of H."""
    with layer.clock.named(f"layer {layer.number} {phase}"):
        layer.A.expect(H, backward=phase == "backward")
