"""A graph in a file whose rows are read on demand."""
from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

import numpy as np

from hpgcn.errors import DataError
from hpgcn.graphs import consistency
from hpgcn.graphs.edge_features import check_finite_rows
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.graph_source import DIGESTS, GraphSource
from hpgcn.graphs.partition import Partition
from hpgcn.runtime.disk.page_cache import bypassed
from hpgcn.runtime.files import changed, refuse_replaced
from hpgcn.store import row_arrays, schema
from hpgcn.store.blocks.structure import check_structure, read_structure
from hpgcn.store.csr_arrays import read_csr
from hpgcn.store.link_arrays import stored_links
from hpgcn.store.reader import Reader
from hpgcn.store.row_order import OriginalOrder, StoredOrder, StoredPartition
from hpgcn.store.schema import (
    EDGE_FEATURES,
    GRAPH,
    ORDER,
    PARTITIONED,
    mask_name,
)

ENTRY_BYTES = 32  # memory per entry to put entries into the original order


class StoredGraph(GraphSource):
    """A graph in a file: its header is read at once, its rows on demand.

    It is picklable, and a context manager.

    Every read validates its data. It raises DataError and StorageError like the
    functions of hpgcn.store. It also raises DataError for rows that do not exist, and
    for more bytes than the memory budget.

    Examples
    --------
    >>> import os, tempfile
    >>> graph = hpgcn.Graph.from_edge_index([[0, 1], [1, 0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "two.h5")
    ...     hpgcn.save(graph, path)
    ...     with hpgcn.load(path) as stored:
    ...         print(type(stored).__name__, stored.slab(1, 2).indices)
    StoredGraph [0]
    """

    path: str

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = True,
                 memory: int | None = None, cached: bool = True, merge: int = 1) -> None:
        self._merge = merge  # number of stored parts that form one part
        self._sha256 = None
        with bypassed(not cached):
            self.reader = reader = Reader(path, (GRAPH, PARTITIONED), verify=verify, memory=memory)
        self._options: dict[str, Any] = {"verify": verify, "memory": memory,
                                         "cached": not reader.bypass}
        self.path = reader.path
        self.format = reader.format  # "hpgcn-graph" or "hpgcn-partitioned-graph"

        # refuse a file whose parts contradict each other
        try:
            self.header = schema.read_header(reader)
            self.ordered = self.format == GRAPH and ORDER in reader.entries
            self._parts: Any = None
            if self.format == PARTITIONED:
                self._parts = StoredPartition(reader, self.header, merge)
            self.offsets = self._parts and self._parts.offsets
            self._content = reader.content_sha256()
            if self.header.all_ones:
                reader.expect_ones("adjacency/values")
            self.class_names = schema.read_names(reader, schema.CLASS_NAMES,
                                                 self.header.num_classes)
            self.feature_names = schema.read_names(reader, schema.FEATURE_NAMES,
                                                   self.header.num_features)
            self.target_names = schema.read_names(reader, schema.TARGET_NAMES,
                                                  self.header.num_targets)
            self.links = stored_links(reader, self.header.num_nodes)
        except BaseException:
            reader.close()
            raise

        order = StoredOrder(reader, self.header) if self.ordered else OriginalOrder()
        self._order = self._parts or order

    def __repr__(self) -> str:
        parts = "" if self.offsets is None else f", {self.offsets.size - 1:,} parts"
        return f"StoredGraph({self.path!r}, {self.header}{parts})"

    def _repr_html_(self) -> str:
        return self.header.html()

    def __enter__(self) -> StoredGraph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple:
        return functools.partial(StoredGraph, **self._options, merge=self._merge), (self.path,)

    def close(self) -> None:
        """Close the file; arrays already read stay valid."""
        self.reader.close()

    def reopen(self, path: str | os.PathLike[str]) -> StoredGraph:
        """Open another file with the same options."""
        return StoredGraph(path, **self._options)

    # Identity

    def sha256(self) -> str:
        """Return the SHA-256 of the open file; DataError if it was written to since."""
        if self._sha256 is None:
            self._sha256 = self.reader.sha256()
        return self._sha256

    def checksum(self) -> str:
        """Return a SHA-256 of the stored checksums, which identifies the content."""
        return self._content

    def digests(self) -> dict[str, str]:
        """Return a dict under DIGESTS: the SHA-256 of the file, its source and its content."""
        own = self.checksum()
        with suppress(DataError):  # the file was written to after it was opened
            own = self.sha256()
        before = self.header.source_sha256 if self.offsets is not None else ""
        return dict(zip(DIGESTS, (own, before or own, self.checksum())))

    def refuse_replaced(self) -> None:
        """Raise DataError if the file was replaced or written to after it was opened."""
        refuse_replaced(self.path, self.reader.opened)

    # Rows

    def slab(self, start: int, stop: int, split: int | None = None) -> Graph:
        """Read and validate the rows [start, stop); return a Graph, of one split or of all.

        Masks of other splits are not read. ConfigError if there is no split with this
        number.
        """
        self._check_rows(start, stop)
        reader = self.reader
        header = self.header

        # restrict the header to the requested split
        if split is not None:
            header.check_split(split, self.path)
            header = dataclasses.replace(header, num_splits=min(1, header.num_splits))
        splits = range(self.header.num_splits) if split is None else [split][:header.num_splits]

        row_arrays.reserve_rows(reader, self.header, start, stop, len(splits))

        # keep this order: it decides which of several errors is reported
        indptr, indices, data = self.adjacency_rows(start, stop)
        labels = row_arrays.read_labels(reader, self.header, start, stop)
        targets = row_arrays.read_targets(reader, start, stop)
        masks = row_arrays.read_masks(reader, self.header, start, stop, splits, labels)
        degrees = row_arrays.read_degrees(reader, start, stop).values()
        features = row_arrays.read_features(reader, self.header, start, stop)
        vertex = self.vertices(start, stop)
        ids = None
        if "original_ids" in reader.entries:
            ids = reader.read("original_ids", start, stop)

        return Graph(header, start, indptr, indices, data, features, labels, masks, *degrees,
                     vertex=vertex, original_ids=ids, offsets=self.offsets,
                     class_names=self.class_names, feature_names=self.feature_names,
                     targets=targets, target_names=self.target_names, links=self.links)

    def adjacency_rows(self, start: int, stop: int) -> tuple[
            np.ndarray, np.ndarray, np.ndarray | None]:
        """Read and validate the rows [start, stop): (indptr from 0, indices, data or None)."""
        return self._read_adjacency(start, stop, self.header.all_ones)

    def pattern_rows(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        return self._read_adjacency(start, stop, True)[:2]

    def pointers(self, start: int, stop: int) -> np.ndarray:
        self._check_rows(start, stop)
        return row_arrays.read_pointers(self.reader, start, stop)

    def vertices(self, start: int, stop: int) -> np.ndarray:
        self._check_rows(start, stop)
        return self._order.vertices(start, stop)

    def ids(self) -> np.ndarray:
        if "original_ids" in self.reader.entries:
            return self.reader.read("original_ids")
        return self.vertices(0, self.header.num_nodes) + self.header.base

    def edge_part(self, start: int, stop: int) -> np.ndarray | None:
        self._check_rows(start, stop)
        return self._parts and self._parts.edge_part(start, stop)

    def read_edge_features(self, first: int, last: int) -> np.ndarray:
        part = self.reader.read(EDGE_FEATURES, first, last)
        check_finite_rows(part, first, f"{self.path}: {EDGE_FEATURES}")
        return part

    def degrees(self) -> dict[str, np.ndarray]:
        return row_arrays.read_degrees(self.reader, 0, self.header.num_nodes)

    def split_masks(self, split: int) -> dict[str, np.ndarray] | None:
        header = self.header
        header.check_split(split, self.path)
        splits = [split][:header.num_splits]
        return row_arrays.read_masks(self.reader, header, 0, header.num_nodes, splits)

    def feature_pointers(self) -> np.ndarray | None:
        return row_arrays.read_feature_pointers(self.reader, self.header)

    def _read_adjacency(self, start: int, stop: int, ones: bool) -> tuple:
        self._check_rows(start, stop)
        n = self.header.num_nodes
        return read_csr(self.reader, "adjacency", start, stop, n, n, ones)

    def _check_rows(self, start: int, stop: int) -> None:
        row_arrays.check_rows(self.reader, self.header, start, stop)

    # The whole graph

    def pattern(self) -> Graph:
        """Read the pattern of all rows as a Graph without contents, whose degrees are 0."""
        n = self.header.num_nodes
        indptr, indices, _ = self._read_adjacency(0, n, True)
        zeros = np.zeros(n)
        return Graph(self.header, 0, indptr, indices, None, None, None, None, zeros, zeros, zeros,
                     vertex=self.vertices(0, n), offsets=self.offsets)

    def structure(self) -> Graph:
        """Read all rows as a Graph without weights, features and labels; degrees are 0.

        Rows have the order of `read`, and its checks. Memory holds the pattern and the
        split, once.
        """
        return read_structure(self)

    def check_structure(self) -> None:
        """Read all rows block by block, with the checks of `structure`; keep nothing."""
        check_structure(self)

    def read(self) -> Graph:
        """Read all rows and check that they agree; DataError if a train mask is empty.

        Rows are in the order of parts; without parts they are in ORIGINAL order, even
        if the file has another one.
        """
        n = self.header.num_nodes
        graph = self.slab(0, n)
        if self.header.num_edge_features:
            features = self.read_edge_features(0, self.header.num_edges)
            graph = dataclasses.replace(graph, edge_features=features)
        if self.links is not None:
            links = {key: each.read() for key, each in self.links.items()}
            graph = dataclasses.replace(graph, links=links)
        consistency.check_whole(self, [graph])
        self.check_order(self.order_sums(0, n))
        if self.ordered:
            self.reserve(ENTRY_BYTES * self.header.num_edges, "rows in the original order")
            graph = graph.in_original_order()
        for split in range(self.header.num_splits):
            if not graph.of_split(split).masks["train"].any():
                raise self.reader.error(f"{mask_name('train', split)} is empty")
        return graph

    def in_original_order(self) -> Graph:
        """Return all rows as a Graph in their ORIGINAL order; they are read only once."""
        return self._graph.in_original_order()

    @functools.cached_property
    def _graph(self) -> Graph:
        return self.read()

    adjacency = property(attrgetter("_graph.adjacency"), doc="The adjacency, read once.")
    features = property(attrgetter("_graph.features"), doc="The features of all rows, read once.")
    edge_features = property(attrgetter("_graph.edge_features"),
                             doc="The edge features of all entries, read once.")
    labels = property(attrgetter("_graph.labels"), doc="The labels of all rows, read once.")
    targets = property(attrgetter("_graph.targets"), doc="The targets of all rows, read once.")
    masks = property(attrgetter("_graph.masks"), doc="The masks of all rows, read once.")

    # Parts

    @property
    def vertex_partition(self) -> Partition | None:
        """The `partition` without parts of entries, which would require the whole adjacency."""
        return self._parts and self._parts.of_vertices

    @property
    def partition(self) -> Partition | None:
        """The hpgcn.partition.Partition of the rows, read once; None without parts."""
        return self._parts and self._parts.of_entries

    @property
    def merges(self) -> Sequence[int]:
        return self._parts.merges if self._parts else ()

    def merged(self, k: int) -> StoredGraph:
        found = StoredGraph(self.path, **self._options,
                            merge=self._merge * (self.offsets.size - 1) // k)
        if found.checksum() != self.checksum():
            found.close()
            raise changed(self.path)
        return found

    # Checks

    def order_sums(self, start: int, stop: int) -> np.ndarray:
        self._check_rows(start, stop)
        return self._order.sums(start, stop)

    def check_order(self, total: np.ndarray) -> None:
        if consistency.nonzero(total):
            self._order.check()

    def reserve(self, nbytes: int, what: str) -> None:
        self.reader.reserve(nbytes, what)
