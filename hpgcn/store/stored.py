"""A graph in a file, read row by row: validated once, here; kernels trust their arguments."""
from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from itertools import combinations
from operator import attrgetter

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs import consistency
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.graph_source import GraphSource
from hpgcn.graphs.identity import changed, refuse_replaced
from hpgcn.graphs.partition import Partition, halves
from hpgcn.graphs.validation import SPLIT
from hpgcn.store import schema
from hpgcn.store.class_names import read_class_names
from hpgcn.store.csr_arrays import read_csr, refuse_pointers, reorder_entries
from hpgcn.store.reader import Reader
from hpgcn.store.schema import (
    DEGREES,
    GRAPH,
    ORDER,
    PARTITION_FIELDS,
    PARTITIONED,
    mask_name,
)

ENTRY_BYTES = 32  # of memory that putting an entry, or its part, into the original order takes
DENSE = ("features", "labels", "original_ids", "partition/perm", ORDER,
         *(f"degree/{name}" for name in DEGREES))


class StoredGraph(GraphSource):
    """A graph in a file: header at once, rows as they are asked for. Picklable; a context manager.

    Whatever reads validates what it reads; it raises DataError and StorageError as hpgcn.store
    says, DataError for rows that do not exist and more bytes than the memory budget, too.
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = True,
                 memory: int | None = None, merge: int = 1) -> None:
        self._options = {"verify": verify, "memory": memory}
        self._merge = merge  # so many parts of the file are one
        self._sha256 = None
        self.reader = reader = Reader(path, (GRAPH, PARTITIONED), verify=verify, memory=memory)
        self.path = reader.path
        self.format = reader.format  # "hpgcn-graph" or "hpgcn-partitioned-graph"
        try:
            self.header = schema.read_header(reader)
            self.offsets = None  # else part p owns the rows [offsets[p], offsets[p + 1])
            self.ordered = self.format == GRAPH and ORDER in reader.entries
            if self.format == PARTITIONED:
                self.offsets = schema.read_offsets(reader, self.header)[::merge]
            self._content = reader.content_sha256()
            if self.header.all_ones:
                reader.expect_ones("adjacency/values")
            self.class_names = read_class_names(reader, self.header.num_classes)
        except BaseException:
            reader.close()
            raise

    def __repr__(self) -> str:
        parts = "" if self.offsets is None else f", {self.offsets.size - 1:,} parts"
        return f"StoredGraph({self.path!r}, {self.header}{parts})"

    def _repr_html_(self) -> str:
        return self.header.html()

    def __enter__(self) -> StoredGraph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self):
        return functools.partial(StoredGraph, **self._options, merge=self._merge), (self.path,)

    def close(self) -> None:
        """Close the file; what was read stays."""
        self.reader.close()

    def reopen(self, path: str | os.PathLike[str]) -> StoredGraph:
        """Open another file with the same options."""
        return StoredGraph(path, **self._options)

    @property
    def merges(self) -> Sequence[int]:
        """Numbers of parts that nested parts merge to, descending; none of others."""
        return halves(self.offsets.size - 1) if self._nested else ()

    @property
    def _nested(self):
        nested = self.reader.attributes("/partition").get("nested", 0)  # absent in older files
        if nested not in (0, 1):
            raise self.reader.error(f"/partition: attribute nested is {nested!r}, expected 0 or 1")
        return bool(nested)

    def merged(self, k: int) -> StoredGraph:
        """Open the file as one of k parts, k among `merges`: rows keep their order."""
        found = StoredGraph(self.path, **self._options,
                            merge=self._merge * (self.offsets.size - 1) // k)
        if found.checksum() != self.checksum():
            raise changed(self.path)
        return found

    def sha256(self) -> str:
        """Return the SHA-256 of the open file, whatever has its name; DataError if written to."""
        if self._sha256 is None:
            self._sha256 = self.reader.sha256()
        return self._sha256

    def checksum(self) -> int:
        """Return the SHA-256 of the content when opened, by its checksums: of what is read."""
        return self._content

    def refuse_replaced(self) -> None:
        """Refuse (DataError) to go on with what was read if the file was replaced or written to."""
        refuse_replaced(self.path, self.reader.opened)

    def slab(self, start: int, stop: int, split: int | None = None) -> Graph:
        """Read and validate the rows [start, stop); return a Graph, of one split or of all.

        Of other splits nothing is read. A ConfigError if there is no such split.
        """
        self._check_rows(start, stop)
        header = self.header
        if split is not None:
            header.check_split(split, self.path)
            header = dataclasses.replace(header, num_splits=min(1, header.num_splits))
        splits = range(self.header.num_splits) if split is None else [split][:header.num_splits]
        self._reserve(start, stop, splits)
        indptr, indices, data = self.adjacency_rows(start, stop)
        labels = self._read_labels(start, stop)
        masks = self._read_masks(start, stop, splits, labels)
        degrees = [self._read_finite(f"degree/{name}", start, stop) for name in DEGREES]
        features = self._read_features(start, stop)

        vertex = self.vertices(start, stop)
        ids = None
        if "original_ids" in self.reader.entries:
            ids = self.reader.read("original_ids", start, stop)
        return Graph(header, start, indptr, indices, data, features, labels, masks, *degrees,
                     vertex=vertex, original_ids=ids, offsets=self.offsets,
                     class_names=self.class_names)

    def vertices(self, start: int, stop: int) -> np.ndarray:
        """Read the ORIGINAL numbers of the rows [start, stop), (m,) int64."""
        self._check_rows(start, stop)
        if self.offsets is None and not self.ordered:
            return np.arange(start, stop, dtype=np.int64)
        name = ORDER if self.ordered else "partition/perm"
        return self._read_numbers(name, start, stop, self.header.num_nodes)

    def adjacency_rows(self, start: int, stop: int) -> tuple[
            np.ndarray, np.ndarray, np.ndarray | None]:
        """Read and validate the rows [start, stop): (indptr from 0, indices, data or None)."""
        self._check_rows(start, stop)
        n = self.header.num_nodes
        return read_csr(self.reader, "adjacency", start, stop, n, n, self.header.all_ones)

    def pointers(self, start: int, stop: int) -> np.ndarray:
        """Return row pointers of the rows [start, stop), (m + 1,) int64."""
        self._check_rows(start, stop)
        pointers = self.reader.read("adjacency/pointers_to_1", start, stop + 1)
        self._refuse(np.diff(pointers, prepend=0) < 0, start, "adjacency/pointers_to_1",
                     "is below the one before")
        return pointers

    def degrees(self) -> dict[str, np.ndarray]:
        """Return (n,) float64: sums under "row" and "column", weights of own loops under "loop"."""
        n = self.header.num_nodes
        return {name: self._read_finite(f"degree/{name}", 0, n) for name in DEGREES}

    def read(self) -> Graph:
        """Read and validate all rows, `check_whole` included; no train mask must be empty.

        They are in the order of their parts, or else in their ORIGINAL order, whatever the file's.
        """
        n = self.header.num_nodes
        graph = self.slab(0, n)
        self.check_whole([graph])
        self.check_order(self.order_sums(0, n))
        if self.ordered:
            self.reader.reserve(ENTRY_BYTES * self.header.num_edges, "rows in the original order")
            graph = graph.in_original_order()
        for split in range(self.header.num_splits):
            if not graph.of_split(split).masks["train"].any():
                raise self.reader.error(f"{mask_name('train', split)} is empty")
        return graph

    def in_original_order(self) -> Graph:
        """Return all rows, read once and kept, in their ORIGINAL order."""
        return self._whole.in_original_order()

    def check_whole(self, slabs: Sequence[Graph]) -> None:
        """Refuse degrees, loops and a symmetry that are not what the entries of all slabs say."""
        total = sum(consistency.add_up(slab, self.path) for slab in slabs)
        consistency.refuse(total, self, self.path)

    def order_sums(self, start: int, stop: int) -> np.ndarray:
        """Return (4,) float64 about the vertices [start, stop), whose sum `check_order` takes."""
        self._check_rows(start, stop)
        if self.ordered:
            return consistency.order_sums(start, self.vertices(start, stop))
        if self.offsets is None:
            return np.zeros(4)
        perm, iperm, part = self._read_partition(start, stop)
        owner = np.searchsorted(self.offsets, np.arange(start, stop), side="right") - 1
        return consistency.permutation_sums(start, perm, iperm, part, owner)

    def check_order(self, total: np.ndarray) -> None:
        """Refuse rows in no order of the vertices, or parts that are not as the offsets say.

        `total` is the sum of `order_sums` over all vertices.
        """
        if not consistency.nonzero(total):
            return
        if self.ordered:
            order = self.vertices(0, self.header.num_nodes)
            again = np.ones(order.size, bool)
            again[np.unique(order, return_index=True)[1]] = False
            self._refuse(again, 0, ORDER, "is a vertex that another row is, too")
        else:
            self.vertex_partition  # noqa: B018 (refuses)

    def edge_part(self, start: int, stop: int) -> np.ndarray | None:
        """Return the part of each entry of these rows, (nnz,) int32; None without a vertex cut."""
        self._check_rows(start, stop)
        if not self._cuts_vertices:
            return None
        first, last = self._ends("adjacency", start, stop)
        refuse_pointers(self.reader, "adjacency", start, stop, first, last)
        return self._read_parts("edge_part", first, last)

    @functools.cached_property
    def partition(self) -> Partition:
        """The hpgcn.partition.Partition that ordered the rows, read once; None if unpartitioned."""
        partition = self.vertex_partition
        if not self._cuts_vertices:
            return partition
        n = self.header.num_nodes
        need = ENTRY_BYTES * self.header.num_edges
        self.reader.reserve(need, "partition/edge_part in the original order")
        indptr, indices, _ = read_csr(self.reader, "adjacency", 0, n, n, n, True)
        edge_part = reorder_entries(self.edge_part(0, n), indptr, indices, partition.perm)
        return dataclasses.replace(partition, edge_part=edge_part)

    @functools.cached_property
    def vertex_partition(self) -> Partition:
        """The same without the parts of edges, for which the whole adjacency must be read."""
        if self.offsets is None:
            return None
        n = self.header.num_nodes
        fields = {name: self.reader.field(name, kind, "/partition")
                  for name, kind in PARTITION_FIELDS.items()}
        statistics = {name: value for name, value in self.reader.attributes("/partition").items()
                      if name not in ("k", "nested", *fields)}
        if self._merge > 1:
            statistics = {}  # they count the parts of the file
        perm, iperm, part = self._read_partition(0, n)
        owner = np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))
        self._refuse(iperm[perm] != np.arange(n), 0, "partition/perm", "is not undone by iperm")
        self._refuse(part[perm] != owner, 0, "partition/perm",
                     "is a vertex of another part than the offsets say")
        return Partition(part, perm, iperm, self.offsets, **fields, statistics=statistics,
                         nested=self._nested)

    @functools.cached_property
    def _whole(self):
        return self.read()

    adjacency = property(attrgetter("_whole.adjacency"), doc="All rows, read once; as of a Graph.")
    features = property(attrgetter("_whole.features"), doc="Of all rows, read once; as of a Graph.")
    labels = property(attrgetter("_whole.labels"), doc="Of all rows, read once; as of a Graph.")
    masks = property(attrgetter("_whole.masks"), doc="Of all rows, read once; as of a Graph.")

    @property
    def _cuts_vertices(self):
        return self.offsets is not None and "partition/edge_part" in self.reader.entries

    def _check_rows(self, start, stop):
        if not 0 <= start <= stop <= self.header.num_nodes:
            raise self.reader.error(f"rows {start}..{stop} asked for, 0..{self.header.num_nodes} "
                                    "stored")

    def _ends(self, group, start, stop):
        name = f"{group}/pointers_to_1"
        return [int(self.reader.read(name, row, row + 1)[0]) for row in (start, stop)]

    def _reserve(self, start, stop, splits):
        """Refuse rows whose bytes, all datasets together, pass the memory budget."""
        entries = self.reader.entries
        need = sum((stop - start) * entries[name].row_bytes for name in DENSE if name in entries)
        need += (stop - start) * len(splits) * len(SPLIT)
        for group in ["adjacency"] + ["features"] * self.header.sparse_features:
            entry = entries[f"{group}/indices_1"]
            first, last = self._ends(group, start, stop)
            # pointers that make no sense are read_csr's to refuse
            nnz = max(0, min(last, entry.rows) - max(first, 0))
            values = 0 if group == "adjacency" and self.header.all_ones else 4
            need += nnz * (entry.row_bytes + values) + (stop + 1 - start) * 8
        self.reader.reserve(need, f"rows {start}..{stop}")

    def _read_features(self, start, stop):
        if "features" in self.reader.entries:
            return self._read_finite("features", start, stop)
        if not self.header.sparse_features:
            return None
        f = self.header.num_features
        features = sp.csr_array((stop - start, f), dtype=np.float32)
        features.indptr, features.indices, features.data = read_csr(
            self.reader, "features", start, stop, self.header.num_nodes, f, False)
        return features

    def _read_labels(self, start, stop):
        if "labels" not in self.reader.entries:
            return None
        labels = self.reader.read("labels", start, stop)
        if labels.ndim == 2:
            self._refuse((labels != 0) & (labels != 1), start, "labels", "is neither 0 nor 1")
        else:
            c = self.header.num_classes
            self._refuse((labels < -1) | (labels >= c), start, "labels",
                         f"is outside 0..{c - 1}, and not -1 (unknown)")
        return labels

    def _read_masks(self, start, stop, splits, labels):
        """Read the masks of some splits, as of a Graph; None of none."""
        if not splits:
            return None
        read = [self._read_split(start, stop, split, labels) for split in splits]
        if len(read) == 1:
            return read[0]
        return {key: np.stack([masks[key] for masks in read], axis=1) for key in SPLIT}

    def _read_split(self, start, stop, split, labels):
        names = {key: mask_name(key, split) for key in SPLIT}
        masks = {key: self.reader.read(name, start, stop) for key, name in names.items()}
        for key, mask in masks.items():
            self._refuse(mask > 1, start, names[key], "is neither 0 nor 1")
        for a, b in combinations(SPLIT, 2):
            self._refuse((masks[a] & masks[b]) > 0, start, names[a],
                         f"is set, and in {names[b]} too")
        masks = {key: mask.view(bool) for key, mask in masks.items()}
        if labels is not None and labels.ndim == 1:
            for key, mask in masks.items():
                self._refuse(mask & (labels < 0), start, names[key],
                             "is set, but the vertex has no label")
        return masks

    def _read_partition(self, start, stop):
        """Read perm, iperm and part of the vertices [start, stop), none of them out of range."""
        n = self.header.num_nodes
        perm, iperm = (self._read_numbers(f"partition/{name}", start, stop, n)
                       for name in ("perm", "iperm"))
        return perm, iperm, self._read_parts("part", start, stop)

    def _read_parts(self, name, start, stop):
        """Read numbers of parts, those that are merged as one."""
        parts = self._merge * (self.offsets.size - 1)
        return self._read_numbers(f"partition/{name}", start, stop, parts) // self._merge

    def _read_numbers(self, name, start, stop, end):
        array = self.reader.read(name, start, stop)
        self._refuse((array < 0) | (array >= end), start, name, f"is outside 0..{end - 1}")
        return array

    def _read_finite(self, name, start, stop):
        array = self.reader.read(name, start, stop)
        self._refuse(~np.isfinite(array), start, name, "is not a finite number")
        return array

    def _refuse(self, wrong, start, name, problem):
        """Raise at the first True of `wrong`, (m,) or (m, w), whose row 0 is row `start`."""
        if wrong.any():
            row, *rest = map(int, np.unravel_index(np.argmax(wrong), wrong.shape))
            place = ", ".join(map(str, (row + start, *rest)))
            raise self.reader.error(f"{name}[{place}] {problem}")
