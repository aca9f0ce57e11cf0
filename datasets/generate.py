"""Synthetic graphs of any size: R-MAT, a planted partition, a lattice; features tell the classes.

Draws are keyed by seed and edge: the same call gives the same graph, as arrays or as text.
"""
import numpy as np

from hpgcn.datasets import keyed_sampling
from hpgcn.datasets.split import describe_split, random_split
from hpgcn.errors import UsageError
from hpgcn.graphs.graph import Graph, Header
from hpgcn.graphs.validation import index_dtype
from hpgcn.runtime.machine import memory_budget
from hpgcn.runtime.progress_bar import bar

CHUNK = 1 << 20  # edges or vertices at a time
PERCENT = (60, 20, 20)
SEPARATION = 2.0  # distance of a class mean from 0, in units of the noise of one feature
MOST_SEPARATE = 1e6


def generate(kind, *, scale=16, edge_factor=16, features=64, classes=8, separation=SEPARATION,
             seed=0):
    """Make an undirected graph of 2^scale vertices, without loops or duplicates.

        rmat   edge_factor 2^scale draws with a, b, c = .57, .19, .19; vertices in random order
        sbm    as many draws, 4 of 5 within a class; vertices in random order
        grid   a lattice of 2^ceil(scale / 2) by 2^floor(scale / 2); edge_factor is not used

    Classes are contiguous ranges of the vertices before they are shuffled: planted blocks, corners
    of the R-MAT square, bands of the lattice, split random:60/20/20 with the seed. Features are the
    mean of the class, about `separation` from 0, and unit noise in each of them. Of features and
    classes 0 means none. What is out of range is a UsageError.
    """
    _check(kind, scale, edge_factor, features, classes, seed)
    if not 0 <= separation <= MOST_SEPARATE:
        raise UsageError(f"generate: separation is {separation}, expected 0..{MOST_SEPARATE:g}")
    n = 1 << scale
    order = _order(kind, n, seed)
    indptr, indices = _adjacency(kind, scale, edge_factor, classes, seed, order)
    labels = X = masks = None
    if classes:
        labels = np.empty(n, np.int64)
        labels[order] = np.arange(n) * classes // n
        masks = random_split(labels, PERCENT, seed, kind)
    if features:
        known = np.zeros(n, np.int64) if labels is None else labels
        X = _features(known, max(classes, 1), features, separation, seed)
    header = Header(f"{kind}-{scale}", n, indices.size, features, classes, directed=False,
                    all_ones=True, num_splits=int(masks is not None),
                    split=describe_split("random", PERCENT, seed) if masks else "")
    degree = np.diff(indptr).astype(np.float64)
    return Graph(header, 0, indptr, indices, None, X, labels, masks, degree, degree, np.zeros(n),
                 np.arange(n, dtype=np.int64))


def write_edge_list(kind, path, *, scale=16, edge_factor=16, classes=8, seed=0, overwrite=False):
    """Write the edges of `generate` as text, a line `u v` with u < v each; return their number.

    Line 1 counts the vertices, isolated ones too; with symmetrize=True it reads back the same.
    """
    from hpgcn.store import atomic_write

    _check(kind, scale, edge_factor, 0, classes if kind == "sbm" else 0, seed)
    n = 1 << scale
    indptr, indices = _adjacency(kind, scale, edge_factor, classes, seed, _order(kind, n, seed))

    def write(file):
        file.write(f"# hpgcn {kind}: vertices {n}, edges {indices.size // 2}, scale {scale}, edge "
                   f"factor {edge_factor}, classes {classes}, seed {seed}\n".encode())
        text = np.empty(0, np.uint8)
        row = 0
        while row < n:  # as many rows as hold about CHUNK entries
            stop = max(row + 1, int(np.searchsorted(indptr, indptr[row] + CHUNK, side="right")) - 1)
            room = 40 * int(indptr[stop] - indptr[row])  # twice 19 digits, a blank, a newline
            if text.size < room:
                text = np.empty(room, np.uint8)
            size = keyed_sampling.write_rows(indptr, indices, row, stop, text)
            file.write(memoryview(text)[:size])
            row = stop

    atomic_write(path, write, overwrite=overwrite)
    return indices.size // 2


def _check(kind, scale, edge_factor, features, classes, seed):
    if kind not in keyed_sampling.KINDS:
        raise UsageError(f"generate {kind!r}: expected {', '.join(keyed_sampling.KINDS)}")
    for name, value, low, high in (
            ("scale", scale, 1, 40), ("edge-factor", edge_factor, 1, 1 << 16),
            ("features", features, 0, 1 << 20), ("classes", classes, 0, 1 << 16),
            ("seed", seed, 0, 2**63 - 1)):
        if not low <= value <= high:
            raise UsageError(f"generate: {name} is {value}, expected {low}..{high}")
    n = 1 << scale
    if classes > n:
        raise UsageError(f"generate: {classes} classes for {n} vertices")
    if kind == "sbm" and not classes:
        raise UsageError("generate: sbm needs classes")
    per_vertex = 64 + 4 * features
    per_vertex += 2 * (2 if kind == "grid" else edge_factor) * index_dtype(n).itemsize
    memory = memory_budget()
    if n * per_vertex > memory:
        raise UsageError(f"generate: {n} vertices and {edge_factor} x {n} edges need "
                         f"{n * per_vertex} bytes of memory, the limit is {memory}")


def _order(kind, n, seed):
    """Return new numbers of the vertices, by sorting keyed draws; a lattice keeps its order."""
    if kind == "grid":
        return np.arange(n, dtype=index_dtype(n))
    draws = np.random.Philox(key=[seed, 1]).random_raw(n)
    order = np.empty(n, index_dtype(n))
    order[np.argsort(draws, kind="stable")] = np.arange(n, dtype=order.dtype)
    return order


def _adjacency(kind, scale, edge_factor, classes, seed, order):
    """Return a CSR of both directions by a counting sort: draws are made twice, never kept."""
    n = 1 << scale
    indptr = np.zeros(n + 1, np.int64)
    for u, v in _chunks(kind, scale, edge_factor, classes, seed, order):
        keyed_sampling.count(u, v, indptr[1:])
    np.cumsum(indptr, out=indptr)
    indices = np.empty(indptr[-1], order.dtype)
    place = indptr[:-1].copy()
    for u, v in _chunks(kind, scale, edge_factor, classes, seed, order):
        keyed_sampling.place(u, v, place, indices)
    return indptr, indices[:keyed_sampling.sort_rows(indptr, indices)]


def _chunks(kind, scale, edge_factor, classes, seed, order):
    """Yield the ends (u, v) of all draws, loops and duplicates among them."""
    edges = keyed_sampling.KINDS[kind]
    total = (1 << scale) * (1 if kind == "grid" else edge_factor)
    for first in bar(range(0, total, CHUNK), desc=kind, unit="chunk", leave=False):
        u, v = edges(np.uint64(seed), first, min(first + CHUNK, total), scale, classes)
        yield order[u], order[v]


def _features(labels, classes, width, separation, seed):
    """Return class means and unit noise, (n, f) float32."""
    def noise(key):
        return np.random.Generator(np.random.Philox(key=[seed, key]))

    mean = noise(2).standard_normal((classes, width), np.float32)
    mean *= np.float32(separation / np.sqrt(width))
    X = np.empty((labels.size, width), np.float32)
    for first in range(0, labels.size, CHUNK // 16):
        block = X[first:first + CHUNK // 16]
        noise(3 + first).standard_normal(dtype=np.float32, out=block)
        block += mean[labels[first:first + CHUNK // 16]]
    return X
