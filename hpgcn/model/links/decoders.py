"""Decoders: the score of a pair of vertices, of the product of their rows.

A decoder reads P = h * t, elementwise, of the rows h and t of the two vertices. So the score of
[u, v] is that of [v, u].
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hpgcn import kernels

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.spec import ModelSpec

Arrays = dict[str, "Array"]


class Dot:
    """The dot product, s = sum(h * t); GAE by Kipf and Welling (2016).

    `arrays` has all parameters of the model by name.
    """

    linear: ClassVar[bool] = True  # whether scores are linear in h and in t

    def __init__(self, spec: ModelSpec, arrays: Arrays) -> None:
        self.arrays = {name: arrays[name] for name in self.shapes(spec)}

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, tuple]:
        """Return the shapes of the decoder's parameters by name.

        Their layers have the numbers from `spec.num_layers` on.
        """
        return {}

    def forward(self, P: Array) -> tuple[Array, Callable]:
        """Return the scores of products P (k, d), (k,), and their backward.

        backward(g, gradient) takes the gradient of the scores, (k,). It adds those of the
        parameters to the arrays of `gradient`, and returns that of P.
        """
        width = P.shape[1]

        def backward(g: Array, gradient: Arrays) -> Array:
            return self.scaled(g[:, None].repeat(width, axis=1), P, gradient)

        return self.weighted(P).sum(axis=1), backward

    def outer(self, H: Array, T: Array) -> tuple[Array, Callable]:
        """Return the scores of all pairs of rows of H (k, d) and T (q, d), and their backward.

        Scores are (k, q). backward(G, gradient) returns the gradients of H and T.
        """
        matmul = kernels.backend(H).matmul
        weighted = self.weighted(H)

        def backward(G: Array, gradient: Arrays) -> tuple[Array, Array]:
            return self.scaled(matmul(G, T), H, gradient), matmul(G.T, weighted)

        return matmul(weighted, T.T), backward

    def weighted(self, rows: Array) -> Array:
        """Return rows, (k, d), times the weights of their columns."""
        return rows

    def scaled(self, G: Array, rows: Array, gradient: Arrays) -> Array:
        """Return the gradient of `rows`, given that of `weighted(rows)`."""
        return G


class DistMult(Dot):
    """A weighted dot product, s = sum(w * h * t) with a learned w; Yang et al. (2015)."""

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, tuple]:
        return {cls._name(spec): (spec.widths[-1],)}

    def __init__(self, spec: ModelSpec, arrays: Arrays) -> None:
        super().__init__(spec, arrays)
        self.name = self._name(spec)

    @staticmethod
    def _name(spec: ModelSpec) -> str:
        return f"gain{spec.num_layers}_decoder"  # gains begin at 1

    def weighted(self, rows: Array) -> Array:
        return rows * self.arrays[self.name]

    def scaled(self, G: Array, rows: Array, gradient: Arrays) -> Array:
        gradient[self.name] += (G * rows).sum(axis=0)
        return G * self.arrays[self.name]


class Hadamard(Dot):
    """Linear layers with ReLU between them, on h * t: LinkPredictor of OGB's examples.

    All layers but the last have the width of the rows. There is no dropout between them.
    """

    linear = False

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, tuple]:
        d = spec.widths[-1]
        first, last = spec.num_layers, spec.num_layers + spec.decoder_layers - 1
        widths = {number: d if number < last else 1 for number in range(first, last + 1)}
        return {**{f"W{number}_decoder": (d, width) for number, width in widths.items()},
                **{f"b{number}_decoder": (width,) for number, width in widths.items()}}

    def __init__(self, spec: ModelSpec, arrays: Arrays) -> None:
        super().__init__(spec, arrays)
        self.numbers = range(spec.num_layers, spec.num_layers + spec.decoder_layers)

    def forward(self, P: Array) -> tuple[Array, Callable]:
        matmul = kernels.backend(P).matmul
        inputs = [P]
        for number in self.numbers:
            out = matmul(inputs[-1], self.arrays[f"W{number}_decoder"])
            out += self.arrays[f"b{number}_decoder"]
            inputs.append(np.maximum(out, 0) if number != self.numbers[-1] else out)

        def backward(g: Array, gradient: Arrays) -> Array:
            G = g[:, None]
            for place, number in reversed([*enumerate(self.numbers)]):
                gradient[f"W{number}_decoder"] += matmul(inputs[place].T, G)
                gradient[f"b{number}_decoder"] += G.sum(axis=0)
                G = matmul(G, self.arrays[f"W{number}_decoder"].T)
                if place:
                    G *= inputs[place] > 0
            return G

        return inputs.pop()[:, 0], backward

    def outer(self, H: Array, T: Array) -> tuple[Array, Callable]:
        shape = H.shape[0], T.shape[0]
        pairs = H[:, None] * T
        scores, back = self.forward(pairs.reshape(-1, T.shape[1]))

        def backward(G: Array, gradient: Arrays) -> tuple[Array, Array]:
            dP = back(G.reshape(-1), gradient).reshape(pairs.shape)
            return (dP * T).sum(axis=1), (dP * H[:, None]).sum(axis=0)

        return scores.reshape(shape), backward


DECODERS = {"dot": Dot, "hadamard": Hadamard, "distmult": DistMult}
