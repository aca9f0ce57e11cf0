"""Rows in another order, one window after the other; many windows are grouped on disk.

The rows of a window come from the whole file. To read the file once for each window
takes a time that grows with the square of its size. So rows of more than two windows
are put on disk once, grouped by window.
"""
from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.graphs.partition import positions_of, run_offsets
from hpgcn.runtime.atomic import writing
from hpgcn.runtime.disk.page_cache import nameless_file

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class WindowRows:
    """Rows of arrays, one window of the new order at a time.

    A row has a number of items in each array, such as the entries of a row of a matrix.

    Parameters
    ----------
    read : callable
        `read(start, stop)` returns the row pointers of rows of the source, from 0, and the
        arrays of their items.
    blocks : list of (start, stop)
        Rows of the source that are read at once.
    new_row : (n,) integers
        New number of each row.
    windows : (w + 1,) int64
        Window k has the new rows windows[k] to windows[k + 1] - 1.
    pointers : (n + 1,) int64 or None
        First item of each new row; None if each row has one item.
    path : path-like
        Files of groups are in its folder, and errors name it.
    """

    def __init__(self, read: Callable, blocks: list[tuple], new_row: np.ndarray,
                 windows: np.ndarray, pointers: np.ndarray | None,
                 path: Path | str | None) -> None:
        self.read = read
        self.blocks = blocks
        self.new_row = new_row
        self.windows = windows
        self.pointers = pointers
        self.path = path
        self._stored = []  # for each array: its file, and dtype and shape of an item

    def rows(self, number: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield blocks with all rows of a window, in the order of the source.

        A block is the number of each of its rows within the window, (m,), and the
        arrays that `read` returns. The number of a row of another window is -1.
        """
        first, stop = self.windows[number:number + 2]
        grouped = self.windows.size > 3
        if grouped and not self._stored:
            self._group()
        item = int(self._first_item(first))

        for begin, end in self.blocks:
            target = self.new_row[begin:end] - first
            inside = (target >= 0) & (target < stop - first)
            if not inside.any():
                continue
            if not grouped:
                yield np.where(inside, target, -1), *self.read(begin, end)
                continue

            # the next items of the group
            target = target[inside]
            new = target + first
            indptr = run_offsets(self._first_item(new + 1) - self._first_item(new))
            yield target, indptr, *self._read_items(item, int(indptr[-1]))
            item += int(indptr[-1])

        if grouped and number == self.windows.size - 2:
            self._close()
            self._stored = []

    def _first_item(self, rows: Any) -> Any:
        return rows if self.pointers is None else self.pointers[rows]

    def _group(self) -> None:
        """Read all blocks, and write the items of each row behind those of its group."""
        ends = self._first_item(self.windows[:-1]).copy()  # position of each group's next item
        for begin, end in self.blocks:
            indptr, *arrays = self.read(begin, end)
            if not self._stored:
                self._open(arrays)
            group = np.searchsorted(self.windows, self.new_row[begin:end], "right") - 1
            order = np.argsort(group, kind="stable")
            found, first = np.unique(group[order], return_index=True)
            for number, rows in zip(found, np.split(order, first[1:]), strict=True):
                _, items = positions_of(indptr[rows], indptr[rows + 1])
                self._write_items(int(ends[number]), [array[items] for array in arrays])
                ends[number] += items.size

    def _open(self, arrays: list[np.ndarray]) -> None:
        """Make a file without a name for each array."""
        files = ExitStack()
        self._close = weakref.finalize(self, files.close)
        with writing(self.path):
            folder = os.path.dirname(os.path.abspath(self.path))
            for array in arrays:
                file = files.enter_context(nameless_file(folder))
                self._stored.append((file, array.dtype, array.shape[1:]))

    def _write_items(self, item: int, arrays: list[np.ndarray]) -> None:
        with writing(self.path):
            for (file, dtype, shape), array in zip(self._stored, arrays, strict=True):
                file.write_array(array, item * _item_bytes(dtype, shape))

    def _read_items(self, item: int, count: int) -> list[np.ndarray]:
        found = []
        with writing(self.path):
            for file, dtype, shape in self._stored:
                array = np.empty((count, *shape), dtype)
                file.read_array(array, item * _item_bytes(dtype, shape))
                found.append(array)
        return found


def _item_bytes(dtype: DTypeLike, shape: tuple[int, ...]) -> int:
    return dtype.itemsize * int(np.prod(shape))
