"""Orders of the vertices, new -> old: reverse Cuthill-McKee, and random ones."""

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.adjacency import LARGE


def symmetric_pattern(csr):
    """Return the pattern of A + A^T, bool csr_array (n, n), sorted; explicit zeros are entries."""
    pattern = sp.csr_array((np.ones(csr.nnz, bool), csr.indices, csr.indptr), shape=csr.shape)
    both = sp.csr_array(pattern + pattern.T.tocsr())
    both.sort_indices()
    return both


def rcm_within_parts(graph, part, k, original_ties=False):
    """Order the vertices of each part by reverse Cuthill-McKee on the subgraph that the
    part induces.

    `graph` has all rows, `part` is (n,) in [0, k); return (n,) int64 new -> old, part
    after part. One RCM over the edges inside parts orders all parts at once, since no
    edge joins two parts. Vertices of equal degree are searched in the order of the
    rows, or with `original_ties` in that of their ORIGINAL numbers.

    Source: A. George, J. W. Liu, Computer Solution of Large Sparse Positive Definite
    Systems, 1981, section 4.2.
    """
    n = graph.header.num_nodes
    part = np.asarray(part)
    if graph.indices.size >= LARGE and not graph.header.directed:
        return _rcm_compiled(graph, part, k, original_ties)
    if original_ties:
        row = np.argsort(graph.vertex)
        return row[rcm_within_parts(graph.in_original_order(), part[row], k)]

    rows = np.repeat(np.arange(n, dtype=graph.indices.dtype), np.diff(graph.indptr))
    inside = part[rows] == part[graph.indices]
    columns = graph.indices[inside]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[inside], minlength=n))])
    intra = sp.csr_array((np.ones(columns.size, bool), columns, indptr), shape=(n, n))
    order = _rcm(symmetric_pattern(intra) if graph.header.directed else intra)
    return order[np.argsort(part[order], kind="stable")]


def random_order(n, seed):
    """Return a random order of n vertices, (n,) int64 new -> old; draws depend only on
    (seed, vertex).
    """
    keys = np.random.Philox(key=seed).random_raw(n)
    below = np.uint64((1 << max(1, n - 1).bit_length()) - 1)
    # the vertex number in the low bits: no two keys are equal, and numbers need no
    # argsort
    keys = (keys & ~below) | np.arange(n, dtype=np.uint64)
    keys.sort()
    return (keys & below).astype(np.int64)


def bandwidth(csr):
    """Return the largest |i - j| over the entries of a CSR matrix; 0 if there are none."""
    rows = np.flatnonzero(np.diff(csr.indptr))
    if not rows.size:
        return 0
    starts = csr.indptr[rows]
    below = rows - np.minimum.reduceat(csr.indices, starts)
    return int(max(below.max(), (np.maximum.reduceat(csr.indices, starts) - rows).max(), 0))


def pipeline_stages(n, bandwidth):
    """Return the number of row batches sent before the last one is aggregated (mixgcn,
    Proposition 3.5).
    """
    return -(-2 * n // (n - bandwidth)) if n else 0


def profile(graph, iperm):
    """Return bandwidth and pipeline stages in the stored order and in the order
    `iperm`, old -> new; a dict.
    """
    n = graph.header.num_nodes
    stored = bandwidth(graph)
    if graph.indices.size >= LARGE:
        from hpgcn.kernels import orders  # late, as it starts the compiler

        ordered = orders.spread(graph.indptr, graph.indices, iperm)
    else:
        rows = np.repeat(np.arange(n), np.diff(graph.indptr))
        ordered = int(np.abs(iperm[rows] - iperm[graph.indices]).max(initial=0))
    return {"bandwidth_stored": stored, "bandwidth": ordered,
            "stages_stored": pipeline_stages(n, stored), "stages": pipeline_stages(n, ordered)}


def _rcm_compiled(graph, part, k, original_ties):
    """Return the order of `rcm_within_parts`, in compiled passes on all threads."""
    from hpgcn.kernels import orders  # late, as it starts the compiler

    # the vertices of each part by the number of their neighbors in it
    degrees = np.empty(part.size, np.int64)
    orders.inner_degrees(graph.indptr, graph.indices, part, degrees)
    if original_ties:
        row = np.empty_like(graph.vertex)
        row[graph.vertex] = np.arange(row.size)
        by_degree = row[np.argsort(degrees[row], kind="stable")]
    else:
        by_degree = np.argsort(degrees, kind="stable")
    by_degree = by_degree[np.argsort(part[by_degree], kind="stable")]
    number = np.empty_like(by_degree)
    number[by_degree] = np.arange(part.size)

    # search each part
    offsets = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=k))])
    order = degrees
    orders.reverse_cuthill_mckee(graph.indptr, graph.indices, part, offsets, by_degree, number,
                                 order)
    return order


def _rcm(symmetric):
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # takes long to import

    # SciPy sorts the neighbours of each vertex by degree with an insertion sort,
    # quadratic at a hub; numbered by degree beforehand they come sorted already.
    rows, columns = symmetric.tocoo().coords
    kept = rows != columns
    degrees = np.bincount(rows[kept], minlength=symmetric.shape[0])
    by_degree = np.argsort(degrees, kind="stable")
    number = np.empty(by_degree.size, symmetric.indices.dtype)
    number[by_degree] = np.arange(by_degree.size, dtype=number.dtype)
    coords = (number[rows[kept]], number[columns[kept]])
    ranked = sp.csr_array((np.ones(coords[0].size, bool), coords), shape=symmetric.shape)
    ranked.sort_indices()
    order = reverse_cuthill_mckee(ranked, symmetric_mode=True)
    return by_degree[order].astype(np.int64, copy=False)
