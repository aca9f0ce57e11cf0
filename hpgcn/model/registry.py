"""The models by name: of each, the class of its layers."""
from __future__ import annotations

from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.model.gat import GraphAttention
from hpgcn.model.gcn import GraphConvolution, MeanConvolution
from hpgcn.model.gin import GraphIsomorphism
from hpgcn.model.sage import SageMean
from hpgcn.model.spec import ModelSpec
from hpgcn.strategies import STRATEGIES

MODELS = {"gcn": GraphConvolution, "sage-mean": SageMean, "sage-gcn": MeanConvolution,
          "gin": GraphIsomorphism, "gat": GraphAttention}
DEFAULT_AGGREGATOR = "mean"


def find_model(config):
    """The name in MODELS that the settings say: MODEL-AGGREGATOR, or MODEL where that takes none.

    A UsageError if there is none of this name, or it takes no aggregator, or not the norm.
    """
    name = _named(config)
    layer = MODELS[name]
    for option in ("heads", "output_heads", "attention_dropout"):
        given = getattr(config, option)
        if given != getattr(Config, option) and not layer.attends:
            raise UsageError(f"{option} = {given}: model {name} has no heads")
    if config.norm_adj not in ("own", layer.norm) and not layer.any_norm:
        raise UsageError(f"norm_adj = {config.norm_adj}: model {name} has a norm of its own, "
                         f"{layer.norm}")
    return name


def _named(config):
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


def norm_of(spec):
    """The norm of the matrix that the layers of a model multiply by: given, or their own."""
    return MODELS[spec.architecture].norm if spec.norm_adj == "own" else spec.norm_adj


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
    layer = MODELS[architecture]
    spec = ModelSpec(
        architecture, widths, config.dtype, sparse_features=sparse,
        precomputed=layer.takes_AX and constant, keeps_rows=layer.attends and constant,
        heads=config.heads, output_heads=config.output_heads,
        attention_dropout=config.attention_dropout,
        multilabel=header.multilabel and widths[-1] == header.num_classes,
        norm_adj=config.norm_adj, layer_norm=config.layer_norm,
        first_dropout=config.first_dropout, dropout=config.dropout, seed=config.seed)
    for number in range(spec.num_layers):
        layer.shapes(spec, number)  # it refuses widths that it cannot take
    return spec


def heads_of(spec):
    """The numbers of heads of a model's layers; none where they compute no attention."""
    layer = MODELS[spec.architecture]
    return [layer.heads(spec, number) for number in range(spec.num_layers) if layer.attends]


def check_strategy(strategy, spec, ranks):
    """Refuse a Strategy that so many ranks cannot compute a model's layers by; UsageError."""
    reason = strategy.refuses(heads_of(spec), ranks)
    if reason:
        serving = [each.name for each in STRATEGIES.values()
                   if not each.refuses(heads_of(spec), ranks)]
        raise UsageError(f"strategy = {strategy.name}: {reason}; model {spec.architecture} takes "
                         f"{', '.join(serving)}")
