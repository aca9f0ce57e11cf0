"""Synthetic graphs with classes and features: R-MAT, planted partition, lattice or BTER.

Draws depend only on the seed and the number of the edge. The same call gives the same
graph: as arrays or text, in memory or sorted on disk, by any number of threads.
"""
from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from hpgcn.datasets.convert_options import ConvertOptions
from hpgcn.datasets.generators import edge_draws as drawing
from hpgcn.datasets.generators import keyed_sampling
from hpgcn.datasets.generators.bter import Bter
from hpgcn.datasets.generators.bter_check import describe_match
from hpgcn.datasets.sorting import external
from hpgcn.datasets.split import describe_split, random_split
from hpgcn.errors import UsageError
from hpgcn.graphs.adjacency import row_blocks
from hpgcn.graphs.graph import Graph, Header
from hpgcn.graphs.reordering import AUTO, check_order
from hpgcn.graphs.validation import index_dtype
from hpgcn.kernels.host.pools import start_pool
from hpgcn.runtime.disk import page_cache
from hpgcn.runtime.machine import default_threads, memory_budget

if TYPE_CHECKING:
    from hpgcn.datasets.generators.degree_distribution import Degrees
    from hpgcn.datasets.generators.edge_draws import EdgeDraws
    from hpgcn.datasets.sorting.disk_arrays import Scratch

BTER = "bter"
KINDS = (*keyed_sampling.KINDS, BTER)
SCALE = EDGE_FACTOR = 16
ENTRIES = 1 << 20  # entries per block of text
FEATURE_ROWS = 1 << 16  # rows of features per key of the draws
VERTEX_BYTES = 96  # memory per vertex, without features and entries
PERCENT = (60, 20, 20)
SEPARATION = 2.0  # distance of class means from 0, in standard deviations of a feature
MOST_SEPARATE = 1e6


def generate(kind: str, *, features: int = 64, classes: int = 8, separation: float = SEPARATION,
             seed: int = 0, memory: int | None = None, scratch: Scratch | None = None,
             **options: Any) -> Graph:
    """Return an undirected random Graph without loops and duplicates.

    The kinds are these; vertices are in random order except in a lattice:

        rmat   edge_factor 2^scale draws with a, b, c = .57, .19, .19
        sbm    as many draws, 4 of 5 within a class
        grid   a lattice of 2^ceil(scale / 2) by 2^floor(scale / 2); edge_factor is not used
        bter   the Degrees of vertices and their clustering

    `scale` and `edge_factor` are 16 by default. Classes are contiguous ranges of the
    vertices before they are shuffled: planted blocks, corners of the R-MAT square,
    bands of the lattice. In a BTER graph each affinity block has a class, drawn at
    random. They are split random:60/20/20 with the seed. Features are the mean of the
    class, about `separation` from 0, and unit noise in each of them. 0 features or 0
    classes leave them out.

    Arrays may take `memory` bytes, by default 80% of those available. In a Scratch
    (`scratch`) edges that do not fit are sorted on disk. Arrays may then be DiskArrays,
    which live as long as the Scratch. UsageError for settings that are out of range, or
    that need too much memory.
    """
    # refuse sizes out of range or too large for memory
    for name, value, high in (("features", features, 1 << 20), ("classes", classes, 1 << 16)):
        _check_range(name, value, 0, high)
    if not 0 <= separation <= MOST_SEPARATE:
        raise UsageError(f"generate: separation is {separation}, expected 0..{MOST_SEPARATE:g}")
    room = _room(memory)
    draws = _draws(kind, classes, seed, room, **options)
    n = draws.num_nodes
    if classes > n:
        raise UsageError(f"generate: {classes} classes, but only {n} vertices")
    on_disk = scratch is not None and draws.num_edges and _size(draws, features) > room
    if not on_disk:
        _refuse_large(draws, features, room)

    # draw labels, masks and features, in shuffled order
    order = draws.order()
    labels = X = masks = None
    if classes:
        labels = np.empty(n, np.int64)
        labels[order] = draws.labels(classes)
        masks = random_split(labels, PERCENT, seed, kind)
    if features:
        known = np.zeros(n, np.int64) if labels is None else labels
        X = _Features(known, max(classes, 1), features, separation, seed)

    # draw edges, in memory or sorted on disk
    if on_disk:
        budget = memory_budget() if memory is None else memory
        edges = drawing.stream(draws, order)
        stored = external.collect(edges, scratch, budget, ConvertOptions())
        graph = stored.merge(scratch, budget).assemble(name=draws.name)
    else:
        graph = _assemble(draws, order)
        X = X and X[:]

    # describe the graph
    header = dataclasses.replace(
        graph.header, num_features=features, num_classes=classes,
        num_splits=int(masks is not None),
        split=describe_split("random", PERCENT, seed) if masks else "")
    return dataclasses.replace(graph, header=header, features=X, labels=labels, masks=masks)


