"""Features from the adjacency, rows divided by their sums, and the largest component."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.source import need
from hpgcn.errors import DataError
from hpgcn.graphs.validation import MAX_WIDTH, index_dtype

if TYPE_CHECKING:
    from hpgcn.datasets.raw_graph import Raw

VERTEX_BYTES = 48  # memory per vertex of each function here


def identity(row_sums: np.ndarray, column_sums: np.ndarray) -> sp.csr_array:
    """Return the sparse identity matrix (n, n): each vertex has a feature of its own."""
    n = row_sums.size
    indices = np.arange(n, dtype=index_dtype(n))
    return sp.csr_array((np.ones(n, np.float32), indices, np.arange(n + 1)), shape=(n, n))


def degree(row_sums: np.ndarray, column_sums: np.ndarray) -> np.ndarray:
    """Return features (n, 2): sign(d) log(1 + |d|) of both sums d of each vertex.

    The row sum is over the edges that a vertex reads, the column sum over the edges by
    which other vertices read it.
    """
    sums = np.stack([row_sums, column_sums], axis=1)
    return (np.sign(sums) * np.log1p(np.abs(sums))).astype(np.float32)


MADE = {"identity": identity, "degree": degree}


def make_features(name: str, row_sums: np.ndarray, column_sums: np.ndarray, memory: int,
                  where: object) -> Any:
    """Return the features that MADE calls `name`; DataError if there are too many.

    They are computed from the row and column sums of the adjacency, (n,) float64.
    """
    n = row_sums.size
    need(VERTEX_BYTES * n, memory, f"{where}: features {name} of {n} vertices")
    if name == "identity" and n > MAX_WIDTH:
        raise DataError(f"{where}: --features identity makes {n} columns, one per vertex, but at "
                        f"most {MAX_WIDTH} are possible: use --features degree")
    return MADE[name](row_sums, column_sums)


def normalize_rows(X: Any, where: str = "features") -> Any:
    """Return X, (n, f) dense or sparse, with rows divided by their sums; 0 rows stay."""
    if X is None:
        raise DataError(f"{where}: no features to normalize: give --features")
    if len(X.shape) != 2 or X.dtype.kind not in "fiub":
        raise DataError(f"{where}: features have dtype {X.dtype} and shape {tuple(X.shape)}, "
                        "expected numbers (n, f)")
    total = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = np.where(total == 0, 1, 1 / total)
        if not sp.issparse(X):
            return X * scale[:, None].astype(X.dtype if X.dtype.kind == "f" else np.float32)
        X = sp.csr_array(X)
        data = X.data * np.repeat(scale, np.diff(X.indptr))
    return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)


def largest_component(csr: Sequence, raw: Raw) -> Any:
    """Drop vertices outside the largest weakly connected component, the first of equal ones.

    Evaluations of published models use it.

    Parameters
    ----------
    csr : (indptr, indices, data)
        The adjacency of all vertices; data is None for ones.
    raw : Raw
        Its features, labels, masks and ids are reduced to the remaining vertices.

    Returns
    -------
    (indptr, indices, data)
        The remaining vertices in their order. If any was dropped, `raw.original_ids` has their
        former numbers.
    """
    indptr, indices, data = csr
    n = indptr.size - 1

    # find the component
    from scipy.sparse.csgraph import connected_components  # slow to import
    pattern = sp.csr_array((np.ones(indices.size, np.int8), indices, indptr), shape=(n, n))
    _, component = connected_components(pattern, directed=True, connection="weak")
    kept = component == np.argmax(np.bincount(component))
    left_out = n - int(np.count_nonzero(kept))
    raw.notes.append(f"{left_out} vertices dropped: not in the largest component")
    if not left_out:
        return csr

    # renumber the remaining vertices
    vertices = np.flatnonzero(kept)
    # find the entries of these rows; their columns stay as well
    inside = kept[np.repeat(np.arange(n), np.diff(indptr))]
    numbers = np.cumsum(kept) - 1
    degree = np.diff(indptr)[vertices]
    ids = np.arange(raw.base, raw.base + n) if raw.original_ids is None else raw.original_ids

    # select rows of features, labels or targets, and masks
    raw.num_nodes = vertices.size
    raw.original_ids = ids[vertices]
    for name in ("features", "labels", "targets"):
        array = getattr(raw, name)
        if array is not None:
            rows = array.tocsr() if sp.issparse(array) else array
            setattr(raw, name, rows[vertices])
    if raw.masks is not None:
        raw.masks = {key: np.asarray(mask)[vertices] for key, mask in raw.masks.items()}
    return (np.concatenate([[0], np.cumsum(degree)]).astype(indptr.dtype),
            numbers[indices[inside]].astype(indices.dtype), None if data is None else data[inside])
