"""The pattern of a random matrix, of which only sizes are known: expected counts by formula."""
from __future__ import annotations

from typing import Any

import numpy as np

from hpgcn.parallel.pattern import Pattern


class EvenPointers:
    """Row pointers, (n + 1,), of rows with equally many entries; they take no memory."""

    def __init__(self, num_rows: int, entries: int) -> None:
        self.size = num_rows + 1
        self.entries = entries

    def __getitem__(self, rows: Any) -> np.ndarray:
        rows = np.asarray(rows)
        rows = np.where(rows < 0, rows + self.size, rows)
        return np.rint(rows * (self.entries / (self.size - 1))).astype(np.int64)


class RandomPattern(Pattern):
    """A diagonal, and entries in random columns, equally many in each row.

    Counts are expectations, rounded: a row of d entries has none in a block of c of n
    columns with probability (1 - c/n)^d. Communities and skewed degrees of real graphs
    make the counts smaller, because (1 - c/n)^d is convex in d.

    Examples
    --------
    >>> from hpgcn.parallel.random_pattern import RandomPattern
    >>> RandomPattern(100, 100, symmetric=True).ghosts([0, 50, 100])[0]  # an entry a row
    array([[ 0, 25],
           [25,  0]])
    """

    def __init__(self, num_rows: int, entries: int, *, symmetric: bool) -> None:
        super().__init__(None, symmetric)
        self.entries = entries  # without the diagonal
        self._num_rows = num_rows

    @property
    def num_rows(self) -> int:
        return self._num_rows

    @property
    def indptr(self) -> EvenPointers:
        return EvenPointers(self._num_rows, self.entries + self._num_rows)

    @property
    def holders(self) -> None:
        return None

    @property
    def bandwidth(self) -> int:
        return self._num_rows - 1

    @property
    def transposed(self) -> RandomPattern:
        return self

    def restrict(self, rows_out: np.ndarray | None, rows_in: np.ndarray | None) -> RandomPattern:
        return self  # there are no masks that leave rows out

    def touched_share(self, lines: np.ndarray) -> np.ndarray:
        """Return the share of rows with entries in `lines` random columns, or the reverse."""
        return 1 - (1 - lines / self._num_rows) ** (self.entries / self._num_rows)

    def _blocks(self, *offsets: np.ndarray) -> Any:
        rows, columns = (np.asarray(each, np.int64) for each in offsets)
        height, width = np.diff(rows)[:, None], np.diff(columns)[None]
        ends = np.minimum(rows[1:, None], columns[None, 1:])
        diagonal = np.maximum(ends - np.maximum(rows[:-1, None], columns[None, :-1]), 0)
        entries = height * (width * (self.entries / self._num_rows**2)) + diagonal
        touched = diagonal + (height - diagonal) * self.touched_share(width)
        return np.rint(entries).astype(np.int64), np.rint(touched).astype(np.int64)

    def ghosts(self, offsets: np.ndarray) -> Any:
        sizes = np.diff(np.asarray(offsets, np.int64))
        table = np.rint(self.touched_share(sizes[:, None]) * sizes).astype(np.int64)
        np.fill_diagonal(table, 0)
        return table, np.zeros_like(table)
