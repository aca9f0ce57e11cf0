"""Models as lists of layers with explicit gradients.

Each forward pass returns the function of its backward pass.
"""
from hpgcn.model.batch_loss import BatchLoss, MaskedRows
from hpgcn.model.keyed_values import keyed_uniform
from hpgcn.model.layers.layer import Layer
from hpgcn.model.loss import make_loss
from hpgcn.model.masked_results import masked_layers
from hpgcn.model.metrics import METRICS, goodness, metric_of
from hpgcn.model.model import Model
from hpgcn.model.model_features import Features
from hpgcn.model.parameters import Parameters, num_parameters
from hpgcn.model.registry import (
    MODELS,
    check_strategy,
    find_model,
    find_widths,
    heads_of,
    inner_widths,
    make_spec,
    norm_of,
    products_of,
    reads_X,
    supports_pruning,
)
from hpgcn.model.spec import ModelSpec
from hpgcn.model.target_scale import TargetScale
from hpgcn.model.targets import Targets, find_targets

__all__ = [
    "METRICS",
    "MODELS",
    "BatchLoss",
    "Features",
    "Layer",
    "MaskedRows",
    "Model",
    "ModelSpec",
    "Parameters",
    "TargetScale",
    "Targets",
    "check_strategy",
    "find_model",
    "find_targets",
    "find_widths",
    "goodness",
    "heads_of",
    "inner_widths",
    "keyed_uniform",
    "make_loss",
    "make_spec",
    "masked_layers",
    "metric_of",
    "norm_of",
    "num_parameters",
    "products_of",
    "reads_X",
    "supports_pruning",
]
