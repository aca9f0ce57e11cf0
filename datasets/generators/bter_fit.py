"""Parameters of a BTER graph: densities of its blocks, and stubs of its vertices.

Vertices are grouped by degree into a few hundred classes, and expected edges and
triangles are summed over pairs of classes. Results are rounded, because the last bits
of sums differ between machines and must not change a draw.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hpgcn.datasets.generators.degree_distribution import Degrees

WIDTH = 1.04  # bound on the ratio of degrees in a class of several degrees
ROUNDS = 16  # rounds of fitting blocks; more do not reduce the mean error
STEP = 0.5  # share of the deficit that a round corrects
LINK_ROUNDS = 100  # upper bound; sparse graphs need a dozen
LINKED = 1e-4  # relative error of expected degrees that ends these rounds
MOST_STUBS = 4.0  # bound on stubs per excess degree, because a star has no finite solution
MOST_SHARE = 1 - 1e-6  # bound on the share of stubs of one vertex


@dataclass
class _Classes:
    """Classes of vertices with about the same number d >= 1.

    `of_value` (k,) has the class of each d.
    """

    of_value: np.ndarray
    size: np.ndarray  # (c,) float64: number of vertices
    mean: np.ndarray  # (c,) float64: mean of d

    @classmethod
    def from_counts(cls, counts: np.ndarray) -> _Classes:
        values = np.flatnonzero(counts)
        values = values[values > 0]
        number = np.empty(values.size, np.int64)

        # a class ends where its degrees are WIDTH times as large as the first
        last = -1
        end = 0.0
        for k, value in enumerate(values):
            if value >= end:
                last += 1
                end = max(value + 1, WIDTH * value)
            number[k] = last

        of_value = np.full(counts.size, -1)
        of_value[values] = number
        size = np.bincount(number, counts[values], minlength=last + 1)
        mean = np.bincount(number, counts[values] * values, minlength=last + 1) / size

        return cls(of_value, size, mean)


class _Segments:
    """Groups of vertices with the same block and class.

    They serve to average values of blocks over classes, and values of classes over
    blocks.
    """

    def __init__(self, degrees: Degrees, classes: _Classes, starts: np.ndarray) -> None:
        counts = degrees.counts
        below = np.concatenate([[0], np.cumsum(counts)])
        known = np.flatnonzero(classes.of_value >= 0)
        firsts = below[known]
        changes = np.flatnonzero(np.diff(classes.of_value[known], prepend=-1))
        class_starts = firsts[changes]
        cuts = np.union1d(starts[:-1], class_starts[class_starts >= starts[0]])
        self.length = np.diff(cuts, append=starts[-1])
        self.block = np.searchsorted(starts, cuts, side="right") - 1
        self.of_class = np.searchsorted(class_starts, cuts, side="right") - 1
        self.classes = classes
        self.block_size = np.diff(starts).astype(np.float64)

    def by_class(self, values: np.ndarray) -> np.ndarray:
        """Return the values of blocks, (b,), averaged over the vertices of each class."""
        total = np.bincount(self.of_class, self.length * values[self.block],
                            minlength=self.classes.size.size)
        return total / self.classes.size

    def by_block(self, values: np.ndarray) -> np.ndarray:
        """Return the values of classes, (c,), averaged over the vertices of each block."""
        total = np.bincount(self.block, self.length * values[self.of_class],
                            minlength=self.block_size.size)
        return total / self.block_size


def fit_blocks(degrees: Degrees, starts: np.ndarray) -> np.ndarray:
    """Return the probability of an edge within each block, (b,) float64.

    `starts` (b + 1,) are the blocks of `bter_kernels.block_starts`. Kolda et al. (2014)
    take the cube root of the requested clustering. But edges outside blocks close
    triangles as well, most of all at vertices of high degree. The probabilities here
    are lower by the expected number of these triangles. They are rounded to 2^-24.
    """
    classes = _Classes.from_counts(degrees.counts)
    segments = _Segments(degrees, classes, starts)
    d = classes.mean
    pairs = d * (d - 1) / 2
    wanted = _by_class(degrees, classes) * pairs

    others = segments.block_size - 1
    corners = others * (others - 1) / 2  # pairs of other vertices: possible triangles
    most = segments.by_class(corners)
    # cube of the probability
    cube = np.divide(wanted, pairs, out=np.zeros_like(d), where=pairs > 0)
    stubs = None
    for _ in range(ROUNDS):
        within = np.cbrt(segments.by_block(cube))
        mates = segments.by_class(within * others)
        stubs, link = _linked(classes.size, d - mates, mates, stubs)
        reached = link * classes.size
        made = segments.by_class(within**3 * corners)
        # add triangles with two, one or no neighbor in the block of the vertex
        made += mates * np.einsum("gh,gh->g", link, reached)
        made += np.einsum("gh,gh,h->g", link, reached, mates) / 2
        made += np.einsum("gh,gh->g", np.matmul(reached, link), reached) / 2
        change = np.divide(STEP * (wanted - made), most, out=np.zeros_like(d), where=most > 0)
        cube = np.clip(cube + change, 0, 1)
    return np.rint(np.cbrt(segments.by_block(cube)) * 2.0**24) / 2.0**24


def fit_stubs(excess: np.ndarray, in_block: np.ndarray) -> np.ndarray:
    """Return the stubs of a vertex divided by its excess degree, for each excess, (k,).

    `excess` (n,) int64 is the degree still missing after the blocks, `in_block` (n,)
    the degree within the blocks. A random matching repeats edges of blocks, and edges
    between hubs. Extra stubs compensate for that.
    """
    counts = np.bincount(excess)
    classes = _Classes.from_counts(counts)
    ratio = np.zeros(counts.size)
    if not classes.size.size:
        return ratio
    total = np.bincount(excess, in_block)
    known = classes.of_value >= 0
    mates = np.bincount(classes.of_value[known], total[known]) / classes.size
    stubs, _ = _linked(classes.size, classes.mean, mates)
    by_class = np.rint(stubs / classes.mean * 2.0**16) / 2.0**16
    ratio[known] = by_class[classes.of_value[known]]
    return ratio


def _by_class(degrees: Degrees, classes: _Classes) -> np.ndarray:
    """Return the mean requested clustering of each class; unknown values count as 0."""
    known = np.flatnonzero(classes.of_value >= 0)
    weight = degrees.counts[known] * np.nan_to_num(degrees.clustering[known])
    return np.bincount(classes.of_value[known], weight) / classes.size


def _linked(size: np.ndarray, excess: np.ndarray, mates: np.ndarray,
            stubs: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the stubs per vertex of each class, (c,), and link probabilities, (c, c).

    A vertex of a class has `excess` (c,) neighbors outside its block and `mates` (c,)
    within it. The matching may link it with a mate once more. With S stubs in all,
    vertices with a and b of them, a <= b, are linked with probability 1 - (1 - b / (S -
    1))^a.
    """
    excess = np.maximum(excess, 0)
    stubs = excess.copy() if stubs is None else stubs
    others = size - np.diag(np.minimum(1, size))
    link = np.zeros_like(others)

    # scale stubs until each class has its expected number of edges
    for _ in range(LINK_ROUNDS):
        total = size @ stubs - 1  # each stub can be matched with all others
        if total <= 0:
            break
        share = np.minimum(np.maximum.outer(stubs, stubs) / total, MOST_SHARE)
        link = -np.expm1(np.minimum.outer(stubs, stubs) * np.log1p(-share))
        expected = np.einsum("gh,gh->g", others, link)
        wanted = excess + np.minimum(mates, size) * np.diagonal(link)

        change = np.divide(wanted, expected, out=np.ones_like(wanted), where=expected > 0)
        before = stubs
        stubs = np.minimum(stubs * change, MOST_STUBS * excess)
        if np.all(np.abs(stubs - before) <= LINKED * before):
            break

    return stubs, link
