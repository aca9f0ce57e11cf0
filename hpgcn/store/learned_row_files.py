"""Write learned rows of vertices with their ids as a .csv, .tsv or .npz file."""
from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hpgcn.errors import UsageError
from hpgcn.runtime.atomic import atomic_write
from hpgcn.store.text_rows import write_rows


def write_learned_rows(path: Path | str, ids: np.ndarray, rows: np.ndarray, *,
                       overwrite: bool = False) -> None:
    """Write ids, (n,), and rows, (n, d), in the format of the suffix.

    A text file has the columns `id` and 0 to d - 1; .npz the arrays `id` and `embedding`.
    UsageError for another suffix.
    """
    atomic_write(path, partial(writer_of(path), ids, rows), overwrite)


def writer_of(path: Path | str) -> Any:
    """Return the function that writes rows in the format of this suffix, or raise UsageError."""
    writer = WRITERS.get(Path(path).suffix.lower())
    if writer is None:
        raise UsageError(f"{path}: learned rows must end in {', '.join(WRITERS)}")
    return writer


def _write_text(delimiter: str, ids: np.ndarray, rows: np.ndarray, file: BinaryIO) -> None:
    write_rows(file, delimiter, ["id", *range(rows.shape[1])],
               ([name, *row.tolist()] for name, row in zip(ids.tolist(), rows, strict=True)))


def _write_npz(ids: np.ndarray, rows: np.ndarray, file: BinaryIO) -> None:
    np.savez(file, id=ids, embedding=rows)


WRITERS = {".csv": partial(_write_text, ","), ".tsv": partial(_write_text, "\t"),
           ".npz": _write_npz}
