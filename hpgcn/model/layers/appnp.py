"""The propagation of APPNP (Gasteiger, Bojchevski and Guennemann 2019, equation 4)."""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.kernels.host.record import derived, repeat
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
                repeat(operator.imul, Z, self.rest)
                repeat(operator.iadd, Z, restarted)
        return Z, self._backward

    def _backward(self, G: Array, below: Array | None, gradient: Parameters) -> Array | None:
        total = self._share(G)
        for number, A in enumerate(self.hop.maps, 1):
            name = "scratch2" if number % 2 else "scratch"
            G = A.backward(G, out=self.buffer(name, self.rows_in, self.width_in))
            with self.clock("dense"):
                repeat(operator.imul, G, self.rest)
                if number < len(self.hop.maps):
                    repeat(operator.iadd, total, derived(operator.mul, self.restart, G))
        with self.clock("dense"):
            place = self.buffer("ping", self.rows_in, self.width_in)
            repeat(np.add, G, total, place)
        G = place
        return self.masked(G, below)

    def _share(self, H: Array) -> Array:
        """Return a H, the term that each step adds, in a work array."""
        with self.clock("dense"):
            share = self.buffer("part", *H.shape)
            repeat(np.multiply, H, self.restart, share)
            return share
