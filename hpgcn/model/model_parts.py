"""The structure of a model, layer by layer.

Parameters and stages of the model are made from this structure.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpgcn.model.layers.layer import indexed
from hpgcn.model.layers.linear import FeedForward
from hpgcn.model.registry import layer_kinds

if TYPE_CHECKING:
    from hpgcn.model.spec import ModelSpec

ACTIVATIONS = ("relu", "elu", "gelu")
MOMENTS = ("mean", "variance")  # running moments of columns in batch normalization
INNER_KEY = 1024  # key of dropout inside the block of layer 0, above all numbers of layers


@dataclass(frozen=True)
class LayerBlock:
    """The structure of one layer: class, widths, norm, activation, and so on."""

    number: int
    kind: type  # a Layer
    fan_in: int
    fan_out: int
    ffn: bool  # a second linear map follows, on rows of the same level
    norm: str  # none, layer or batch
    norm_first: bool  # whether the input of the layer is normalized, not its result
    residual: str  # the summand: "", the input ("same"), or the input times a "matrix"
    # one of ACTIVATIONS, after the layer, and between the two linear maps; "" for no
    # activation
    activation: str
    dropout: float  # after it, and between the two linear maps
    parts: tuple  # widths of all layers that it reads, if it reads more than the one before
    own: dict  # shapes of the layer's own parameters, by name

    @property
    def norm_width(self) -> int:
        return self.fan_in if self.norm_first else self.fan_out

    @property
    def bias(self) -> str:
        """Name of the last bias; "" if the layer has none."""
        return self.kind.last_bias and indexed(self.kind.last_bias, self.number)

    def shapes(self) -> dict[str, tuple]:
        """Return the shapes of the layer's parameters by name."""
        shapes = dict(self.own)

        # matrices and biases that stand for the layer's own, or follow it
        if self.parts:
            bias = {name: shape for name, shape in shapes.items() if len(shape) == 1}
            shapes = {f"W_{number}": (width, self.fan_out)
                      for number, width in enumerate(self.parts)} | bias
        if self.ffn:
            shapes |= {FeedForward.matrix: 2 * (self.fan_out,),
                       FeedForward.last_bias: (self.fan_out,)}
        if self.residual == "matrix":
            shapes["W_res"] = (self.fan_in, self.fan_out)

        # parameters and moments of the norm
        if self.norm != "none":
            names = ("gain", "shift", *MOMENTS) if self.norm == "batch" else ("gain", "shift")
            shapes |= dict.fromkeys(names, (self.norm_width,))

        return {indexed(name, self.number): shape for name, shape in shapes.items()}


def blocks_of(spec: ModelSpec) -> list[LayerBlock]:
    """Return the layers of a model, list of LayerBlock."""
    kinds = layer_kinds(spec)
    blocks = []
    for number, (kind, (fan_in, fan_out)) in enumerate(zip(kinds, spec.layers)):
        # the position of a layer determines its parts
        with_A = kind.products_of(spec) > 0
        hidden = number + 1 < len(kinds) and not kinds[number + 1].after_mlp
        normed = hidden and (with_A or kinds[-1].after_mlp)
        if spec.ffn and number + 1 == len(kinds):
            normed = True
        residual = ""

        if with_A and spec.residual:
            residual = "same" if fan_in == fan_out else "matrix"
        parts = ()
        if spec.jump == "cat" and number + 1 == len(kinds):
            parts = spec.widths[spec.linear_first + 1:-1]

        blocks.append(LayerBlock(
            number, kind, fan_in, fan_out, ffn=spec.ffn and with_A,
            norm=spec.norm if normed else "none", norm_first=spec.ffn, residual=residual,
            activation=spec.activation if hidden else "", dropout=spec.dropout if hidden else 0.0,
            parts=parts, own=kind.shapes(spec, number)))

    return blocks
