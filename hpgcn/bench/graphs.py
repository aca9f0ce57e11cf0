"""Three families of graphs that stress a kernel differently, from hpgcn.datasets.generate, and their A-hat.

dense : R-MAT, 2^16 vertices, 14 M draws: long rows, x in or near the cache.
prod : R-MAT, 2^20 vertices, 13.6 M draws: skewed degrees, x far beyond the cache.
road : a lattice of 2^20 vertices, shuffled: rows of 3 to 5 nonzeros, no locality.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets import generate
from hpgcn.operator import inverse_sqrt, with_self_loops

FAMILIES = {"dense": ("rmat", 16, 214), "prod": ("rmat", 20, 13), "road": ("grid", 20, 1)}
SMALLEST = 6  # 2^6 vertices are left, however far a graph is scaled down


def make(name, scale_down=1, seed=0, *, features=0, classes=0):
    """Return a Graph of a family with about 1 / scale_down of its vertices (a power of two)."""
    kind, scale, edge_factor = FAMILIES[name]
    graph = generate.generate(kind, scale=max(SMALLEST, scale - (scale_down.bit_length() - 1)), edge_factor=edge_factor,
                              features=features, classes=classes, seed=seed)
    if kind == "grid":
        graph = graph.permuted(np.random.default_rng(seed).permutation(graph.num_rows))
    return graph


@dataclass(frozen=True, eq=False)
class Operator:
    """A-hat = D^-1/2 (A + I) D^-1/2 of an unweighted graph, in float32.

    Attributes
    ----------
    indptr : (n + 1,) int64
    indices : (nnz,) int32 or int64
    values : (nnz,) float32
    scale : (n,) float32
        D^-1/2: A-hat without values is this scale of rows and of columns.
    matrix : scipy.sparse.csr_array
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    scale: np.ndarray
    matrix: sp.csr_array


def operator(graph):
    """Return the Operator of a graph of weights 1."""
    indptr, indices, _, added = with_self_loops(graph)
    scale = inverse_sqrt(graph.degree_row + added).astype(np.float32)
    values = np.repeat(scale, np.diff(indptr)) * scale[indices]
    return Operator(indptr, indices, values, scale, sp.csr_array((values, indices, indptr), shape=2 * (scale.size,)))
