"""The propagation of APPNP (Gasteiger, Bojchevski and Guennemann 2019, equation 4)."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.model.layers.layer import Layer

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.spec import ModelSpec
    from hpgcn.parallel.receptive_field import Hop


class PersonalizedPropagation(Layer):
    """The iteration of APPNP: Z_0 = H, then K times (1 - a) A Z + a H.

    Each of the K products adds all rows of H; therefore no rows are pruned between
    them. See Layer.
    """

    any_norm = after_mlp = True
    supports_pruning = False
    default_hops = 10
    last_bias = ""

    @classmethod
    def shapes(cls, spec: ModelSpec, number: int) -> dict[str, tuple]:
        return {}

    @classmethod
    def products_of(cls, spec: ModelSpec) -> int:
        return spec.hops

    def __init__(self, number: int, spec: ModelSpec, parameters: Parameters, hop: Hop, *given: Any,
                 **named: Any) -> None:
        super().__init__(number, spec, parameters, hop, *given, **named)
        kind = np.dtype(spec.dtype).type
        self.restart = kind(spec.restart)
        self.rest = kind(1 - spec.restart)

    def forward(self, H: Array, out: Array, *, keep: bool = False) -> tuple:
        restarted = self._share(H)
        Z = H
        for number, A in enumerate(self.hop.maps, 1):
            target = out
            if number < len(self.hop.maps):
                name = "scratch2" if number % 2 else "scratch"
                target = self.buffer(name, self.rows_out, self.width_out)
            Z = A.forward(Z, out=target)
            with self.clock("dense"):
                Z *= self.rest
                Z += restarted
        return Z, self._backward

    def _backward(self, G: Array, below: Array | None, gradient: Parameters) -> Array | None:
        total = self._share(G)
        for number, A in enumerate(self.hop.maps, 1):
            name = "scratch2" if number % 2 else "scratch"
            G = A.backward(G, out=self.buffer(name, self.rows_in, self.width_in))
            with self.clock("dense"):
                G *= self.rest
                if number < len(self.hop.maps):
                    total += self.restart * G
        with self.clock("dense"):
            G = np.add(G, total, out=self.buffer("ping", self.rows_in, self.width_in))
        return self.masked(G, below)

    def _share(self, H: Array) -> Array:
        """Return a H, the term that each step adds, in a work array."""
        with self.clock("dense"):
            return np.multiply(H, self.restart, out=self.buffer("part", *H.shape))
