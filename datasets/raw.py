"""A graph as its file has it, before duplicates are merged and anything is checked twice."""
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError

ROW_FIRST = ("u", "v")  # which end of an edge is the row of the adjacency, and which its column
TARGET_FIRST = ("target", "source")  # as PyG aggregates


@dataclass
class Raw:
    """Entries of the adjacency in any order, and what came with them: every reader returns one.

    Row u aggregates column v. Where `undirected` (the input says so of its edges)
    or `symmetrize` (the format lists each edge at both ends), max(A, A^T) is taken.
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
    base: int = 0  # the input's number of vertex 0, where ids are not relabelled
    first: int = 0  # the smallest vertex with an edge, where that says something of the ids
    reads: tuple[str, str] = ROW_FIRST  # what the input calls row and column: or TARGET_FIRST
    bipartite: bool = False  # ids are text of two kinds, those of rows and those of columns
    undirected: bool = False
    symmetrize: bool = False
    row_normalize: bool = False  # divide rows of the features by their sums, unless told otherwise
    notes: list[str] = field(default_factory=list)  # what a user should know of the reading
    class_names: tuple[str, ...] | None = None  # (c,) or (t,): what the input calls its classes

    def by_vertex(self, array, where):
        """Return the vertices' rows of an array with a row for each vertex, or for each id."""
        ids = self.original_ids
        rows = array.shape[0] if len(array.shape) in (1, 2) else None
        if rows == self.num_nodes:
            return array
        hint = ""
        if self.bipartite:
            hint = ", one for each id of the first column, then of the second"
        elif ids is not None and ids.dtype.kind == "U":
            hint = ", one for each name in the order in which they appear"
        elif ids is not None:
            up_to_largest = int(ids[-1]) - self.base + 1
            if rows == up_to_largest:
                self.notes.append(f"{where} have a row for each id {self.base}..{ids[-1]}: those "
                                  f"of the {self.num_nodes} vertices are taken")
                return array[ids - self.base]
            hint = (f", one for each distinct id in increasing order (or {up_to_largest}, one for "
                    "each id)")
        elif self.first == 1 and rows == self.num_nodes - 1:
            hint = "; ids begin at 1: --base 1 leaves out vertex 0"
        raise DataError(f"{where} have shape {tuple(array.shape)}, expected {self.num_nodes} "
                        f"rows{hint}")
