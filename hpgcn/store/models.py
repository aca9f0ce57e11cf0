"""Trained weights, predictions and the state of a run as HDF5 files."""
from __future__ import annotations

import numpy as np

from hpgcn import faults
from hpgcn.errors import DataError
from hpgcn.store.reader import Reader
from hpgcn.store.writer import create

MODEL, PREDICTIONS, CHECKPOINT = "hpgcn-model", "hpgcn-predictions", "hpgcn-checkpoint"
RESERVED = ("format", "format_version", "creator", "created_utc", "complete", "config_toml", "epoch")
ARRAYS = {  # of a predictions file: name -> dtype kinds, dimensions
    "logits": ("f", 2), "label": ("i", 1), "embedding": ("f", 2), "original_ids": ("i", 1)}
MULTI_LABEL = ("iu", 2)  # of label, where it is 0 or 1 for each logit


def write_model(path, weights, *, config_toml, epoch, attributes=None, overwrite=False, follow=True):
    """Write the weights of a model.

    Parameters
    ----------
    weights : dict of str -> ndarray
        By name; a slash in a name makes a group.
    config_toml : str
        The resolved configuration.
    epoch : int
    attributes : dict of str -> bool, int, float, str, list of numbers, or None (left out)
    overwrite, follow : bool
        As of `hpgcn.atomic.replacing`.

    Raises
    ------
    OutputError
        The file exists and `overwrite` is false, or it cannot be created.
    StorageError
        The disk is full, or writing failed; no file is left behind.
    """
    _write(path, MODEL, {f"weights/{name}": array for name, array in weights.items()},
           {**_free(attributes), "config_toml": config_toml, "epoch": int(epoch)}, overwrite, follow)


def read_model(path, *, memory=None):
    """Read what `write_model` wrote.

    Returns
    -------
    weights : dict of str -> ndarray
    attributes : dict
        Those given, with `config_toml`, `epoch`, `creator` and `created_utc`.

    Raises
    ------
    InputNotFoundError
        The file does not exist or cannot be opened.
    DataError
        It is no complete model, or holds NaN or Inf.
    StorageError
        Reading failed, or a checksum does not match.
    """
    arrays, attributes = _read(path, MODEL, memory, {"config_toml": str, "epoch": int})
    weights = {name.removeprefix("weights/"): array for name, array in arrays.items() if name.startswith("weights/")}
    for name, array in weights.items():
        wrong = np.argwhere(~np.isfinite(array))
        if len(wrong):
            place = tuple(wrong[0].tolist())
            raise DataError(f"{path}: weights/{name}{list(place)} is {array[place]}, expected a finite number")
    return weights, attributes


def write_state(path, arrays, *, config_toml, epoch, attributes):
    """Write what a run needs to go on; parameters and errors as `write_model`, arrays under their own names."""
    with create(path, CHECKPOINT) as writer:
        writer.attributes("/", {**_free(attributes), "config_toml": config_toml, "epoch": int(epoch)})
        for name, array in arrays.items():
            writer.dataset(name, np.asarray(array))
            faults.point("checkpoint.write")


def read_state(path):
    """Read what `write_state` wrote: (arrays, attributes); errors as `read_model`."""
    return _read(path, CHECKPOINT, None, {"config_toml": str, "epoch": int})


def write_predictions(path, arrays, *, attributes=None, overwrite=False, follow=True):
    """Write predictions, in ORIGINAL vertex order.

    Parameters
    ----------
    arrays : dict
        logits (n, c) floating; label (n,) integer, or (n, c) of 0 and 1; and optionally embedding (n, h) floating,
        original_ids (n,).
    attributes, overwrite, follow : optional
        As in `write_model`.

    Raises
    ------
    DataError
        An array is missing, unknown, or of another shape or dtype.
    OutputError, StorageError
        As `write_model`.
    """
    arrays = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    _check_predictions(path, arrays)
    _write(path, PREDICTIONS, arrays, _free(attributes), overwrite, follow)


def read_predictions(path, *, memory=None):
    """Read what `write_predictions` wrote.

    Returns
    -------
    arrays : dict of str -> ndarray
    attributes : dict

    Raises
    ------
    InputNotFoundError, DataError, StorageError
        As `read_model`.
    """
    arrays, attributes = _read(path, PREDICTIONS, memory)
    _check_predictions(path, arrays)
    return arrays, attributes


def _check_predictions(path, arrays):
    n = None
    for name, array in arrays.items():
        if name not in ARRAYS:
            raise DataError(f"{path}: array {name} is unknown, expected {', '.join(ARRAYS)}")
        kinds, dimensions = MULTI_LABEL if name == "label" and array.ndim == 2 else ARRAYS[name]
        n = array.shape[0] if n is None and array.ndim else n
        if array.ndim != dimensions or array.dtype.kind not in kinds or array.shape[0] != n:
            number = "floating point" if kinds == "f" else "integer"
            raise DataError(f"{path}: {name} has dtype {array.dtype} and shape {array.shape}, expected {number} "
                            f"({n}{', any' * (dimensions - 1)})")
    for name in ("logits", "label"):
        if name not in arrays:
            raise DataError(f"{path}: dataset {name} is missing")
    label, logits = arrays["label"], arrays["logits"]
    if label.ndim == 2 and (label.shape != logits.shape or not np.isin(label, (0, 1)).all()):
        raise DataError(f"{path}: label has shape {label.shape}, expected 0 or 1 in {logits.shape}, or class ids "
                        f"({n})")


def _free(attributes):
    attributes = dict(attributes or {})
    taken = sorted(attributes.keys() & set(RESERVED))
    if taken:
        raise ValueError(f"attributes {', '.join(taken)} are set by the file itself: choose other names")
    return attributes


def _write(path, file_format, arrays, attributes, overwrite, follow):
    with create(path, file_format, overwrite=overwrite, follow=follow) as writer:
        writer.attributes("/", attributes)
        for name, array in arrays.items():
            writer.dataset(name, np.asarray(array))


def _read(path, file_format, memory, fields=None):
    reader = Reader(path, (file_format,), memory=memory)
    try:
        for name, kind in (fields or {}).items():
            reader.field(name, kind)
        reader.verify_attributes()
        reader.reserve(sum(entry.nbytes for entry in reader.distinct().values()), "the file")
        attributes = reader.attributes()
        for name in ("format", "format_version", "complete"):
            attributes.pop(name)
        return {name: reader.read(name) for name in reader.entries}, attributes
    finally:
        reader.close()
