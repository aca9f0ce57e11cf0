"""Exact numbers of triangles at each vertex of an undirected graph.

Each edge is directed to the end of higher degree, or to the higher number if degrees
are equal. So a triangle is found once, from its lowest vertex. Even the rows of hubs
are short: the work is O(nnz^1.5) steps.

Source: T. Schank, D. Wagner, Finding, Counting and Listing all Triangles, WEA 2005.
"""
from typing import Any

import numpy as np

from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import Threaded, chunks

ROWS = 64  # rows per chunk


class Triangles:
    """A graph prepared for counting its triangles.

    `indptr` (n + 1,) int64 and `indices` (nnz,) int32 or int64 are those of a symmetric
    CSR matrix without diagonal, increasing in each row. The prepared graph takes about
    the same memory again.

    Attributes
    ----------
    steps : int
        Comparisons that `count` makes.
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray) -> None:
        self.indptr, self.indices = _upward(indptr, indices)
        self.steps = int(_steps(self.indptr, self.indices))

    def count(self) -> np.ndarray:
        """Return the number of triangles at each vertex, (n,) int64."""
        n = self.indptr.size - 1
        found = np.zeros(self.indices.size, self.indices.dtype)
        _count(self.steps, self.indptr, self.indices, -(-n // ROWS), found)
        return _at_vertices(self.indptr, self.indices, found)


@jit()
def _upward(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the CSR of the entries whose column is above the row.

    A vertex is above another if it has a higher degree, or the same degree and a higher
    number.
    """
    n = indptr.size - 1
    upward = np.zeros(n + 1, np.int64)
    end = 0
    kept = np.empty(indices.size // 2, indices.dtype)
    for u in range(n):
        degree = indptr[u + 1] - indptr[u]
        for k in range(indptr[u], indptr[u + 1]):
            v = indices[k]
            other = indptr[v + 1] - indptr[v]
            if degree < other or (degree == other and u < v):
                kept[end] = v
                end += 1
        upward[u + 1] = end
    return upward, kept


@jit()
def _steps(indptr: np.ndarray, indices: np.ndarray) -> Any:
    """Return a bound of the comparisons that merge both ends' rows."""
    total = np.int64(0)
    for u in range(indptr.size - 1):
        for k in range(indptr[u], indptr[u + 1]):
            v = indices[k]
            total += indptr[u + 1] - indptr[u] + indptr[v + 1] - indptr[v]
    return total


def _count_chunks(counters: Any, indptr: np.ndarray, indices: np.ndarray, count: int,
                  found: np.ndarray) -> None:
    """Count triangles from their lowest vertex u.

    Each triangle is added to `found` (nnz,) at its two entries of row u.
    """
    n = indptr.size - 1
    for chunk in chunks(counters, count):
        for u in range(chunk * ROWS, min(n, (chunk + 1) * ROWS)):
            stop = indptr[u + 1]
            for k in range(indptr[u], stop):
                v = indices[k]
                i = indptr[u]
                j = indptr[v]
                end = indptr[v + 1]
                while i < stop and j < end:
                    if indices[i] < indices[j]:
                        i += 1
                    elif indices[i] > indices[j]:
                        j += 1
                    else:
                        found[k] += 1
                        found[i] += 1
                        i += 1
                        j += 1


_count = Threaded(_count_chunks)


@jit()
def _at_vertices(indptr: np.ndarray, indices: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Turn counts of entries into counts of vertices.

    Each entry's count goes to its column, and half of it to its row.
    """
    n = indptr.size - 1
    triangles = np.zeros(n, np.int64)
    for u in range(n):
        own = np.int64(0)
        for k in range(indptr[u], indptr[u + 1]):
            triangles[indices[k]] += found[k]
            own += found[k]
        triangles[u] += own // 2
    return triangles
