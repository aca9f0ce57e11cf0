"""Which rows each layer must compute, and the maps between them: rows that no loss and no metric reads are left out.

Level L are the rows that are read of the logits, level l < L those that layer l reads to compute level l + 1: their
neighbours, and they themselves. This changes nothing in what is computed. A level of more than half of all rows is
taken as all of them: the blocks of A that compute it would cost more memory than they save time. Where no product
computes it (features, and what is formed of them once), only one of more than three quarters is.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

SHARE, SHARE_GIVEN = 0.5, 0.75  # of all rows, beyond which a level is not restricted


def levels(slab, masks, layers, comm, *, given=False):
    """Rows of each level, over all ranks together.

    Parameters
    ----------
    slab : hpgcn.graph.Graph
        This rank's rows.
    masks : list of (m,) bool
        Rows of this rank whose logits are read.
    layers : int
        L.
    comm : hpgcn.comm.SerialComm or MpiComm
    given : bool
        The first layer's products with A are formed once: it reads what it computes.

    Returns
    -------
    list of L + 1: (n,) bool equal on all ranks, or None for all rows
    """
    own = slice(slab.start, slab.start + slab.num_rows)
    columns, degrees = slab.indices, np.diff(slab.indptr)

    def all_ranks(numbers):
        found = np.zeros(slab.header.num_nodes, np.uint8)
        found[numbers] = 1
        comm.allreduce(found, "plan", op="max")
        return found.view(bool)

    def few(level, place):
        return level if np.count_nonzero(level) <= level.size * (SHARE_GIVEN if place <= given else SHARE) else None

    found = [few(all_ranks(slab.start + np.flatnonzero(np.any(masks, axis=0))), layers)]
    for layer in reversed(range(layers)):
        level = found[0]
        if level is not None and not (given and layer == 0):
            level = few(all_ranks(columns[np.repeat(level[own], degrees)]) | level, layer)
        found.insert(0, level)
    return found


@dataclass(frozen=True, eq=False)
class Reach:
    """Rows of this rank at each level, and the maps between them.

    Attributes
    ----------
    rows : list of L + 1: (m_l,) int64 numbers within the rank's block, or None for all
    sizes : list of L + 1 int
        m_l.
    counts : list of L + 1 (B,) int64
        Rows of each row block at each level.
    maps : list of L strategies, None where no product is taken
    strategy : Strategy
        That of all rows.
    """

    strategy: object
    rows: list
    sizes: list
    counts: list
    maps: list

    @staticmethod
    def of(strategy, found, *, given=False):
        """Make the maps between levels as `levels` found them; all ranks call this together."""
        grid = strategy.layout
        own, every = slice(grid.rows.start, grid.rows.stop), np.ones(int(grid.offsets[-1]), bool)
        maps = []
        for layer, (rows_in, rows_out) in enumerate(pairwise(found)):
            if given and layer == 0:
                maps.append(None)
            elif rows_in is None and rows_out is None:
                maps.append(strategy)
            else:
                maps.append(strategy.restrict(*(every if level is None else level for level in (rows_out, rows_in))))
        grids = [grid if level is None else grid.restricted(level) for level in found]
        rows = [None if level is None else np.flatnonzero(level[own]) for level in found]
        sizes, counts = [one.rows.num_rows for one in grids], [np.diff(one.offsets) for one in grids]
        return Reach(strategy, rows, sizes, counts, maps)

    @property
    def totals(self):
        """Rows of each level over all ranks, tuple of L + 1 int."""
        return tuple(int(count.sum()) for count in self.counts)

    def take(self, level, array):
        """Rows of a level out of an array over all rows of this rank: (m, ...) to (m_l, ...)."""
        return array if self.rows[level] is None else array[self.rows[level]]

    @cached_property
    def within(self):
        """Where the rows that a layer computes lie among those that it reads; None where they are the same.

        List of L arrays, (m_{l + 1},) int64, or None.
        """
        found = []
        for rows_in, rows_out in pairwise(self.rows):
            if rows_out is None or (rows_in is not None and rows_in.size == rows_out.size):
                found.append(None)  # levels are nested
            else:
                found.append(rows_out if rows_in is None else np.searchsorted(rows_in, rows_out))
        return found

    def close(self):
        """Free what the restricted maps hold; the strategy that they were made from is closed after them."""
        for each in self.maps:
            if each is not None and each is not self.strategy:
                each.close()
