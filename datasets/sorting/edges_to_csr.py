"""Conversion of an edge list in memory into CSR; `external` does it on disk."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.source import truncate
from hpgcn.errors import DataError
from hpgcn.graphs.adjacency import (
    build_adjacency,
    check_duplicates,
    merged_adjacency,
    repeated_loops,
    without,
)
from hpgcn.graphs.edge_weights import count_rounded, rounded_note, stored_as_zero
from hpgcn.graphs.validation import check_finite
from hpgcn.kernels.entries import mark_neighbors

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.graphs.adjacency import Counts


def build(raw: Raw, where: str, notes: list[str], options: ConvertOptions) -> tuple[list, Counts]:
    """Build CSR from the edges of `raw`, and free these, by the user's ConvertOptions.

    Return (indptr, indices, data) and Counts like
    `hpgcn.graphs.adjacency.build_adjacency`, and append notes for the user to `notes`.
    DataError without vertices, and for weights that are not finite. With `strict` also
    for self loops and repeated edges.
    """
    # refuse or drop edges
    if options.reverse:
        raw.rows, raw.columns = raw.columns, raw.rows
    _drop_zeros(raw, options.unweighted, where, notes)
    if not raw.num_nodes:
        raise DataError(f"{where}: no vertices")
    if options.strict:
        _refuse_irregular(raw, where)

    # merge duplicates
    duplicates = check_duplicates(options.duplicates)
    shared = {"symmetrize": options.symmetrize or raw.symmetrize or raw.undirected, "name": where}
    edges = raw.rows, raw.columns, raw.values
    with np.errstate(over="ignore"):
        total = 0.0 if raw.values is None else np.abs(raw.values).sum(dtype=np.float64)
    again = not np.isfinite(total)  # an overflow may depend on the order of summation
    if not again:
        *csr, counts = merged_adjacency(*edges, raw.num_nodes, duplicates, **shared)
        again = raw.values is not None and counts.duplicates

    # sum weights of repeated edges in the order of the input
    if again:  # SciPy's order of summation differs
        loops = repeated_loops(*edges[:2])
        if duplicates == "sum-edges":
            edges = without(loops, *edges)
        order, first = _grouped(*edges[:2])
        sums = np.bincount(np.cumsum(first) - 1, edges[2][order])
        rows = edges[0][order][first]
        *csr, counts = build_adjacency(rows, edges[1][order][first], sums, raw.num_nodes,
                                       **shared)
        counts.duplicates = raw.rows.size - rows.size
        counts.repeated_loops = loops.size
        counts.ones = False

    # free the memory of the edges
    raw.rows = raw.columns = raw.values = None
    if options.strict and raw.undirected and raw.symmetrize and counts.asymmetric:
        raise DataError(f"{where}: {counts.asymmetric} edges are listed in only one direction, but "
                        "the format lists both")
    return csr, counts


def count_isolated(indptr: np.ndarray, indices: np.ndarray) -> int:
    """Return the number of vertices in a CSR that have no edges to other vertices."""
    touched = np.zeros(indptr.size - 1, bool)
    mark_neighbors(indptr, indices, touched)
    return int(np.count_nonzero(~touched))


def describe_zeros(count: int) -> str:
    """Return the note that `count` entries of weight 0 were dropped, and how to keep them."""
    return (f"{count} entries of weight 0 dropped (as float32), also with --unweighted; use "
            "--columns u,v,- to keep them in an edge list")


def _grouped(rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the stable order of entries, and whether each differs from the one before."""
    order = np.lexsort((columns, rows))
    rows = rows[order]
    columns = columns[order]
    first = np.ones(order.size, bool)
    first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    return order, first


def _drop_zeros(raw: Raw, unweighted: bool, where: str, notes: list[str]) -> None:
    """Drop entries of weight 0 from `raw`, and all values if they are then 1."""
    if raw.values is None:
        return

    if raw.values.dtype.kind not in "fiub":
        raise DataError(f"{where}: weights have dtype {raw.values.dtype}, expected numbers")
    check_finite(raw.values, f"{where}: weight")

    kept = ~stored_as_zero(raw.values)
    zeros = kept.size - int(np.count_nonzero(kept))
    if zeros:
        raw.rows = raw.rows[kept]
        raw.columns = raw.columns[kept]
        raw.values = raw.values[kept]
        notes.append(describe_zeros(zeros))

    if unweighted or np.all(raw.values == 1):
        raw.values = None
    elif lost := count_rounded(raw.values):
        notes.append(rounded_note(lost))


def _refuse_irregular(raw: Raw, where: str) -> None:
    loops = np.flatnonzero(raw.rows == raw.columns)
    order, first = _grouped(raw.rows, raw.columns)
    for kind, entries in (("self loops", loops), ("duplicate edges", np.sort(order[~first]))):
        if entries.size:
            k = entries[0]
            ends = np.array([raw.rows[k], raw.columns[k]])
            u, v = ends if raw.original_ids is None else raw.original_ids[ends]
            raise DataError(f"{where}: {entries.size} {kind}, the first at entry {k}: "
                            f"{truncate(u)} -> {truncate(v)} (--strict)")
