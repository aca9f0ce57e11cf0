"""Write predictions as a .csv, .npz or .h5 file, depending on the suffix."""
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hpgcn.errors import DataError, UsageError, require
from hpgcn.runtime.atomic import HDF5_SUFFIXES, atomic_write
from hpgcn.store.model_files import write_predictions
from hpgcn.store.text_rows import write_rows

COLUMNS = ("id", "label", "probability")
SCORES = ("source", "target", "score")  # columns of scored pairs
PROBABILITIES = "probabilities"  # in text a column for each class follows
ONLY_NPZ = ("a model of links has no labels; write its rows of vertices to a .npz, or scores of "
            "pairs, by --pairs or --top, to a .csv, .tsv, .parquet or .npz")
ROWS_AT_ONCE = 1 << 16
SEPARATOR = ";"  # between the labels of a vertex


def prediction_writer(path: str) -> Any:
    """Return the function that writes predictions in the format of this suffix.

    Its arguments are the path, the arrays that `hpgcn.predict` returns, the attributes
    of an HDF5 file, and `overwrite` and `follow` of `replacing`. UsageError for another
    suffix, MissingError if a library is missing.
    """
    name = str(path).lower()
    suffix = next((each for each in WRITERS if name.endswith(each)), None)
    if suffix is None:
        *suffixes, last = WRITERS
        raise UsageError(f"{path}: predictions must end in {', '.join(suffixes)} or {last}")
    if suffix == ".parquet":
        require("pyarrow.parquet", "io", "writing Parquet")
    return WRITERS[suffix]


def _write_text(delimiter: str, path: Path | str, arrays: dict[str, np.ndarray], attributes: Any,
                **options: Any) -> None:
    def write(file: BinaryIO) -> None:
        rows = (row for block in _blocks(path, arrays) for row in zip(*block))
        write_rows(file, delimiter, _columns(path, arrays), rows)

    atomic_write(path, write, **options)


def _write_parquet(path: Path | str, arrays: dict[str, np.ndarray], attributes: Any,
                   **options: Any) -> None:
    parquet = require("pyarrow.parquet", "io", "writing Parquet")
    pyarrow = require("pyarrow", "io", "writing Parquet")

    def write(file: BinaryIO) -> None:
        writer = None
        names = _columns(path, arrays)
        for block in _blocks(path, arrays):
            table = pyarrow.table(dict(zip(names, block)))
            writer = writer or parquet.ParquetWriter(file, table.schema)
            writer.write_table(table)
        writer.close()

    atomic_write(path, write, **options)


def _write_npz(path: Path | str, arrays: dict[str, Any], attributes: Any, **options: Any) -> None:
    names = ("id", "label", "value", "logits", PROBABILITIES, "embedding", "class_names",
             "target_names", *SCORES)
    chosen = {name: arrays[name] for name in names if name in arrays}
    atomic_write(path, lambda file: np.savez(file, **chosen), **options)


def _write_hdf5(path: Path | str, arrays: dict[str, Any], attributes: Any,
                **options: Any) -> None:
    if "label" not in arrays and "value" not in arrays:
        raise DataError(f"{path}: {ONLY_NPZ}")
    write_predictions(path, arrays, attributes, **options)


WRITERS = {".csv": partial(_write_text, ","), ".tsv": partial(_write_text, "\t"),
           ".parquet": _write_parquet, ".npz": _write_npz,
           **dict.fromkeys(HDF5_SUFFIXES, _write_hdf5)}


def _columns(path: Path | str, arrays: dict[str, np.ndarray]) -> tuple[str, ...]:
    """Return the names of the columns: those of targets, or COLUMNS of labels and more."""
    if PROBABILITIES in arrays:
        return *COLUMNS, *(f"probability:{name}" for name in _class_names(arrays))
    if "score" in arrays:
        return SCORES
    if "label" not in arrays and "value" not in arrays:
        raise DataError(f"{path}: {ONLY_NPZ}")
    if "value" not in arrays:
        return COLUMNS
    names = tuple(arrays["target_names"].tolist())
    if COLUMNS[0] in names:
        raise DataError(f"{path}: target {COLUMNS[0]!r} is called like the column of ids: write "
                        "another format, -o FILE.npz or FILE.h5")
    return COLUMNS[:1] + names


def _class_names(arrays: dict[str, np.ndarray]) -> list:
    """Return the names of the classes, or else their numbers."""
    return arrays.get("class_names", np.arange(arrays["logits"].shape[1])).tolist()


def _blocks(path: Path | str, arrays: dict[str, np.ndarray]) -> Iterator:
    """Yield lists of ids, labels and probabilities for some vertices at a time.

    A label is the name of its class, or else its number. If vertices have several
    labels, labels and probabilities are texts joined by SEPARATOR; they are empty
    without labels. Instead of both there may be a list for each target.
    """
    if "score" in arrays:
        for start in range(0, len(arrays["score"]), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            yield (*(arrays[name][rows].tolist() for name in SCORES[:2]),
                   _digits(arrays["score"][rows]))
        return

    if "value" in arrays:
        for start in range(0, len(arrays["id"]), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            yield arrays["id"][rows].tolist(), *map(_digits, arrays["value"][rows].T)
        return

    label = arrays["label"]
    names = _class_names(arrays)
    column = _several if label.ndim == 2 else _one

    if label.ndim == 2:
        names = list(map(str, names))
        for name in names:
            if SEPARATOR in name:
                raise DataError(f"{path}: class {name!r} contains {SEPARATOR}, which separates "
                                "labels: write another format, -o FILE.npz or FILE.h5")

    for start in range(0, len(label), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        logits = arrays["logits"][rows].astype(np.float64)
        each = arrays[PROBABILITIES][rows].T if PROBABILITIES in arrays else ()
        yield (arrays["id"][rows].tolist(), *column(label[rows], logits, names),
               *([float(f"{share:.6g}") for share in shares] for shares in each))


def _digits(numbers: np.ndarray) -> list[float]:
    """Return numbers rounded to nine digits, enough for any float32."""
    return [float(f"{number:.9g}") for number in numbers.tolist()]


def _one(label: np.ndarray, logits: np.ndarray, names: list[str]) -> tuple[list, list]:
    """Return the name of each vertex's class, and the largest softmax probability."""
    shares = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    return [names[k] for k in label.tolist()], [float(f"{share:.6g}") for share in shares]


def _several(label: np.ndarray, logits: np.ndarray,
             names: list[str]) -> tuple[list[str], list[str]]:
    """Return the names of each vertex's predicted labels, and their sigmoids, as text."""
    shares = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))
    given = [np.flatnonzero(row).tolist() for row in label]
    return ([SEPARATOR.join(names[k] for k in row) for row in given],
            [SEPARATOR.join(f"{shares[u, k]:.6g}" for k in row) for u, row in enumerate(given)])

