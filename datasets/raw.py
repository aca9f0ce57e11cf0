"""What a reader returns: a graph as its file has it, before duplicates are merged and anything is checked twice."""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp


@dataclass
class Raw:
    """Entries of the adjacency in any order, and what came with them.

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
    undirected : bool
        The input says of itself that its edges have no direction.
    symmetrize : bool
        The format lists each edge at both ends: max(A, A^T) is always taken.
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
    undirected: bool = False
    symmetrize: bool = False
    row_normalize: bool = False
    notes: list[str] = field(default_factory=list)


def compact_ids(rows, columns):
    """Number the vertices of an edge list that does not say how many there are.

    Ids are kept when the largest is below 2 x (distinct ids) + 1024; else they are relabelled in increasing order.

    Parameters
    ----------
    rows, columns : (e,) int64, not negative

    Returns
    -------
    num_nodes, rows, columns, original_ids ((n,) int64, or None where ids were kept)
    """
    if not rows.size:
        return 0, rows, columns, None
    largest = max(int(rows.max()), int(columns.max()))
    if largest >= 4 * rows.size + 1024:  # there are at most 2 e distinct ids
        ids, inverse = np.unique(np.concatenate([rows, columns]), return_inverse=True)
        return ids.size, inverse[:rows.size], inverse[rows.size:], ids
    present = np.zeros(largest + 1, bool)
    present[rows] = True
    present[columns] = True
    if largest < 2 * np.count_nonzero(present) + 1024:
        return largest + 1, rows, columns, None
    number = np.cumsum(present) - 1
    return int(number[-1]) + 1, number[rows], number[columns], np.flatnonzero(present)
