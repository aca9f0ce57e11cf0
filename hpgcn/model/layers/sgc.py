"""The layer of SGC (Wu, Zhang, de Souza, Fifty, Yu and Weinberger 2019, equation 8)."""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hpgcn.model.layers.layer import Layer

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.spec import ModelSpec


class SimplifiedConvolution(Layer):
    """A layer Z = A^K H W + b, computed as A (... (A (H W))); see Layer."""

    any_norm = supports_bf16 = True
    default_hops = 2

    @classmethod
    def products_of(cls, spec: ModelSpec) -> int:
        return spec.hops

    def forward(self, H: Array, out: Array, *, keep: bool = False) -> tuple:
        Z = self.times_W(H, "W", self.buffer("scratch", self.rows_in, self.width_out))
        *others, last = self.hop.maps
        for number, A in enumerate(others, 1):
            name = "scratch2" if number % 2 else "scratch"
            Z = A.forward(Z, out=self.buffer(name, self.hop.rows[number], self.width_out))
        return last.forward(Z, out=out), partial(self._backward, H)

    def _backward(self, H: Array, G: Array, below: Array | None,
                  gradient: Parameters) -> Array | None:
        for number, A in reversed([*enumerate(self.hop.maps)]):
            name = "scratch2" if number % 2 else "scratch"
            G = A.backward(G, out=self.buffer(name, self.hop.rows[number], self.width_out))
        G = self.gathered(G, self.fan_out)
        self.weight_gradient(gradient, "W", H, G)
        if not self.needs_gradient:
            return None
        return self.times_W_transposed(G, "W", "ping", self.scale, below)
