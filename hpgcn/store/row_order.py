"""The order of the rows of a graph file that has no parts.

Each class has `vertices`, `sums` and `check`, as `hpgcn.store.stored_partition.StoredPartition`:
the ORIGINAL numbers of rows, and what tells whether each vertex has one row.
"""
import numpy as np

from hpgcn.graphs import consistency
from hpgcn.store.row_arrays import read_numbers, refuse_where
from hpgcn.store.schema import ORDER


class OriginalOrder:
    """Row i is vertex i."""

    def vertices(self, start, stop):
        """Return the ORIGINAL numbers of the rows [start, stop), (m,) int64."""
        return np.arange(start, stop, dtype=np.int64)

    def sums(self, start, stop):
        """Return (4,) float64 of the vertices [start, stop), whose sum `check` takes."""
        return np.zeros(4)

    def check(self):
        """Refuse (DataError) rows that hold some vertex twice."""


class StoredOrder:
    """Row i is the vertex that the dataset ORDER of an open file has at place i."""

    def __init__(self, reader, header):
        self.reader = reader
        self.header = header

    def vertices(self, start, stop):
        """Read the ORIGINAL numbers of the rows [start, stop), (m,) int64."""
        return read_numbers(self.reader, ORDER, start, stop, self.header.num_nodes)

    def sums(self, start, stop):
        """See `OriginalOrder.sums`."""
        return consistency.order_sums(start, self.vertices(start, stop))

    def check(self):
        """See `OriginalOrder.check`."""
        order = self.vertices(0, self.header.num_nodes)
        again = np.ones(order.size, bool)
        again[np.unique(order, return_index=True)[1]] = False
        refuse_where(self.reader, again, 0, ORDER, "is a vertex that another row is, too")
