"""The registry of models: the class of layers for each name of a model."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from hpgcn.config import Config
from hpgcn.errors import UsageError, agreed, assigned, only_for, setting, suggestion
from hpgcn.model.layers.appnp import PersonalizedPropagation
from hpgcn.model.layers.gat import GraphAttention
from hpgcn.model.layers.gcn import GraphConvolution, MeanConvolution
from hpgcn.model.layers.gin import GraphIsomorphism
from hpgcn.model.layers.gine import EdgeIsomorphism
from hpgcn.model.layers.linear import Linear
from hpgcn.model.layers.sage import SageMean
from hpgcn.model.layers.sgc import SimplifiedConvolution
from hpgcn.model.spec import ModelSpec
from hpgcn.setting_words import parse_decoder
from hpgcn.strategies import STRATEGIES, keeps_rows

if TYPE_CHECKING:
    from hpgcn.graphs.header import Header
    from hpgcn.model.layers.layer import Layer
    from hpgcn.strategies.strategy import Strategy

MODELS = {"gcn": GraphConvolution, "sage-mean": SageMean, "sage-gcn": MeanConvolution,
          "gin": GraphIsomorphism, "gine": EdgeIsomorphism, "sgc": SimplifiedConvolution,
          "appnp": PersonalizedPropagation, "gat": GraphAttention}
DEFAULT_AGGREGATOR = "mean"
HEADS = ("heads", "output_heads", "attention_dropout")  # settings of attention
ONLY_LABELS = ("class_weight", "label_smoothing")  # settings of losses
ONLY_TARGETS = ("loss", "standardize")
# settings of pairs of vertices
ONLY_LINKS = ("output_width", "decoder", "negatives", "strict_negatives", "message_edges",
              "evaluation_negatives")
STACK = ("residual", "ffn", "input_layer", "output_layer", "jump")  # around layers with A


def find_model(options: Config) -> str:
    """Return the key of MODELS for a Config.

    The key is MODEL-AGGREGATOR, or MODEL if it has no aggregators. Raise a UsageError
    if the name is unknown, or if settings exclude each other. The same if the model
    does not support the aggregator, the norm or other settings.
    """
    name = _model_name(options.model, options.aggregator)
    layer = MODELS[name]
    if options.norm_adj not in ("own", layer.norm) and not layer.any_norm:
        raise UsageError(f"{assigned('norm_adj', options.norm_adj)}: model {name} always uses "
                         f"norm_adj {layer.norm}")
    _check_stack(options, layer)
    if options.dtype != options.number_dtype:
        _check_halves(options, name)
    return name


def _check_halves(options: Config, name: str) -> None:
    """Refuse options that do not support rows in bf16.

    Only some kernels compute with 16 bits.
    """
    where = assigned("dtype", options.dtype)
    if not MODELS[name].supports_bf16:
        serving = ", ".join(each for each, layer in MODELS.items() if layer.supports_bf16)
        raise UsageError(f"{where}: model {name} does not support bf16; expected one of {serving}")
    if options.activation not in ("own", "relu"):
        raise UsageError(f"{where}: activation {options.activation} does not support bf16; "
                         "expected relu")
    for field in ("norm", "residual", "ffn", "jump", "embedding"):
        value = getattr(options, field)
        if value != getattr(Config, field):
            raise UsageError(f"{where}: {assigned(field, value)} does not support bf16; expected "
                             f"{getattr(Config, field)}")


def unread_settings(layer: type[Layer]) -> tuple[str, ...]:
    """Return the settings that a model of these layers does not read."""
    return (*(() if layer.uses_attention else HEADS), *(() if layer.default_hops else ("hops",)),
            *(STACK if layer.after_mlp else ("restart",)))


def models_that_read(field: str) -> list[str]:
    """Return the values of --model that read a setting."""
    if field == "aggregator":
        return [kind for kind in model_kinds() if kind not in MODELS]
    return list(dict.fromkeys(name.partition("-")[0] for name, layer in MODELS.items()
                              if field not in unread_settings(layer)))


def _check_stack(options: Config, layer: type[Layer]) -> None:
    """Refuse settings of layers that exclude each other or do not apply."""
    # settings that this model does not read
    for field in unread_settings(layer):
        value = getattr(options, field)
        if value != getattr(Config, field):
            raise UsageError(f"{assigned(field, value)}: "
                             f"{only_for('model', models_that_read(field))}")

    # settings that need others
    for field, others in (("ffn", ("input_layer", "output_layer")), ("jump", ("output_layer",))):
        value = getattr(options, field)
        for other in others:
            if value != getattr(Config, field) and not getattr(options, other):
                raise UsageError(f"{assigned(field, value)}: needs {setting(other, True)}")
    if options.ffn and options.jump != "none":
        raise UsageError(f"{assigned('jump', options.jump)}: excludes ffn, whose blocks add to one "
                         "another already")


def _model_name(model: str, aggregator: str) -> str:
    name = f"{model}-{aggregator}"
    if name in MODELS:
        return name
    if model in MODELS:
        if aggregator != DEFAULT_AGGREGATOR:
            readers = models_that_read("aggregator")
            raise UsageError(f"{assigned('aggregator', aggregator)}: {only_for('model', readers)}")
        return model
    aggregators = [each.partition("-")[2] for each in MODELS if each.startswith(f"{model}-")]
    if aggregators:
        raise UsageError(f"{assigned('aggregator', aggregator)}: expected one of "
                         f"{', '.join(aggregators)}")
    raise UsageError(f"{assigned('model', model)}: expected one of {', '.join(model_kinds())}"
                     f"{suggestion(model, model_kinds())}")


def norm_of(spec: ModelSpec) -> str:
    """Return the normalization of A in a model.

    It is the setting, or else the default of its layers.
    """
    return MODELS[spec.architecture].norm if spec.norm_adj == "own" else spec.norm_adj


def model_kinds() -> list[str]:
    """Return the valid values of --model, a list of str."""
    return list(dict.fromkeys(name.partition("-")[0] for name in MODELS))


def layer_kinds(spec: ModelSpec) -> list[type[Layer]]:
    """Return the class of each layer of a model, a list."""
    last = spec.num_layers - spec.linear_last
    return [MODELS[spec.architecture] if spec.linear_first <= number < last else Linear
            for number in range(spec.num_layers)]


def products_of(spec: ModelSpec) -> list[int]:
    """Return the number of products with A in each layer, a list of L int."""
    return [kind.products_of(spec) for kind in layer_kinds(spec)]


def supports_pruning(spec: ModelSpec) -> bool:
    """Return whether a model can skip rows that no loss depends on.

    Batch norm needs all rows.
    """
    return spec.norm != "batch" and all(kind.supports_pruning for kind in layer_kinds(spec))


def inner_widths(spec: ModelSpec) -> list[int]:
    """Return the inner width of each layer, list of L int: see `hpgcn.model.Layer.inner_width`."""
    return [kind.inner_width(spec, number)
            for number, kind in enumerate(layer_kinds(spec))]


def reads_X(spec: ModelSpec) -> bool:
    """Return whether the first layer reads X even if A X is computed in advance."""
    return layer_kinds(spec)[0].reads_self or spec.residual


def find_widths(options: Config, architecture: str, features: int, classes: int) -> tuple[int, ...]:
    """Return the L + 1 widths of a model.

    They are the features, the hidden widths by the options, and the classes.
    """
    outer = options.input_layer + options.output_layer
    hidden = [options.hidden] * (options.layers - 1 + outer)
    return (features, *hidden, classes, *([classes] * MODELS[architecture].after_mlp))


def spec_of(options: Config, architecture: str, widths: Any,
            **others: Any) -> ModelSpec:
    """Return the ModelSpec for a Config and widths.

    `others` are fields that depend on the graph.
    """
    layer = MODELS[architecture]
    own = options.activation == "own"
    first = len(widths) - 2 if layer.after_mlp else int(options.input_layer)

    same = {entry.name: getattr(options, entry.name) for entry in fields(ModelSpec)
            if hasattr(options, entry.name)}

    decoder = parse_decoder(options.decoder) if options.task == "links" else ("", 0)
    spec = ModelSpec(architecture, widths, **{
        **same, "decoder": decoder[0], "decoder_layers": decoder[1],
        "dtype": options.number_dtype, "halved": options.dtype != options.number_dtype,
        "linear_first": first, "linear_last": int(options.output_layer),
        "activation": layer.activation if own else options.activation,
        "hops": options.hops or layer.default_hops, "restart": options.restart * layer.after_mlp,
        **others})

    between = set(spec.widths[first + 1:-1])
    if spec.jump == "max" and len(between) > 1:
        raise UsageError(f"{assigned('jump', 'max')}: expected layers of equal width, not "
                         f"{', '.join(map(str, sorted(between)))}")

    return spec


def make_spec(header: Header, options: Config, widths: Sequence[int] | None = None) -> ModelSpec:
    """Return the ModelSpec of a run on the graph with this header.

    By default `widths` are the graph's features, the options' hidden layers and the
    graph's classes. The width of learned rows is added to the first. UsageError if the
    graph has no features or classes in that case; errors as `find_model`.
    """
    # the widths of all layers
    architecture = find_model(options)
    if widths is None:
        outputs = options.output_width if options.task == "links" else header.num_outputs
        widths = find_widths(options, architecture, header.num_features, outputs)
    elif MODELS[architecture].after_mlp:
        widths = (*widths, widths[-1])
    widths = (widths[0] + options.embedding, *widths[1:])

    # what the first layer can do with the features
    sparse = header.sparse_features and widths[0] == header.num_features
    constant = (options.precompute and options.first_dropout == 0 and not sparse
                and not options.embedding
                and options.batch == Config.batch  # a batch has a matrix of its own
                and options.message_edges == Config.message_edges)  # so has an evaluation

    spec = spec_of(options, architecture, widths, sparse_features=sparse,
                   edge_width=find_edge_width(header, architecture),
                   multilabel=(header.multilabel and widths[-1] == header.num_classes
                               and options.task != "links"),
                   target_loss=find_loss(header, options))

    # refuse layers that do not fit the widths
    if sparse and spec.residual and not spec.linear_first and widths[0] == widths[1]:
        raise UsageError(f"residual: {widths[0]} sparse features cannot be added to a layer of the "
                         "same width; choose another hidden, or input_layer")
    kinds = layer_kinds(spec)
    if spec.edge_width:
        _check_messages(options, sparse and kinds[0].uses_edge_features, architecture)
    for number, kind in enumerate(kinds):
        kind.shapes(spec, number)  # it refuses widths that it cannot take

    return replace(spec, precomputed=kinds[0].takes_AX and constant,
                   keeps_rows=kinds[0].uses_attention and constant)


def find_loss(header: Header, options: Config) -> str:
    """Return the loss of a graph's targets, or "" for labels.

    Raise a UsageError for settings of labels if the graph has targets, or vice versa. The
    same for settings of links in another task, or vice versa.
    """
    links = options.task == "links"
    for name in (*ONLY_LABELS, *ONLY_TARGETS) if links else ONLY_LINKS:
        if getattr(options, name) != getattr(Config, name):
            raise UsageError(f"{assigned(name, getattr(options, name))}: only for "
                             f"{setting('task', 'vertices' if links else 'links')}")
    if links:
        return ""
    kind, others = ("targets", ONLY_LABELS) if header.num_targets else ("labels", ONLY_TARGETS)
    for name in others:
        if getattr(options, name) != getattr(Config, name):
            other = "labels" if header.num_targets else "targets, values to predict"
            raise UsageError(f"{assigned(name, getattr(options, name))}: only for {other}; "
                             f"{header.name} has {kind}")
    if not header.num_targets:
        return ""
    return "mse" if options.loss == "auto" else options.loss


def find_edge_width(header: Header, architecture: str) -> int:
    """Return the number of columns of edge features that a model reads.

    It is 0 if the model reads none. Raise a UsageError if the graph lacks them.
    """
    if not MODELS[architecture].uses_edge_features:
        return 0
    if not header.num_edge_features:
        raise UsageError(f"{header.name}: model {architecture} needs edge features; add them with "
                         "edge_features in hpgcn.Graph.from_edge_index, from_scipy or "
                         "hpgcn.from_pyg")
    return header.num_edge_features


def _check_messages(options: Config, sparse: bool, name: str) -> None:
    """Refuse settings that messages with edge features do not support."""
    if options.batch != Config.batch:
        raise UsageError(f"{setting('batch', options.batch)}: model {name} supports only full "
                         "batches")
    if options.message_edges != Config.message_edges:
        raise UsageError(f"{setting('message_edges', options.message_edges)}: model {name} reads "
                         "edge features, which links of validation lack")
    if sparse:
        raise UsageError(f"model {name} needs dense features in its first layer; "
                         f"{setting('input_layer', True)} puts a linear layer before it")


def heads_of(spec: ModelSpec) -> list[int]:
    """Return the attention heads of each product with A in a model.

    The number is 0 without attention.
    """
    return [kind.heads(spec, number) if kind.uses_attention else 0
            for number, kind in enumerate(layer_kinds(spec))
            for _ in range(kind.products_of(spec))]


def check_strategy(strategy: type[Strategy], spec: ModelSpec, ranks: int) -> None:
    """Raise UsageError if a Strategy cannot compute a model's layers on `ranks` ranks."""
    heads = heads_of(spec)
    if spec.halved and not strategy.supports_bf16:
        serving = ", ".join(each.name for each in STRATEGIES.values() if each.supports_bf16)
        delayed = " with a delay" * bool(strategy.num_monitored_steps)
        raise agreed(UsageError(f"{assigned('strategy', strategy.name)}{delayed}: it does not "
                                f"support dtype bf16; expected {serving}"))
    edges = spec.edge_width > 0
    reason = strategy.unsupported_reason(heads, ranks, edges)
    if spec.decoder and not keeps_rows(strategy):
        serving = [each.name for each in STRATEGIES.values() if keeps_rows(each)]
        raise agreed(UsageError(f"{assigned('strategy', strategy.name)}: it divides the columns of "
                                f"rows, and pairs of {setting('task', 'links')} read whole rows; "
                                f"expected {', '.join(serving)}"))
    if reason:
        serving = [each.name for each in STRATEGIES.values()
                   if not each.unsupported_reason(heads, ranks, edges)]
        raise agreed(UsageError(f"{assigned('strategy', strategy.name)}: {reason}; model "
                                f"{spec.architecture} supports {', '.join(serving)}"))
