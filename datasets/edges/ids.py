"""Ids of an edge list: the number of vertices, and whether the ids are relabeled."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    pass

MERGE = 1 << 20  # ids that are merged or looked up at a time


class Numbering(NamedTuple):
    """Map from the ids of an edge list to vertices 0..num_nodes - 1."""

    num_nodes: int
    original_ids: np.ndarray | None = None  # (num_nodes,) int64; None if ids are vertex numbers
    distinct: int = 0  # number of ids in edges
    first: int = 0  # the smallest id in an edge
    in_edge: np.ndarray | None = None  # (num_nodes,) bool: whether a vertex is in an edge


def ids_are_kept(largest: int, distinct: int, declared_nodes: int | None = None, *,
                 compact: bool = False) -> bool:
    """Return whether ids serve as vertex numbers; else they are numbered anew.

    Ids are kept if the largest is below 2 x (distinct ids) + 1024, or below `declared_nodes`,
    the number of vertices in the input. With `compact`, or if `declared_nodes` equals the
    number of distinct ids, they are kept only without gaps. New numbers follow the
    increasing ids.
    """
    if compact or declared_nodes == distinct:
        return largest + 1 == distinct
    return largest < max(2 * distinct + 1024, declared_nodes or 0)


class Ids:
    """The set of distinct ids of an edge list, collected block by block.

    `refuse(count)` must raise an error; it is called if more than `limit` ids are
    found.
    """

    def __init__(self, limit: int, refuse: Callable | None = None) -> None:
        self.limit = limit
        self.refuse = refuse
        self.largest = -1
        # present[i] is whether id i has been added
        self.present = np.zeros(min(limit, MERGE), bool)
        self.large = np.empty(0, np.int64)  # larger ids, increasing
        self.pending = []  # arrays of larger ids to merge
        self.waiting = 0  # number of ids in `pending`

    def add(self, ids: np.ndarray) -> None:
        """Add ids, (k,) int64, which must not be negative."""
        top = int(ids.max(initial=-1))
        self.largest = max(self.largest, top)

        if self.present.size <= top and self.present.size < self.limit:
            grown = np.zeros(min(self.limit, max(top + 1, 2 * self.present.size)), bool)
            grown[:self.present.size] = self.present
            self.present = grown

        # ids beyond the table wait until they are merged
        if top >= self.present.size:
            small = ids < self.present.size
            self.pending.append(ids[~small])
            self.waiting += self.pending[-1].size
            ids = ids[small]
            if self.waiting > max(MERGE, min(self.large.size, self.limit)):
                self._merge()  # rarely: a merge costs as much as all earlier ones

        self.present[ids] = True

    def _merge(self) -> None:
        self.large = np.unique(np.concatenate([self.large, *self.pending]))
        self.pending = []
        self.waiting = 0
        if self.large.size > self.limit:
            self.refuse(self.large.size)

    def result(self, declared_nodes: int | None = None, *, compact: bool = False,
               from_one: bool = False) -> Numbering:
        """Return the Numbering of the ids.

        `declared_nodes` is the number of vertices that the input declares. Vertices are
        0..declared_nodes - 1 if all ids are among these. Otherwise, with `from_one`, they may
        be 1..declared_nodes. With `compact` only ids that occur are vertices.
        """
        self._merge()
        distinct = int(np.count_nonzero(self.present)) + self.large.size
        first = int(self.large[0]) if self.large.size else 0
        if self.present.any():
            first = int(np.argmax(self.present))
        ids = np.concatenate([np.flatnonzero(self.present), self.large])

        if from_one and not compact and first and self.largest == declared_nodes:
            in_edge = _mask_of(ids - 1, self._check_count(declared_nodes))
            ids = np.arange(1, declared_nodes + 1)
            return Numbering(declared_nodes, ids, distinct, first, in_edge)

        kept = ids_are_kept(self.largest, distinct, declared_nodes, compact=compact)
        count = self.largest + 1 if kept else distinct
        if kept and not compact and declared_nodes is not None:
            count = max(count, declared_nodes)

        in_edge = _mask_of(ids if kept else slice(None), self._check_count(count))
        return Numbering(count, None if kept else ids, distinct, first, in_edge)

    def _check_count(self, count: int) -> int:
        if self.refuse is not None and count > self.limit:
            self.refuse(count)
        return count


def _mask_of(places: np.ndarray | slice, count: int) -> np.ndarray:
    mask = np.zeros(count, bool)
    mask[places] = True
    return mask


def compact_ids(rows: np.ndarray, columns: np.ndarray,
                **options: Any) -> tuple[Numbering, np.ndarray, np.ndarray]:
    """Renumber the ends of edges; return the Numbering, rows and columns.

    The ids of edges are two (e,) int64 that are not negative. `options` are those of
    `Ids.result`.
    """
    ids = Ids(4 * rows.size + 1024)  # above the possible number, 2 e
    ids.add(rows)
    ids.add(columns)
    numbering = ids.result(**options)
    if numbering.original_ids is not None:
        rows = np.searchsorted(numbering.original_ids, rows)
        columns = np.searchsorted(numbering.original_ids, columns)
    return numbering, rows, columns
