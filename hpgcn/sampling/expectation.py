"""Chances in closed form that a row is sent in a batch, a row at a time (pure, on arrays).

Row j of H goes to another rank if j is in the batch, and some i whose nonzero (i, j)
that rank holds. A partial sum of row i is sent if i is in the batch, and some j of its
nonzeros there. Units, vertices or parts of them, are drawn uniformly, in batches of s
of n units. A batch with the first unit has none of d others with chance C(n - 1 - d, s
- 1) / C(n - 1, s - 1). Summed over rows, chances are the expected rows exactly. What
fan-outs draw is an estimate: draws are taken as independent of one another.
"""
import math

import numpy as np
from scipy.special import gammaln

from hpgcn.parallel.layout import split
from hpgcn.sampling.neighbours import ALL


def sizes_of(units, batches):
    """Return the sizes of an epoch's batches, each once, and how many have it; two (s,) int64."""
    return np.unique(np.diff(split(units, batches)), return_counts=True)


def chance(others, units, size, own=False):
    """Return the chance that a batch has a unit, and at least one of others with it; float64.

    Parameters
    ----------
    others : (m,) int64
        Distinct other units, at most units - 1.
    units : int
        That are drawn from.
    size : int
        Of the batch.
    own : (m,) bool, optional
        The unit itself is one of those that do.
    """
    others = np.asarray(others, np.int64)
    left = units - 1 - np.arange(others.max(initial=0))  # units to draw from, once some are not in
    with np.errstate(divide="ignore"):  # the logarithm of 0 where too few are left
        absent = np.log1p(-np.minimum((size - 1) / left, 1.0))
    together = -np.expm1(np.concatenate([[0.0], np.cumsum(absent)])[others])
    return size / units * np.where(own, 1.0, together)


def expected_rows(others, units, batches, own=False):
    """Return how often each row is sent in an epoch, (m,) float64; parameters as `chance`."""
    return sum(count * chance(others, units, int(size), own)
               for size, count in zip(*sizes_of(units, batches)))


def entry_chance(degree, fan_out):
    """Return the chance of an entry to be among those drawn of its row, whose degrees are given."""
    if fan_out == ALL:
        return np.ones(np.shape(degree))
    return np.minimum(1.0, fan_out / np.maximum(degree, 1))


def any_entry_chance(degree, held, fan_out):
    """Return the chance that one of some entries of a row, `held` of its degree, is drawn."""
    held = np.asarray(held)
    if fan_out == ALL:
        return (held > 0).astype(float)
    rest = degree - fan_out  # entries that are not drawn
    none = (gammaln(degree - held + 1) + gammaln(np.maximum(rest, 0) + 1)
            - gammaln(np.maximum(rest - held, 0) + 1) - gammaln(degree + 1))
    return np.where(rest >= held, -np.expm1(none), held > 0)


def any_of(places, chances, number):
    """Return the chance that any of some independent events happens, by the place of each.

    places: (m,) below `number`; chances: (m,). (number,) float64.
    """
    with np.errstate(divide="ignore"):
        return -np.expm1(np.bincount(places, np.log1p(-chances), number))


def deviation(ranges, risk):
    """Return the largest deviation of a sum from its mean, except for a chance, by Hoeffding's
    inequality.

    Parameters
    ----------
    ranges : (m,)
        Of independent terms, or of the differences of a martingale (Azuma 1967).
    risk : float
    """
    ranges = np.asarray(ranges, np.float64)
    return math.sqrt(float(ranges @ ranges) * math.log(2 / risk) / 2)


def permutation_ranges(changes):
    """Return the ranges of a sum over the batches of one epoch, (units,), for `deviation`.

    Batches of an epoch are not independent, because one order of all units makes them
    all. The sum over them is not a sum of draws without replacement either. Their
    positions are revealed one after another, the most influential unit first. Another
    position for unit u is a swap with a later unit, so the expected sum moves by the
    changes of these two.

    Parameters
    ----------
    changes : (units,)
        What a unit can change by going to another batch.
    """
    falling = np.sort(np.asarray(changes, np.float64))[::-1]
    return falling[:-1] + falling[1:]
