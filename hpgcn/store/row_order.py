"""The order of rows in a graph file: original, reordered, or that of a partition.

Each class has three methods. `vertices` returns the ORIGINAL numbers of rows. `sums`
returns numbers whose total over all vertices is 0 if each vertex has exactly one row.
If it is not 0, `check` raises the error.
"""
from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.graphs import consistency
from hpgcn.graphs.partition import Partition, halves
from hpgcn.store import schema
from hpgcn.store.csr_arrays import read_csr, refuse_pointers, reorder_entries
from hpgcn.store.row_arrays import read_ends, read_numbers, refuse_where
from hpgcn.store.schema import ORDER, PARTITION_FIELDS, PARTITION_OPTIONS

if TYPE_CHECKING:
    from hpgcn.graphs.header import Header
    from hpgcn.store.reader import Reader

ENTRY_BYTES = 32  # memory per entry to put its part into the original order
NODES = ("nodes", "ranks_per_node")  # attributes of a partition for several nodes


class OriginalOrder:
    """The order in which row i is vertex i."""

    def vertices(self, start: int, stop: int) -> np.ndarray:
        """Return the ORIGINAL numbers of the rows [start, stop), (m,) int64."""
        return np.arange(start, stop, dtype=np.int64)

    def sums(self, start: int, stop: int) -> np.ndarray:
        """Return (4,) zeros, because there is nothing to check."""
        return np.zeros(4)

    def check(self) -> None:
        """Do nothing, because each vertex has one row."""


class StoredOrder:
    """The order in the dataset ORDER of an open file, whose element i is the vertex of row i."""

    def __init__(self, reader: Reader, header: Header) -> None:
        self.reader = reader
        self.header = header

    def vertices(self, start: int, stop: int) -> np.ndarray:
        """Read the ORIGINAL numbers of the rows [start, stop), (m,) int64."""
        return read_numbers(self.reader, ORDER, start, stop, self.header.num_nodes)

    def sums(self, start: int, stop: int) -> np.ndarray:
        """Return sums over the rows [start, stop), (4,) float64, in total 0 for a valid order."""
        return consistency.order_sums(start, self.vertices(start, stop))

    def check(self) -> None:
        """Raise DataError for an order that contains a vertex twice."""
        order = self.vertices(0, self.header.num_nodes)
        again = np.ones(order.size, bool)
        again[np.unique(order, return_index=True)[1]] = False
        refuse_where(self.reader, again, 0, ORDER, "is a vertex that another row is, too")


class StoredPartition:
    """The partition in an open file of format hpgcn-partitioned-graph, and its order of rows.

    Attributes
    ----------
    offsets : (k + 1,) int64
        Part p has the rows [offsets[p], offsets[p + 1]).
    merge : int
        Number of stored parts that form one part here.
    cuts_vertices : bool
        Whether entries have parts of their own.
    """

    def __init__(self, reader: Reader, header: Header, merge: int) -> None:
        self.reader = reader
        self.header = header
        self.merge = merge
        self.offsets = schema.read_offsets(reader, header)[::merge]
        self.cuts_vertices = "partition/edge_part" in reader.entries

    @property
    def k(self) -> int:
        """Number of parts."""
        return self.offsets.size - 1

    @property
    def nested(self) -> bool:
        """Whether parts 2 p and 2 p + 1 can be merged to part p of k / 2 parts."""
        nested = self.reader.attributes("/partition").get("nested", 0)  # absent in older files
        if nested not in (0, 1):
            raise self.reader.error(f"/partition: attribute nested is {nested!r}, expected 0 or 1")
        return bool(nested)

    @property
    def merges(self) -> tuple[int, ...]:
        """Numbers of parts into which nested parts can be merged, descending."""
        return halves(self.k) if self.nested else ()

    def vertices(self, start: int, stop: int) -> np.ndarray:
        """Read the ORIGINAL numbers of the rows [start, stop), (m,) int64."""
        return read_numbers(self.reader, "partition/perm", start, stop, self.header.num_nodes)

    def edge_part(self, start: int, stop: int) -> np.ndarray | None:
        """Read the part of each entry of the rows [start, stop), (nnz,) int32, or None."""
        if not self.cuts_vertices:
            return None
        first, last = read_ends(self.reader, "adjacency", start, stop)
        refuse_pointers(self.reader, "adjacency", start, stop, first, last)
        return self._parts("edge_part", first, last)

    def sums(self, start: int, stop: int) -> np.ndarray:
        """Return sums over vertices [start, stop), (4,) float64, in total 0 for a valid file."""
        perm, iperm, part = self._arrays(start, stop)
        owner = np.searchsorted(self.offsets, np.arange(start, stop), side="right") - 1
        return consistency.permutation_sums(start, perm, iperm, part, owner)

    def check(self) -> None:
        """Raise DataError if permutation, parts and offsets contradict each other."""
        self.of_vertices  # noqa: B018 (the first use checks)

    @functools.cached_property
    def of_vertices(self) -> Partition:
        """The hpgcn.partition.Partition without parts of entries; read once."""
        fields = {name: self.reader.field(name, kind, "/partition")
                  for name, kind in PARTITION_FIELDS.items()}
        statistics = {name: value for name, value in self.reader.attributes("/partition").items()
                      if name not in ("k", "nested", *NODES, *PARTITION_OPTIONS, *fields)}
        options = {name: self.reader.field(name, kind, "/partition")
                   for name, kind in PARTITION_OPTIONS.items()
                   if name in self.reader.attributes("/partition")}
        sizes = schema.read_node_sizes(self.reader, self.merge * self.k)
        if self.merge > 1:
            statistics, sizes = {}, ()  # those of the file hold only for its own number of parts

        n = self.header.num_nodes
        perm, iperm, part = self._arrays(0, n)
        owner = np.repeat(np.arange(self.k), np.diff(self.offsets))

        # refuse a permutation that contradicts its inverse or the offsets
        refuse_where(self.reader, iperm[perm] != np.arange(n), 0, "partition/perm",
                     "is not undone by iperm")
        refuse_where(self.reader, part[perm] != owner, 0, "partition/perm",
                     "is a vertex of another part than the offsets say")

        return Partition(part, perm, iperm, self.offsets, **fields, statistics=statistics,
                         nested=self.nested, node_sizes=sizes, **options)

    @functools.cached_property
    def of_entries(self) -> Partition:
        """The hpgcn.partition.Partition, with parts of entries if the file has them; read once."""
        if not self.cuts_vertices:
            return self.of_vertices
        n = self.header.num_nodes
        perm = self.of_vertices.perm
        self.reader.reserve(ENTRY_BYTES * self.header.num_edges,
                            "partition/edge_part in the original order")
        indptr, indices, _ = read_csr(self.reader, "adjacency", 0, n, n, n, True)
        edge_part = reorder_entries(self.edge_part(0, n), indptr, indices, perm)
        return dataclasses.replace(self.of_vertices, edge_part=edge_part)

    def _arrays(self, start: int, stop: int) -> tuple[np.ndarray, ...]:
        """Read perm, iperm and part of the vertices [start, stop), and check their ranges."""
        n = self.header.num_nodes
        perm, iperm = (read_numbers(self.reader, f"partition/{name}", start, stop, n)
                       for name in ("perm", "iperm"))
        return perm, iperm, self._parts("part", start, stop)

    def _parts(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read part numbers from the dataset `name`, converted to numbers of merged parts."""
        parts = read_numbers(self.reader, f"partition/{name}", start, stop, self.merge * self.k)
        return parts // self.merge
