"""A graph with the links of a set as further edges, with degrees of its own."""
from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.errors import DataError, UsageError, setting
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.graph_source import AdjacencySource
from hpgcn.graphs.links import find_entries
from hpgcn.graphs.partition import run_offsets

if TYPE_CHECKING:
    from hpgcn.config import Config
    from hpgcn.graphs.graph_source import GraphSource

ADDED = "val"  # the set whose links are added


class AddedEdges(AdjacencySource):
    """The rows of a graph whose links of validation are edges as well.

    A link has its own weight as an edge, or 1. In an undirected graph it is an edge in both
    directions. Repeated links are added once. Rows keep their order, and are read from `source`
    when they are needed.

    Parameters
    ----------
    source : GraphSource
        A graph with links of validation.
    slab : Graph
        Rows of the source, in which added edges are searched for.

    Raises
    ------
    DataError
        An added link is an edge in the slab.
    """

    def __init__(self, source: GraphSource, slab: Graph) -> None:
        self.source = source
        self.path = source.path
        header, n = source.header, source.header.num_nodes
        links = source.links[ADDED].read()
        pairs = links.positive
        weights = np.ones(len(pairs), np.float32) if links.weight is None else links.weight

        # the entries, by rows and then by columns
        if not header.directed:
            pairs, weights = np.concatenate([pairs, pairs[:, ::-1]]), np.tile(weights, 2)
        keys, first = np.unique(pairs[:, 1] * np.int64(n) + pairs[:, 0], return_index=True)
        self.rows, self.columns = np.divmod(keys, n)
        self.weights = weights[first]
        self.pointers_of_added = run_offsets(np.bincount(self.rows, minlength=n))
        ones = header.all_ones and bool((self.weights == 1).all())
        self.header = dataclasses.replace(header, num_edges=header.num_edges + keys.size,
                                          all_ones=ones)

        # refuse entries that the slab has already
        added = self._added(slab.start, slab.start + slab.num_rows)
        found = find_entries(slab.indptr, slab.indices, self.rows[added] - slab.start,
                             self.columns[added])
        if found.any():
            pair = self.columns[added][found][0], self.rows[added][found][0]
            raise DataError(f"{source.where}: {setting('message_edges', f'train+{ADDED}')}: links "
                            f"of {ADDED} are edges of the graph already, such as "
                            f"[{pair[0]}, {pair[1]}]")

    def __str__(self) -> str:
        return (f"{self.source.header.num_edges:,} stored entries and {self.rows.size:,} of links "
                f"of {ADDED}")

    def _added(self, start: int, stop: int) -> slice:
        """Return the place of the entries that are added to the rows [start, stop)."""
        return slice(*self.pointers_of_added[[start, stop]].tolist())

    def places(self, start: int, stop: int) -> tuple[slice, np.ndarray]:
        """Return the added entries of rows [start, stop), and where `np.insert` puts them."""
        indptr, indices = self.source.pattern_rows(start, stop)
        added, n = self._added(start, stop), np.int64(self.header.num_nodes)
        keys = np.repeat(np.arange(stop - start), np.diff(indptr)) * n + indices
        return added, np.searchsorted(keys, (self.rows[added] - start) * n + self.columns[added])

    def slab(self, start: int, stop: int, split: int | None = None) -> Graph:
        """Return the rows [start, stop) as a Graph without features, labels and masks."""
        row, column, loop = (each[start:stop] for each in self.degrees().values())
        return Graph(self.header, start, *self.adjacency_rows(start, stop), None, None, None,
                     row, column, loop, vertex=self.source.vertices(start, stop))

    def adjacency_rows(self, start: int, stop: int) -> tuple[
            np.ndarray, np.ndarray, np.ndarray | None]:
        indptr, indices, data = self.source.adjacency_rows(start, stop)
        added, places = self.places(start, stop)
        if data is None and not self.header.all_ones:
            data = np.ones(indices.size, np.float32)
        before = self.pointers_of_added[start:stop + 1] - self.pointers_of_added[start]
        return (indptr + before,
                np.insert(indices, places, self.columns[added].astype(indices.dtype)),
                None if data is None else np.insert(data, places, self.weights[added]))

    def pointers(self, start: int, stop: int) -> np.ndarray:
        return self.source.pointers(start, stop) + self.pointers_of_added[start:stop + 1]

    def edge_part(self, start: int, stop: int) -> np.ndarray | None:
        parts = self.source.edge_part(start, stop)
        if parts is None:
            return None
        added, places = self.places(start, stop)
        own = np.searchsorted(self.source.offsets, self.rows[added], side="right") - 1
        return np.insert(parts, places, own.astype(parts.dtype))

    def read_edge_features(self, first: int, last: int) -> np.ndarray:
        raise DataError(f"{self.where}: links of {ADDED} have no edge features")

    def degrees(self) -> dict[str, np.ndarray]:
        degrees = dict(self.source.degrees())
        for name, lines in (("row", self.rows), ("column", self.columns)):
            degrees[name] = degrees[name] + np.bincount(lines, self.weights,
                                                        self.header.num_nodes)
        return degrees


def adds_edges(config: Config, source: GraphSource) -> bool:
    """Return whether evaluation passes messages along links of validation as well."""
    return (config.message_edges != type(config).message_edges
            and len((source.links or {}).get(ADDED, ())) > 0)


def check_added(config: Config, source: GraphSource) -> None:
    """Raise a UsageError if links of validation should be added, but the graph has none."""
    if config.message_edges != type(config).message_edges and not adds_edges(config, source):
        raise UsageError(f"{setting('message_edges', config.message_edges)}: "
                         f"{source.header.name} has no links of validation to add")
