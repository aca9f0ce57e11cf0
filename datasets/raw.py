"""A graph as its file has it, before duplicates are merged and anything is checked twice."""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError

ROW_FIRST = ("u", "v")  # which end of an edge is the row of the adjacency, and which its column
TARGET_FIRST = ("target", "source")  # as PyG aggregates


@dataclass
class Raw:
    """Entries of the adjacency in any order, and what came with them: every reader returns one.

    Attributes
    ----------
    num_nodes : int
    rows, columns : (e,) integers in [0, num_nodes)
        Row u aggregates column v.
    values : (e,) numbers, or None for all ones
    features : (n, f) ndarray or scipy sparse, or None
    labels : (n,) integers with -1 for unknown, (n, t) multi-label, or None
    masks : dict of (n,) bool under "train", "val" and "test", or None
        The input's own split.
    split : str
        How the input's own split was made.
    original_ids : (n,) int64 or None
        The input's ids, where they were relabelled.
    base : int
        The input's number of vertex 0, where ids are not relabelled.
    first : int
        The smallest vertex with an edge, where that says something of the ids.
    reads : (str, str)
        What the input calls the row and the column of an entry: ROW_FIRST or TARGET_FIRST.
    undirected : bool
        The input says of itself that its edges have no direction: max(A, A^T) is taken.
    symmetrize : bool
        The format lists each edge at both ends: max(A, A^T) is taken.
    row_normalize : bool
        Rows of the features are divided by their sums unless the user says otherwise.
    notes : list of str
        What a user should know of how the input was read.
    """

    num_nodes: int
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray | None = None
    features: np.ndarray | sp.csr_array | None = None
    labels: np.ndarray | None = None
    masks: dict[str, np.ndarray] | None = None
    split: str = "file"
    original_ids: np.ndarray | None = None
    base: int = 0
    first: int = 0
    reads: tuple[str, str] = ROW_FIRST
    undirected: bool = False
    symmetrize: bool = False
    row_normalize: bool = False
    notes: list[str] = field(default_factory=list)

    def by_vertex(self, array, where):
        """Return the vertices' rows of an array with a row for each vertex, or for each id."""
        ids = self.original_ids
        rows = array.shape[0] if len(array.shape) in (1, 2) else None
        if rows == self.num_nodes:
            return array
        hint = ""
        if ids is not None:
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
