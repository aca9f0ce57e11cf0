"""What each rank holds of a graph and multiplies by: the sizes that memory and time follow from (pure).

Sizes by rank are (P,) int64 in rank order.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpgcn.cost.buffers import Buffers
from hpgcn.cost.operands import Pair


@dataclass(frozen=True, eq=False)
class Levels:
    """Rows of each rank at each level of a hpgcn.reach.Reach, and what its layers multiply by.

    Attributes
    ----------
    rows : list of L + 1 (P,) int64
    every : list of L + 1 bool
        The level is all rows.
    totals : tuple of L + 1 int
        Rows of each level over all ranks, each counted once.
    maps : list of L Pair, or None where a layer multiplies by neither A nor A^T
    feature_entries : list of 2 (P,) int64
        Stored entries of sparse features in the rows of levels 0 and 1; 0 if they are dense.
    """

    rows: list
    every: list
    totals: tuple
    maps: list
    feature_entries: list


@dataclass(frozen=True, eq=False)
class Share:
    """What ranks hold of a graph.

    Attributes
    ----------
    strategy : str
    columns : int
        Column blocks C of the owners' grid: rank p owns the columns of block p mod C.
    slices : int
        A product with A is of at most ceil(width / slices) columns on each rank: 1, C, or P (mop).
    rows : (P,) int64
        All rows that the rank owns.
    entries : (P,) int64
        Entries of A in these rows, as stored: those that a rank reads first.
    num_rows : int
        n.
    weighted : bool
        Entries are stored with weights.
    pieces : int
        Of a big row block (L).
    batches : int
        mop: of rows.
    whole : Pair
        Of the strategy itself.
    train, evaluated : Levels
        Of a training step, and of an evaluation.
    buffers : Buffers
    """

    strategy: str
    columns: int
    slices: int
    rows: np.ndarray
    entries: np.ndarray
    num_rows: int
    weighted: bool
    pieces: int
    batches: int
    whole: Pair
    train: Levels
    evaluated: Levels
    buffers: Buffers

    @property
    def operands(self):
        """All that is kept of A: the whole of it, and each layer's own map, of training and of evaluation."""
        pairs = [self.whole] + [pair for levels in (self.train, self.evaluated) for pair in levels.maps
                                if pair is not None and pair is not self.whole]
        return [operand for pair in pairs for operand in pair.held]
