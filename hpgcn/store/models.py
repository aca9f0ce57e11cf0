"""Trained weights, predictions and the state of a run as HDF5 files."""

import numpy as np

from hpgcn.errors import DataError
from hpgcn.runtime import faults
from hpgcn.store.reader import Reader
from hpgcn.store.writer import create

MODEL = "hpgcn-model"
PREDICTIONS = "hpgcn-predictions"
CHECKPOINT = "hpgcn-checkpoint"
WRITTEN = ("format", "format_version", "complete")  # attributes that every file has
RESERVED = {*WRITTEN, "creator", "created_utc", "config_toml", "epoch"}
OF_A_RUN = {"config_toml": str, "epoch": int}
ARRAYS = {  # of a predictions file: name -> dtype kind, dimensions
    "logits": ("f", 2), "label": ("i", 1), "embedding": ("f", 2), "original_ids": ("iU", 1)}
MULTI_LABEL = ("iu", 2)  # of label, where it is 0 or 1 for each logit


def write_model(path, weights, *, config_toml, epoch, attributes=None, **options):
    """Write the weights of a model, arrays by name; a slash in a name makes a group.

    `config_toml` is the resolved configuration. `attributes` are bool, int, float, str, lists of
    numbers, or None (left out); `overwrite`, `follow` as in `replacing`.
    """
    arrays = {f"weights/{name}": array for name, array in weights.items()}
    of_run = {"config_toml": config_toml, "epoch": int(epoch)}
    _write(path, MODEL, arrays, _free(attributes) | of_run, **options)


def read_model(path):
    """Read what `write_model` wrote: weights by name, all attributes but those of every file."""
    arrays, attributes = _read(path, MODEL, OF_A_RUN)
    weights = {name.removeprefix("weights/"): array for name, array in arrays.items()
               if name.startswith("weights/")}
    for name, array in weights.items():
        wrong = np.argwhere(~np.isfinite(array))
        if len(wrong):
            place = tuple(wrong[0].tolist())
            raise DataError(f"{path}: weights/{name}{list(place)} is {array[place]}, expected a "
                            "finite number")
    return weights, attributes


def write_state(path, arrays, *, config_toml, epoch, attributes):
    """Write what a run needs to go on, as `write_model`; arrays under their own names."""
    of_run = {"config_toml": config_toml, "epoch": int(epoch)}
    _write(path, CHECKPOINT, arrays, _free(attributes) | of_run, point="checkpoint.write")


def read_state(path):
    """Read what `write_state` wrote: (arrays, attributes); errors as `read_model`."""
    return _read(path, CHECKPOINT, OF_A_RUN)


def write_predictions(path, arrays, *, attributes=None, **options):
    """Write predictions, in ORIGINAL vertex order; DataError for arrays of another kind.

    logits (n, c) floating; label (n,) integer, or (n, c) of 0 and 1; and optionally embedding (n,
    h) floating, original_ids (n,); None is left out. Options are as in `write_model`.
    """
    arrays = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    _check_predictions(path, arrays)
    _write(path, PREDICTIONS, arrays, _free(attributes), **options)


def read_predictions(path):
    """Read what `write_predictions` wrote: (arrays, attributes); errors as `read_model`."""
    arrays, attributes = _read(path, PREDICTIONS)
    _check_predictions(path, arrays)
    return arrays, attributes


def _check_predictions(path, arrays):
    for name in ("logits", "label"):
        if name not in arrays:
            raise DataError(f"{path}: dataset {name} is missing")
    logits = arrays["logits"]
    label = arrays["label"]
    n = logits.shape[0] if logits.ndim else None
    for name, array in arrays.items():
        if name not in ARRAYS:
            raise DataError(f"{path}: array {name} is unknown, expected {', '.join(ARRAYS)}")
        several = name == "label" and array.ndim == 2
        kinds, dimensions = MULTI_LABEL if several else ARRAYS[name]
        shape = array.shape
        if array.ndim != dimensions or array.dtype.kind not in kinds or shape[0] != n:
            number = "floating point" if kinds == "f" else "integer"
            raise DataError(f"{path}: {name} has dtype {array.dtype} and shape {shape}, expected "
                            f"{number} ({n}{', any' * (dimensions - 1)})")
    if label.ndim == 2 and (label.shape != logits.shape or not np.isin(label, (0, 1)).all()):
        raise DataError(f"{path}: label has shape {label.shape}, expected 0 or 1 in "
                        f"{logits.shape}, or class ids ({n})")


def _free(attributes):
    attributes = dict(attributes or {})
    taken = sorted(attributes.keys() & RESERVED)
    if taken:
        raise ValueError(f"attributes {', '.join(taken)} are set by the file itself: choose other "
                         "names")
    return attributes


def _write(path, file_format, arrays, attributes, *, point=None, **options):
    with create(path, file_format, **options) as writer:
        writer.attributes("/", attributes)
        for name, array in arrays.items():
            writer.dataset(name, np.asarray(array))
            if point:
                faults.point(point)


def _read(path, file_format, fields=()):
    reader = Reader(path, (file_format,))
    try:
        for name in fields:
            reader.field(name, fields[name])
        reader.verify_attributes()
        reader.reserve(sum(entry.nbytes for entry in reader.distinct().values()), "the file")
        attributes = {name: value for name, value in reader.attributes().items()
                      if name not in WRITTEN}
        return {name: reader.read(name) for name in reader.entries}, attributes
    finally:
        reader.close()
