"""Mean and deviation of targets over all ranks, by which losses and predictions scale them."""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpgcn.errors import DataError, agreed
from hpgcn.graphs.validation import SPLIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpgcn.parallel.shared_rows import SharedRows


CONSTANT = 1e-13  # a deviation of this share of the mean is rounding


class TargetScale(NamedTuple):
    """The scale of targets, and the counts and sums for their metrics.

    It is equal on all ranks.

    Attributes
    ----------
    mean, deviation : (t,) float64
        Of the training vertices. Models learn (y - mean) / deviation, and predictions are
        put back. They are 0 and 1 if targets are not standardized.
    counts : (3, t) float64
        Number of known values in each mask.
    squares : (3, t) float64
        Sum of the squared distances of standardized values from their mean in each mask.
    """

    mean: np.ndarray
    deviation: np.ndarray
    counts: np.ndarray
    squares: np.ndarray

    @staticmethod
    def of(targets: np.ndarray, masks: dict[str, np.ndarray], columns: SharedRows,
           names: Sequence[str], *, standardize: bool) -> TargetScale:
        """Return the scale of targets (m, t) called `names`; all ranks call this together.

        Raise a DataError on all ranks if a target is unknown at all training vertices.
        """
        shape = len(SPLIT), targets.shape[1]
        own = columns.row.rank == 0  # one of the ranks that share a row counts it

        def sums(values: np.ndarray) -> np.ndarray:
            parts = [own * np.nansum(values[masks[key]], axis=0) for key in SPLIT]
            return columns.comm.sum(np.concatenate(parts)).reshape(shape)

        # means first, then distances from them
        counts = sums(~np.isnan(targets))
        for name, count in zip(names, counts[0]):
            if not count:
                raise agreed(DataError(f"target {name!r:.80}: no training vertex has a value"))
        means = sums(targets) / np.maximum(counts, 1)
        squares = np.stack([sums((targets - mean)**2)[k] for k, mean in enumerate(means)])
        mean, deviation = np.zeros(shape[1]), np.ones(shape[1])
        if standardize:
            spread = np.sqrt(squares[0] / counts[0])
            mean = means[0]
            deviation = np.where(spread > CONSTANT * np.abs(mean), spread, 1)
        return TargetScale(mean, deviation, counts, squares / deviation**2)

    @staticmethod
    def unit(num_targets: int) -> TargetScale:
        """Return the scale of targets about which nothing is known."""
        ones = np.ones((len(SPLIT), num_targets))
        return TargetScale(np.zeros(num_targets), ones[0], ones, ones)

    def standardized(self, targets: np.ndarray) -> np.ndarray:
        """Return targets (m, t) in the units that a model learns."""
        return (targets - self.mean) / self.deviation
