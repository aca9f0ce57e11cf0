"""What a reader returns: a graph as its file has it, before duplicates are merged and anything is checked twice."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError

ROW_FIRST = ("u", "v")  # which end of an edge is the row of the adjacency, and which its column
TARGET_FIRST = ("target", "source")  # as PyG aggregates


class Numbering(NamedTuple):
    """How the ids of an edge list become vertices 0..num_nodes - 1.

    Attributes
    ----------
    num_nodes : int
    original_ids : (num_nodes,) int64 or None
        Id of each vertex, where ids were relabelled; None where they are kept.
    distinct : int
        Ids that are in an edge.
    first : int
        The smallest of them.
    """

    num_nodes: int
    original_ids: np.ndarray | None
    distinct: int
    first: int


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


def ids_are_kept(largest, distinct, counted=None):
    """Whether ids are the numbers of vertices: else they are relabelled in increasing order.

    They are where the largest is below 2 x (distinct ids) + 1024, unless the input counts its vertices (`counted`) and
    has as many distinct ids as that.
    """
    return largest < 2 * distinct + 1024 and (counted != distinct or largest + 1 == distinct)


def compact_ids(rows, columns, counted=None):
    """Number the vertices of an edge list that does not say which numbers they have.

    Parameters
    ----------
    rows, columns : (e,) int64, not negative
    counted : int, optional
        Vertices that the input says it has.

    Returns
    -------
    Numbering, rows, columns
    """
    if not rows.size:
        return Numbering(0, None, 0, 0), rows, columns
    largest = max(int(rows.max()), int(columns.max()))
    if largest >= 4 * rows.size + 1024:  # there are at most 2 e distinct ids
        ids, inverse = np.unique(np.concatenate([rows, columns]), return_inverse=True)
        return Numbering(ids.size, ids, ids.size, int(ids[0])), inverse[:rows.size], inverse[rows.size:]
    present = np.zeros(largest + 1, bool)
    present[rows] = True
    present[columns] = True
    distinct, first = int(np.count_nonzero(present)), int(np.argmax(present))
    if ids_are_kept(largest, distinct, counted):
        return Numbering(largest + 1, None, distinct, first), rows, columns
    number = np.cumsum(present) - 1
    return Numbering(distinct, np.flatnonzero(present), distinct, first), number[rows], number[columns]


def rows_by_vertex(array, raw, where, notes):
    """Return an array with a row for each vertex, or for each id up to the largest, as one for each vertex."""
    n, ids = raw.num_nodes, raw.original_ids
    rows = array.shape[0] if len(array.shape) in (1, 2) else None
    if rows == n:
        return array
    up_to_largest = 0 if ids is None else int(ids[-1]) - raw.base + 1
    if ids is not None and rows == up_to_largest:
        notes.append(f"{where} have a row for each id {raw.base}..{ids[-1]}: those of the {n} vertices are taken")
        return array[ids - raw.base]
    hint = ""
    if ids is not None:
        hint = f", one for each distinct id in increasing order (or {up_to_largest}, one for each id)"
    elif raw.first == 1 and rows == n - 1:
        hint = "; ids begin at 1: --base 1 leaves out vertex 0"
    raise DataError(f"{where} have shape {tuple(array.shape)}, expected {n} rows{hint}")
