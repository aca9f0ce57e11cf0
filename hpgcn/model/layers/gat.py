"""The layer of GAT (Velickovic et al. 2018, equations 1 to 6): attention of K heads."""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hpgcn.errors import UsageError
from hpgcn.kernels.host.record import ALL, repeat
from hpgcn.model.layers.layer import Layer
from hpgcn.strategies.attention import Heads

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.model_features import Features
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.spec import ModelSpec


class GraphAttention(Layer):
    """A layer with attention heads.

    Each gives Z_i = sum over j of softmax_j(LeakyReLU(<a, H_i W> + <b, H_j W>)) H_j W.

    The outputs of heads are concatenated, in the last layer averaged. A vertex is its
    own neighbor; edge weights are not read. See Layer, and hpgcn.strategies.attention.
    """

    norm = "none"
    self_loops = True
    uses_attention = True
    activation = "elu"

    @classmethod
    def heads(cls, spec: ModelSpec, number: int) -> int:
        """Return the number of heads K of a layer."""
        last = number + 1 == spec.num_layers
        return spec.output_heads or spec.heads if last else spec.heads

    @classmethod
    def inner_width(cls, spec: ModelSpec, number: int) -> int:
        """Return the width of all K heads side by side."""
        heads, width = cls.heads(spec, number), spec.widths[number + 1]
        if number + 1 == spec.num_layers:
            return heads * width
        if width % heads:
            raise UsageError(f"hidden = {width}: expected a multiple of {heads} heads")
        return width

    @classmethod
    def shapes(cls, spec: ModelSpec, number: int) -> dict[str, tuple]:
        heads, inner = cls.heads(spec, number), cls.inner_width(spec, number)
        fan_in, fan_out = spec.layers[number]
        return {"W": (fan_in, inner), "a_self": (heads, inner // heads),
                "a_neighbour": (heads, inner // heads), "b": (fan_out,)}

    def __init__(self, number: int, spec: ModelSpec, *given: Any, vertex: Sequence) -> None:
        super().__init__(number, spec, *given, vertex=vertex)
        self.count = self.heads(spec, number)
        self.averaged = number + 1 == spec.num_layers and self.count > 1
        self.keeps_rows = spec.keeps_rows and number == 0
        vertex_in, vertex_out = vertex
        heads = Heads(number, self.count, vertex_in, vertex_out, self.hop.self_rows,
                      spec.attention_dropout, spec.seed, self.buffer)
        self.attention = self.A.attention(heads)
        self.row_numbers = self.attention.row_numbers

    def prepare(self, features: Features, width: int) -> None:
        # If X never changes, keep the rows of X that other ranks own.
        if self.keeps_rows:
            self.attention.keep_rows(features.X, width)

    def forward(self, H: Array, out: Array, *, keep: bool = False, epoch: int = 0) -> tuple:
        x = self.times_W(H, "W", self.buffer(f"x{self.number}" if keep else "scratch", self.rows_in,
                                             self.inner))

        # attend, then lay heads side by side or take their mean
        vectors = self.parameter("a_self"), self.parameter("a_neighbour")
        W = self.parameter("W") if self.keeps_rows else None
        attended, backward = self.attention.forward(x, *vectors, W=W, epoch=epoch)
        with self.clock("dense"):
            if self.averaged:
                c = self.fan_out
                repeat(operator.setitem, out, ALL, attended[:, :c])
                for h in range(1, self.count):
                    repeat(operator.iadd, out, attended[:, h * c:(h + 1) * c])
                repeat(operator.imul, out, 1 / self.count)
            else:
                repeat(operator.setitem, out, ALL, attended)

        return out, partial(self._backward, H, backward)

    def _backward(self, H: Array, attention_backward: Callable, G: Array, below: Array | None,
                  gradient: Parameters) -> Array | None:
        with self.clock("dense"):
            if self.averaged:
                share = self.buffer("scratch2", self.rows_out, self.inner)
                for h in range(self.count):
                    columns = slice(h * self.fan_out, (h + 1) * self.fan_out)
                    repeat(operator.setitem, share, (ALL, columns), G)
                repeat(operator.imul, share, 1 / self.count)
                G = share

        dx, da, db = attention_backward(G)
        for name, found in (("a_self", da), ("a_neighbour", db)):
            repeat(operator.setitem, gradient.arrays[self.name_of(name)], ALL, found)

        self.weight_gradient(gradient, "W", H, dx)
        if not self.needs_gradient:
            return None
        return self.times_W_transposed(dx, "W", "ping", self.scale, below)
