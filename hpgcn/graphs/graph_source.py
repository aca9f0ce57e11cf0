"""The interface through which a run reads a graph, in memory or in a file."""
from __future__ import annotations

from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import UsageError

if TYPE_CHECKING:
    from hpgcn.graphs.graph import Graph
    from hpgcn.graphs.header import Header
    from hpgcn.graphs.links import Links
    from hpgcn.graphs.partition import Partition

# how to make a graph of the objects of other libraries
MAKERS = {"torch_geometric": "from_pyg(data)", "dgl": "from_dgl(g)", "networkx": "from_networkx(G)",
          "scipy": "Graph.from_scipy(A, X, y, masks)", "numpy": "Graph.from_scipy(A, X, y, masks)"}
DIGESTS = "graph_sha256", "source_sha256", "content_sha256"
# names of the interface that only runs call, and no user: `dir` and completion leave them out
OF_RUNS = {
    "adjacency_rows", "check_order", "check_structure", "checksum", "degrees", "digests",
    "edge_part", "edge_parts", "feature_pointers", "merged", "merges", "of_split", "order_sums",
    "pattern", "pattern_rows", "permuted", "pointers", "read_edge_features", "refuse_replaced",
    "reopen", "reserve", "slab", "split_masks", "structure", "vertices", "where"}


class AdjacencySource(ABC):
    """Rows of an adjacency, as matrices are made from them.

    Rows are numbered in the order of the source.

    Attributes
    ----------
    header : Header
        Counts and kinds of the whole graph.
    path : str or None
        The file; None in memory.
    """

    header: Header
    path: str | None = None

    @property
    def where(self) -> str:
        """Path of the file, or name of the graph in memory, for messages."""
        return self.path or self.header.name

    @abstractmethod
    def slab(self, start: int, stop: int, split: int | None = None) -> Graph:
        """Return the rows [start, stop) as a Graph, of one split or of all.

        Raises
        ------
        ConfigError
            There is no such split.
        """

    @abstractmethod
    def adjacency_rows(self, start: int, stop: int) -> tuple[
            np.ndarray, np.ndarray, np.ndarray | None]:
        """Return (indptr from 0, indices, data or None) of the rows [start, stop)."""

    @abstractmethod
    def pointers(self, start: int, stop: int) -> np.ndarray:
        """Return the row pointers of the rows [start, stop), (m + 1,) int64.

        They count entries from the first row of the whole graph.
        """

    @abstractmethod
    def edge_part(self, start: int, stop: int) -> np.ndarray | None:
        """Return the part of each entry of the rows [start, stop), (nnz,) int32, or None.

        None if entries have no parts of their own.
        """

    @abstractmethod
    def read_edge_features(self, first: int, last: int) -> np.ndarray:
        """Return the features of the entries [first, last), (last - first, d) float32.

        Entries are numbered in the whole graph.
        """

    @abstractmethod
    def degrees(self) -> dict[str, np.ndarray]:
        """Return a dict of "row", "column" and "loop", each (n,) float64.

        These are sums of rows and columns, and the weights of self loops.
        """


class Listed(ABCMeta):
    """The metaclass of graphs: `dir` lists the names that users need."""

    def __dir__(cls) -> Iterable[str]:
        return (name for name in super().__dir__() if name not in OF_RUNS)


