"""The models by name: of each, the class of its layers."""
from __future__ import annotations

from hpgcn.errors import DataError, UsageError
from hpgcn.model.gcn import GraphConvolution, MeanConvolution
from hpgcn.model.gin import GraphIsomorphism
from hpgcn.model.sage import SageMean
from hpgcn.model.spec import ModelSpec

MODELS = {"gcn": GraphConvolution, "sage-mean": SageMean, "sage-gcn": MeanConvolution,
          "gin": GraphIsomorphism}
DEFAULT_AGGREGATOR = "mean"


def find_model(config):
    """The name in MODELS that the settings say: MODEL-AGGREGATOR, or MODEL where that takes none.

    A UsageError if there is none of this name, or it takes no aggregator.
    """
    name = f"{config.model}-{config.aggregator}"
    if name in MODELS:
        return name
    if config.model in MODELS:
        if config.aggregator != DEFAULT_AGGREGATOR:
            raise UsageError(f"aggregator = {config.aggregator}: model {config.model} takes none")
        return config.model
    aggregators = [each.partition("-")[2] for each in MODELS if each.startswith(f"{config.model}-")]
    if aggregators:
        raise UsageError(f"aggregator = {config.aggregator!r}: "
                         f"expected one of {', '.join(aggregators)}")
    raise UsageError(f"model = {config.model!r}: expected one of {', '.join(model_kinds())}")


def model_kinds():
    """The words that --model takes, list of str."""
    return list(dict.fromkeys(name.partition("-")[0] for name in MODELS))


def make_spec(header, config, widths=None):
    """Return the ModelSpec of a run on a graph of which the header is known.

    `widths` are the graph's features and classes, and the settings' hidden layers between, unless
    they are given. A DataError if the graph has no features or classes then; as `find_model`.
    """
    architecture = find_model(config)
    if widths is None:
        for what, count in (("features", header.num_features), ("classes", header.num_classes)):
            if not count:
                raise DataError(f"{header.name}: no {what}; give --widths, "
                                f"e.g. --widths 128,{config.hidden},40")
        hidden = [config.hidden] * (config.layers - 1)
        widths = (header.num_features, *hidden, header.num_classes)
    sparse = header.sparse_features and widths[0] == header.num_features
    constant = config.precompute and config.first_dropout == 0 and not sparse
    return ModelSpec(
        architecture, widths, config.dtype, sparse_features=sparse,
        precomputed=MODELS[architecture].takes_AX and constant,
        multilabel=header.multilabel and widths[-1] == header.num_classes,
        layer_norm=config.layer_norm, first_dropout=config.first_dropout, dropout=config.dropout,
        seed=config.seed)
