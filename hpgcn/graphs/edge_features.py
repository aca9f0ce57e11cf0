"""Features of edges: checks, and their order beside the entries of an adjacency."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.errors import DataError
from hpgcn.graphs.validation import MAX_WIDTH, first_true

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hpgcn.graphs.graph_source import AdjacencySource


CHUNK = 1 << 18  # entries whose features are read at a time


def check_edge_features(features: ArrayLike, count: int, name: str) -> np.ndarray:
    """Return the features of `count` edges as float32 (count, d) in C order.

    An array (count,) becomes one column.

    Raises
    ------
    DataError
        Another shape, values that are not numbers, NaN or infinity.
    """
    array = np.asarray(features)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or len(array) != count or not 1 <= array.shape[1] <= MAX_WIDTH:
        raise DataError(f"{name}: edge_features have shape {np.shape(features)}, expected "
                        f"({count}, d): one row for each edge")
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name}: edge_features have dtype {array.dtype}, expected numbers")
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, np.float32)
    check_finite_rows(array, 0, f"{name}: edge_features")
    return array


def check_finite_rows(array: np.ndarray, start: int, where: str) -> None:
    """Raise DataError for a number that is not finite; the first row has number `start`."""
    if (k := first_true(~np.isfinite(array.ravel()))) is not None:
        row, column = divmod(k, array.shape[1])
        raise DataError(f"{where} at ({start + row}, {column}) is {array[row, column]}, expected a "
                        "finite number")


def features_of_entries(coords: Sequence[np.ndarray], features: ArrayLike, indptr: np.ndarray,
                        indices: np.ndarray, name: str) -> np.ndarray | None:
    """Return the features of each entry of a CSR matrix, (nnz, d) float32; None for None.

    Parameters
    ----------
    coords : pair of (e,) integers
        Row and column of each edge of the input. An entry (i, j) without an edge of its
        own, which symmetrizing adds, takes the features of (j, i).
    features : array, (e, d) or (e,), or None
        Features of each edge, in the order of `coords`.
    indptr, indices : (n + 1,) and (nnz,)
        The adjacency, with increasing columns in each row.

    Raises
    ------
    DataError
        An edge is listed twice; others as `check_edge_features`.
    """
    if features is None:
        return None
    n = indptr.size - 1
    rows, columns = (np.asarray(axis, np.int64) for axis in coords)
    features = check_edge_features(features, rows.size, name)

    # the edges in the order of a CSR matrix
    keys = rows * n + columns
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    if (k := first_true(keys[1:] == keys[:-1])) is not None:
        row, column = divmod(int(keys[k]), n)
        raise DataError(f"{name}: the edge {column} -> {row} is listed twice, but edge_features "
                        "need each edge once")

    # find each entry, or the entry of the other direction
    i, j = np.repeat(np.arange(n), np.diff(indptr)), indices.astype(np.int64)
    place, found = _find(keys, i * n + j)
    other, _ = _find(keys, j * n + i)
    return features[order[np.where(found, place, other)]]


def _find(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of each wanted key, and whether it is there."""
    place = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
    return place, keys[place] == wanted if keys.size else np.zeros(wanted.size, bool)


def read_chosen(source: AdjacencySource, numbers: np.ndarray) -> np.ndarray:
    """Return the features of some stored entries of an AdjacencySource, (r, d) float32.

    `numbers`, (r,) int64 increasing, are entries of the whole graph. A file is read
    piece by piece.
    """
    out = np.empty((numbers.size, source.header.num_edge_features), np.float32)
    done = 0
    while done < numbers.size:
        first_entry = int(numbers[done])
        last = int(np.searchsorted(numbers, first_entry + CHUNK))
        part = source.read_edge_features(first_entry, int(numbers[last - 1]) + 1)
        out[done:last] = part[numbers[done:last] - first_entry]
        done = last
    return out
