"""What runs leave behind, in words: models, predictions and checkpoints, and the settings that made them."""
from __future__ import annotations

import json
import math

from hpgcn.config import Config, parse_toml
from hpgcn.errors import UsageError

SAID = ("graph", "out", "model", "layers", "hidden", "dropout", "optimizer", "lr", "weight_decay", "decay_layers",
        "dtype", "seed", "epochs")  # settings that have words of their own
PREDICTED = {
    "logits": "a score of each class", "label": "the label that is predicted", "embedding": "input of the last layer",
    "original_ids": "the input's own ids"}


def percent(value):
    """A share for people."""
    return f"{100 * value:.2f}%" if isinstance(value, int | float) and 0 <= value <= 1 else "none"


def accuracies(metrics):
    """Validation and test accuracy of an epoch."""
    return f"validation {percent(metrics.get('val_acc'))}, test {percent(metrics.get('test_acc'))}"


def settings(config):
    """(label, text) pairs that say what a hpgcn.Config asks for."""
    decay = f"{config.weight_decay:g} on {'the first layer' if config.decay_layers == 'first' else 'all layers'}"
    kind = config.model
    if config.aggregator != Config.aggregator:
        kind += f"-{config.aggregator}"
    rows = [
        ("model", f"{kind}, layers {config.layers:,}, hidden {config.hidden:,}, "
                  f"dropout {config.dropout:g}"),
        ("training", f"{config.optimizer}, learning rate {config.lr:g}, weight decay {decay}, {config.dtype}, "
                     f"seed {config.seed}, {config.epochs:,} epochs at most")]
    usual = Config(**{name: getattr(config, name) for name in SAID})
    given = [f"{name} = {value!r}" for name, value in vars(config).items() if value != getattr(usual, name)]
    rows += [("settings", f"{', '.join(given)}; " * bool(given) + "all else as by default")]
    return [*rows, ("graph", config.graph or "in memory")]


def of_toml(text):
    """(label, text) pairs of the text of a config.toml, and its Config; of one that cannot be read what is wrong."""
    try:
        config = Config(**parse_toml(str(text).encode(), "config_toml"))
    except UsageError as error:
        return [("settings", f"cannot be read: {error}")], None
    return settings(config), config


def model(arrays, attributes):
    """Of a model.h5, as `predictions` and `checkpoint`; names that are used are taken out of the attributes."""
    rows, _ = of_toml(attributes.pop("config_toml", ""))
    return [("best epoch", f"{attributes.pop('epoch', 'unknown')}, whose weights these are"), *rows,
            ("trained by", f"strategy {attributes.pop('strategy', 'unknown')}"),
            *_weights(arrays, "weights", "weights"), ("next", "hpgcn predict applies it to a graph")]


def predictions(arrays, attributes):
    """(label, text) pairs about a predictions.h5."""
    rows = [("vertices", f"{next((shape[0] for shape, _ in arrays.values() if shape), 0):,}, in their original order"),
            ("graph", str(attributes.pop("graph", "unknown"))),
            ("by", f"the model in {attributes.pop('model', 'unknown')}")]
    return rows + [(name, f"{PREDICTED.get(name, 'unknown')}, {_shape(*array)}") for name, array in arrays.items()]


def checkpoint(arrays, attributes):
    """(label, text) pairs about the state.h5 of a checkpoint."""
    metrics, best = (_object(attributes.pop(name, "")) for name in ("metrics", "best_metrics"))
    rows, config = of_toml(attributes.pop("config_toml", ""))
    out = config.out if config and config.out else "RUN"
    found = {name: attributes.pop(name, "unknown") for name in ("ranks", "threads", "strategy", "grid", "device")}
    layout = f"grid {found['grid']}" + f", memory {attributes['memory']}" * bool(attributes.pop("memory", ""))
    best_epoch = attributes.pop("best_epoch", 0)
    attributes.pop("max_sent_bytes", None)
    attributes.pop("layout_sha256", None)
    return [
        ("after epoch", f"{attributes.pop('epoch', 'unknown')}, loss {metrics.get('loss', 'unknown')}"),
        ("best epoch", f"{best_epoch}, {accuracies(best)}" if best_epoch else "none so far"), *rows,
        ("data", f"SHA-256 {attributes.pop('graph_sha256', 'unknown')}"),
        ("ranks", f"{found['ranks']} x {found['threads']} threads on {found['device']}, "
                  f"strategy {found['strategy']}, {layout}"),
        *_weights(arrays, "weights", "weights"), *_weights(arrays, "best", "best weights"),
        *_weights(arrays, "optimizer", "optimiser"), ("versions", versions(_object(attributes.pop("versions", "")))),
        ("next", f"hpgcn train GRAPH --out {out} --resume goes on after it")]


def versions(found):
    """Versions of everything, in a line."""
    return ", ".join(f"{name} {value}" for name, value in found.items()) or "unknown"


def _weights(arrays, group, label):
    """A line for the arrays of a group, if there are any."""
    inside = {name.partition("/")[2]: array for name, array in arrays.items() if name.startswith(f"{group}/")}
    count = sum(math.prod(shape) for shape, _ in inside.values())
    each = ", ".join(f"{name} {_size(shape)}" for name, (shape, _) in inside.items())
    kinds = ", ".join(sorted({dtype for _, dtype in inside.values()}))
    return [(label, f"{count:,} numbers ({kinds}): {each}")] if inside else []


def _shape(shape, dtype):
    return f"{_size(shape)} {dtype}"


def _size(shape):
    return " x ".join(f"{length:,}" for length in shape) or "1"


def _object(text):
    """A JSON object, empty if it is none."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
