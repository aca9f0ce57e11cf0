"""Degree distributions with a clustering for each degree: the input of BTER graphs.

The clustering of degree d is the share of pairs of neighbors that are neighbors
themselves. It is the mean over the vertices of degree d: c_d = triangles / (d (d - 1) /
2).
"""
from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.source import Source, need, truncate
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.reordering import symmetric_pattern

if TYPE_CHECKING:
    from hpgcn.graphs.graph import Graph

MOST = 1 << 40  # bound on vertices, and on degrees in a file
MOST_SCALED = 1e6
DEGREE_BYTES = 64  # memory per degree up to the largest
FIELDS = ("degree", "count")


@dataclass
class Degrees:
    """The degree distribution of an undirected graph without loops.

    Attributes
    ----------
    name : str
    counts : (k,) int64
        Vertices of each degree from 0 on.
    clustering : (k,) float64
        Clustering of each degree; NaN if unknown, or if there is no target.
    notes : list of str
        Notes for the user.
    """

    name: str
    counts: np.ndarray
    clustering: np.ndarray
    notes: list[str] = field(default_factory=list)

    @property
    def num_nodes(self) -> int:
        return int(self.counts.sum())

    @property
    def num_edges(self) -> int:
        """The number of undirected edges.

        If the sum of degrees is odd, one end is left over.
        """
        return int(self.counts @ np.arange(self.counts.size)) // 2

    def scaled(self, vertices: float, edges: float, memory: int) -> Degrees:
        """Return these Degrees after `with_vertices` and then `with_edges`.

        Raise BudgetError if that needs too much memory.
        """
        more = self.with_vertices(vertices)
        need(DEGREE_BYTES * more.num_nodes, memory, f"{self.name}: {more.num_nodes} vertices")
        return more.with_edges(edges)

    def with_vertices(self, factor: float) -> Degrees:
        """Return Degrees with `factor` times the vertices, the same share for each degree."""
        _check_factor("scale-vertices", factor)
        if self.num_nodes * factor > MOST:
            raise UsageError(f"generate: scale-vertices {factor:g} makes more than {MOST} vertices")
        below = np.rint(np.cumsum(self.counts) * factor).astype(np.int64)
        counts = np.diff(below, prepend=0)
        if not counts.any():
            raise UsageError(f"generate: scale-vertices {factor:g} leaves no vertex of "
                             f"{self.num_nodes}")
        top = int(np.flatnonzero(counts)[-1])
        if top >= counts.sum():
            raise UsageError(f"generate: scale-vertices {factor:g} leaves {counts.sum()} vertices, "
                             f"but one of them has degree {top}")
        return dataclasses.replace(self, counts=counts)

    def with_edges(self, factor: float) -> Degrees:
        """Return Degrees with `factor` times the degree of every vertex.

        Balin et al. (MG-GCN, 2021, section 6.1) make denser graphs of the same vertices
        in this way. Vertices of degree d are spread evenly over the `factor` degrees
        around factor x d, so that no gaps are left. Their clustering stays the same. No
        degree exceeds n / 2, or the largest degree before. If one would, the degrees of
        all other vertices grow by more.
        """
        _check_factor("scale-edges", factor)
        if factor == 1:
            return self

        # cap degrees at `most`, and let the other degrees grow by more
        degree = np.flatnonzero(self.counts)
        count = self.counts[degree]
        most = max(self.num_nodes // 2, int(degree[-1]))
        wanted = factor * (count @ degree)
        if wanted > count[degree > 0].sum() * most:
            raise UsageError(f"generate: scale-edges {factor:g} needs {wanted / 2:.0f} edges, more "
                             f"than {self.num_nodes} vertices of degree up to {most} can have")
        middle = _capped(degree, count, wanted, most)

        # distribute each degree and its clustering to the nearest degrees
        counts, vertices, clustered = np.zeros((3, most + 2))
        for value, number, share in zip(middle, count, self.clustering[degree]):
            spread = _spread(value, number, min(factor, 2 * (most - value)))
            counts[spread[0]] += spread[1]
            if not np.isnan(share):
                vertices[spread[0]] += spread[1]
                clustered[spread[0]] += share * spread[1]
        size = int(np.flatnonzero(counts)[-1]) + 1
        with np.errstate(invalid="ignore"):
            clustering = (clustered / vertices)[:size]

        # note how many vertices were capped
        notes = list(self.notes)
        held = int(count[factor * degree > most].sum())
        if held:
            notes.append(f"{held} vertices would exceed {most} neighbors: the degrees of the other "
                         "vertices grow by more")
        return dataclasses.replace(self, name=f"{self.name}-{factor:g}x", notes=notes,
                                   counts=counts[:size].astype(np.int64), clustering=clustering)


def read_degrees(path: Path | str, memory: int) -> Degrees:
    """Read a file of lines `degree count [clustering]`, in any order.

    Lines that begin with # or % are comments. A degree without clustering has no
    target. A DataError names the line and the field that is missing or out of range. A
    degree on two lines is refused as well, and one too large for the number of
    vertices. BudgetError if tables up to the largest degree exceed `memory` bytes.
    """
    # read the lines, and refuse a repeated degree
    file = Source(path)
    entries = {}
    with file.open() as stream:
        for number, line in enumerate(stream, 1):
            words = line.decode("utf-8", "replace").replace(",", " ").split()
            if not words or words[0][0] in "#%":
                continue
            where = f"{file}: line {number}"
            if len(words) not in (2, 3):
                raise DataError(f"{where}: {len(words)} field(s), expected degree, count and "
                                "optionally clustering")
            degree, count = (_integer(word, name, where) for word, name in zip(words[:2], FIELDS))
            if degree in entries:
                raise DataError(f"{where}: degree {degree} is already on line {entries[degree][0]}")
            share = _share(words[2], where) if len(words) == 3 else np.nan
            entries[degree] = number, count, share

    # refuse degrees that no simple graph has
    total = sum(count for _, count, _ in entries.values())
    if not total:
        raise DataError(f"{file}: no vertices, expected lines of degree, count and optionally "
                        "clustering")
    if total > MOST:
        raise DataError(f"{file}: {total} vertices, expected at most {MOST}")
    top = max(degree for degree, (_, count, _) in entries.items() if count)
    if top >= total:
        raise DataError(f"{file}: line {entries[top][0]}: degree is {top}, but the counts add up "
                        f"to {total} vertices")
    need(DEGREE_BYTES * top, memory, f"{file}: degrees up to {top}")

    # fill arrays indexed by degree
    counts = np.zeros(top + 1, np.int64)
    clustering = np.full(top + 1, np.nan)
    for degree, (_, count, share) in entries.items():
        if count:
            counts[degree] = count
            clustering[degree] = share
    return Degrees(file.name, counts, clustering)


def degrees_of(graph: Graph, memory: int) -> Degrees:
    """Return the Degrees of a Graph in memory.

    Edges count in both directions, loops are dropped.
    """
    from hpgcn.datasets.generators.triangles import Triangles

    name = graph.header.name
    need(24 * graph.indices.size, memory, f"{name}: its degrees")
    notes = []
    indptr = graph.indptr
    indices = graph.indices
    if graph.header.directed or np.any(graph.degree_loop):
        A = symmetric_pattern(graph.adjacency).tocoo()
        apart = A.row != A.col
        loops = int(np.count_nonzero(~apart))
        indices = A.col[apart]
        indptr = np.concatenate([[0], np.cumsum(np.bincount(A.row[apart], minlength=A.shape[0]))])
        if graph.header.directed:
            notes.append(f"{name} is directed: its edges are used in both directions")
        if loops:
            notes.append(f"{loops} self loops of {name} dropped")
    counts, clustering = by_degree(np.diff(indptr), Triangles(indptr, indices).count())
    return Degrees(name, counts, clustering, notes)


def by_degree(degree: np.ndarray, triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of vertices and the clustering of each degree.

    `degree` and `triangles` are those of each vertex.
    """
    counts = np.bincount(degree)
    d = np.arange(counts.size, dtype=np.float64)
    pairs = counts * d * (d - 1) / 2
    clustering = np.full(counts.size, np.nan)
    np.divide(np.bincount(degree, triangles), pairs, out=clustering, where=pairs > 0)
    return counts, clustering


def _capped(degree: np.ndarray, count: np.ndarray, wanted: Any, most: int) -> np.ndarray:
    """Return min(t x degree, most), with t chosen so that all degrees sum to `wanted`."""
    low = 0.0
    high = float(max(1, most))  # then degree 1 gets the largest share
    for _ in range(100):
        middle = (low + high) / 2
        if count @ np.minimum(middle * degree, most) < wanted:
            low = middle
        else:
            high = middle
    return np.minimum(high * degree, most)


def _spread(middle: float, number: int, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Divide `number` vertices over integers around `middle`.

    Return these integers and the number of vertices of each. There are about `width`
    integers of at least 1, whose mean is `middle`.
    """
    half = max(0, min((width - 1) / 2, middle - 1))
    place = (np.arange(number) + 0.5) / number * 2 - 1
    exact = np.cumsum(middle + half * place)
    return np.unique(np.diff(np.rint(exact).astype(np.int64), prepend=0), return_counts=True)


def _check_factor(name: str, factor: float) -> None:
    if not 0 < factor <= MOST_SCALED:
        raise UsageError(f"generate: {name} is {factor}, expected more than 0 and at most "
                         f"{MOST_SCALED:g}")


def _integer(word: str, name: str, where: object) -> int:
    if not (word.isascii() and word.isdigit()) or len(word) > 18 or int(word) > MOST:
        raise DataError(f"{where}: {name} is {truncate(word)!r}, expected an integer 0..{MOST}")
    return int(word)


def _share(word: str, where: object) -> float:
    try:
        share = float(word)
    except ValueError:
        share = np.nan
    if not 0 <= share <= 1:
        raise DataError(f"{where}: clustering is {truncate(word)!r}, expected a number 0..1")
    return share
