"""Linear layers without A: before and after the layers with A, and inside them."""
from functools import partial

from hpgcn.model.layers.layer import Layer
from hpgcn.parallel.receptive_field import Hop


class Linear(Layer):
    """A linear layer Z = H W + b; see Layer.

    Its backward writes the work array `place`.
    """

    products = 0
    supports_bf16 = True
    matrix = "W"
    place = "ping"

    def forward(self, H, out, *, keep=False):
        return self.times_W(H, self.matrix, out), partial(self._backward, H)

    def _backward(self, H, G, below, gradient):
        G = self.gathered(G, self.fan_out)
        self.weight_gradient(gradient, self.matrix, H, G)
        if not self.number:
            return None
        return self.times_W_transposed(G, self.matrix, self.place, self.scale, below)


class FeedForward(Linear):
    """The second linear map after a layer with A.

    It has the rows that the layer computes.
    """

    matrix = "W_ffn"
    last_bias = "b_ffn"

    def __init__(self, number, spec, parameters, hop, *given, **named):
        own = Hop([], hop.rows[-1:], None, False)
        super().__init__(number, spec, parameters, own, *given, **named)
        self.fan_in = self.fan_out
        self.width_in = self.width_out
