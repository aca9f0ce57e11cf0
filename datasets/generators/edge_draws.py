"""Numbered draws of random edges, the same for any division into blocks."""
from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.edges import columns
from hpgcn.datasets.edges.edge_stream import Stream
from hpgcn.datasets.generators import keyed_sampling
from hpgcn.graphs.validation import index_dtype
from hpgcn.kernels.host.pools import start_pool
from hpgcn.runtime.machine import default_threads
from hpgcn.runtime.progress_bar import bar

if TYPE_CHECKING:
    from hpgcn.datasets.generators.bter import Bter

CHUNK = 1 << 18  # draws per chunk
MOST_THREADS = 4  # more threads draw faster than edges are consumed


class EdgeDraws:
    """Numbered draws of an R-MAT graph, a planted partition or a lattice.

    Attributes
    ----------
    name : str
    num_nodes, num_draws : int
        Number of vertices, 2^scale; number of draws, with loops and repeated edges.
    num_edges : int
        Bound on undirected edges.
    """

    def __init__(self, kind: str, scale: int, edge_factor: int, classes: int, seed: int) -> None:
        self.kind = kind
        self.name = f"{kind}-{scale}"
        self.scale = scale
        self.classes = classes
        self.seed = seed
        self.num_nodes = 1 << scale
        self.num_draws = self.num_nodes * (1 if kind == "grid" else edge_factor)
        self.num_edges = self.num_draws * (2 if kind == "grid" else 1)

    def draw(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends u, v (k,) int64 of draws first..last - 1."""
        edges = keyed_sampling.KINDS[self.kind]
        return edges(np.uint64(self.seed), first, last, self.scale, self.classes)

    def order(self) -> np.ndarray:
        """Return the new number of each vertex, (n,) int32 or int64.

        A lattice keeps its order.
        """
        if self.kind == "grid":
            return np.arange(self.num_nodes, dtype=index_dtype(self.num_nodes))
        return shuffled(self.num_nodes, self.seed)

    def labels(self, classes: int) -> np.ndarray:
        """Return the class of each vertex before vertices are shuffled: contiguous ranges."""
        return np.arange(self.num_nodes) * classes // self.num_nodes


def shuffled(n: int, seed: int) -> np.ndarray:
    """Return a random permutation, (n,) int32 or int64, by sorting keyed draws."""
    draws = np.random.Philox(key=[seed, 1]).random_raw(n)
    order = np.empty(n, index_dtype(n))
    order[np.argsort(draws, kind="stable")] = np.arange(n, dtype=order.dtype)
    return order


def edge_blocks(draws: EdgeDraws | Bter,
                order: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the edges (u, v) of all draws in order, block by block, without loops.

    Ends have the numbers of `order`. Several threads draw ahead of the consumer. An
    edge may occur several times.
    """
    def block(first: int) -> tuple[np.ndarray, np.ndarray]:
        u, v = draws.draw(first, min(first + CHUNK, draws.num_draws))
        end = keyed_sampling.renumber(u, v, order)
        return u[:end], v[:end]

    threads = min(default_threads(), MOST_THREADS)
    pending = deque()
    with start_pool(threads)[0] as pool:
        for first in bar(range(0, draws.num_draws, CHUNK), desc=draws.name, unit="block",
                         leave=False):
            pending.append(pool.submit(block, first))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def adjacency(draws: EdgeDraws | Bter, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (indptr, indices) with edges in both directions, by a counting sort.

    The sort draws all edges twice, so that they need no memory.
    """
    n = draws.num_nodes
    indptr = np.zeros(n + 1, np.int64)
    for u, v in edge_blocks(draws, order):
        keyed_sampling.count(u, v, indptr[1:])
    np.cumsum(indptr, out=indptr)

    indices = np.empty(indptr[-1], order.dtype)
    place = indptr[:-1].copy()
    for u, v in edge_blocks(draws, order):
        keyed_sampling.place(u, v, place, indices)
    return indptr, indices[:keyed_sampling.sort_rows(indptr, indices)]


def stream(draws: EdgeDraws | Bter, order: np.ndarray) -> Stream:
    """Return the drawn edges as a Stream, which can be sorted on disk."""
    parts = ((u, v, None) for u, v in edge_blocks(draws, order))
    return Stream(draws.name, parts, columns.from_position(2), num_nodes=draws.num_nodes,
                  undirected=True)
