"""A graph in a file, read row by row: validated once, here; kernels trust their arguments."""
from __future__ import annotations

import dataclasses
import functools

import numpy as np
import scipy.sparse as sp

from hpgcn import consistency
from hpgcn.check import SPLIT
from hpgcn.errors import DataError
from hpgcn.graph import Graph
from hpgcn.identity import refuse_replaced
from hpgcn.partition import Partition
from hpgcn.store.csr import read_csr, reorder_entries
from hpgcn.store.reader import Reader
from hpgcn.store.schema import DEGREES, GRAPH, PARTITION_FIELDS, PARTITIONED, read_header, read_offsets

ENTRY_BYTES = 32  # of memory that putting the part of one edge into the original order takes


class StoredGraph:
    """A graph in a file: header at once, rows as they are asked for. Picklable; usable as a context manager.

    Attributes
    ----------
    path : str
    format : str
        "hpgcn-graph" or "hpgcn-partitioned-graph".
    header : Header
    offsets : (k + 1,) int64 or None
        Part p owns the rows [offsets[p], offsets[p + 1]); None if unpartitioned.
    reader : hpgcn.store.reader.Reader
        The open file.
    """

    def __init__(self, path, *, verify=True, memory=None):
        self._options, self._sha256 = {"verify": verify, "memory": memory}, None
        self.reader = reader = Reader(path, (GRAPH, PARTITIONED), verify=verify, memory=memory)
        self.path, self.format = reader.path, reader.format
        try:
            self.header = read_header(reader)
            self.offsets = read_offsets(reader, self.header) if self.format == PARTITIONED else None
            self._content = reader.content_sha256()
            if self.header.all_ones:
                reader.expect_ones("adjacency/values")
        except BaseException:
            reader.close()
            raise

    def __repr__(self):
        parts = "" if self.offsets is None else f", {self.offsets.size - 1:,} parts"
        return f"StoredGraph({self.path!r}, {self.header}{parts})"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __reduce__(self):
        return functools.partial(StoredGraph, **self._options), (self.path,)

    def close(self):
        """Close the file; what was read stays."""
        self.reader.close()

    def reopen(self, path):
        """Open another file with the same options."""
        return StoredGraph(path, **self._options)

    def sha256(self):
        """SHA-256 of the file that is open here (hexadecimal), whatever has its name by now; read once, in pieces.

        Raises
        ------
        DataError
            It was written to since it was opened.
        """
        if self._sha256 is None:
            self._sha256 = self.reader.sha256()
        return self._sha256

    def checksum(self):
        """SHA-256 of what the file held when it was opened, from the checksums in it: files that differ differ in it.

        Everything that is read is compared with these checksums, so it is the digest of what is read.
        """
        return self._content

    def refuse_replaced(self):
        """Refuse to go on with what was read, unless this file still has its name and was not written to; DataError."""
        refuse_replaced(self.path, self.reader.opened)

    def slab(self, start, stop):
        """Read and validate the rows [start, stop).

        Returns
        -------
        Graph
            With `vertex` the ORIGINAL row of each.

        Raises
        ------
        DataError
            Invalid CSR, NaN or Inf, a label out of range, overlapping masks, or more bytes than the memory budget:
            each with file, dataset and index.
        StorageError
            Reading failed, or a checksum does not match.
        """
        header, reader = self.header, self.reader
        self._check_rows(start, stop)
        self._reserve(start, stop)
        indptr, indices, data = read_csr(reader, "adjacency", start, stop, header.num_nodes, header.num_nodes,
                                         header.all_ones)
        labels, masks = self._read_labels(start, stop), self._read_masks(start, stop)
        if masks is not None and labels is not None and labels.ndim == 1:
            for key in SPLIT:
                self._refuse(masks[key] & (labels < 0), start, f"masks/{key}", "is set, but the vertex has no label")
        degrees = [self._read_finite(f"degree/{name}", start, stop) for name in DEGREES]
        vertex = np.arange(start, stop, dtype=np.int64)
        if self.offsets is not None:
            vertex = reader.read("partition/perm", start, stop)
            self._refuse((vertex < 0) | (vertex >= header.num_nodes), start, "partition/perm",
                         f"is outside 0..{header.num_nodes - 1}")
        ids = reader.read("original_ids", start, stop) if "original_ids" in reader.entries else None
        return Graph(header, start, indptr, indices, data, self._read_features(start, stop), labels, masks, *degrees,
                     vertex=vertex, original_ids=ids, offsets=self.offsets)

    def adjacency_rows(self, start, stop):
        """(indptr from 0, indices, data or None) of the rows [start, stop), read and validated."""
        self._check_rows(start, stop)
        return read_csr(self.reader, "adjacency", start, stop, self.header.num_nodes, self.header.num_nodes,
                        self.header.all_ones)

    def pointers(self, start, stop):
        """Row pointers of the rows [start, stop), (m + 1,) int64."""
        self._check_rows(start, stop)
        pointers = self.reader.read("adjacency/pointers_to_1", start, stop + 1)
        self._refuse(np.diff(pointers, prepend=0) < 0, start, "adjacency/pointers_to_1", "is below the one before")
        return pointers

    def degrees(self):
        """Row sums, column sums and loops of all vertices: dict of (n,) float64 under "row", "column" and "loop"."""
        return {name: self._read_finite(f"degree/{name}", 0, self.header.num_nodes) for name in DEGREES}

    def read(self):
        """Read and validate all rows, as `slab`, `check_whole` and `vertex_partition`; no train mask must be empty."""
        graph = self.slab(0, self.header.num_nodes)
        self.check_whole([graph])
        if self.offsets is not None and consistency.nonzero(self.partition_sums(0, self.header.num_nodes)):
            self.vertex_partition  # noqa: B018 (refuses)
        if graph.masks is not None and not graph.masks["train"].any():
            raise DataError(f"{self.path}: masks/train is empty")
        return graph

    def check_whole(self, slabs):
        """Refuse degrees, loops and a symmetry that are not what the entries of the adjacency say.

        Parameters
        ----------
        slabs : iterable of Graph
            All rows, each once.

        Raises
        ------
        DataError
            As `hpgcn.consistency.add_up` and `refuse`.
        """
        consistency.refuse(sum(consistency.add_up(slab, self.path) for slab in slabs), self, self.path)

    def partition_sums(self, start, stop):
        """What tells of the vertices [start, stop) whether perm, iperm, part and offsets belong together, (4,) float64.

        If `hpgcn.consistency.nonzero` of the sum over all vertices, `vertex_partition` names what is wrong.

        Raises
        ------
        DataError
            A number out of range.
        StorageError
            As `slab`.
        """
        self._check_rows(start, stop)
        perm, iperm, part = self._read_partition(start, stop)
        owner = np.searchsorted(self.offsets, np.arange(start, stop), side="right") - 1
        return consistency.permutation_sums(start, perm, iperm, part, owner)

    def edge_part(self, start, stop):
        """Part of each stored entry of the rows [start, stop), (nnz,) int32, as `slab` orders them.

        None where the partition is no vertex cut.

        Raises
        ------
        DataError
            A part outside 0..k-1, or pointers that leave the matrix.
        StorageError
            As `slab`.
        """
        reader = self.reader
        self._check_rows(start, stop)
        if not self._cuts_vertices:
            return None
        first, last = (int(reader.read("adjacency/pointers_to_1", row, row + 1)[0]) for row in (start, stop))
        if not 0 <= first <= last <= self.header.num_edges:
            raise DataError(f"{self.path}: adjacency: row pointers of rows {start}..{stop} run from {first} to {last}, "
                            f"expected within 0..{self.header.num_edges}")
        part, k = reader.read("partition/edge_part", first, last), self.offsets.size - 1
        self._refuse((part < 0) | (part >= k), first, "partition/edge_part", f"is outside 0..{k - 1}")
        return part

    @functools.cached_property
    def partition(self):
        """The hpgcn.partition.Partition that ordered the rows, read once; None if unpartitioned."""
        made, n = self.vertex_partition, self.header.num_nodes
        if not self._cuts_vertices:
            return made
        self.reader.reserve(ENTRY_BYTES * self.header.num_edges, "partition/edge_part in the original order")
        indptr, indices, _ = read_csr(self.reader, "adjacency", 0, n, n, n, True)
        return dataclasses.replace(made, edge_part=reorder_entries(self.edge_part(0, n), indptr, indices, made.perm))

    @functools.cached_property
    def vertex_partition(self):
        """The same without the parts of edges, for which the whole adjacency must be read."""
        if self.offsets is None:
            return None
        n, k = self.header.num_nodes, self.offsets.size - 1
        fields = {name: self.reader.field(name, kind, "/partition") for name, kind in PARTITION_FIELDS.items()}
        statistics = {name: value for name, value in self.reader.attributes("/partition").items()
                      if name != "k" and name not in fields}
        perm, iperm, part = self._read_partition(0, n)
        self._refuse(iperm[perm] != np.arange(n), 0, "partition/perm", "is not undone by iperm")
        self._refuse(part[perm] != np.repeat(np.arange(k), np.diff(self.offsets)), 0, "partition/perm",
                     "is a vertex of another part than the offsets say")
        return Partition(part, perm, iperm, self.offsets, **fields, statistics=statistics)

    @functools.cached_property
    def _whole(self):
        return self.read()

    @property
    def adjacency(self):
        """All rows as scipy.sparse.csr_array (n, n), float32; this and the next three read everything once."""
        return self._whole.adjacency

    @property
    def features(self):
        """(n, f) float32, scipy.sparse.csr_array (n, f) float32, or None."""
        return self._whole.features

    @property
    def labels(self):
        """(n,) int64 with -1 for unknown, (n, t) float32, or None."""
        return self._whole.labels

    @property
    def masks(self):
        """Dict of (n,) bool under "train", "val" and "test", or None."""
        return self._whole.masks

    @property
    def _cuts_vertices(self):
        return self.offsets is not None and "partition/edge_part" in self.reader.entries

    def _check_rows(self, start, stop):
        if not 0 <= start <= stop <= self.header.num_nodes:
            raise DataError(f"{self.path}: rows {start}..{stop} asked for, 0..{self.header.num_nodes} stored")

    def _read_partition(self, start, stop):
        """perm, iperm and part of the vertices [start, stop), none of them out of range."""
        found, n, k = [], self.header.num_nodes, self.offsets.size - 1
        for name, end in (("perm", n), ("iperm", n), ("part", k)):
            found.append(self.reader.read(f"partition/{name}", start, stop))
            self._refuse((found[-1] < 0) | (found[-1] >= end), start, f"partition/{name}", f"is outside 0..{end - 1}")
        return found

    def _reserve(self, start, stop):
        """Refuse rows whose bytes, all datasets together, pass the memory budget, before they are read."""
        reader, need = self.reader, 0
        for group in ["adjacency"] + ["features"] * self.header.sparse_features:
            entry = reader.entries[f"{group}/indices_1"]
            first, last = (int(reader.read(f"{group}/pointers_to_1", row, row + 1)[0]) for row in (start, stop))
            values = 0 if group == "adjacency" and self.header.all_ones else 4
            nnz = max(0, min(last, entry.rows) - max(first, 0))  # pointers that make no sense are read_csr's to refuse
            need += nnz * (entry.row_bytes + values) + (stop + 1 - start) * 8
        names = {"features", "labels", "original_ids", "partition/perm", *(f"masks/{key}" for key in SPLIT),
                 *(f"degree/{name}" for name in DEGREES)}
        need += sum((stop - start) * reader.entries[name].row_bytes for name in names & set(reader.entries))
        reader.reserve(need, f"rows {start}..{stop}")

    def _read_features(self, start, stop):
        f = self.header.num_features
        if "features" in self.reader.entries:
            return self._read_finite("features", start, stop)
        if not self.header.sparse_features:
            return None
        indptr, indices, data = read_csr(self.reader, "features", start, stop, self.header.num_nodes, f, False)
        features = sp.csr_array((stop - start, f), dtype=np.float32)
        features.indptr, features.indices, features.data = indptr, indices, data
        return features

    def _read_labels(self, start, stop):
        if "labels" not in self.reader.entries:
            return None
        labels, c = self.reader.read("labels", start, stop), self.header.num_classes
        if labels.ndim == 2:
            self._refuse((labels != 0) & (labels != 1), start, "labels", "is neither 0 nor 1")
        else:
            self._refuse((labels < -1) | (labels >= c), start, "labels", f"is outside 0..{c - 1}, and not -1 (unknown)")
        return labels

    def _read_masks(self, start, stop):
        if not self.header.has_split:
            return None
        masks = {key: self.reader.read(f"masks/{key}", start, stop) for key in SPLIT}
        for key, mask in masks.items():
            self._refuse(mask > 1, start, f"masks/{key}", "is neither 0 nor 1")
        for a, b in (("train", "val"), ("train", "test"), ("val", "test")):
            self._refuse((masks[a] & masks[b]) > 0, start, f"masks/{a}", f"is set, and in masks/{b} too")
        return {key: mask.view(bool) for key, mask in masks.items()}

    def _read_finite(self, name, start, stop):
        array = self.reader.read(name, start, stop)
        self._refuse(~np.isfinite(array), start, name, "is not a finite number")
        return array

    def _refuse(self, wrong, start, name, problem):
        """Raise at the first True of `wrong` ((m,) or (m, w) bool), whose row 0 is row `start` of the dataset."""
        if wrong.any():
            index = np.unravel_index(np.argmax(wrong), wrong.shape)
            place = ", ".join(str(int(i) + start * (axis == 0)) for axis, i in enumerate(index))
            raise DataError(f"{self.path}: {name}[{place}] {problem}")
