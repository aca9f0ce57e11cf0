"""What a run reads of a graph, whether the graph lies in memory or in a file."""
from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import UsageError

if TYPE_CHECKING:
    from hpgcn.graphs.graph import Graph
    from hpgcn.graphs.header import Header


class GraphSource(ABC):
    """A graph in memory (`hpgcn.Graph`) or in a file (`hpgcn.store.StoredGraph`)."""

    header: Header

    @abstractmethod
    def in_original_order(self) -> Graph:
        """Return the whole graph in its ORIGINAL order; DataError if rows are missing."""

    def to_scipy(self) -> tuple[sp.csr_array, np.ndarray | sp.csr_array | None,
                                np.ndarray | None, dict[str, np.ndarray] | None]:
        """Return A, X, y and masks of the whole graph, in its ORIGINAL order.

        Returns
        -------
        (scipy.sparse.csr_array, features, labels, dict)
            As `Graph.from_scipy` takes them; None for what the graph does not have.
        """
        graph = self.in_original_order()
        return graph.adjacency, graph.features, graph.labels, graph.masks


def check_source(graph, expected="hpgcn.Graph or hpgcn.load(path)"):
    """Return a GraphSource as it is; raise UsageError for any other object."""
    if not isinstance(graph, GraphSource):
        raise UsageError(f"graph is of type {type(graph).__name__}, expected {expected}")
    return graph
