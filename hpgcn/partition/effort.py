"""Effort of a method: how much work it may take, and the expected seconds."""
import logging
import time
from contextlib import contextmanager

import numpy as np

from hpgcn.partition.engines.engine_registry import COARSENED, LEVELS

log = logging.getLogger("hpgcn")

FAST, DEFAULT, BEST = EFFORTS = ("fast", "default", "best")
SMALL = 1 << 16  # entries: for at most this number, all work of an engine takes seconds
WORTH_SAYING = 2.0  # seconds: shorter forecasts are not logged
COARSE = 1 << 23  # entries: for this number or more, effort DEFAULT divides clusters only
FEWEST = 1 << 18  # clusters that METIS or an engine divides, at most
PINS = 1 << 22  # pins of the nets of clusters that an engine gets, at most
SPARSE = 4.0  # mean pins of a net of a sparse pattern, at most
SHARE = 0.2  # largest share of the seconds of training that preparation may take
A_SECOND = 1.0  # seconds that preparation may take even if SHARE of the training is less,
LONGER = 2.0  # if they are at most this multiple of the training

# Seconds on one core of the machine on which they were measured. Without an engine for the
# whole graph, they are for a million entries, and for a million pairs of `touched_pairs`.
# From COARSE entries on, effort DEFAULT takes no engine for the whole graph.
STREAM_SECONDS = {FAST: (0.5, 0.03), DEFAULT: (0.7, 0.04)}
# With an engine, the pairs are those of each level of coarsening. The third number is for a
# million entries of the smallest level, times the number of its bisections. The last number is
# that of the vertices of a part in this level.
ENGINE_SECONDS = {DEFAULT: (4.0, 0.3, 0.0, 160), BEST: (5.0, 1.5, 8.0, 160)}
SPARSE_SECONDS = 4.0, 0.2, 10.0, 40  # sparse patterns, effort DEFAULT
# annealing: seconds for a million nonzeros, and the largest number of seconds
ANNEALING_SECONDS = {FAST: (0.0, 0.0), DEFAULT: (90.0, 75.0), BEST: (180.0, 450.0)}
CALM = 0.2  # share of these seconds in sparse patterns, where most nets lie inside a part
COUNTED = 1 << 20  # numbers that are counted to compare this machine with the measured one
PASS = 0.0028  # seconds that this count takes on the measured machine
MULTIPLIER = 40503  # spreads the counted numbers
SLOWER = 8.0  # largest factor between the speeds of two machines


def column_sizes(source):
    """Return the entries of each column with the diagonal, (n,) float64, by the degrees.

    The degrees of a GraphSource are sums of weights.
    """
    degrees = source.degrees()
    return degrees["column"] + (degrees["loop"] == 0)


def touched_pairs(column_sizes, k):
    """Count pairs of an entry and a part that its column may touch: the work of a pass.

    A pass looks at all parts of each net of a vertex. A net touches at most k parts, and
    one for each pin.
    """
    sizes = np.asarray(column_sizes, np.int64)
    return int(np.dot(sizes, np.minimum(sizes, k)))


def is_sparse(column_sizes):
    """Return whether columns have few entries, as those of road networks have.

    Parts with few cut edges are then a poor start. Columns of one entry do not count,
    because they are no nets.
    """
    sizes = np.asarray(column_sizes)
    sizes = sizes[sizes > 1]
    return int(sizes.sum()) <= SPARSE * sizes.size


def expected_seconds(effort, column_sizes, k, *, holders=False, nets=False):
    """Return the seconds that partitioning takes on the machine that was measured.

    They depend on the graph alone, so all ranks and all runs choose alike.

    Parameters
    ----------
    effort : str
        One of EFFORTS.
    column_sizes : (n,) integers
        Entries of each column of the pattern, the diagonal counted.
    k : int
    holders : bool
        Nonzeros get holders of their own.
    nets : bool
        An engine divides clusters of a large graph by their nets.

    Returns
    -------
    float
    """
    entries = int(np.sum(column_sizes, dtype=np.int64))
    if effort == FAST or (effort == DEFAULT and entries >= COARSE):
        of_entry, of_pair = STREAM_SECONDS[effort]
        seconds = (of_entry * entries + of_pair * touched_pairs(column_sizes, k)) / 1e6
        if nets and effort == DEFAULT:
            share = min(1, PINS / entries)
            seconds += share * _engine_seconds(effort, entries, column_sizes, k)
    else:
        seconds = _engine_seconds(effort, entries, column_sizes, k)
    if holders:
        annealing, most = ANNEALING_SECONDS[effort]
        share = CALM if is_sparse(column_sizes) else 1
        seconds += share * min(annealing * entries / 1e6, most)
    return seconds


