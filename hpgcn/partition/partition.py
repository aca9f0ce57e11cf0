"""A partition of the vertices into k parts, and the order of rows that makes each part contiguous."""
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
        How it was made, e.g. "hypergraph", "mtkahypar", "1.7". The engine is empty where none was needed.
    seed : int
    epsilon : float
        Imbalance of vertex weights that the engine was allowed; 0 where there was no engine.
    statistics : dict of str -> int or float
        What `hpgcn.partition.statistics` counted (volume, messages, imbalance...).
    edge_part : (nnz,) int32 or None
        Of a vertex cut: part of each stored entry of the ORIGINAL graph, in its order; `part` is then the root of each
        vertex.
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
            Wrong shape, or a part outside 0..k-1 (the first such vertex or entry is named), or an order that is no
            permutation. Empty parts are allowed.
        """
        if edge_part is not None:
            edge_part = check_parts(edge_part, k, where="edge_part", what="entry")
        part = check_parts(part, k)
        n = part.size
        if order is None:
            order = np.arange(n, dtype=np.int64)
        else:
            order = check_order(order, n)
        perm = order[np.argsort(part[order], kind="stable")]
        iperm = np.empty_like(perm)
        iperm[perm] = np.arange(n, dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=k))]).astype(np.int64)
        return Partition(part, perm, iperm, offsets, edge_part=edge_part, **attributes)


def check_parts(part, k, *, n=None, where="part vector", what="vertex"):
    """Return a part vector as int32 (n,): a part for each of n vertices, or of whatever `what` names.

    Raises
    ------
    DataError
        Not integers of shape (n,), or a part outside 0..k-1: `where` and the first such vertex are named.
    """
    part = np.asarray(part)
    expected = "(n,)" if n is None else f"({n},)"
    if part.ndim != 1 or part.dtype.kind not in "ui" or (n is not None and part.size != n):
        raise DataError(f"{where} has dtype {part.dtype} and shape {part.shape}, expected integers {expected}")
    outside = np.flatnonzero((part < 0) | (part >= k))
    if outside.size:
        raise DataError(f"{where}: {what} {outside[0]} has part {part[outside[0]]}, expected 0..{k - 1}")
    return part.astype(np.int32)


def check_order(order, n):
    """Return an order of n vertices as int64 (n,); refuse what is no permutation."""
    order = np.asarray(order)
    if order.shape != (n,) or (order.dtype.kind not in "ui" and n > 0):
        raise DataError(f"order has dtype {order.dtype} and shape {order.shape}, expected integers ({n},)")
    order = order.astype(np.int64)
    outside = np.flatnonzero((order < 0) | (order >= n))
    if outside.size:
        raise DataError(f"order: entry {outside[0]} is vertex {order[outside[0]]}, expected 0..{n - 1}")
    missing = np.flatnonzero(np.bincount(order, minlength=n) == 0)
    if missing.size:
        raise DataError(f"order: vertex {missing[0]} is missing, expected each of 0..{n - 1} once")
    return order
