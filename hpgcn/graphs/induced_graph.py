"""The subgraph that some vertices induce, with degrees of its own."""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpgcn.graphs.adjacency import row_blocks
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.graph_source import AdjacencySource
from hpgcn.graphs.partition import run_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpgcn.graphs.graph_source import GraphSource

ENTRIES = 1 << 21  # entries of the whole graph that are read at a time


def training_rows(masks: dict[str, np.ndarray] | None, training_graph: str) -> np.ndarray | None:
    """Return which rows the setting `training_graph` trains on; None for all.

    `masks` are (m,) bool each by name, and so is the result.
    """
    if training_graph == "all" or masks is None:
        return None
    return np.any([masks[name] for name in training_graph.split("+")], axis=0)


class KeptEntries(NamedTuple):
    """Entries of some rows of the whole graph, and which of them are kept."""

    first: int  # number of the first entry
    counts: np.ndarray  # kept entries of each kept row
    inside: np.ndarray  # bool: which of the entries are kept
    indices: np.ndarray
    data: np.ndarray | None


class InducedGraph(AdjacencySource):
    """The rows and columns of a graph that belong to some vertices, numbered without gaps.

    Sums of rows and columns are those of the subgraph. Rows keep their order. They are
    read from `source` when they are needed.

    Parameters
    ----------
    source : GraphSource
    kept : (n,) bool
        The vertices, in the order of the source.
    slab : Graph
        Rows of the source whose entries are counted here.
    add_up : callable
        Function that sums an array (4, k) float64, in place, over all slabs that together
        have each row once.
    """

    def __init__(self, source: GraphSource, kept: np.ndarray, slab: Graph,
                 add_up: Callable[[np.ndarray], object]) -> None:
        self.source = source
        self.path = source.path
        self.kept = kept
        self.rows = np.flatnonzero(kept)
        self.number = np.cumsum(kept) - 1  # new number of each kept row

        # entries of each row, sums of rows and columns, weights of loops
        own = np.repeat(np.arange(slab.start, slab.start + slab.num_rows), np.diff(slab.indptr))
        inside = kept[own] & kept[slab.indices]
        row, column = self.number[own[inside]], self.number[slab.indices[inside]]
        weights = np.ones(row.size) if slab.data is None else slab.data[inside].astype(np.float64)
        sums = np.array([np.bincount(lines, each, self.rows.size) for lines, each in (
            (row, np.ones(row.size)), (row, weights), (column, weights),
            (row[row == column], weights[row == column]))])
        add_up(sums)
        self._pointers = run_offsets(sums[0].astype(np.int64))
        self._degrees = dict(zip(("row", "column", "loop"), sums[1:]))
        self.header = dataclasses.replace(source.header, num_nodes=self.rows.size,
                                          num_edges=int(self._pointers[-1]))

    def __str__(self) -> str:
        lonely = np.count_nonzero(np.diff(self._pointers) == 0)
        return (f"{self.rows.size:,} of {self.kept.size:,} vertices, {self.header.num_edges:,} of "
                f"{self.source.header.num_edges:,} stored entries, {lonely:,} vertices without "
                "entries")

    def slab(self, start: int, stop: int, split: int | None = None) -> Graph:
        """Return the rows [start, stop) as a Graph without features, labels and masks."""
        vertex = self.source.vertices(0, self.kept.size)[self.rows[start:stop]]
        return Graph(self.header, start, *self.adjacency_rows(start, stop), None, None, None,
                     *(each[start:stop] for each in self._degrees.values()), vertex=vertex)

    def adjacency_rows(self, start: int, stop: int) -> tuple[
            np.ndarray, np.ndarray, np.ndarray | None]:
        parts = [(each.counts, self.number[each.indices[each.inside]].astype(each.indices.dtype),
                  None if each.data is None else each.data[each.inside])
                 for each in self._entries(start, stop)]
        if not parts:
            return self.source.adjacency_rows(0, 0)
        counts, indices, data = zip(*parts)
        return (run_offsets(np.concatenate(counts)), np.concatenate(indices),
                None if data[0] is None else np.concatenate(data))

    def pointers(self, start: int, stop: int) -> np.ndarray:
        return self._pointers[start:stop + 1]

    def edge_part(self, start: int, stop: int) -> np.ndarray | None:
        if start == stop:
            return self.source.edge_part(0, 0)
        first, last = self.rows[start], self.rows[stop - 1] + 1
        parts = self.source.edge_part(first, last)
        if parts is None:
            return None
        inside = np.concatenate([each.inside for each in self._entries(start, stop)])
        return parts[inside]

    def read_edge_features(self, first: int, last: int) -> np.ndarray:
        if first == last:
            return self.source.read_edge_features(0, 0)
        start = int(np.searchsorted(self._pointers, first, side="right")) - 1
        stop = int(np.searchsorted(self._pointers, last))
        found = [self.source.read_edge_features(each.first, each.first + each.inside.size)
                 [each.inside] for each in self._entries(start, stop)]
        before = self._pointers[start]
        return np.concatenate(found)[first - before:last - before]

    def degrees(self) -> dict[str, np.ndarray]:
        return self._degrees

    def _entries(self, start: int, stop: int) -> Iterator[KeptEntries]:
        """Yield blocks of the rows [start, stop), read from the whole graph."""
        if start == stop:
            return
        first, last = int(self.rows[start]), int(self.rows[stop - 1]) + 1
        pointers = self.source.pointers(first, last)
        for low, high in row_blocks(pointers, ENTRIES):
            indptr, indices, data = self.source.adjacency_rows(first + low, first + high)
            kept = self.kept[first + low:first + high]
            inside = np.repeat(kept, np.diff(indptr)) & self.kept[indices]
            counts = np.diff(run_offsets(inside)[indptr])[kept]
            yield KeptEntries(int(pointers[low]), counts, inside, indices, data)
