"""Describe files of runs in text: models, predictions, checkpoints and their settings.

`model`, `predictions` and `checkpoint` take two arguments: the arrays of a file as name
-> (shape, dtype), and its attributes. They remove the attributes that they use. They
return the (label, text) pairs of its classes with their own.
"""

import json
import math

from hpgcn.config import Config, parse_toml
from hpgcn.errors import UsageError
from hpgcn.runtime.advice import resume_command

# settings with their own descriptions
SAID = ("graph", "out", "model", "layers", "hidden", "dropout", "optimizer", "lr", "weight_decay",
        "decay_layers", "dtype", "seed", "epochs")
PREDICTED = {"logits": "one score per class", "label": "the predicted label",
             "embedding": "input of the last layer", "original_ids": "ids of the input",
             "id": "the vertex's id in the input"}
NAMED = 50  # classes that are listed


def percent(value):
    return f"{100 * value:.2f}%" if isinstance(value, int | float) and 0 <= value <= 1 else "none"


def classes(names, counts=None):
    """Return a (label, text) pair for each class, with its number of vertices
    if known.
    """
    rows = [("classes", f"{k} {name}" + ("" if counts is None else f": {counts[k]:,} vertices"))
            for k, name in enumerate(names[:NAMED])]
    more = len(names) - len(rows)
    return rows + [("classes", f"and {more:,} more")] * bool(more)


def listed(names):
    """Return names of classes as one line of text."""
    return ", ".join(names[:NAMED]) + f" and {len(names) - NAMED:,} more" * (len(names) > NAMED)


def accuracies(metrics):
    return f"validation {percent(metrics.get('val_acc'))}, test {percent(metrics.get('test_acc'))}"


def settings(config):
    """Return (label, text) pairs on the settings in a hpgcn.Config."""
    usual = Config(**{name: getattr(config, name) for name in SAID})
    others = [f"{name} = {value!r}" for name, value in vars(config).items()
              if value != getattr(usual, name)]

    kind = config.model
    if config.aggregator != Config.aggregator:
        kind += f"-{config.aggregator}"
    decayed = "the first layer" if config.decay_layers == "first" else "all layers"

    return [
        ("model", f"{kind}, layers {config.layers:,}, hidden {config.hidden:,}, "
                  f"dropout {config.dropout:g}"),
        ("training", f"{config.optimizer}, learning rate {config.lr:g}, weight decay "
                     f"{config.weight_decay:g} on {decayed}, {config.dtype}, seed {config.seed}, "
                     f"at most {config.epochs:,} epochs"),
        ("settings", "; ".join([*([", ".join(others)] if others else []),
                                "all other settings have their defaults"])),
        ("graph", config.graph or "in memory")]


def _settings(attributes):
    """Return (label, text) pairs on the attribute config_toml, and its Config, None if
    it is unreadable.
    """
    try:
        text = str(attributes.pop("config_toml", ""))
        config = Config(**parse_toml(text.encode(), "config_toml"))
    except UsageError as error:
        return [("settings", f"cannot be read: {error}")], None
    return settings(config), config


def model(arrays, attributes, of_classes=()):
    rows, _ = _settings(attributes)
    return [("best epoch", f"{attributes.pop('epoch', 'unknown')}, which has the stored "
                           "weights"), *rows,
            ("trained by", f"strategy {attributes.pop('strategy', 'unknown')}"),
            *_weights(arrays, "weights", "weights"), *of_classes,
            ("next", "use hpgcn predict to apply it to a graph")]


def predictions(arrays, attributes, of_classes=()):
    n = next((shape[0] for shape, _ in arrays.values() if shape), 0)
    return [("vertices", f"{n:,}, in their original order"),
            ("graph", str(attributes.pop("graph", "unknown"))),
            ("by", f"the model in {attributes.pop('model', 'unknown')}"),
            *((name, f"{PREDICTED.get(name, 'unknown')}, {_size(shape)} {dtype}")
              for name, (shape, dtype) in arrays.items()), *of_classes]


def checkpoint(arrays, attributes, of_classes=()):
    def take(name):
        return attributes.pop(name, "unknown")

    metrics, best, installed = (_object(attributes.pop(name, ""))
                                for name in ("metrics", "best_metrics", "versions"))
    rows, config = _settings(attributes)
    out = config.out if config and config.out else "RUN"
    ranks = take("ranks")
    best_epoch = attributes.pop("best_epoch", 0)
    memory = attributes.pop("memory", "")
    for name in ("max_sent_bytes", "layout_sha256"):
        attributes.pop(name, None)
    return [
        ("after epoch", f"{take('epoch')}, loss {metrics.get('loss', 'unknown')}"),
        ("best epoch", f"{best_epoch}, {accuracies(best)}" if best_epoch else "none so far"), *rows,
        ("data", f"SHA-256 {take('graph_sha256')}"),
        ("ranks", f"{ranks} x {take('threads')} threads on {take('device')}, strategy "
                  f"{take('strategy')}, grid {take('grid')}" + f", memory {memory}" * bool(memory)),
        *_weights(arrays, "weights", "weights"), *_weights(arrays, "best", "best weights"),
        *_weights(arrays, "optimizer", "optimiser"), *_lasting(arrays),
        ("versions", versions(installed)),
        ("next", f"{resume_command(config and config.graph, out, ranks)} continues")]


def versions(installed):
    return ", ".join(f"{name} {value}" for name, value in installed.items()) or "unknown"


def _weights(arrays, group, label):
    inside = {name.partition("/")[2]: array for name, array in arrays.items()
              if name.startswith(f"{group}/")}
    if not inside:
        return []
    count = sum(math.prod(shape) for shape, _ in inside.values())
    shapes = ", ".join(f"{name} {_size(shape)}" for name, (shape, _) in inside.items())
    dtypes = ", ".join(sorted({dtype for _, dtype in inside.values()}))
    return [(label, f"{count:,} numbers ({dtypes}): {shapes}")]


def _lasting(arrays):
    return [("earlier steps", f"{_size(arrays['lasting'][0])} numbers on all ranks that later "
                              "steps read")] if "lasting" in arrays else []


def _size(shape):
    return " x ".join(f"{length:,}" for length in shape) or "1"


def _object(text):
    """Parse a JSON object; return {} if the text is not one."""
    try:
        values = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
