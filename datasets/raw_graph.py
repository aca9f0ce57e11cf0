"""A graph as a reader returns it, before duplicates are merged."""
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.edge_weights import attribute_names, join_names
from hpgcn.graphs.links import Links
from hpgcn.graphs.validation import check_targets

ROW_FIRST = ("u", "v")  # the end of an edge that is a row of the adjacency, and the other one
TARGET_FIRST = ("target", "source")  # the direction in which PyG aggregates


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
    masks: dict[str, np.ndarray] | None = None  # the input's, in a form of `hpgcn.Graph.from_scipy`
    split: str = "file"  # how the masks were made
    original_ids: np.ndarray | None = None  # (n,) ids of the input: increasing int64, or text
    base: int = 0  # id of vertex 0 in the input, unless vertices are renumbered
    first: int = 0  # the smallest id in an edge; 0 if not needed
    in_edge: np.ndarray | None = None  # (n,) bool; None if the input declares its vertices
    input_order: bool = False  # vertex i is row i of the input's arrays, whatever its id
    reads: tuple[str, str] = ROW_FIRST  # meaning of rows and columns, or TARGET_FIRST
    bipartite: bool = False  # ids of rows and of columns name two kinds of vertices
    undirected: bool = False
    if_directed: str = ""  # a note for the user, if the graph becomes directed
    symmetrize: bool = False
    # whether rows of the features are divided by their sums by default
    row_normalize: bool = False
    notes: list[str] = field(default_factory=list)  # notes for the user on the reading
    gap_notes: list[str] = field(default_factory=list)  # notes on ids in no edge, if they stay
    attributes: list[dict] | None = None  # attributes of each vertex
    attributes_read: set[str] = field(default_factory=set)  # names of labels and features
    class_names: tuple[str, ...] | None = None  # names of classes, (c,) or (t,)
    feature_names: tuple[str, ...] | None = None  # names of features, (f,)
    targets: np.ndarray | None = None  # (n, t) float64 with NaN for unknown, instead of labels
    target_names: tuple[str, ...] | None = None  # names of targets, (t,)
    links: Links | None = None  # pairs to predict

    @property
    def labeled(self) -> np.ndarray | None:
        """Which vertices have a class or a known target, (n,) bool; None if all may have."""
        if self.targets is not None:
            return ~np.isnan(self.targets).all(axis=1)
        if self.labels is not None and np.ndim(self.labels) == 1:
            return np.asarray(self.labels) >= 0
        return None

    def set_targets(self, arrays: dict[str, np.ndarray], where: object) -> None:
        """Take arrays by name, (n,) or (n, t) each, as targets.

        They have names unless an array has several columns.
        """
        if arrays:
            parts = [check_targets(array, self.num_nodes, f"{where} {name}")
                     for name, array in arrays.items()]
            self.targets = np.concatenate(parts, axis=1)
            if self.targets.shape[1] == len(arrays):
                self.target_names = tuple(arrays)

    def unread_attributes(self) -> list[str]:
        """Return a note on the attributes of vertices that are not read, in a list."""
        names = [name for name in attribute_names((None, node) for node in self.attributes or ())
                 if name not in self.attributes_read]
        if not names:
            return []
        return [f"attributes of nodes are not read: {join_names(names)} (--labels :NAME or "
                "--features :NAME,NAME reads some)"]
