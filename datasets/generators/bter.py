"""BTER graphs (block two-level Erdos-Renyi), with given degrees and clustering.

Sources: C. Seshadhri, T. G. Kolda, A. Pinar, Community structure and scale-free
collections of Erdos-Renyi graphs, Physical Review E 85, 2012; T. G. Kolda, A. Pinar, T.
Plantenga, C. Seshadhri, A scalable generative graph model with community structure,
SIAM J. Sci. Comput. 36, 2014.

Phase 1 puts d + 1 vertices of degree d into an affinity block, and links each pair of
it with the same probability. Phase 2 links vertices of all blocks by their excess
degrees, which are the degrees minus the links of phase 1. There the papers draw both
ends of each edge independently. That leaves many vertices of degree 1 isolated and
gives others two edges. Here each vertex has a number of stubs: its excess degree and a
few for edges that repeat others. All stubs are matched by a keyed permutation, so
vertices of low degrees have exactly their degree.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.generators import bter_kernels as kernels
from hpgcn.datasets.generators import keyed_sampling
from hpgcn.datasets.generators.bter_fit import fit_blocks, fit_stubs
from hpgcn.datasets.generators.edge_draws import shuffled

if TYPE_CHECKING:
    from hpgcn.datasets.generators.degree_distribution import Degrees

FIRST_DRAWS = 1 << 18  # pairs within blocks that are drawn at a time to count degrees


class Bter:
    """Numbered random draws of a BTER graph, whose vertices are ordered by degree.

    Attributes
    ----------
    name : str
    num_nodes, num_draws : int
        Number of vertices; number of pairs within blocks and pairs of stubs.
    num_edges : int
        Bound on undirected edges, because some repeat others.
    """

    def __init__(self, degrees: Degrees, seed: int) -> None:
        self.name = f"bter-{degrees.name}"
        self.num_nodes = degrees.num_nodes
        self.seed = seed
        self.starts = kernels.block_starts(degrees.counts)
        self._block_pairs(degrees)
        self._stubs(np.repeat(np.arange(degrees.counts.size), degrees.counts))

    def _block_pairs(self, degrees: Degrees) -> None:
        size = np.diff(self.starts)
        self.pairs = np.concatenate([[0], np.cumsum(size * (size - 1) // 2)])
        within = fit_blocks(degrees, self.starts) if size.size else np.zeros(0)
        self.least = np.rint(within * 2.0**kernels.BITS).astype(np.uint64)

    def _stubs(self, degree: np.ndarray) -> None:
        in_block = np.zeros(self.num_nodes, np.int64)
        for first in range(0, self.num_pairs, FIRST_DRAWS):
            last = min(first + FIRST_DRAWS, self.num_pairs)
            keyed_sampling.count(*self._pairs(first, last), in_block)
        excess = degree - in_block
        ratio = fit_stubs(excess, in_block)
        self.first_stub = np.zeros(self.num_nodes + 1, np.int64)
        kernels.round_stubs(self.key(kernels.ROUNDING), excess, ratio, self.first_stub)
        stubs = int(self.first_stub[-1])
        self.shift = max(0, (stubs // self.num_nodes).bit_length() - 1)
        self.guide = kernels.guide(self.first_stub, self.shift)
        self.num_draws = self.num_pairs + stubs // 2
        self.num_edges = (int(in_block.sum()) + stubs) // 2

    @property
    def num_pairs(self) -> int:
        return int(self.pairs[-1])

    def key(self, stream: int) -> np.uint64:
        """Return the key of the random numbers of one purpose, uint64."""
        return np.uint64(kernels.stream_key(np.uint64(self.seed), stream))

    def draw(self, first: int, last: int) -> tuple[np.ndarray, ...]:
        """Return the ends u, v, (k,) int64, of draws first..last - 1.

        Draws that make no edge are left out; some of the rest are loops.
        """
        if first >= self.num_pairs:
            return self._matched(first, last)
        if last <= self.num_pairs:
            return self._pairs(first, last)
        both = self._pairs(first, self.num_pairs), self._matched(self.num_pairs, last)
        return tuple(np.concatenate(ends) for ends in zip(*both))

    def _pairs(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        return kernels.pairs_within(self.key(kernels.PAIRS), self.starts, self.pairs, self.least,
                                    first, last)

    def _matched(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        return kernels.matched(self.key(kernels.MATCHING), self.first_stub, self.guide, self.shift,
                               first - self.num_pairs, last - self.num_pairs)

    def order(self) -> np.ndarray:
        """Return the new number of each vertex, drawn at random, (n,) int32 or int64."""
        return shuffled(self.num_nodes, self.seed)

    def labels(self, classes: int) -> np.ndarray:
        """Return a class of each vertex, (n,) int64.

        All vertices of a block share a class drawn at random.
        """
        labels = np.empty(self.num_nodes, np.int64)
        kernels.block_labels(self.key(kernels.LABELS), self.starts, classes, labels)
        return labels
