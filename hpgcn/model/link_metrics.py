"""Metrics of scores of links and of pairs that are no links, exact over all ranks.

Each rank has the scores of its own pairs. Ranks share out the distinct scores by value, as in
sorting by regular sampling (Shi and Schaeffer 1992). Rank q gets all copies of the scores in
the q-th range, so no rank has them all. Sums are of whole numbers, so that results have the
same bits on any number of ranks.

A score that is not a number makes AUC, average precision and MRR of shared negatives NaN.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpgcn.errors import UsageError, assigned

if TYPE_CHECKING:
    from hpgcn.comm import SerialComm

UNIT = 52  # bits after the point of fractions that are added
HALF = UNIT // 2
MOST = 10**6  # largest K of hits@K


class Scores(NamedTuple):
    """The distinct scores of this rank's range, ascending, and how often they occur."""

    values: np.ndarray  # (d,) float64
    counts: np.ndarray  # (2, d) int64: positives and negatives with each score
    above: np.ndarray  # (2, d) int64: those with a higher score, on all ranks
    total: np.ndarray  # (2,) int64: all positives and negatives


def auc(comm: SerialComm, positive: np.ndarray, negative: np.ndarray) -> float | None:
    """Return the area under the ROC curve, as scikit-learn's roc_auc_score; collective.

    Parameters
    ----------
    comm : communicator
    positive, negative : (p,) and (m,) floating
        Scores of the links, and of the pairs that are no links, of this rank.

    Returns
    -------
    float, the share of pairs of a positive and a negative in order; ties count half
        None without positives or negatives on any rank.

    Examples
    --------
    >>> from hpgcn.comm import SerialComm
    >>> from hpgcn.model.link_metrics import auc
    >>> auc(SerialComm(), np.array([3., 1.]), np.array([2., 1.]))
    0.625
    """
    scores = share_out(comm, positive, negative)
    if scores is None:
        return math.nan
    if not scores.total.all():
        return None
    below = scores.total[1] - scores.above[1] - scores.counts[1]
    twice = _sum(comm, scores.counts[0] * (2 * below + scores.counts[1]))
    return twice / (2 * math.prod(scores.total.tolist()))


def average_precision(comm: SerialComm, positive: np.ndarray,
                      negative: np.ndarray) -> float | None:
    """Return the average precision, as scikit-learn's average_precision_score; collective.

    Parameters are those of `auc`; None without positives.

    Examples
    --------
    >>> from hpgcn.comm import SerialComm
    >>> from hpgcn.model.link_metrics import average_precision
    >>> average_precision(SerialComm(), np.array([3., 1.]), np.array([2.]))
    0.8333333333333334
    """
    scores = share_out(comm, positive, negative)
    if scores is None:
        return math.nan
    if not scores.total[0]:
        return None
    reached = scores.above + scores.counts
    precision = reached[0] / np.maximum(reached.sum(axis=0), 1)
    return _mean(comm, precision, scores.counts[0], int(scores.total[0]))


def hits(comm: SerialComm, positive: np.ndarray, negative: np.ndarray, k: int) -> float | None:
    """Return Hits@K: the share of links that rank among the first K; collective.

    Parameters
    ----------
    comm : communicator
    positive : (p,) floating
        Scores of the links of this rank.
    negative : (m,) or (p, q) floating
        Scores of negatives that are shared by all links: a link must have a higher score than
        the K-th highest of all ranks. Or those of each link: its rank is at most K.
    k : int, at least 1

    Returns
    -------
    float; 1 if there are fewer than K shared negatives, and None without links on any rank

    Notes
    -----
    The definitions are those of the Evaluator of OGB (Hu et al. 2020).

    Examples
    --------
    >>> from hpgcn.comm import SerialComm
    >>> from hpgcn.model.link_metrics import hits
    >>> hits(SerialComm(), np.array([3., 1.]), np.array([2., 1.]), 1)
    0.5
    """
    if negative.ndim == 2:
        return hits_of_ranks(comm, ranks_among(positive, negative), k)
    highest = np.partition(negative, -k)[-k:] if negative.size > k else negative
    everywhere = np.concatenate(comm.allgather(highest))
    last = np.partition(everywhere, -k)[-k] if everywhere.size >= k else -np.inf
    best = positive > last if everywhere.size >= k else np.ones(positive.size, bool)
    return _share(comm, best)


def mrr(comm: SerialComm, positive: np.ndarray, negative: np.ndarray) -> float | None:
    """Return the mean reciprocal rank of links among negatives; collective.

    Parameters are those of `hits`, and None is returned without links. The rank is that of
    `ranks_among`.

    Examples
    --------
    >>> from hpgcn.comm import SerialComm
    >>> from hpgcn.model.link_metrics import mrr
    >>> mrr(SerialComm(), np.array([3., 1.]), np.array([[2., 1.], [2., 2.]]))
    0.6666666666666666
    """
    if negative.ndim == 2:
        return mrr_of_ranks(comm, ranks_among(positive, negative))
    scores = share_out(comm, positive, negative)
    if scores is None:
        return math.nan
    rank = 1 + scores.above[1] + scores.counts[1] / 2
    return mrr_of_ranks(comm, rank, scores.counts[0])


def hits_of_ranks(comm: SerialComm, rank: np.ndarray, k: int) -> float | None:
    """Return the share of ranks, (p,) float64 from 1, that are at most k; collective."""
    return _share(comm, rank <= k)