def _engine_seconds(effort, entries, column_sizes, k):
    """Return the seconds of an engine that coarsens the whole graph.

    The engine refines parts on each level, which has half the vertices of the level
    before. With more parts there are fewer levels, but the level that is divided first
    is larger.
    """
    rates = ENGINE_SECONDS[BEST if entries <= SMALL else effort]
    if effort == DEFAULT and entries > SMALL and is_sparse(column_sizes):
        rates = SPARSE_SECONDS
    of_entry, of_pair, of_bisection, smallest = rates

    share = min(1.0, smallest * k / max(1, len(column_sizes)))
    if rates is ENGINE_SECONDS[DEFAULT] and share > 1 / LEVELS:
        share = 1 / COARSENED
    levels = 1 - np.log2(share)
    work = (of_entry * entries + of_pair * levels * touched_pairs(column_sizes, k)
            + of_bisection * share * np.log2(k) * entries)
    return float(work) / 1e6


def slowness():
    """Return how many times slower this machine is than the measured one, for messages only.

    It is a ratio of processor seconds of a small count, which other programs change
    little.
    """
    numbers = np.arange(COUNTED) * MULTIPLIER & 0xFFFF
    tries = []
    for _ in range(3):
        begun = time.thread_time()
        np.bincount(numbers)
        tries.append(time.thread_time() - begun)
    return float(np.clip(min(tries) / PASS, 1 / SLOWER, SLOWER))


def paying_effort(column_sizes, k, training_seconds, *, holders=False):
    """Choose the effort of parts by the seconds of the training that they serve.

    The effort is DEFAULT if its seconds are at most SHARE of the training, or A_SECOND;
    else FAST. No effort pays if even FAST takes more than SHARE of the training. But
    less than A_SECOND still pays if it is at most LONGER times the training.

    Returns
    -------
    effort : str or None
        None: no effort pays.
    seconds : float
        Seconds that it is expected to take.
    """
    least = expected_seconds(FAST, column_sizes, k, holders=holders)
    share = SHARE * training_seconds
    if least > max(share, min(A_SECOND, LONGER * training_seconds)):
        return None, 0.0
    seconds = expected_seconds(DEFAULT, column_sizes, k, holders=holders)
    return (DEFAULT, seconds) if seconds <= max(share, A_SECOND) else (FAST, least)


@contextmanager
def announced(name, request, effort, columns, *, holders=False, nets=False):
    """Log the seconds that partitioning is expected to take, and then those it took.

    Yield a dict for the statistics of the partition, which the caller fills. Nothing is
    logged if partitioning takes few seconds, or if effort has no meaning ("") for the
    method.
    """
    # the forecast, for the speed of this machine
    begun = time.perf_counter()
    statistics = {}
    seconds = expected_seconds(request.effort, np.bincount(columns), request.k, holders=holders,
                               nets=nets)
    seconds *= slowness() if seconds >= WORTH_SAYING / SLOWER else 1
    said = effort and seconds >= WORTH_SAYING
    if said:
        log.info("%s: %d parts of effort %s take about %.2g s on this machine", name, request.k,
                 effort, seconds)
    yield statistics

    # what it cost and gained
    if said:
        saved = ""
        if statistics.get("random_volume"):
            share = 1 - statistics["volume"] / statistics["random_volume"]
            saved = f", {share:.0%} fewer than random parts"
        log.info("%s: they took %.2g s, and send %s rows%s", name, time.perf_counter() - begun,
                 f"{statistics['volume']:,}", saved)