def write(kind: str, out: Path | str, *, order: str = AUTO, overwrite: bool = False,
          memory: int | None = None, degrees: Degrees | None = None, **options: Any) -> list[str]:
    """Write the graph of `generate` to the .h5 file `out`; return notes, a list of str.

    Rows are put into an `order` of `hpgcn.graphs.reordering.find_order`, if memory
    allows. Edges need not fit into `memory` bytes. After OutputError or StorageError no
    file is left.
    """
    from hpgcn import store
    from hpgcn.datasets.convert import order_within
    from hpgcn.datasets.sorting.disk_arrays import Scratch

    check_order(order)
    store.refuse_existing(out, overwrite)
    with page_cache.bypassed(memory is not None), Scratch(out) as scratch:
        graph = generate(kind, memory=memory, scratch=scratch, degrees=degrees, **options)
        header = graph.header
        notes = [f"{header.num_nodes:,} vertices, {header.num_edges:,} stored entries"]
        if degrees is not None:
            notes += [*degrees.notes, describe_match(degrees, graph.indptr, graph.indices,
                                                     _room(memory))]
        perm, note = order_within(graph, order, memory)
        store.write_graph(out, graph, overwrite=overwrite, scratch=scratch.folder, order=perm)
    return notes + [note] * bool(note)


def write_edge_list(kind: str, path: Path | str, *, classes: int = 8, seed: int = 0,
                    overwrite: bool = False, memory: int | None = None, **options: Any) -> int:
    """Write the edges of `generate` as text; return their number.

    Each line is `u v` with u < v. Line 1 states the number of vertices, including
    isolated ones. Reading the file with symmetrize=True gives the same graph.
    """
    from hpgcn.store import atomic_write

    # draw the edges
    room = _room(memory)
    draws = _draws(kind, classes if kind == "sbm" else 0, seed, room, **options)
    _refuse_large(draws, 0, room)
    n = draws.num_nodes
    indptr, indices = drawing.adjacency(draws, draws.order())
    made_of = f"scale {options.get('scale', SCALE)}, edge factor " \
              f"{options.get('edge_factor', EDGE_FACTOR)}, classes {classes}"

    # write them in blocks of rows
    def write(file: BinaryIO) -> None:
        file.write(f"# hpgcn {kind}: vertices {n}, edges {indices.size // 2}, "
                   f"{draws.name if kind == BTER else made_of}, seed {seed}\n".encode())
        text: Any = np.empty(0, np.uint8)
        for row, stop in row_blocks(indptr, ENTRIES):
            room = 40 * int(indptr[stop] - indptr[row])  # two numbers, a blank, a newline
            if text.size < room:
                text = np.empty(room, np.uint8)
            size = keyed_sampling.write_rows(indptr, indices, row, stop, text)
            file.write(memoryview(text)[:size])

    atomic_write(path, write, overwrite=overwrite)
    return indices.size // 2


