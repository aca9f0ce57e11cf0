"""Input of partitioners: hypergraphs and graphs of a matrix, and isolated vertices."""
import math
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.adjacency import LARGE
from hpgcn.graphs.normalization import with_self_loops
from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.reordering import random_order, symmetric_pattern
from hpgcn.parallel.csr import bool_matrix

DENSE_SPEED = 4  # dense operations in the time of a sparse one


def pattern(graph):
    """Return the pattern of A + I, bool csr_array (n, n): the rows that an exchange reads."""
    if graph.indices.size < LARGE:
        indptr, indices, _, _ = with_self_loops(graph)
        return bool_matrix(indptr, indices)

    from hpgcn.parallel.pattern_counts import with_loops  # late, as it starts the compiler

    return bool_matrix(*with_loops(graph.indptr, graph.indices))


def entry_rows(rows):
    """Return the row of each entry of a CSR matrix or a Graph, (nnz,) of the columns' dtype."""
    return np.repeat(np.arange(rows.indptr.size - 1, dtype=rows.indices.dtype),
                     np.diff(rows.indptr))


def holders(graph, rows, edge_part, owner):
    """Return the holder of each entry of a graph's `pattern`, (nnz,) int32.

    `edge_part` (nnz,) has the part of each stored entry. Entries on the diagonal belong
    to the owner of their vertex.
    """
    number = entry_rows(rows)
    holder = owner[number].astype(np.int32, copy=False)
    holder[number != rows.indices] = edge_part[entry_rows(graph) != graph.indices]
    return holder


def stored_holders(graph, rows, holder):
    """Select the holders of the stored entries, int32, from those of all entries of `pattern`."""
    number = entry_rows(rows)
    stored = number != rows.indices
    looped = np.zeros(graph.num_rows, bool)
    looped[graph.indices[entry_rows(graph) == graph.indices]] = True
    return holder[stored | looped[number]]


def column_nets(rows):
    """Make the column nets {i : a_ij != 0} of a pattern (demirci-2022, section 4.3.2).

    Nets of one pin are left out, because they cannot be cut. Return offsets (nets + 1,)
    int64, and pins. Net e joins the vertices pins[offsets[e]:offsets[e + 1]].
    """
    return cut_nets(rows.tocsc())


def cut_nets(nets, chosen=None):
    """Return offsets and pins of the nets of several pins, or of those `chosen`, bool.

    A net is a column of a csc_array, or a row of a csr_array.
    """
    sizes = np.diff(nets.indptr)
    kept = sizes > 1 if chosen is None else chosen
    return run_offsets(sizes[kept]), nets.indices[np.repeat(kept, sizes)]


def cluster_nets(rows, number, size, limit, seed=0):
    """Make the column nets of clusters of rows, where a cluster is a pin once.

    Nets of one pin are left out. If all other nets have more than `limit` pins, a
    sample of nets is drawn with equal chances, by `seed`.

    Parameters
    ----------
    rows : csr_array (m, n)
    number : (m,) int32
        Cluster of each row.
    size : int
        Number of clusters.
    limit : int

    Returns
    -------
    dict
        offsets (nets + 1,) int64 and pins, as `column_nets`.
    """
    columns = rows.tocsc()
    nets = sp.csr_array((np.ones(columns.nnz, bool), number[columns.indices],
                         columns.indptr.copy()), shape=(columns.shape[1], size))
    del columns
    nets.sum_duplicates()
    sizes = np.diff(nets.indptr)
    kept = sizes > 1

    # a sample of the nets
    chosen = np.flatnonzero(kept)
    if sizes[chosen].sum() > limit:
        chosen = chosen[random_order(chosen.size, seed)]
        kept[chosen[np.cumsum(sizes[chosen], dtype=np.int64) > limit]] = False
    return dict(zip(("offsets", "pins"), cut_nets(nets, kept)))


def neighbors(rows):
    """Return offsets (n + 1,) int64 and neighbors of the undirected graph behind a pattern."""
    both = symmetric_pattern(rows)
    both.setdiag(False)
    both.eliminate_zeros()
    return both.indptr.astype(np.int64), both.indices


def both_directions(indptr, indices, values):
    """Return the graph behind a matrix of clusters: offsets, adjacent clusters, and costs.

    Costs are the weights of both directions together.
    """
    n = indptr.size - 1
    matrix = sp.csr_array((values, indices, indptr), shape=(n, n))
    both = sp.csr_array(matrix + matrix.T.tocsr())
    both.sort_indices()
    return {"offsets": both.indptr.astype(np.int64), "adjacent": both.indices,
            "costs": both.data.astype(np.int64)}


def dense_weight(widths):
    """Return w0 for a GCN of these widths: the dense work for a row, counted in nonzeros.

    A row is multiplied by W forward, for dW, and for its own gradient except in the
    first layer. A nonzero is multiplied once per exchange and column. A dense operation
    counts as a quarter of a sparse one, which is about the ratio for an SpMM in memory.

    Parameters
    ----------
    widths : sequence of L + 1 int
        Features, hidden widths, classes.

    Returns
    -------
    int
    """
    pairs = list(pairwise(widths))
    dense = sum((3 if layer else 2) * fan_in * fan_out
                for layer, (fan_in, fan_out) in enumerate(pairs))
    sparse = 2 * sum(map(min, pairs))  # the narrower side is exchanged, forward and backward
    if pairs[0][0] < pairs[0][1]:
        sparse -= pairs[0][0]  # if A is applied first, the input needs no gradient
    return round(dense / (DENSE_SPEED * sparse))


def isolated(rows):
    """Return which vertices of a pattern of A + I have entries on the diagonal only, (n,) bool."""
    alone = np.diff(rows.indptr) == 1
    others = rows.indices[entry_rows(rows) != rows.indices]
    alone[others] = False
    return alone


def deal_isolated(part, alone, weights, k, epsilon):
    """Put the isolated vertices `alone`, (n,) bool, into the parts with the fewest rows.

    Return the parts. Isolated vertices cause no messages, and have equal weights. As
    long as there are places, they make no part heavier than (1 + epsilon) times the
    mean. They are dealt in turn, so that a part gets no run of consecutive vertices.
    """
    others = ~alone
    count = alone.size - int(np.count_nonzero(others))
    rows = np.bincount(part[others], minlength=k)
    load = np.bincount(part[others], weights[others], k)
    mean = weights.sum() / k
    limit = max((1 + epsilon) * mean, math.ceil(mean))
    room = np.maximum(0, (limit - load) // weights[np.argmax(alone)]).astype(np.int64)
    if room.sum() < count:
        room[:] = count

    # the least height to which rows are filled up; the first parts are one row higher
    low, high = 0, alone.size
    while low < high:
        height = (low + high) // 2
        enough = np.clip(height - rows, 0, room).sum() >= count
        low, high = (low, height) if enough else (height + 1, high)
    dealt = np.clip(low - 1 - rows, 0, room)
    higher = np.flatnonzero(np.clip(low - rows, 0, room) > dealt)
    dealt[higher[:count - dealt.sum()]] += 1

    # the vertices of a part are spread evenly over all isolated ones
    places = np.concatenate([(np.arange(number) + 0.5) / number for number in dealt])
    part = part.copy()
    part[alone] = np.repeat(np.arange(k), dealt)[np.argsort(places, kind="stable")]
    return part
