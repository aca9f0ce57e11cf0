"""Entries of an edge list on disk, in runs: each was held in memory once, and lies sorted by ranges of rows."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpgcn.datasets import fold

RANGES = 10  # bits: a run is divided into at most 2^RANGES ranges of rows


@dataclass(frozen=True)
class _Run:
    shift: int  # range b holds the rows with row >> shift == b
    index: np.ndarray  # (ranges + 1,) int64: first entry of each range
    columns: tuple[tuple[int, np.dtype], ...]  # first byte, and dtype, of rows, columns, weights and entry numbers


class Runs:
    """Runs in the order of the input. Equal edges are never reordered.

    Parameters
    ----------
    spool : Spool
    """

    def __init__(self, spool):
        self.spool, self.runs = spool, []

    def __len__(self):
        return sum(int(run.index[-1]) for run in self.runs)

    def add(self, rows, columns, weights, entries):
        """Write entries in any order as a run.

        Parameters
        ----------
        rows, columns : (k,) uint64
            As `fold.append` makes them.
        weights, entries : (k,) or empty
        """
        if not rows.size:
            return
        top = int(rows.max())
        shift = max(0, top.bit_length() - RANGES)
        index = np.zeros((top >> shift) + 2, np.int64)
        fold.count(rows, np.uint64(shift), index)
        np.cumsum(index, out=index)
        order = np.empty(rows.size, np.int64)
        fold.place(rows, np.uint64(shift), index[:-1].copy(), order)
        narrow = max(top, int(columns.max())) < 2**32
        written = []
        for array, dtype in ((rows, np.uint32 if narrow else np.uint64), (columns, np.uint32 if narrow else np.uint64),
                             (weights, weights.dtype), (entries, entries.dtype)):
            sorted_array = array.astype(dtype, copy=False)[order] if array.size else array
            written.append((self.spool.append(sorted_array), sorted_array.dtype))
        self.runs.append(_Run(shift, index, tuple(written)))

    @property
    def shift(self):
        """Of the coarsest run: from this shift on, all runs can be cut at the same rows."""
        return max((run.shift for run in self.runs), default=0)

    def sizes(self, ranges, shift):
        """Number of entries in each range of rows with the same row >> shift, (ranges,) int64."""
        total = np.zeros(ranges, np.int64)
        for run in self.runs:
            cuts = np.minimum(np.arange(ranges + 1) << (shift - run.shift), run.index.size - 1)
            total += np.diff(run.index[cuts])
        return total

    def pieces(self, first, stop, shift, step, *, weighted, numbered):
        """Yield (rows, columns, weights, entry numbers) of the ranges first..stop - 1 of `sizes`, run after run.

        At most `step` entries at a time; weights and numbers are empty unless asked for.
        """
        for run in self.runs:
            scale = shift - run.shift
            start, end = (int(run.index[min(cut << scale, run.index.size - 1)]) for cut in (first, stop))
            for at in range(start, end, step):
                size = min(step, end - at)
                yield tuple(
                    self.spool.read(begin + at * dtype.itemsize, size, dtype) if wanted else np.empty(0, dtype)
                    for (begin, dtype), wanted in zip(run.columns, (True, True, weighted, numbered)))

    def renumbered(self, ids, spool, size, *, weighted, numbered):
        """Return the same runs with ids replaced by their places in `ids`; of `size` entries at most each."""
        made = Runs(spool)
        for run in self.runs:
            only = Runs(self.spool)
            only.runs = [run]
            pieces = only.pieces(0, run.index.size - 1, run.shift, size, weighted=weighted, numbered=numbered)
            for rows, columns, weights, entries in pieces:
                image = columns.astype(np.uint64) & fold.ONE
                made.add(_places(ids, rows), (_places(ids, columns >> columns.dtype.type(1)) << fold.ONE) | image,
                         weights, entries)
        self.spool.remove()
        return made


def _places(ids, numbers):
    return np.searchsorted(ids, numbers.astype(np.int64)).astype(np.uint64)
