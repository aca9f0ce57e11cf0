"""An edge list in memory into CSR: the small twin of hpgcn.datasets.external."""
from __future__ import annotations

import numpy as np

from hpgcn.check import check_finite
from hpgcn.errors import DataError
from hpgcn.graph import build_adjacency


def build(raw, where, notes, *, reverse, symmetrize, unweighted, strict):
    """Make a CSR of what was read into memory.

    Parameters
    ----------
    raw : Raw
        Its edges are let go of.
    where : str
        The input, for errors.
    notes : list of str
        What a user should know is added.
    reverse, symmetrize, unweighted, strict : bool
        As in `convert.read`.

    Returns
    -------
    (indptr, indices, data), Counts
        As `hpgcn.graph.build_adjacency`.

    Raises
    ------
    DataError
        No vertices; weights that are no finite numbers; strict, and a self loop or an edge that is there twice.
    """
    if reverse:
        raw.rows, raw.columns = raw.columns, raw.rows
    _drop_zeros(raw, unweighted, where, notes)
    if not raw.num_nodes:
        raise DataError(f"{where}: no vertices")
    if strict:
        _refuse_irregular(raw, where)
    options = {"symmetrize": symmetrize or raw.symmetrize or raw.undirected, "name": where}
    with np.errstate(over="ignore"):
        large = raw.values is not None and not np.isfinite(np.abs(raw.values).sum(dtype=np.float64))
    if not large:
        *csr, counts = build_adjacency(raw.rows, raw.columns, raw.values, raw.num_nodes, **options)
    if large or (raw.values is not None and counts.duplicates):
        rows, columns, values = _summed(raw)
        *csr, counts = build_adjacency(rows, columns, values, raw.num_nodes, **options)
        counts.duplicates = raw.rows.size - rows.size
    raw.rows = raw.columns = raw.values = None
    if strict and raw.undirected and raw.symmetrize and counts.asymmetric:
        raise DataError(f"{where}: {counts.asymmetric} edges are listed in one direction only, the format lists both")
    return csr, counts


def count_isolated(indptr, indices):
    """Return the number of vertices of a CSR without edges to others."""
    n = indptr.size - 1
    loops = np.bincount(indices[indices == np.repeat(np.arange(n), np.diff(indptr))], minlength=n)
    return int(np.count_nonzero(np.diff(indptr) + np.bincount(indices, minlength=n) == 2 * loops))


def _summed(raw):
    """Rows, columns and values without duplicates: weights are summed in the order of the input, on any machine."""
    order = np.lexsort((raw.columns, raw.rows))
    rows, columns = raw.rows[order], raw.columns[order]
    first = np.ones(order.size, bool)
    first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    return rows[first], columns[first], np.bincount(np.cumsum(first) - 1, raw.values[order])


def _drop_zeros(raw, unweighted, where, notes):
    """Leave out entries of weight 0: they are no edges, and do not turn a 0/1 input into a valued one."""
    if raw.values is None:
        return
    if raw.values.dtype.kind not in "fiub":
        raise DataError(f"{where}: weights have dtype {raw.values.dtype}, expected numbers")
    check_finite(raw.values, f"{where}: weight")
    kept = raw.values != 0
    zeros = kept.size - int(np.count_nonzero(kept))
    if zeros:
        raw.rows, raw.columns, raw.values = raw.rows[kept], raw.columns[kept], raw.values[kept]
        notes.append(f"{zeros} entries of weight 0 dropped")
    if unweighted or np.all(raw.values == 1):
        raw.values = None


def _refuse_irregular(raw, where):
    """Refuse self loops and duplicates, naming the first."""
    def edge(k):
        u, v = (int(ids[k]) if raw.original_ids is None else int(raw.original_ids[ids[k]])
                for ids in (raw.rows, raw.columns))
        return f"{u} -> {v}"

    loops = np.flatnonzero(raw.rows == raw.columns)
    if loops.size:
        raise DataError(f"{where}: {loops.size} self loops, the first at entry {loops[0]}: {edge(loops[0])} (--strict)")
    order = np.lexsort((raw.columns, raw.rows))
    rows, columns = raw.rows[order], raw.columns[order]
    again = order[1:][(rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1])]
    if again.size:
        raise DataError(f"{where}: {again.size} duplicate edges, the first at entry {again.min()}: {edge(again.min())} "
                        "(--strict)")
