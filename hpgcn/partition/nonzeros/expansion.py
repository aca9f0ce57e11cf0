"""Neighborhood expansion: parts of a vertex cut grow one after another around few vertices."""
import heapq

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.reordering import random_order
from hpgcn.kernels.host.jit import jit


def expand(u, v, n, k, seed):
    """Assign edges to parts that grow one after another; return part of each edge, (edges,).

    A part takes all edges among the vertices that it has reached. It starts at a vertex
    of least degree, and reaches the neighbors of one of its vertices after another. The
    next vertex is the one with the fewest edges left; the lowest one wins ties. A part
    is full with its share of the edges that were left when it began; the last part
    takes all.

    This is a `deal` of `vertex_cut`. It takes O(edges x parts of a vertex) operations
    of one thread, and a heap (Zhang et al., Graph edge partitioning via neighborhood
    heuristic, KDD 2017).
    """
    edges = np.arange(u.size, dtype=np.int32)
    arcs = sp.coo_array((np.tile(edges, 2), (np.concatenate([u, v]), np.concatenate([v, u]))),
                        shape=(n, n)).tocsr()
    keys = random_order(n, seed)  # the seed orders vertices of equal degree
    indptr = arcs.indptr.astype(np.int64)
    degree = np.diff(indptr)
    start = keys[np.argsort(degree[keys], kind="stable")]
    return _expand(indptr, arcs.indices, arcs.data, degree, start, k)


@jit()
def _expand(indptr, indices, edge, rest, start, k):
    """Return the part of each edge, as `expand`; entry i of the CSR graph is of edge[i].

    `rest` (n,) int64 has the edges of each vertex that are in no part yet: its degree
    at first, 0 in the end.
    """
    n = indptr.size - 1
    left = edge.size // 2
    part = np.full(left, -1, np.int32)
    reached = np.full(n, -1, np.int32)  # the last part that reached a vertex
    done = np.full(n, -1, np.int32)  # the last part that reached all neighbors of a vertex
    next_start = 0
    for p in range(k):
        # a part takes its share of the edges that are left
        full = left - -(-left // (k - p))
        heap = [(np.int64(n), np.int64(0))]  # the first item gives Numba the type
        while left > full:
            # next vertex: the reached one with the fewest edges left
            fewest, x = heapq.heappop(heap)
            if fewest == n:  # the heap has nothing else
                while rest[start[next_start]] == 0:
                    next_start += 1
                x = np.int64(start[next_start])
                left = _reach(indptr, indices, edge, x, p, part, rest, reached, left, heap)
                heapq.heappush(heap, (np.int64(n), np.int64(0)))
            elif done[x] == p or fewest != rest[x] or fewest == 0:
                continue  # also if the vertex had more edges when it was pushed

            # the part reaches the neighbors of x
            done[x] = p
            for i in range(indptr[x], indptr[x + 1]):
                if part[edge[i]] < 0 and left > full:
                    left = _reach(indptr, indices, edge, np.int64(indices[i]), p, part, rest,
                                  reached, left, heap)
    return part


@jit()
def _reach(indptr, indices, edge, y, p, part, rest, reached, left, heap):
    """Give part p all edges between vertex y and its vertices; return the number left."""
    reached[y] = p
    for i in range(indptr[y], indptr[y + 1]):
        z = np.int64(indices[i])
        if part[edge[i]] < 0 and reached[z] == p:
            part[edge[i]] = p
            left -= 1
            rest[y] -= 1
            rest[z] -= 1
            heapq.heappush(heap, (rest[z], z))
    heapq.heappush(heap, (rest[y], y))
    return left
