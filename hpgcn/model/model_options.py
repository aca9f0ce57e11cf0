"""The settings of a run that say what its model is."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelOptions:
    """Fields and properties of hpgcn.Config, by the same names; `Config.select` makes it."""

    model: str
    aggregator: str
    norm_adj: str
    heads: int
    output_heads: int
    attention_dropout: float
    hops: int
    restart: float
    activation: str
    norm: str
    residual: bool
    ffn: bool
    input_layer: bool
    output_layer: bool
    jump: str
    layers: int
    hidden: int
    first_dropout: float
    dropout: float
    precompute: bool
    dtype: str
    number_dtype: str
    batch: str
    seed: int