class GraphSource(AdjacencySource, metaclass=Listed):
    """A graph in memory (`hpgcn.Graph`) or in a file (`hpgcn.store.StoredGraph`).

    Runs read a graph through this interface and never test its class. Rows are numbered
    in the order of the source; if it has parts, its rows lie part after part. DataError
    for rows that do not exist. A file validates all that it reads, with the errors of
    `hpgcn.store`.

    Attributes
    ----------
    offsets : (k + 1,) int64 or None
        Part p has the rows [offsets[p], offsets[p + 1]); None without parts.
    class_names : tuple of str (c,), or None
        What the input calls each class, or each label of multi-label data.
    feature_names : tuple of str (f,), or None
        What the input calls each column of the features.
    target_names : tuple of str (t,), or None
        What the input calls each target.
    links : dict of LinkSet under "train", "val" and "test", or None
        Pairs to predict, of the whole graph. Arrays of a file are read where they are sliced.
    """

    offsets: np.ndarray | None
    class_names: tuple[str, ...] | None
    feature_names: tuple[str, ...] | None
    target_names: tuple[str, ...] | None
    links: Links | None

    def __dir__(self) -> Iterable[str]:
        return (name for name in super().__dir__() if name not in OF_RUNS)

    # Identity

    @abstractmethod
    def checksum(self) -> int | str:
        """Return a checksum of the content that is fast to compute."""

    @abstractmethod
    def digests(self) -> dict[str, str]:
        """Return a dict under DIGESTS: the SHA-256 of the graph, its source and its content.

        For a graph in memory the three are equal, and do not depend on the order of its
        rows.
        """

    # Rows

    def pattern_rows(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (indptr from 0, indices) of the rows [start, stop); values are not read."""
        return self.adjacency_rows(start, stop)[:2]

    @abstractmethod
    def vertices(self, start: int, stop: int) -> np.ndarray:
        """Return the ORIGINAL vertex numbers of the rows [start, stop), (m,) int64."""

    @abstractmethod
    def ids(self) -> np.ndarray:
        """Return the ids of the vertices in the input, in the order of rows, (n,) int64 or text."""

    @abstractmethod
    def split_masks(self, split: int) -> dict[str, np.ndarray] | None:
        """Return the masks of one split for all rows, each (n,) bool; None without splits.

        Raises
        ------
        ConfigError
            There is no such split.
        """

    @abstractmethod
    def feature_pointers(self) -> np.ndarray | None:
        """Return the row pointers of sparse features, (n + 1,); None without sparse features."""

    # The whole graph

    @abstractmethod
    def pattern(self) -> Graph:
        """Return all rows as a Graph without weights, features, labels and masks."""

    @abstractmethod
    def read(self) -> Graph:
        """Return all rows as a Graph: in the order of parts, else a file in ORIGINAL order."""

    @abstractmethod
    def in_original_order(self) -> Graph:
        """Return the whole graph in its ORIGINAL order; DataError if rows are missing."""

    def to_scipy(self) -> tuple[sp.csr_array, np.ndarray | sp.csr_array | None,
                                np.ndarray | None, dict[str, np.ndarray] | None]:
        """Return A, X, y and masks of the whole graph, in its ORIGINAL order.

        Returns
        -------
        (scipy.sparse.csr_array, features, labels or targets, dict)
            As `Graph.from_scipy` takes them; None for what the graph does not have.
        """
        graph = self.in_original_order()
        y = graph.labels if graph.targets is None else graph.targets
        return graph.adjacency, graph.features, y, graph.masks

    # Parts

    @property
    @abstractmethod
    def vertex_partition(self) -> Partition | None:
        """The Partition of the rows without parts of entries; None without parts."""

    @property
    def merges(self) -> Sequence[int]:
        """Numbers of parts into which nested parts can be merged, descending."""
        return ()

    @abstractmethod
    def merged(self, k: int) -> GraphSource:
        """Return the graph in k parts, where k is 1 or one of `merges`.

        Rows keep their order.
        """

    # The file

    @abstractmethod
    def close(self) -> None:
        """Close the file, if there is one; arrays that were read stay valid."""

    # Checks of an untrusted file

    @abstractmethod
    def order_sums(self, start: int, stop: int) -> np.ndarray:
        """Return sums over the vertices [start, stop), (4,) float64, for `check_order`."""

    @abstractmethod
    def check_order(self, total: np.ndarray) -> None:
        """Raise DataError if the rows lack a vertex, or if parts contradict `offsets`.

        `total` is the sum of `order_sums` over all vertices.
        """

    @abstractmethod
    def reserve(self, nbytes: int, what: str) -> None:
        """Raise DataError if an allocation exceeds the memory limit of the source."""


def check_source(graph: Any, expected: str = "hpgcn.Graph or hpgcn.load(path)") -> GraphSource:
    """Return a GraphSource unchanged; raise UsageError for any other object."""
    if not isinstance(graph, GraphSource):
        libraries = (kind.__module__.partition(".")[0] for kind in type(graph).__mro__)
        maker = next((MAKERS[name] for name in libraries if name in MAKERS), None)
        hint = f": hpgcn.{maker} makes one" if maker else ""
        raise UsageError(f"graph is of type {type(graph).__name__}, expected {expected}{hint}")
    return graph