def _draws(kind: str, classes: int, seed: int, room: int, *, scale: int = SCALE,
           edge_factor: int = EDGE_FACTOR, degrees: Degrees | None = None) -> EdgeDraws | Bter:
    """Return the draws (Bter or EdgeDraws) of a `kind` of graph.

    Raise UsageError if its vertices exceed `room` bytes.
    """
    if kind not in KINDS:
        raise UsageError(f"generate {kind!r}: expected {', '.join(KINDS)}")
    _check_range("seed", seed, 0, 2**63 - 1)

    if kind == BTER:
        if degrees is None:
            raise UsageError("generate: bter needs degrees")
        _refuse_vertices(degrees.num_nodes, room)
        return Bter(degrees, seed)

    if degrees is not None:
        raise UsageError(f"generate: degrees are only for bter, not for {kind}")
    _check_range("scale", scale, 1, 40)
    _check_range("edge-factor", edge_factor, 1, 1 << 16)
    if kind == "sbm" and not classes:
        raise UsageError("generate: sbm needs classes")
    _refuse_vertices(1 << scale, room)

    return drawing.EdgeDraws(kind, scale, edge_factor, classes, seed)


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UsageError(f"generate: {name} is {value}, expected {low}..{high}")


def _room(memory: int | None) -> int:
    return external.room(memory_budget() if memory is None else memory)


def _size(draws: EdgeDraws | Bter, features: int) -> int:
    """Return the bytes of memory that a graph with these draws and features takes."""
    entries = 2 * draws.num_edges * index_dtype(draws.num_nodes).itemsize
    return draws.num_nodes * (VERTEX_BYTES + 4 * features) + entries


def _refuse_vertices(n: int, room: int) -> None:
    if n * VERTEX_BYTES > room:
        raise UsageError(f"generate: {n} vertices need {n * VERTEX_BYTES} bytes of memory, but the "
                         f"limit leaves {room}")


def _refuse_large(draws: EdgeDraws | Bter, features: int, room: int) -> None:
    size = _size(draws, features)
    if size > room:
        raise UsageError(f"generate: {draws.num_nodes} vertices and {draws.num_edges} edges need "
                         f"{size} bytes of memory, but the limit leaves {room}")


def _assemble(draws: EdgeDraws | Bter, order: np.ndarray) -> Graph:
    """Return the Graph of `draws`, without features and labels, in memory."""
    n = draws.num_nodes
    indptr, indices = drawing.adjacency(draws, order)
    header = Header(draws.name, n, indices.size, directed=False, all_ones=True)
    degree = np.diff(indptr).astype(np.float64)
    return Graph(header, 0, indptr, indices, None, None, None, None, degree, degree, np.zeros(n),
                 np.arange(n, dtype=np.int64))


class _Features:
    """Features (n, f) float32, class means plus unit noise, drawn when rows are read."""

    def __init__(self, labels: np.ndarray, classes: int, width: int, separation: float,
                 seed: int) -> None:
        self.labels = labels
        self.seed = seed
        self.shape = labels.size, width
        self.dtype = np.dtype(np.float32)
        self.mean = self._noise(2).standard_normal((classes, width), np.float32)
        self.mean *= np.float32(separation / np.sqrt(width))

    def _noise(self, key: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self.seed, key]))

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        X = np.empty((max(0, stop - start), self.shape[1]), np.float32)

        def draw(first: int) -> None:
            last = min(first + FEATURE_ROWS, self.shape[0])
            low = max(first, start)
            high = min(last, stop)
            rows = X[low - start:high - start]
            whole = high - low == last - first  # otherwise more rows are drawn than needed
            drawn = rows if whole else np.empty((last - first, self.shape[1]), np.float32)
            self._noise(3 + first).standard_normal(dtype=np.float32, out=drawn)
            drawn += self.mean[self.labels[first:last]]
            if not whole:
                rows[:] = drawn[low - first:high - first]

        # each block has its own key, so that any thread may draw it
        blocks = range(start - start % FEATURE_ROWS, stop, FEATURE_ROWS)
        with start_pool(min(len(blocks), default_threads(), drawing.MOST_THREADS))[0] as pool:
            for done in [pool.submit(draw, first) for first in blocks]:
                done.result()
        return X