def mrr_of_ranks(comm: SerialComm, rank: np.ndarray,
                 counts: np.ndarray | None = None) -> float | None:
    """Return the mean of 1 / rank, (p,) float64 from 1; collective.

    Each rank occurs `counts`, (p,) int64, times, or once.
    """
    counts = np.ones(rank.size, np.int64) if counts is None else counts
    total = _sum(comm, counts)
    return _mean(comm, 1 / rank, counts, total) if total else None


def ranks_among(positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Return the rank of each link among its own negatives, (p,) float64 from 1.

    `positive` are (p,) scores, `negative` (p, q). The rank is the mean of the best and the
    worst one that ties allow.

    Examples
    --------
    >>> from hpgcn.model.link_metrics import ranks_among
    >>> ranks_among(np.array([3., 1.]), np.array([[2., 1.], [2., 1.]]))
    array([1. , 2.5])
    """
    higher = (negative > positive[:, None]).sum(axis=1)
    return 1 + (higher + (negative >= positive[:, None]).sum(axis=1)) / 2


def share_out(comm: SerialComm, positive: np.ndarray, negative: np.ndarray) -> Scores | None:
    """Return the Scores of this rank's range; collective. None if a score is NaN.

    The ranges of ranks ascend. A rank gets about 1/P of the distinct scores of all ranks.
    """
    values, place = np.unique(np.concatenate([positive, negative]).astype(np.float64),
                              return_inverse=True)
    counts = np.stack([np.bincount(each, minlength=values.size)
                       for each in np.split(place, [positive.size])])
    if comm.max([np.isnan(values).any()])[0]:
        return None

    # choose the bounds of ranges by regular samples of each rank
    size = comm.size
    samples = values[np.arange(size) * values.size // size] if values.size else values
    everywhere = np.sort(np.concatenate(comm.allgather(samples)))
    bounds = everywhere[np.arange(1, size) * everywhere.size // size] if everywhere.size else []
    cuts = np.searchsorted(values, bounds)

    # send the scores of each range to its rank; add up equal ones
    rows = np.stack([values.view(np.int64), *counts])
    pieces = np.split(rows, cuts, axis=1) if len(bounds) else [rows, *[rows[:, :0]] * (size - 1)]
    received = comm.alltoallv([piece.ravel() for piece in pieces], None)
    bits, *parts = np.concatenate([each.reshape(3, -1) for each in received], axis=1)
    values, place = np.unique(bits.view(np.float64), return_inverse=True)
    counts = np.zeros((2, values.size), np.int64)
    for total, part in zip(counts, parts):
        np.add.at(total, place, part)

    # count higher scores, here and in the ranges of higher ranks
    own = counts.sum(axis=1)
    ranges = np.array(comm.allgather(own))
    above = own[:, None] - np.cumsum(counts, axis=1) + ranges[comm.rank + 1:].sum(axis=0)[:, None]
    return Scores(values, counts, above, ranges.sum(axis=0))


def _share(comm: SerialComm, best: np.ndarray) -> float | None:
    """Return the share of True over all ranks; None without any."""
    total = _sum(comm, np.ones(best.size, np.int64))
    return _sum(comm, best) / total if total else None


def _sum(comm: SerialComm, numbers: np.ndarray) -> int:
    """Return the exact sum of whole numbers over ranks."""
    return sum(comm.allgather(int(numbers.sum())))


def _mean(comm: SerialComm, fractions: np.ndarray, weights: np.ndarray, total: int) -> float:
    """Return the mean of fractions, 0 to 1, with whole weights of sum `total`.

    Fractions are rounded to UNIT bits, so their sum does not depend on the order.
    """
    units = np.rint(fractions * (1 << UNIT)).astype(np.int64)
    high = _sum(comm, weights * (units >> HALF))
    low = _sum(comm, weights * (units & ((1 << HALF) - 1)))
    return ((high << HALF) + low) / (total << UNIT)


# metrics of links by the words of --metric, besides hits@K
LINK_METRICS: dict[str, Callable] = {"auc": auc, "ap": average_precision, "mrr": mrr}
HITS = "hits@"


def link_metric(name: str) -> Callable:
    """Return the function (comm, positive, negative) of a metric; hits@K for any K.

    Raises
    ------
    UsageError
        There is no such metric of links.

    Examples
    --------
    >>> from hpgcn.model.link_metrics import link_metric
    >>> link_metric("hits@50").keywords
    {'k': 50}
    """
    number = name.removeprefix(HITS)
    if number != name and number.isdecimal() and number.isascii() and 0 < int(number) <= MOST:
        return partial(hits, k=int(number))
    if name not in LINK_METRICS:
        raise UsageError(f"{assigned('metric', name)}: expected {', '.join(LINK_METRICS)} or "
                         "hits@K for links")
    return LINK_METRICS[name]


def rank_metric(name: str) -> Callable:
    """Return the function (comm, rank) of the metric mrr or hits@K.

    Examples
    --------
    >>> from hpgcn.comm import SerialComm
    >>> from hpgcn.model.link_metrics import rank_metric
    >>> rank_metric("hits@2")(SerialComm(), np.array([1., 2., 2.5]))
    0.6666666666666666
    """
    if name == "mrr":
        return mrr_of_ranks
    return partial(hits_of_ranks, **link_metric(name).keywords)
