"""Three families of graphs that load a kernel in different ways, and their A-hat.

dense : R-MAT, 2^16 vertices, 14 M draws: long rows, x in or near the cache.
prod : R-MAT, 2^20 vertices, 13.6 M draws: skewed degrees, x far beyond the cache.
road : a lattice of 2^20 vertices, shuffled: rows of 3 to 5 nonzeros, no locality.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from hpgcn import store
from hpgcn.datasets.generators.generate import generate
from hpgcn.graphs.normalization import inverse_sqrt, with_self_loops

FAMILIES = {"dense": ("rmat", 16, 214), "prod": ("rmat", 20, 13), "road": ("grid", 20, 1)}
SMALLEST = 6  # 2^6 vertices are left, however far a graph is scaled down


def scaled(scale, scale_down, smallest=SMALLEST):
    """Return the binary logarithm of a number of vertices, scaled down.

    It is that of 2^scale divided by about `scale_down`.
    """
    return max(smallest, scale - (scale_down.bit_length() - 1))


def make(name, scale_down=1, seed=0, *, features=0, classes=0):
    """Return a Graph of the family `name`.

    It has about 1 / scale_down of its full number of vertices.
    """
    kind, scale, edge_factor = FAMILIES[name]
    graph = generate(kind, scale=scaled(scale, scale_down), edge_factor=edge_factor,
                     features=features, classes=classes, seed=seed)
    if kind == "grid":
        graph = graph.permuted(np.random.default_rng(seed).permutation(graph.num_rows))
    return graph


class Normalized(NamedTuple):
    """The matrix D^-1/2 (A + I) D^-1/2 of an unweighted graph, float32.

    `scale` (n,) is D^-1/2.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    scale: np.ndarray
    matrix: sp.csr_array


def normalized(graph):
    indptr, indices, _, added = with_self_loops(graph)
    scale = inverse_sqrt(graph.degree_row + added).astype(np.float32)
    values = np.repeat(scale, np.diff(indptr)) * scale[indices]
    matrix = sp.csr_array((values, indices, indptr), shape=2 * (scale.size,))
    return Normalized(indptr, indices, values, scale, matrix)


def matrices(settings):
    """Yield the name and the Normalized matrix of each graph in the Settings.

    The Settings name a graph file or families of generated graphs.
    Weights in a file are ignored, because they do not change the time.
    """
    if settings.graph:
        with store.load(settings.graph) as stored:
            yield stored.header.name, normalized(stored.read())
        return
    for name in settings.graphs:
        yield name, normalized(make(name, settings.scale_down, settings.seed))
