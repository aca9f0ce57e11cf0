"""A stored graph in another order of its rows, gathered from blocks while it is written.

Arrays of the new order are computed window by window. For each window the blocks of the
file are read that have rows of it, and their rows are put where they belong. So memory
holds one window and one block, whatever the size of the graph. Dense rows of more than
two windows are grouped by window on disk first, so that they are read once.
"""

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.adjacency import LARGE, row_blocks
from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.validation import index_dtype
from hpgcn.store import row_arrays
from hpgcn.store.blocks.row_groups import RowGroups
from hpgcn.store.csr_arrays import read_csr

WINDOW = 1 << 29  # bytes of the new order that are in memory at once
BLOCK = 1 << 24  # bytes of rows that are read at once
ENTRIES = 1 << 21  # entries that are read at once


class ReorderedGraph:
    """The arrays of a StoredGraph without parts in another order, for the writer.

    `number` (n,) is the new number of each ORIGINAL vertex; `window` is at most WINDOW.
    `path` is the file that is written: large features take as much space beside it, and
    leave the page cache unless they are `cached`. Attributes are those of a Graph. Large
    ones are arrays that can only be sliced.
    """

    def __init__(self, source, number, path, window=None, cached=True):
        self.source = source
        self.path = path
        self.cached = cached
        self.header = source.header
        self.class_names = source.class_names
        self.window = min(WINDOW, window or WINDOW)
        self.place = number[source.vertices(0, number.size)] if source.ordered else number
        self._adjacency = self._entries(source.adjacency_rows)

    def _entries(self, read):
        dtype = self.source.reader.entries["adjacency/indices_1"].dtype
        pointers = self.source.pointers(0, self.place.size)
        return OrderedEntries(read, self.place, pointers, dtype, self.window)

    @property
    def indptr(self):
        return self._adjacency.pointers

    @property
    def indices(self):
        return self._adjacency.columns()

    @property
    def data(self):
        return None if self.header.all_ones else self._adjacency.values()

    @property
    def edge_features(self):
        width = self.header.num_edge_features
        if not width:
            return None
        pointers = self.source.pointers(0, self.place.size)

        def read(start, stop):
            indptr, indices, _ = self.source.adjacency_rows(start, stop)
            return indptr, indices, self.source.read_edge_features(pointers[start], pointers[stop])

        return self._entries(read).values((width,))

    @property
    def features(self):
        """Dense features; those in CSR form have `indptr`, `indices` and `data`."""
        source = self.source
        if "features" in source.reader.entries:
            return self._rows("features", lambda start, stop: row_arrays.read_features(
                source.reader, self.header, start, stop))
        if not self.header.sparse_features:
            return None
        n, f = self.place.size, self.header.num_features

        def read(start, stop):
            return read_csr(source.reader, "features", start, stop, n, f, False)

        return _SparseFeatures(OrderedEntries(read, self.place, source.feature_pointers(),
                                        np.dtype(index_dtype(f)), self.window, square=False))

    @property
    def labels(self):
        if "labels" not in self.source.reader.entries:
            return None
        return self._rows("labels", lambda start, stop: row_arrays.read_labels(
            self.source.reader, self.header, start, stop))

    def split_masks(self, split):
        """Return the masks of one split, each (n,) bool."""
        return {key: self._now(mask) for key, mask in self.source.split_masks(split).items()}

    @property
    def degree_row(self):
        return self._degree("row")

    @property
    def degree_column(self):
        return self._degree("column")

    @property
    def degree_loop(self):
        return self._degree("loop")

    @property
    def original_ids(self):
        reader = self.source.reader
        return self._now(reader.read("original_ids")) if "original_ids" in reader.entries else None

    def _degree(self, name):
        return self._now(row_arrays.read_finite(self.source.reader, f"degree/{name}", 0,
                                                self.place.size))

    def _now(self, array):
        """Return the rows of an array in the new order."""
        ordered = np.empty_like(array)
        ordered[self.place] = array
        return ordered

    def _rows(self, name, read):
        entry = self.source.reader.entries[name]
        return _Rows(read, self.place, entry.shape, entry.dtype, self.window, self.path,
                     self.cached)


class _SparseFeatures:
    """Features in CSR form, (n, f)."""

    def __init__(self, entries):
        self.indptr = entries.pointers
        self.indices = entries.columns()
        self.data = entries.values()


class _Windows:
    """An array that is sliced from the first to the last row; a window of it is in memory.

    `gather(first)` returns a window of rows that holds row `first`, and the number of
    its first row.
    """

    def __init__(self, gather, shape, dtype):
        self.gather = gather
        self.shape = shape
        self.size = int(np.prod(shape))
        self.dtype = dtype
        self._first = 0
        self._window = np.empty((0, *shape[1:]), dtype)

    def __getitem__(self, rows):
        start, stop, _ = rows.indices(self.shape[0])
        pieces = []
        while start < stop:
            if not 0 <= start - self._first < len(self._window):
                self._window = None  # the memory of the last one is free first
                self._window, self._first = self.gather(start)
            piece = self._window[start - self._first:stop - self._first]
            pieces.append(piece)
            start += len(piece)
        if not pieces:
            return np.empty((0, *self.shape[1:]), self.dtype)
        return np.concatenate(pieces) if len(pieces) > 1 else pieces[0]


