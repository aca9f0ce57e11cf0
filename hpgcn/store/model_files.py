"""Store trained weights, predictions and the state of a run in HDF5 files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpgcn.errors import DataError
from hpgcn.graphs.contents import NAMED, check_names
from hpgcn.runtime import faults
from hpgcn.store.reader import Reader
from hpgcn.store.schema import CLASS_NAMES, TARGET_NAMES, read_names, write_names
from hpgcn.store.writer import create

MODEL = "hpgcn-model"
PREDICTIONS = "hpgcn-predictions"
CHECKPOINT = "hpgcn-checkpoint"
WRITTEN = ("format", "format_version", "complete")  # attributes that every file has
RESERVED = {*WRITTEN, "creator", "created_utc", "config_toml", "epoch", "vertex_ids", *NAMED}
OF_A_RUN = {"config_toml": str, "epoch": int}
ARRAYS = {  # arrays of a file of predictions: name -> kinds of dtype, number of dimensions
    "id": ("iU", 1), "value": ("f", 2), "logits": ("f", 2), "label": ("i", 1),
    "embedding": ("f", 2), "original_ids": ("iU", 1), "probabilities": ("f", 2)}
SCALE = "target_mean", "target_deviation"  # attributes of a model of targets, (t,) float64
PREDICTION_NAMES = CLASS_NAMES, TARGET_NAMES
MULTI_LABEL = ("iu", 2)  # if `label` has 0 or 1 for each logit


def write_model(path: Path | str, weights: dict[str, np.ndarray], *, config_toml: str, epoch: int,
                attributes: dict[str, Any] | None = None, names: dict[str, Any] | None = None,
                vertex_ids: np.ndarray | None = None, **options: Any) -> None:
    """Write the weights of a model, arrays by name; a slash in a name creates a group.

    `config_toml` is the resolved configuration. `attributes` are bool, int, float, str,
    lists of numbers, or None (left out). `names` is a dict of class_names and
    feature_names, each a sequence of str or None. `vertex_ids`, (n,), are the ids of
    learned rows. Other options are those of `store.writer.create`.
    """
    arrays = {f"weights/{name}": array for name, array in weights.items()}
    if vertex_ids is not None:
        arrays["vertex_ids"] = vertex_ids
    _write(path, MODEL, arrays, _run_facts(attributes, config_toml, epoch), names=names, **options)


def read_model(path: Path | str) -> tuple[dict, dict]:
    """Return the weights in a model file, by name, and its attributes.

    Attributes that all files have are left out. `class_names` and `feature_names` are
    among the attributes, each a tuple of str, if classes and features have names. So are
    the `vertex_ids` of learned rows.
    """
    arrays, attributes = _read(path, MODEL, OF_A_RUN)
    if "vertex_ids" in arrays:
        attributes["vertex_ids"] = arrays["vertex_ids"]
    weights = {name.removeprefix("weights/"): array for name, array in arrays.items()
               if name.startswith("weights/")}
    for name, array in weights.items():
        wrong = np.argwhere(~np.isfinite(array))
        if len(wrong):
            place = tuple(wrong[0].tolist())
            raise DataError(f"{path}: weights/{name}{list(place)} is {array[place]}, expected a "
                            "finite number")
    return weights, attributes


def read_model_classes(path: Path | str) -> tuple[str, ...] | None:
    """Return the class names in a model file, a tuple of str, or None.

    Errors are those of `read_model`.
    """
    reader = Reader(path, (MODEL,))
    try:
        return read_names(reader, CLASS_NAMES)
    finally:
        reader.close()


def write_state(path: Path | str, arrays: dict[str, np.ndarray], *, config_toml: str, epoch: int,
                attributes: dict[str, Any]) -> None:
    """Write arrays by name, the state from which a run can resume, like `write_model`."""
    _write(path, CHECKPOINT, arrays, _run_facts(attributes, config_toml, epoch),
           point="checkpoint.write")


def read_state(path: Path | str) -> tuple[dict, dict]:
    """Return (arrays, attributes) of a file by `write_state`; errors as in `read_model`."""
    return _read(path, CHECKPOINT, OF_A_RUN)


def write_predictions(path: Path | str, arrays: dict[str, Any],
                      attributes: dict[str, Any] | None = None, **options: Any) -> None:
    """Write predictions in ORIGINAL vertex order; DataError for other shapes or dtypes.

    logits: (n, c) floating. label: (n,) integer, or (n, c) of 0 and 1. In place of both,
    value: (n, t) floating, the predicted targets. Optional arrays are probabilities
    (n, c) and embedding (n, h) floating, id and original_ids (n,), class_names (c,) and
    target_names (t,) text; None is left out. Options are as in `write_model`.
    """
    arrays = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    names = {field: arrays.pop(field, None) for field in PREDICTION_NAMES}
    _check_predictions(path, arrays, names)
    _write(path, PREDICTIONS, arrays, _free(attributes), names=names, **options)


def read_predictions(path: Path | str) -> tuple[dict, dict]:
    """Return (arrays, attributes) of a `write_predictions` file; errors as in `read_model`."""
    arrays, attributes = _read(path, PREDICTIONS)
    names = {field: attributes.pop(field, None) for field in PREDICTION_NAMES}
    _check_predictions(path, arrays, names)
    arrays |= {field: np.array(each) for field, each in names.items() if each is not None}
    return arrays, attributes


def _check_predictions(path: Path | str, arrays: dict[str, np.ndarray],
                       names: dict[str, Sequence[str] | None]) -> None:
    required = ("value",) if "value" in arrays else ("logits", "label")
    for name in required:
        if name not in arrays:
            raise DataError(f"{path}: dataset {name} is missing")
    logits, label = arrays[required[0]], arrays[required[-1]]
    n = logits.shape[0] if logits.ndim else None

    for name, array in arrays.items():
        if name not in ARRAYS:
            expected = ", ".join((*ARRAYS, *PREDICTION_NAMES))
            raise DataError(f"{path}: array {name} is unknown, expected {expected}")
        several = name == "label" and array.ndim == 2
        kinds, dimensions = MULTI_LABEL if several else ARRAYS[name]
        shape = array.shape
        if array.ndim != dimensions or array.dtype.kind not in kinds or shape[0] != n:
            number = "floating point" if kinds == "f" else "integer"
            raise DataError(f"{path}: {name} has dtype {array.dtype} and shape {shape}, expected "
                            f"{number} ({n}{', any' * (dimensions - 1)})")

    shares = arrays.get("probabilities", logits)
    if shares.shape != logits.shape:
        raise DataError(f"{path}: probabilities has shape {shares.shape}, expected that of logits, "
                        f"{logits.shape}")
    several = label.ndim == 2 and "value" not in arrays
    if several and (label.shape != logits.shape or not np.isin(label, (0, 1)).all()):
        raise DataError(f"{path}: label has shape {label.shape}, expected 0 or 1 in "
                        f"{logits.shape}, or class ids ({n})")
    for field, each in names.items():
        if each is not None:
            check_names(field, each, logits.shape[1], logits.shape[1], path)


def _run_facts(attributes: dict[str, Any] | None, config_toml: str, epoch: int) -> dict[str, Any]:
    return _free(attributes) | {"config_toml": config_toml, "epoch": int(epoch)}


def _free(attributes: dict[str, Any] | None) -> dict[str, Any]:
    attributes = dict(attributes or {})
    taken = sorted(attributes.keys() & RESERVED)
    if taken:
        raise ValueError(f"attributes {', '.join(taken)} are set by the file itself: choose other "
                         "names")
    return attributes


def _write(path: Path | str, file_format: str, arrays: dict[str, np.ndarray],
           attributes: dict[str, Any], *, names: dict[str, Any] | None = None,
           point: str | None = None, **options: Any) -> None:
    with create(path, file_format, **options) as writer:
        writer.attributes("/", attributes)
        write_names(writer, names or {})
        for name, array in arrays.items():
            writer.dataset(name, np.asarray(array))
            if point:
                faults.point(point)


def _read(path: Path | str, file_format: str,
          fields: dict[str, type] | None = None) -> tuple[dict, dict]:
    reader = Reader(path, (file_format,))
    try:
        for name, kind in (fields or {}).items():
            reader.field(name, kind)
        reader.verify_attributes()

        reader.reserve(sum(entry.nbytes for entry in reader.distinct().values()), "the file")
        attributes = {name: value for name, value in reader.attributes().items()
                      if name not in WRITTEN}
        arrays = {name: reader.read(name) for name in reader.entries if name not in NAMED}
        for field in NAMED.keys() & reader.entries.keys():
            attributes[field] = read_names(reader, field)
        return arrays, attributes
    finally:
        reader.close()
