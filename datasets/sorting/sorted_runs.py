"""Entries of an edge list on disk, in runs that fit into memory.

The entries of a run are grouped by ranges of rows.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.sorting import sort_kernels

if TYPE_CHECKING:
    from hpgcn.datasets.sorting.disk_arrays import DiskArray

RANGES = 10  # a run is divided into at most 2^RANGES ranges of rows


@dataclass(frozen=True)
class _SortedRun:
    shift: int  # range b holds the rows with row >> shift == b
    index: np.ndarray  # (ranges + 1,) int64: first entry of each range
    columns: tuple[tuple[int, np.dtype], ...]  # first byte and dtype of each array

    def cut(self, position: Any, shift: int) -> Any:
        """Return the position of the first entry of range number `position`, of 2^shift rows."""
        return self.index[np.minimum(position << (shift - self.shift), self.index.size - 1)]


class Runs:
    """The runs of an edge list in one DiskArray, in the order of the input.

    Equal edges keep their order.
    """

    def __init__(self, stored: DiskArray) -> None:
        self.stored = stored
        self.runs = []

    def __len__(self) -> int:
        return sum(int(run.index[-1]) for run in self.runs)

    def add(self, rows: np.ndarray, columns: np.ndarray, weights: np.ndarray,
            numbers: np.ndarray) -> None:
        """Write entries in any order as a new run.

        The arrays (k,) are those of `sort_kernels.append`.
        """
        if not rows.size:
            return
        top = int(rows.max())
        shift = max(0, top.bit_length() - RANGES)
        index = np.zeros((top >> shift) + 2, np.int64)
        sort_kernels.count(rows, np.uint64(shift), index)
        np.cumsum(index, out=index)
        order = np.empty(rows.size, np.int64)
        sort_kernels.place(rows, np.uint64(shift), index[:-1].copy(), order)

        narrow = np.uint32 if max(top, int(columns.max())) < 2**32 else np.uint64
        written = []
        for array, dtype in ((rows, narrow), (columns, narrow), (weights, weights.dtype),
                             (numbers, numbers.dtype)):
            ordered = array.astype(dtype, copy=False)[order] if array.size else array
            written.append((self.stored.append(ordered), ordered.dtype))
        self.runs.append(_SortedRun(shift, index, tuple(written)))

    @property
    def shift(self) -> int:
        """The largest `shift` of a run: all runs can be divided into ranges of 2^shift rows."""
        return max((run.shift for run in self.runs), default=0)

    def sizes(self, ranges: int, shift: int) -> np.ndarray:
        """Return the number of entries in each range of 2^shift rows, (ranges,) int64."""
        total = np.zeros(ranges, np.int64)
        for run in self.runs:
            total += np.diff(run.cut(np.arange(ranges + 1), shift))
        return total

    def pieces(self, first: int, stop: int, shift: int, step: int, *, weighted: bool,
               numbered: bool) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield (rows, columns, weights, numbers) of the ranges first..stop - 1.

        A piece has at most `step` entries.
        """
        wanted = (True, True, weighted, numbered)
        for run in self.runs:
            end = int(run.cut(stop, shift))
            for at in range(int(run.cut(first, shift)), end, step):
                size = min(step, end - at)
                yield tuple(
                    self.stored.read(begin + at * dtype.itemsize, size if take else 0, dtype)
                    for (begin, dtype), take in zip(run.columns, wanted))

    def renumbered(self, image: Callable, stored: DiskArray, size: int, *, weighted: bool,
                   numbered: bool) -> Runs:
        """Return new runs of at most `size` entries, in which `image` has replaced each id.

        `image` takes and returns (k,) integers.
        """
        renumbered = Runs(stored)
        for run in self.runs:
            single = Runs(self.stored)
            single.runs = [run]
            for rows, columns, weights, numbers in single.pieces(
                    0, run.index.size - 1, run.shift, size, weighted=weighted, numbered=numbered):
                mirrored = columns.astype(np.uint64) & sort_kernels.ONE
                rows = image(rows.astype(np.int64)).astype(np.uint64)
                columns = image((columns >> columns.dtype.type(1)).astype(np.int64))
                columns = columns.astype(np.uint64) << sort_kernels.ONE
                renumbered.add(rows, columns | mirrored, weights, numbers)
        self.stored.remove()
        return renumbered
