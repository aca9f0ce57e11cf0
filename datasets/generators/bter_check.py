"""Comparison of a graph's degrees and clustering with the requested ones."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.generators.degree_distribution import by_degree
from hpgcn.datasets.generators.triangles import Triangles

if TYPE_CHECKING:
    from hpgcn.datasets.generators.degree_distribution import Degrees

EXACT_STEPS = 1 << 33  # comparisons, a few seconds; if more are needed, wedges are sampled
ENTRY_BYTES = 8  # memory per entry to count triangles
WEDGES = 1000  # wedges drawn from each class of degrees
WIDTH = 1.1  # bound on the ratio of degrees in a class of several degrees


def describe_match(degrees: Degrees, indptr: Any, indices: Any, room: int) -> str:
    """Return one line that compares a graph with the requested Degrees.

    It compares edges, degrees and clustering. `indptr` and `indices` are arrays or
    DiskArrays. KS is the Kolmogorov-Smirnov distance: the largest difference of the
    shares of vertices up to a degree. The difference of clustering is absolute, and a
    mean over the vertices with a requested clustering and two neighbors or more. All
    triangles are counted if that fits into `room` bytes and takes some seconds.
    Otherwise wedges of each degree are drawn.

    Source: C. Seshadhri, A. Pinar, T. G. Kolda, Triadic Measures on Graphs: The Power
    of Wedge Sampling, SDM 2013.
    """
    indptr = indptr[:]
    degree = np.diff(indptr)
    values, clustering, how = _clustering(indptr, indices, degree, room)
    words = [f"{indices.shape[0] // 2:,} of {degrees.num_edges:,} edges",
             f"degrees: KS {ks_distance(degrees.counts, np.bincount(degree)):.4f}"]
    difference = clustering_difference(degrees, values, clustering)
    if difference is not None:
        words.append(f"clustering by degree: mean difference {difference:.4f} over vertices{how}")
    return ", ".join(words)


def ks_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Return the largest difference of two cumulative distributions, from their counts."""
    size = max(first.size, second.size)
    shares = np.zeros((2, size))
    shares[0, :first.size] = first / first.sum()
    shares[1, :second.size] = second / second.sum()
    return float(np.abs(np.diff(np.cumsum(shares, axis=1), axis=0)).max())


def clustering_difference(degrees: Degrees, values: np.ndarray,
                          clustering: np.ndarray) -> float | None:
    """Return the mean over vertices of |clustering - requested|; None without a request.

    `values` (k,) are increasing degrees, and `clustering` (k,) is the clustering of
    each. Between them it is interpolated linearly.
    """
    asked = np.flatnonzero((degrees.counts > 0) & ~np.isnan(degrees.clustering))
    asked = asked[asked >= 2]
    if not asked.size:
        return None
    made = np.interp(asked, values, clustering) if values.size else np.zeros(asked.size)
    return float(np.average(np.abs(made - degrees.clustering[asked]),
                            weights=degrees.counts[asked]))


def _clustering(indptr: np.ndarray, indices: Any, degree: np.ndarray,
                room: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Return increasing degrees from 2 on, the clustering of each, and how it was found."""
    if isinstance(indices, np.ndarray) and ENTRY_BYTES * (indices.size + indptr.size) <= room:
        triangles = Triangles(indptr, indices)
        if triangles.steps <= EXACT_STEPS:
            _, clustering = by_degree(degree, triangles.count())
            known = np.flatnonzero(~np.isnan(clustering))
            return known, clustering[known], ""
    values, clustering = sampled(indptr, indices, degree)
    return values, clustering, f", by {WEDGES * values.size:,} wedges"


def sampled(indptr: np.ndarray, indices: Any, degree: np.ndarray,
            wedges: int = WEDGES) -> tuple[np.ndarray, np.ndarray]:
    """Estimate clustering: return (k,) mean degrees and (k,) shares of closed wedges.

    Vertices are grouped into classes of about equal degree. `wedges` wedges are drawn
    from each class by a key: a vertex, and two of its neighbors. The standard error of
    a share c is sqrt(c (1 - c) / wedges).
    """
    # form classes of degrees from 2 on; each ends at WIDTH times its first degree
    order = np.argsort(degree, kind="stable")
    ordered = degree[order]
    first = int(np.searchsorted(ordered, 2))
    values = []
    shares = []
    while first < order.size:
        low = int(ordered[first])
        stop = int(np.searchsorted(ordered, max(low + 1, WIDTH * low)))

        # draw centers, and two different neighbors of each
        draws = np.random.Generator(np.random.Philox(key=[low, 21]))
        centers = np.sort(order[draws.integers(first, stop, wedges)])
        one = draws.integers(0, degree[centers])
        other = draws.integers(0, degree[centers] - 1)
        other += other >= one

        # a wedge is closed if its ends are neighbors; search the shorter row
        closed = 0
        for center, a, b in zip(centers, one, other):
            start = int(indptr[center])
            u, v = sorted((int(indices[start + k:start + k + 1][0]) for k in (a, b)),
                          key=degree.__getitem__)
            row = indices[int(indptr[u]):int(indptr[u + 1])]
            position = int(np.searchsorted(row, v))
            closed += position < row.size and row[position] == v
        values.append(ordered[first:stop].mean())
        shares.append(closed / wedges)
        first = stop
    return np.array(values), np.array(shares)
