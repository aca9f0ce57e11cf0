"""Count the rows that parts exchange, and split vertices, in two compiled passes."""
from collections import namedtuple

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.kernels.jit import jit

# For each part: rows sent, rows received, parts that it sends to, vertices of its edges, split
# vertices among these. The last field is the number of split vertices.
PartCounts = namedtuple("PartCounts", "sent received destinations vertices split_vertices split")


def count_parts(rows, part, k):
    """Count the exchange of parts that own whole rows; return PartCounts.

    Parameters
    ----------
    rows : csr_array (n, n)
        As `hpgcn.partition.rows.partition_model.pattern`.
    part : (n,) integers in [0, k)
    k : int

    Returns
    -------
    PartCounts
        Arrays (k,) int64, and an int. An edge is an entry off the diagonal; a vertex is
        split if several parts hold its edges.
    """
    order = np.argsort(part, kind="stable")
    offsets = run_offsets(np.bincount(part, minlength=k))
    sent, received, destinations, vertices, split_vertices = np.zeros((5, k), np.int64)
    split = _count(rows.indptr.astype(np.int64, copy=False), rows.indices, order, offsets,
                   part.astype(np.int32, copy=False), sent, received, destinations, vertices,
                   split_vertices)
    return PartCounts(sent, received, destinations, vertices, split_vertices, int(split))


@jit()
def _count(indptr, indices, order, offsets, part, sent, received, destinations, vertices,
           split_vertices):
    n = part.size
    k = offsets.size - 1
    last = np.full(n, -1, np.int32)  # last part that was seen with an edge of a vertex
    held = np.zeros(n, np.int32)  # parts that hold edges of a vertex

    # rows between parts, and the vertices of each part's edges
    for p in range(k):
        meets = np.zeros(k, np.bool_)
        for t in range(offsets[p], offsets[p + 1]):
            i = order[t]
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                if j != i and last[j] != p:
                    last[j] = p
                    held[j] += 1
                    vertices[p] += 1
                    q = part[j]
                    if q != p:
                        sent[q] += 1
                        received[p] += 1
                        destinations[q] += not meets[q]
                        meets[q] = True

        # rows whose own columns this part does not read
        for t in range(offsets[p], offsets[p + 1]):
            i = order[t]
            if last[i] != p and _has_edge(indptr, indices, i):
                last[i] = p
                held[i] += 1
                vertices[p] += 1

    # those of them that are split
    last[:] = -1
    for p in range(k):
        for t in range(offsets[p], offsets[p + 1]):
            i = order[t]
            edge = False
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                edge = edge or j != i
                if j != i and last[j] != p:
                    last[j] = p
                    split_vertices[p] += held[j] > 1
            if edge and last[i] != p:
                last[i] = p
                split_vertices[p] += held[i] > 1
    return np.count_nonzero(held > 1)


@jit()
def _has_edge(indptr, indices, i):
    edge = False
    for e in range(indptr[i], indptr[i + 1]):
        edge = edge or indices[e] != i
    return edge
