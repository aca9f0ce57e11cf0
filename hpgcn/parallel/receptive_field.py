"""The rows that each layer must compute, and the maps between them.

Levels are sets of rows. The last level has the rows whose logits are read by loss and
metrics. Each product with A computes one level from the level below, which has these
rows and their neighbors. Rows that no later layer reads are left out; results are
equal to those of all rows. A level of more than half of all rows is extended to all
rows. The blocks of A that compute it would cost more memory than they save time. For
levels that no product computes (features, and results computed from them once) the
limit is three quarters.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.graph import Graph
    from hpgcn.parallel.layout import BlockLayout
    from hpgcn.strategies.strategy import Strategy

SHARE, SHARE_GIVEN = 0.5, 0.75  # share of all rows beyond which a level is not restricted


def layer_bounds(products: list[int]) -> list[int]:
    """Return the level before the first layer, and after each layer.

    Layer l has products[l] products with A.
    """
    return list(accumulate(products, initial=0))


def on_all_ranks(numbers: np.ndarray, n: int, comm: SerialComm) -> np.ndarray:
    """Mark the rows that any rank numbers, (n,) bool; all ranks call this together."""
    marks = np.zeros(n, np.uint8)
    marks[numbers] = 1
    comm.allreduce(marks, "plan", op="max")
    return marks.view(bool)


def find_levels(slab: Graph, masks: list[np.ndarray], hops: int, comm: SerialComm, *,
                precomputed: bool = False, within: np.ndarray | None = None) -> list:
    """Return the rows of each level, found over all ranks.

    All ranks call this together.

    slab: hpgcn.graphs.graph.Graph, this rank's rows. masks: list of (m,) bool, rows of
    this rank whose logits are read. hops: products with A of all layers. precomputed:
    the first product is formed once, and its layer reads the result. within: (n,) bool,
    the rows that induce the graph; None for all. Returns a list of hops + 1: (n,) bool
    equal on all ranks, or `within` for all of its rows.
    """
    own = slice(slab.start, slab.start + slab.num_rows)
    columns = slab.indices
    degrees = np.diff(slab.indptr)
    n = slab.header.num_nodes
    count = n if within is None else np.count_nonzero(within)

    def unless_most(level: np.ndarray, place: int) -> np.ndarray | None:
        share = SHARE_GIVEN if place <= precomputed else SHARE
        return level if np.count_nonzero(level) <= count * share else within

    # begin with the rows that the loss reads
    level = on_all_ranks(slab.start + np.flatnonzero(np.any(masks, axis=0)), n, comm)
    level = unless_most(level, hops)
    levels = [level]

    # add neighbors, from the last product to the first
    for hop in reversed(range(hops)):
        if level is not within and not (precomputed and hop == 0):
            neighbors = on_all_ranks(columns[np.repeat(level[own], degrees)], n, comm)
            if within is not None:
                neighbors &= within
            level = unless_most(neighbors | level, hop)
        levels.insert(0, level)
    return levels


def compressed(levels: list, within: np.ndarray | None) -> list:
    """Return levels of the graph that the rows `within` induce, numbered without gaps.

    A level is (n,) bool and the result (k,) bool, or None for all k rows. Equal levels
    stay one object.
    """
    if within is None:
        return levels
    found = {id(level): None if level is within else level[within] for level in levels}
    return [found[id(level)] for level in levels]


@dataclass(frozen=True, eq=False)
class Hop:
    """The rows that one layer reads and computes, and the maps between them."""

    maps: list  # a strategy for each product with A; None where no product is taken
    rows: list  # rows of this rank, before the first map and after each
    # (m',) int64 on the device: positions of the rows that the layer computes among the
    # rows that it reads; None if they are equal
    self_rows: np.ndarray | None
    narrows: bool  # the layer computes fewer rows than it reads, over all ranks


@dataclass(frozen=True, eq=False)
class ReceptiveField:
    """Rows of this rank at the L + 1 levels between layers, and the maps between them."""

    strategy: object  # that of all rows of the graph, or of the graph of training
    rows: list  # (m_l,) int64 numbers within the rank's block, or None for all
    totals: list  # rows of each level over all ranks
    sizes: list  # m_l
    hops: list  # L Hop

    @staticmethod
    def of(strategy: Strategy, levels: list, products: list[int], *, precomputed: bool = False,
           whole: Callable | None = None, layout: BlockLayout | None = None,
           within: np.ndarray | None = None) -> ReceptiveField:
        """Return the ReceptiveField with maps between the levels of `find_levels`.

        All ranks call this together.

        products: with A, of each of L layers. whole: function that returns the map of
        all rows for the number of a product; default: the strategy itself. If the
        strategy has only the rows `within`, `layout` is that of all rows.
        """
        layout = layout or strategy.layout
        own = slice(layout.rows.start, layout.rows.stop)
        n = int(strategy.layout.offsets[-1])
        put = strategy.comm.device.put

        # a map for each product; the whole matrix if no rows are left out
        maps = []
        for hop, (rows_in, rows_out) in enumerate(pairwise(compressed(levels, within))):
            given = strategy.map_for_product(hop)
            if precomputed and hop == 0:
                maps.append(None)
            elif rows_in is None and rows_out is None:
                maps.append(whole(hop) if whole else given)
            else:
                maps.append(given.restrict(*(np.ones(n, bool) if level is None else level
                                             for level in (rows_out, rows_in))))

        # numbers of rows at each level, on this rank and in total
        numbers = [None if level is None else np.flatnonzero(level[own]) for level in levels]
        sizes = [layout.rows.num_rows if rows is None else rows.size for rows in numbers]
        totals = [n if level is None else int(np.count_nonzero(level)) for level in levels]

        # group the products by layer
        bounds = layer_bounds(products)
        hops = [Hop(maps[first:last], sizes[first:last + 1],
                    put(self_rows(numbers[first], numbers[last])), totals[last] < totals[first])
                for first, last in pairwise(bounds)]
        numbers, totals, sizes = ([each[place] for place in bounds]
                                  for each in (numbers, totals, sizes))
        return ReceptiveField(strategy, numbers, totals, sizes, hops)

    def select(self, level: int, array: np.ndarray) -> np.ndarray:
        """Select the rows of a level from an array over all rows.

        The array has shape (m, ...), the result (m_l, ...), of this rank.
        """
        return array if self.rows[level] is None else array[self.rows[level]]

    @property
    def maps(self) -> list:
        """The map of each product with A, in order; None for a product that is skipped."""
        return [each for hop in self.hops for each in hop.maps]

    def close(self) -> None:
        """Free the restricted maps. The caller closes the strategy of all rows afterwards."""
        of_all_rows = [self.strategy.map_for_product(hop) for hop in range(len(self.maps))]
        for each in dict.fromkeys(self.maps):
            if each not in (None, *of_all_rows):
                each.close()


def self_rows(rows_in: Any, rows_out: np.ndarray | None) -> np.ndarray | None:
    """Return the positions of `rows_out` within `rows_in`.

    Both are sorted; None stands for all rows. Return None if the two are equal.
    """
    if rows_out is None or (rows_in is not None and rows_in.size == rows_out.size):
        return None  # levels are nested
    return rows_out if rows_in is None else np.searchsorted(rows_in, rows_out)
