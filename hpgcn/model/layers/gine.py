"""The layer of GINE, GIN with edge features.

Source: Hu et al. 2020, Strategies for pre-training graph neural networks.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.kernels.host.record import ALL, derived, repeat
from hpgcn.model.layers.gin import GraphIsomorphism

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.spec import ModelSpec


class EdgeIsomorphism(GraphIsomorphism):
    """A layer Z = relu(S W_a + b_a) W_b that reads edge features.

    S_i = (1 + eps) h_i + sum over j of relu(h_j + e_ij W_edge + b_edge).

    e_ij are the features of the edge from j to i; edge weights are not read. Messages
    are as wide as the layer's input, since the ReLU comes before W_a.
    """

    takes_AX = supports_pruning = False
    uses_edge_features = True

    @classmethod
    def shapes(cls, spec: ModelSpec, number: int) -> dict[str, tuple]:
        fan_in = spec.layers[number][0]
        return super().shapes(spec, number) | {"W_edge": (spec.edge_width, fan_in),
                                               "b_edge": (fan_in,)}

    def __init__(self, number: int, spec: ModelSpec, *given: Any, vertex: Sequence) -> None:
        super().__init__(number, spec, *given, vertex=vertex)
        self.messages = self.A.messages(np.dtype(spec.dtype))

    def forward(self, H: Array, out: Array, *, keep: bool = False) -> tuple:
        S = self.kept("T", self.rows_out, self.width_in, keep)
        maps = self.parameter("W_edge"), self.parameter("b_edge")
        T, backward = self.messages.forward(H, *maps, S, keep=keep)
        S = self._with_self(T, H, S)
        inner = self.inner_buffer(keep)
        self.times_W(S, "W_a", inner)
        Z, bits = self._second_map(inner, out, keep)
        return Z, partial(self._backward, H, S, inner, bits, backward)

    def _backward(self, H: Array, S: Array, inner: Array, bits: Array, messages_backward: Callable,
                  G: Array, below: Array | None, gradient: Parameters) -> Array | None:
        # both linear layers
        dU = self._second_map_backward(inner, bits, G, gradient)
        self.weight_gradient(gradient, "W_a", S, dU)
        dS = self.times_W_transposed(dU, "W_a", "scratch", self.scale)
        self._epsilon_gradient(gradient, dS, H, 1 / self.scale)

        # the messages; their sum is linear in the gradient, so the scale goes along
        dH = self.buffer("ping", self.rows_in, self.width_in)
        dH, *sums = messages_backward(dS, dH)
        with self.clock("dense"):
            for name, total in zip(("W_edge", "b_edge"), sums):
                repeat(operator.setitem, gradient.arrays[self.name_of(name)], ALL,
                       derived(operator.truediv, total, self.scale))
        return self.masked(self._add_self(dH, dS), below) if self.needs_gradient else None
