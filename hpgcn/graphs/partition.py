"""A partition of the vertices into k parts, and the order of rows that makes parts contiguous."""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hpgcn.errors import DataError


@dataclass(frozen=True, eq=False)
class Partition:
    """Part of every vertex, and the permutation that goes with it.

    Attributes
    ----------
    part : (n,) int32
        Part of ORIGINAL vertex i.
    perm, iperm : (n,) int64
        New -> old and old -> new row numbers.
    offsets : (k + 1,) int64
        Part p owns the new rows [offsets[p], offsets[p + 1]).
    method, engine, engine_version : str
        How it was made, e.g. "hypergraph", "mtkahypar", "1.7". The engine is empty where none was
        needed.
    seed : int
    epsilon : float
        Imbalance of vertex weights that the engine was allowed; 0 where there was no engine.
    statistics : dict of str -> int or float
        What `hpgcn.partition.statistics` counted (volume, messages, imbalance...).
    edge_part : (nnz,) int32 or None
        Of a vertex cut: part of each stored entry of the ORIGINAL graph, in its order; `part` is
        then the root of each vertex.
    """

    part: np.ndarray
    perm: np.ndarray
    iperm: np.ndarray
    offsets: np.ndarray
    method: str = ""
    engine: str = ""
    engine_version: str = ""
    seed: int = 0
    epsilon: float = 0.0
    statistics: dict = field(default_factory=dict)
    edge_part: np.ndarray | None = None

    @property
    def k(self):
        """Number of parts, empty ones included."""
        return self.offsets.size - 1

    @staticmethod
    def from_parts(part, k, *, order=None, edge_part=None, **attributes):
        """Make a partition from the part of each vertex.

        Parameters
        ----------
        part : (n,) integers in [0, k)
        order : (n,) integers, optional
            Vertices in the order that each part keeps (e.g. RCM); default increasing vertex number.
        edge_part : (nnz,) integers in [0, k), optional
            Part of each stored entry, where edges have parts of their own.

        Raises
        ------
        DataError
            Wrong shape, or a part outside 0..k-1 (the first such vertex or entry is named), or an
            order that is no permutation. Empty parts are allowed.
        """
        if edge_part is not None:
            edge_part = check_parts(edge_part, k, where="edge_part", what="entry")
        part = check_parts(part, k)
        vertices = np.arange(part.size, dtype=np.int64)
        order = vertices if order is None else np.asarray(order)
        if order.dtype.kind not in "ui" or not np.array_equal(np.sort(order), vertices):
            raise DataError(f"order of dtype {order.dtype} and shape {order.shape} does not hold "
                            f"each of 0..{part.size - 1} once")

        order = order.astype(np.int64, copy=False)
        perm = order[np.argsort(part[order], kind="stable")]
        iperm = np.empty_like(perm)
        iperm[perm] = vertices
        offsets = run_offsets(np.bincount(part, minlength=k))
        return Partition(part, perm, iperm, offsets, edge_part=edge_part, **attributes)


def check_parts(part, k, *, n=None, where="part vector", what="vertex"):
    """Return a part vector as int32 (n,): a part for each of n vertices, or what `what` names.

    Raises
    ------
    DataError
        Not integers of shape (n,), or a part outside 0..k-1: `where` and the first such vertex are
        named.
    """
    part = np.asarray(part)
    if part.ndim != 1 or part.dtype.kind not in "ui" or n not in (None, part.size):
        raise DataError(f"{where} has dtype {part.dtype} and shape {part.shape}, expected integers "
                        f"({'n' if n is None else n},)")
    outside = np.flatnonzero((part < 0) | (part >= k))
    if outside.size:
        raise DataError(f"{where}: {what} {outside[0]} has part {part[outside[0]]}, "
                        f"expected 0..{k - 1}")
    return part.astype(np.int32)


def run_offsets(sizes):
    """Return where each of some runs begins, and the last one ends: (runs + 1,) int64."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
