"""Rows of a dense array in another order, put on disk once if they need more than two windows.

A window takes its rows from the whole file. To read the file once for each window takes a
time that grows with the square of its size.
"""
import os
import weakref

import numpy as np

from hpgcn.runtime.atomic import writing
from hpgcn.runtime.disk.page_cache import nameless_file


class RowGroups:
    """Rows in a file without a name, grouped by the window in which they lie.

    Group g has the rows whose new number is from g * size to (g + 1) * size - 1. Rows of a
    group keep the order of the source.

    Parameters
    ----------
    read : callable
        `read(start, stop)` returns rows of the source.
    place : (n,) integers
        New number of each row.
    size : int
        Rows of a window.
    step : int
        Rows that are read at once.
    path : path-like
        The file is in its folder, and errors name it.
    cached : bool
        The file may stay in the page cache.
    """

    def __init__(self, read, place, size, step, path, *, cached=True):
        self.place = place
        self.size = size
        self.step = step
        self.path = path
        with writing(path):
            folder = os.path.dirname(os.path.abspath(path))
            self._file = nameless_file(folder, cached=cached)
        self.close = weakref.finalize(self, self._file.close)

        # each block goes to the ends of its groups
        ends = np.arange(0, self.place.size, self.size)  # row at which a group goes on
        for start in range(0, self.place.size, self.step):
            block = read(start, min(start + self.step, self.place.size))
            group = self.place[start:start + len(block)] // self.size
            order = np.argsort(group, kind="stable")
            found, first = np.unique(group[order], return_index=True)
            for number, rows in zip(found, np.split(order, first[1:]), strict=True):
                self._write(block[rows], ends[number])
                ends[number] += rows.size

    def _write(self, rows, at):
        with writing(self.path):
            self._file.write_array(rows, int(at) * (rows.nbytes // len(rows)))

    def fill(self, window, first):
        """Fill the window that begins with the new row `first`, a multiple of `size`."""
        last = first + len(window)
        places = self.place[(self.place >= first) & (self.place < last)] - first
        row_bytes = window.nbytes // len(window)
        for start in range(0, places.size, self.step):
            target = places[start:start + self.step]
            rows = np.empty((target.size, *window.shape[1:]), window.dtype)
            with writing(self.path):
                self._file.read_array(rows, (first + start) * row_bytes)
            window[target] = rows
