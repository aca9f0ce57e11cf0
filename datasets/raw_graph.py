"""A graph as its file has it, before duplicates are merged."""
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.edge_weights import attribute_names, listed

ROW_FIRST = ("u", "v")  # which end of an edge is the row of the adjacency, and which its column
TARGET_FIRST = ("target", "source")  # as PyG aggregates


@dataclass
class Raw:
    """The graph that a reader returns, with entries of the adjacency in any order.

    Row u aggregates column v. If `undirected` (the input declares it) or `symmetrize`
    (the format lists each edge at both ends), max(A, A^T) is used.
    """

    num_nodes: int  # n
    rows: np.ndarray  # (e,) integers in [0, n)
    columns: np.ndarray  # (e,) integers in [0, n)
    values: np.ndarray | None = None  # (e,) numbers, or None for all ones
    features: np.ndarray | sp.csr_array | None = None  # (n, f), or any scipy.sparse matrix
    labels: np.ndarray | None = None  # (n,) integers with -1 for unknown, or (n, t) multi-label
    masks: dict[str, np.ndarray] | None = None  # the input's, as `hpgcn.Graph.from_scipy`
    split: str = "file"  # how these were made
    original_ids: np.ndarray | None = None  # (n,) the input's ids: int64, rising, or text
    base: int = 0  # the input's id of vertex 0, where ids are not relabeled
    first: int = 0  # the smallest vertex with an edge, where that says something of the ids
    in_edge: np.ndarray | None = None  # (n,) bool, if vertices are only those in edges
    input_order: bool = False  # vertex i is row i of the input's own arrays, whatever its id
    reads: tuple[str, str] = ROW_FIRST  # what the input calls row and column: or TARGET_FIRST
    bipartite: bool = False  # ids are text of two kinds, those of rows and those of columns
    undirected: bool = False
    if_directed: str = ""  # a note for the user, if the graph becomes directed
    symmetrize: bool = False
    # divide rows of the features by their sums, unless an option says otherwise
    row_normalize: bool = False
    notes: list[str] = field(default_factory=list)  # notes for the user on the reading
    gap_notes: list[str] = field(default_factory=list)  # and of ids in no edge, if they are kept
    attributes: list[dict] | None = None  # those of each vertex, in a file of networks
    attributes_read: set[str] = field(default_factory=set)  # those that are labels or features
    class_names: tuple[str, ...] | None = None  # (c,) or (t,): what the input calls its classes
    feature_names: tuple[str, ...] | None = None  # (f,): and the columns of the features

    def unread_attributes(self) -> list[str]:
        """Return a note on the attributes of vertices that are not read, in a list."""
        names = [name for name in attribute_names((None, node) for node in self.attributes or ())
                 if name not in self.attributes_read]
        if not names:
            return []
        return [f"attributes of nodes are not read: {listed(names)} (--labels :NAME or --features "
                ":NAME,NAME reads some)"]