class _Rows(_Windows):
    """Rows of a dense array; `place` (n,) is the new number of each row.

    `read(start, stop)` returns rows of the file. More than two windows are grouped on disk,
    beside the file `path`.
    """

    def __init__(self, read, place, shape, dtype, window, path, cached):
        super().__init__(self._gather, shape, dtype)
        self.read = read
        self.place = place
        self.path = path
        self.cached = cached
        row_bytes = max(1, dtype.itemsize * int(np.prod(shape[1:])))
        self.count = max(1, window // row_bytes)
        self.step = max(1, BLOCK // row_bytes)
        self._groups = None

    def _gather(self, row):
        n = self.shape[0]
        first = row - row % self.count
        window = np.empty((min(self.count, n - first), *self.shape[1:]), self.dtype)
        if n <= 2 * self.count:
            self._read_into(window, first)
            return window, first

        if self._groups is None:
            self._groups = RowGroups(self.read, self.place, self.count, self.step, self.path,
                                     cached=self.cached)
        self._groups.fill(window, first)
        if first + len(window) == n:
            self._groups.close()
            self._groups = None
        return window, first

    def _read_into(self, window, first):
        for start in range(0, self.shape[0], self.step):
            target = self.place[start:start + self.step] - first
            inside = (target >= 0) & (target < len(window))
            if inside.any():
                block = self.read(start, start + len(target))
                window[target[inside]] = block if inside.all() else block[inside]


class OrderedEntries:
    """Entries of a CSR matrix whose rows, and columns if it is square, get new numbers.

    Parameters
    ----------
    read : callable
        `read(start, stop)` returns indptr from 0, columns and values of rows.
    place : (n,) integers
        New number of each row.
    pointers : (n + 1,) int64
        Row pointers in the file.
    dtype : dtype of columns
    window : int
        Bytes that are in memory at once.
    square : bool
        Columns are numbered like rows.

    Attributes
    ----------
    pointers : (n + 1,) int64
        Row pointers in the new order.
    """

    def __init__(self, read, place, pointers, dtype, window, *, square=True):
        self.read = read
        self.place = place
        self.dtype = dtype
        self.window = window
        self.square = square
        self.blocks = list(row_blocks(pointers, ENTRIES))
        sizes = np.empty(place.size, np.int64)
        sizes[place] = np.diff(pointers)
        self.pointers = run_offsets(sizes)
        self.count = int(self.pointers[-1])

    def columns(self):
        """Return the columns, an array that can only be sliced."""
        compiled = self.square and self.count >= LARGE
        item_bytes = self.dtype.itemsize * (1 if compiled else 5)

        def gather(first):
            row, stop, local = self._rows_from(first, item_bytes)
            gathered = self._compiled if compiled else self._columns
            return gathered(row, stop, local), int(self.pointers[row])

        return _Windows(gather, (self.count,), self.dtype)

    def values(self, width=()):
        """Return the values, float32, an array that can only be sliced; `width` is the
        shape of one.
        """
        item_bytes = 16 + 8 * int(np.prod(width))

        def gather(first):
            row, stop, local = self._rows_from(first, item_bytes)
            values = np.empty((local[-1], *width), np.float32)
            columns = self._columns(row, stop, local, values)
            if self.square:
                values = values[_sorting(columns, local)]
            return values, int(self.pointers[row])

        return _Windows(gather, (self.count, *width), np.dtype(np.float32))

    def _rows_from(self, entry, item_bytes):
        """Return the first and last row of a window that begins with the row of an
        entry, and its row pointers.
        """
        row = int(np.searchsorted(self.pointers, entry, "right")) - 1
        end = self.pointers[row] + self.window // item_bytes
        stop = max(row + 1, int(np.searchsorted(self.pointers, end, "right")) - 1)
        return row, stop, self.pointers[row:stop + 1] - self.pointers[row]

    def _in_window(self, row, stop):
        """Read all blocks; yield their arrays and the place of each row in the window, -1
        outside.
        """
        for start, end in self.blocks:
            target = self.place[start:end] - row
            target[target >= stop - row] = -1
            if (target >= 0).any():
                yield *self.read(start, end), np.maximum(target, -1)

    def _compiled(self, row, stop, local):
        """Return the columns of a window, by compiled code."""
        from hpgcn.kernels import orders  # late, as it starts the compiler

        columns = np.empty(local[-1], self.dtype)
        for indptr, indices, _, target in self._in_window(row, stop):
            orders.place_rows(indptr, indices, target, self.place, local, columns)
        return columns

    def _columns(self, row, stop, local, values=None):
        """Return the columns of a window, and fill its `values`."""
        columns = np.empty(local[-1], self.dtype)
        for indptr, indices, data, target in self._in_window(row, stop):
            sizes = np.diff(indptr)
            inside = np.repeat(target >= 0, sizes)
            shift = np.repeat(local[target] - indptr[:-1], sizes)
            place = (shift + np.arange(indices.size))[inside]
            columns[place] = self.place[indices[inside]] if self.square else indices[inside]
            if values is not None:
                values[place] = data[inside]
        if values is None and self.square:
            columns = columns[_sorting(columns, local)]
        return columns


def _sorting(columns, pointers):
    """Return the order of entries, (nnz,), in which columns increase in each row."""
    shape = (pointers.size - 1, int(columns.max(initial=0)) + 1)
    matrix = sp.csr_array((np.arange(columns.size), columns.copy(), pointers), shape=shape)
    matrix.sort_indices()
    return matrix.data
