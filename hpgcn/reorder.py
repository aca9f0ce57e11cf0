"""Orders of the vertices: reverse Cuthill-McKee, which brings neighbours together, and random ones.

An order is an array new -> old: entry i is the vertex that becomes row i.
"""
from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee


def symmetric_pattern(csr):
    """Pattern of A + A^T as a bool csr_array (n, n) with sorted columns; an explicit zero counts as an entry."""
    pattern = sp.csr_array((np.ones(csr.nnz, bool), csr.indices, csr.indptr), shape=csr.shape)
    both = sp.csr_array(pattern + pattern.T.tocsr())
    both.sort_indices()
    return both


def rcm_order(csr):
    """Reverse Cuthill-McKee order of a square sparse matrix, by the pattern of A + A^T.

    Parameters
    ----------
    csr : scipy.sparse CSR (n, n)

    Returns
    -------
    (n,) int64
        New -> old. The same matrix gives the same order.

    References
    ----------
    A. George, J. W. Liu, Computer Solution of Large Sparse Positive Definite Systems, 1981, section 4.2.
    """
    return _rcm(symmetric_pattern(csr))


def rcm_within_parts(graph, part, k):
    """Order in which the vertices of each part follow RCM of the part's own induced subgraph.

    One RCM over the edges inside parts does all parts at once, since no edge joins two of them.

    Parameters
    ----------
    graph : hpgcn.graph.Graph
        All rows.
    part : (n,) integers in [0, k)

    Returns
    -------
    (n,) int64
        New -> old, part after part.
    """
    n = graph.header.num_nodes
    part = np.asarray(part)
    rows = np.repeat(np.arange(n, dtype=graph.indices.dtype), np.diff(graph.indptr))
    inside = part[rows] == part[graph.indices]
    rows, columns = rows[inside], graph.indices[inside]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    intra = sp.csr_array((np.ones(columns.size, bool), columns, indptr), shape=(n, n))
    order = _rcm(symmetric_pattern(intra) if graph.header.directed else intra)
    return order[np.argsort(part[order], kind="stable")]


def random_order(n, seed):
    """Random order of n vertices: sorted by draws of which each depends on (seed, vertex) alone.

    Returns
    -------
    (n,) int64
        New -> old.
    """
    keys = np.random.Philox(key=seed).random_raw(n)
    below = np.uint64((1 << max(1, n - 1).bit_length()) - 1)
    # the vertex number in the low bits: no two keys are equal, so any sort will do, and numbers need no argsort
    keys = (keys & ~below) | np.arange(n, dtype=np.uint64)
    keys.sort()
    return (keys & below).astype(np.int64)


def bandwidth(csr):
    """Largest |i - j| over the stored entries of CSR rows with sorted columns, from their ends; 0 if there is none."""
    rows = np.flatnonzero(np.diff(csr.indptr))
    ends = csr.indices[[csr.indptr[rows], csr.indptr[rows + 1] - 1]]
    return int(np.abs(ends - rows).max(initial=0))


def pipeline_stages(n, bandwidth):
    """Row batches whose all-to-all can start before the last row is aggregated: ceil(2 n / (n - b)).

    With bandwidth b < n a batch of rows reads no column more than b away (mixgcn, Proposition 3.5).

    Returns
    -------
    int
        0 for no rows.
    """
    return -(-2 * n // (n - bandwidth)) if n else 0


def profile(graph, iperm):
    """Bandwidth and pipeline stages of a graph's adjacency, as stored and in another order.

    Parameters
    ----------
    graph : hpgcn.graph.Graph
        All rows.
    iperm : (n,) integers
        Old -> new row numbers.

    Returns
    -------
    dict of str -> int
        bandwidth_stored, bandwidth, stages_stored, stages.
    """
    n = graph.header.num_nodes
    rows = np.repeat(np.arange(n), np.diff(graph.indptr))
    stored = bandwidth(graph)
    ordered = int(np.abs(iperm[rows] - iperm[graph.indices]).max(initial=0))
    return {"bandwidth_stored": stored, "bandwidth": ordered, "stages_stored": pipeline_stages(n, stored),
            "stages": pipeline_stages(n, ordered)}


def _rcm(symmetric):
    # SciPy sorts the neighbours of each vertex by degree with an insertion sort, quadratic at a hub; numbered by
    # degree beforehand they come sorted already.
    by_degree = np.argsort(np.diff(symmetric.indptr), kind="stable")
    number = np.empty(by_degree.size, symmetric.indices.dtype)
    number[by_degree] = np.arange(by_degree.size, dtype=number.dtype)
    rows, columns = symmetric.tocoo().coords
    loop = rows == columns
    rows, columns = number[rows[~loop]], number[columns[~loop]]
    ranked = sp.csr_array((np.ones(rows.size, bool), (rows, columns)), shape=symmetric.shape)
    ranked.sort_indices()
    return by_degree[reverse_cuthill_mckee(ranked, symmetric_mode=True)].astype(np.int64, copy=False)
