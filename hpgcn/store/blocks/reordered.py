"""A stored graph in another order of its rows, gathered from blocks while it is written.

Arrays of the new order are computed window by window. For each window, those blocks of
the file are read that have rows of it, and their rows are put in their places. So
memory holds one window and one block, whatever the size of the graph. More than two
windows are grouped on disk first, so that the file is read once for each array.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.adjacency import LARGE, row_blocks
from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.validation import index_dtype
from hpgcn.store import row_arrays
from hpgcn.store.blocks.window_rows import WindowRows
from hpgcn.store.csr_arrays import read_csr
from hpgcn.store.schema import TARGETS

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.graphs.links import Links
    from hpgcn.store.stored import StoredGraph

WINDOW = 1 << 29  # bytes of reordered rows in memory at once
BLOCK = 1 << 24  # bytes of rows per read
ENTRIES = 1 << 21  # nonzeros per read


class ReorderedGraph:
    """The arrays of a StoredGraph without parts in another order, for the writer.

    `number` (n,) is the new number of each ORIGINAL vertex; `window` is at most WINDOW.
    `path` is the file that is written: large arrays take as much space beside it.
    Attributes are those of a Graph. Large ones are arrays that can only be sliced.
    """

    def __init__(self, source: StoredGraph, number: np.ndarray, path: Path | str,
                 window: int | None = None) -> None:
        self.source = source
        self.path = path
        self.header = source.header
        self.class_names = source.class_names
        self.feature_names = source.feature_names
        self.target_names = source.target_names
        self.window = min(WINDOW, window or WINDOW)
        self.new_row = number[source.vertices(0, number.size)] if source.ordered else number
        self._adjacency = self._entries(source.pattern_rows)

    def _entries(self, read: Callable) -> OrderedEntries:
        dtype = self.source.reader.entries["adjacency/indices_1"].dtype
        pointers = self.source.pointers(0, self.new_row.size)
        return OrderedEntries(read, self.new_row, pointers, dtype, self.window, path=self.path)

    @property
    def indptr(self) -> np.ndarray:
        return self._adjacency.pointers

    @property
    def indices(self) -> _Windows:
        return self._adjacency.columns()

    @property
    def data(self) -> _Windows | None:
        if self.header.all_ones:
            return None
        return self._entries(self.source.adjacency_rows).values()

    @property
    def edge_features(self) -> _Windows | None:
        width = self.header.num_edge_features
        if not width:
            return None
        pointers = self.source.pointers(0, self.new_row.size)

        def read(start: int, stop: int) -> tuple:
            indptr, indices = self.source.pattern_rows(start, stop)
            return indptr, indices, self.source.read_edge_features(pointers[start], pointers[stop])

        return self._entries(read).values((width,))

    @property
    def features(self) -> _Windows | _SparseFeatures | None:
        """Dense features; those in CSR form have `indptr`, `indices` and `data`."""
        source = self.source
        if "features" in source.reader.entries:
            return self._rows("features", lambda start, stop: row_arrays.read_features(
                source.reader, self.header, start, stop))
        if not self.header.sparse_features:
            return None
        n, f = self.new_row.size, self.header.num_features

        def entries(ones: bool) -> OrderedEntries:
            def read(start: int, stop: int) -> tuple:
                return read_csr(source.reader, "features", start, stop, n, f, ones)

            return OrderedEntries(read, self.new_row, source.feature_pointers(),
                                  np.dtype(index_dtype(f)), self.window, square=False,
                                  path=self.path)

        return _SparseFeatures(entries(True), entries(False))

    @property
    def labels(self) -> _Windows | None:
        if "labels" not in self.source.reader.entries:
            return None
        return self._rows("labels", lambda start, stop: row_arrays.read_labels(
            self.source.reader, self.header, start, stop))

    @property
    def targets(self) -> _Windows | None:
        if not self.header.num_targets:
            return None
        return self._rows(TARGETS, lambda start, stop: row_arrays.read_targets(
            self.source.reader, start, stop))

    def split_masks(self, split: int) -> dict[str, np.ndarray]:
        """Return the masks of one split, each (n,) bool."""
        return {key: self._now(mask) for key, mask in self.source.split_masks(split).items()}

    @property
    def links(self) -> Links | None:
        """Pairs to predict, with vertices in the new order."""
        if self.source.links is None:
            return None
        return {key: each.renumbered(self.new_row) for key, each in self.source.links.items()}

    @property
    def degree_row(self) -> np.ndarray:
        return self._degree("row")

    @property
    def degree_column(self) -> np.ndarray:
        return self._degree("column")

    @property
    def degree_loop(self) -> np.ndarray:
        return self._degree("loop")

    @property
    def original_ids(self) -> np.ndarray | None:
        reader = self.source.reader
        return self._now(reader.read("original_ids")) if "original_ids" in reader.entries else None

    def _degree(self, name: str) -> np.ndarray:
        return self._now(row_arrays.read_finite(self.source.reader, f"degree/{name}", 0,
                                                self.new_row.size))

    def _now(self, array: np.ndarray) -> np.ndarray:
        """Return the rows of an array in the new order."""
        ordered = np.empty_like(array)
        ordered[self.new_row] = array
        return ordered

    def _rows(self, name: str, read: Callable) -> _Windows:
        entry = self.source.reader.entries[name]
        return _ordered_rows(read, self.new_row, entry.shape, entry.dtype, self.window,
                             self.path)


class _SparseFeatures:
    """Features in CSR form, (n, f)."""

    def __init__(self, pattern: OrderedEntries, entries: OrderedEntries) -> None:
        self.indptr = pattern.pointers
        self.indices = pattern.columns()
        self.data = entries.values()


class _Windows:
    """An array that is sliced in increasing order; memory holds one window of it.

    `gather(number)` returns the items of a window. Window k begins at item starts[k].
    """

    def __init__(self, gather: Callable, starts: np.ndarray, shape: tuple,
                 dtype: DTypeLike) -> None:
        self.gather = gather
        self.starts = starts
        self.shape = shape
        self.size = int(np.prod(shape))
        self.dtype = dtype
        self._first = 0
        self._window = np.empty((0, *shape[1:]), dtype)

    def __getitem__(self, items: slice) -> np.ndarray:
        start, stop, _ = items.indices(self.shape[0])
        pieces = []
        while start < stop:
            if not 0 <= start - self._first < len(self._window):
                number = int(np.searchsorted(self.starts, start, "right")) - 1
                self._window = None  # free its memory before the next window
                self._window, self._first = self.gather(number), int(self.starts[number])
            piece = self._window[start - self._first:stop - self._first]
            pieces.append(piece)
            start += len(piece)
        if not pieces:
            return np.empty((0, *self.shape[1:]), self.dtype)
        return np.concatenate(pieces) if len(pieces) > 1 else pieces[0]


def _ordered_rows(read: Callable, new_row: np.ndarray, shape: tuple, dtype: DTypeLike, window: int,
                  path: Path | str) -> _Windows:
    """Return rows of a dense array in another order, an array that can only be sliced.

    `read(start, stop)` returns rows of the file, and `new_row` (n,) is the new number of each
    row. `path` is that of WindowRows.
    """
    n = shape[0]
    row_bytes = max(1, dtype.itemsize * int(np.prod(shape[1:])))
    starts = np.append(np.arange(0, n, max(1, window // row_bytes)), n)
    step = max(1, BLOCK // row_bytes)
    blocks = [(start, min(n, start + step)) for start in range(0, n, step)]

    def read_items(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(stop - start + 1), read(start, stop)

    rows = WindowRows(read_items, blocks, new_row, starts, None, path)

    def gather(number: int) -> np.ndarray:
        window = np.empty((starts[number + 1] - starts[number], *shape[1:]), dtype)
        for target, _, block in rows.rows(number):
            inside = target >= 0
            window[target[inside]] = block if inside.all() else block[inside]
        return window

    return _Windows(gather, starts, shape, dtype)


class OrderedEntries:
    """Entries of a CSR matrix whose rows, and columns if it is square, get new numbers.

    Parameters
    ----------
    read : callable
        `read(start, stop)` returns indptr from 0, columns and values of rows.
    new_row : (n,) integers
        New number of each row.
    pointers : (n + 1,) int64
        Row pointers in the file.
    dtype : dtype of columns
    window : int
        Bytes that are in memory at once.
    square : bool
        Columns are numbered like rows.
    path : path-like, optional
        As of WindowRows; needed if there may be more than two windows.

    Attributes
    ----------
    pointers : (n + 1,) int64
        Row pointers in the new order.
    """

    def __init__(self, read: Callable, new_row: np.ndarray, pointers: np.ndarray, dtype: DTypeLike,
                 window: int, *, square: bool = True, path: Path | str | None = None) -> None:
        self.read = read
        self.new_row = new_row
        self.dtype = dtype
        self.window = window
        self.square = square
        self.path = path
        self.blocks = list(row_blocks(pointers, ENTRIES))
        sizes = np.empty(new_row.size, np.int64)
        sizes[new_row] = np.diff(pointers)
        self.pointers = run_offsets(sizes)
        self.count = int(self.pointers[-1])

    def columns(self) -> _Windows:
        """Return the columns, an array that can only be sliced."""
        compiled = self.square and self.count >= LARGE
        gathered = self._compiled if compiled else self._columns
        return self._windows(lambda start, stop: self.read(start, stop)[:2],
                             self.dtype.itemsize * (1 if compiled else 5), gathered, self.dtype)

    def values(self, width: tuple[int, ...] = ()) -> _Windows:
        """Return the values, float32, an array that can only be sliced.

        A value has the shape `width`.
        """
        def gather(blocks: Iterator, local: np.ndarray) -> np.ndarray:
            values = np.empty((local[-1], *width), np.float32)
            columns = self._columns(blocks, local, values)
            return values[_sorting(columns, local)] if self.square else values

        return self._windows(self.read, 16 + 8 * int(np.prod(width)), gather,
                             np.dtype(np.float32), width)

    def _windows(self, read: Callable, item_bytes: int, gather: Callable, dtype: DTypeLike,
                 width: tuple = ()) -> _Windows:
        """Return an array in windows, each made by `gather(blocks, local)`.

        `local` are the row pointers of the window.
        """
        # windows of whole rows
        blocks = row_blocks(self.pointers, self.window // item_bytes)
        starts = [0, *(stop for _, stop in blocks)]
        rows = WindowRows(read, self.blocks, self.new_row, np.array(starts), self.pointers,
                          self.path)

        def gather_window(number: int) -> np.ndarray:
            first, stop = starts[number:number + 2]
            local = self.pointers[first:stop + 1] - self.pointers[first]
            return gather(rows.rows(number), local)

        return _Windows(gather_window, self.pointers[rows.windows], (self.count, *width), dtype)

    def _compiled(self, blocks: Iterator, local: np.ndarray) -> np.ndarray:
        """Return the columns of a window, by compiled code."""
        from hpgcn.kernels import orders  # late, as it starts the compiler

        columns = np.empty(local[-1], self.dtype)
        for target, indptr, indices in blocks:
            orders.place_rows(indptr, indices, target, self.new_row, local, columns)
        return columns

    def _columns(self, blocks: Iterator, local: np.ndarray,
                 values: np.ndarray | None = None) -> np.ndarray:
        """Return the columns of a window, and fill its `values`."""
        columns = np.empty(local[-1], self.dtype)
        for target, indptr, indices, *data in blocks:
            sizes = np.diff(indptr)
            inside = np.repeat(target >= 0, sizes)
            shift = np.repeat(local[target] - indptr[:-1], sizes)
            position = (shift + np.arange(indices.size))[inside]
            columns[position] = self.new_row[indices[inside]] if self.square else indices[inside]
            if values is not None:
                values[position] = data[0][inside]
        if values is None and self.square:
            columns = columns[_sorting(columns, local)]
        return columns


def _sorting(columns: np.ndarray, pointers: np.ndarray) -> np.ndarray:
    """Return the order of entries, (nnz,), in which columns increase in each row."""
    shape = (pointers.size - 1, int(columns.max(initial=0)) + 1)
    matrix = sp.csr_array((np.arange(columns.size), columns.copy(), pointers), shape=shape)
    matrix.sort_indices()
    return matrix.data
