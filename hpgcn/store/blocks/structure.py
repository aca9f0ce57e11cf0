"""Read and check the rows of a graph file without weights, features and labels."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpgcn.graphs import consistency
from hpgcn.graphs.adjacency import row_blocks
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.validation import SPLIT
from hpgcn.store import row_arrays
from hpgcn.store.blocks.reordered import ENTRIES, OrderedEntries
from hpgcn.store.schema import mask_name

if TYPE_CHECKING:
    from hpgcn.store.stored import StoredGraph

WHOLE = 1 << 62  # size of a window that holds all rows
VERTEX_BYTES = 48  # memory of `read_structure` per vertex, without its entries


def read_structure(source: StoredGraph) -> Graph:
    """Return all rows of a StoredGraph as a Graph without weights, features and labels.

    The order of rows is that of `StoredGraph.read`, and so are the checks. Features are
    not read. Degrees are 0.
    """
    header = source.header
    n = header.num_nodes
    columns = source.reader.entries["adjacency/indices_1"]
    source.reserve(columns.nbytes + VERTEX_BYTES * n, "the adjacency")
    new_row = source.vertices(0, n) if source.ordered else np.arange(n)
    masks = None
    if header.num_splits:
        masks = {key: np.empty((n, header.num_splits), bool) for key in SPLIT}
    rows = _CheckedRows(source)

    def read(start: int, stop: int) -> list[np.ndarray | None]:
        """Read and check rows, all but their features."""
        *adjacency, read_masks = rows.read(start, stop)
        for key, mask in (read_masks or {}).items():
            masks[key][new_row[start:stop]] = mask
        return adjacency

    # all rows, in one window
    entries = OrderedEntries(read, new_row, source.pointers(0, n), columns.dtype, WHOLE)
    indices = entries.columns()[:]
    rows.finish()

    if header.num_splits == 1:
        masks = {key: mask[:, 0] for key, mask in masks.items()}
    zeros = np.broadcast_to(np.float64(0), n)
    vertex = np.arange(n) if source.ordered else source.vertices(0, n)
    return Graph(header, 0, entries.pointers, indices, None, None, None, masks, zeros, zeros, zeros,
                 vertex=vertex, offsets=source.offsets, class_names=source.class_names)


def check_structure(source: StoredGraph) -> None:
    """Read all rows of a StoredGraph in blocks, with the checks of `read_structure`."""
    rows = _CheckedRows(source)
    for start, stop in row_blocks(source.pointers(0, source.header.num_nodes), ENTRIES):
        rows.read(start, stop)
    rows.finish()


class _CheckedRows:
    """Rows of a StoredGraph that are read once each, and checked together at the end."""

    def __init__(self, source: StoredGraph) -> None:
        self.source = source
        self.splits = range(source.header.num_splits)
        self.sums = []
        self.has_train = np.zeros(len(self.splits), bool)  # splits with a training vertex so far

    def read(self, start: int, stop: int) -> tuple:
        """Return indptr, indices and data of rows, and their masks, (m, splits) each or None."""
        source, header = self.source, self.source.header
        indptr, indices, data = source.adjacency_rows(start, stop)
        labels = row_arrays.read_labels(source.reader, header, start, stop)
        row_arrays.read_targets(source.reader, start, stop)
        masks = row_arrays.read_masks(source.reader, header, start, stop, self.splits, labels)
        degrees = row_arrays.read_degrees(source.reader, start, stop).values()
        slab = Graph(header, start, indptr, indices, data, None, None, None, *degrees, vertex=None)
        self.sums.append(consistency.add_up(slab, source.path))
        if masks:
            masks = {key: mask.reshape(stop - start, -1) for key, mask in masks.items()}
            self.has_train |= masks["train"].any(axis=0)
        return indptr, indices, data, masks

    def finish(self) -> None:
        """Refuse rows that contradict each other, or a split without training vertices."""
        source = self.source
        if self.sums:
            consistency.refuse(sum(self.sums), source)
        source.check_order(source.order_sums(0, source.header.num_nodes))
        if not self.has_train.all():
            empty = int(np.argmin(self.has_train))
            raise source.reader.error(f"{mask_name('train', empty)} is empty")
