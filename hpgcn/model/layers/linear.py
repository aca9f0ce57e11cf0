"""Linear layers without A: before and after the layers with A, and inside them."""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hpgcn.model.layers.layer import Layer
from hpgcn.parallel.receptive_field import Hop

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.spec import ModelSpec


class Linear(Layer):
    """A linear layer Z = H W + b; see Layer.

    Its backward writes the work array `place`.
    """

    products = 0
    supports_bf16 = True
    matrix = "W"
    place = "ping"

    def forward(self, H: Array, out: Array, *, keep: bool = False) -> tuple:
        return self.times_W(H, self.matrix, out), partial(self._backward, H)

    def _backward(self, H: Array, G: Array, below: Array | None,
                  gradient: Parameters) -> Array | None:
        G = self.gathered(G, self.fan_out)
        self.weight_gradient(gradient, self.matrix, H, G)
        if not self.needs_gradient:
            return None
        return self.times_W_transposed(G, self.matrix, self.place, self.scale, below)


class FeedForward(Linear):
    """The second linear map after a layer with A.

    It has the rows that the layer computes.
    """

    matrix = "W_ffn"
    last_bias = "b_ffn"

    def __init__(self, number: int, spec: ModelSpec, parameters: Parameters, hop: Hop, *given: Any,
                 **named: Any) -> None:
        own = Hop([], hop.rows[-1:], None, False)
        super().__init__(number, spec, parameters, own, *given, **named)
        self.fan_in = self.fan_out
        self.width_in = self.width_out
