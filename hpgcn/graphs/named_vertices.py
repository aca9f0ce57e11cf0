"""Find vertices by their ids in the input."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import DataError, UsageError
from hpgcn.runtime.files import read_bytes

if TYPE_CHECKING:
    from hpgcn.graphs.graph_source import GraphSource

LIMIT = 1 << 63


def find_vertices(source: GraphSource, asked: Any,
                  where: Callable[[int], str] = "vertices[{}]".format) -> np.ndarray:
    """Return the ORIGINAL numbers, (k,) int64, of the vertices with these ids, in this order.

    `asked` are k numbers or texts. `where` returns the beginning of a refusal of one of
    them.

    Raises
    ------
    DataError
        The graph has no vertex with this id.
    UsageError
        `asked` is not one-dimensional, or neither numbers nor text.
    """
    asked = np.asarray(asked)
    if asked.ndim != 1 or asked.dtype.kind not in "iuU" or not asked.size:
        raise UsageError(f"vertices have dtype {asked.dtype} and shape {asked.shape}, expected "
                         "ids, numbers or text (k,)")
    ids = source.ids()
    keys = asked.astype(str) if ids.dtype.kind == "U" else _numbers(asked, ids)

    rows, found = look_up(keys, ids)
    if not found.all():
        k = int(np.argmin(found))
        count = np.unique(keys[~found]).size
        raise DataError(f"{where(k)}: {source.where} has no vertex {asked[k].item()!r:.80}"
                        + f"; {count} ids are missing" * (count > 1))
    return source.vertices(0, ids.size)[rows]


def look_up(wanted: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of each wanted id among `ids`, (k,) int64, and whether it is there.

    Numbers and texts are never equal.
    """
    if wanted.dtype.kind != ids.dtype.kind or not ids.size:
        return np.zeros(wanted.size, np.int64), np.zeros(wanted.size, bool)
    order = np.argsort(ids, kind="stable")
    places = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), ids.size - 1)]
    return places, ids[places] == wanted


def _numbers(asked: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return ids as int64; one that is no number of 64 bits becomes a number not in `ids`."""
    if asked.dtype.kind != "U":
        return np.where(asked < LIMIT, asked, ids.max() + 1).astype(np.int64)
    missing = int(ids.max()) + 1
    numbers = [int(text) if text.removeprefix("-").isdecimal() else missing
               for text in map(str.strip, asked.tolist())]
    return np.array([each if abs(each) < LIMIT else missing for each in numbers], np.int64)


def read_ids(path: str) -> tuple[list[str], list[int]]:
    """Return the ids in a text file, one a line, and the number of each line.

    Empty lines are left out. DataError for bytes that are not UTF-8, or a file without ids;
    other errors as `read_bytes`.
    """
    try:
        lines = read_bytes(path).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8 text") from error
    texts = [line.removesuffix("\r") for line in lines]
    numbers = [number for number, text in enumerate(texts, 1) if text]
    if not numbers:
        raise DataError(f"{path}: no ids, expected one a line")
    return [texts[number - 1] for number in numbers], numbers
