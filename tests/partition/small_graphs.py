"""Small graphs with known best partitions."""
import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.graph import Graph


def edges(n, pairs, symmetrize=True):
    u, v = np.array(pairs, int).reshape(-1, 2).T
    A = sp.coo_array((np.ones(u.size), (u, v)), shape=(n, n))
    return Graph.from_scipy(A, symmetrize=symmetrize)


def grid(side):
    return edges(side * side, _lattice(side))


def roads(side, seed=0):
    """Return a lattice without a third of its edges, which are drawn at random."""
    pairs = _lattice(side)
    kept = np.random.default_rng(seed).random(len(pairs)) < 2 / 3
    return edges(side * side, pairs[kept])


def _lattice(side):
    number = np.arange(side * side).reshape(side, side)
    right = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], 1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], 1)
    return np.concatenate([right, down])


def two_cliques(size=10):
    """Return a clique of even vertices and one of odd vertices, joined by one edge."""
    pairs = [(u, v) for u in range(2 * size) for v in range(u) if (u - v) % 2 == 0]
    return edges(2 * size, [*pairs, (0, 1)])
