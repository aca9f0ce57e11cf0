"""The stochastic hypergraph: random nets, whose connectivity is what a mini-batch is expected to send.

Source: demirci-2022, section 4.3.3, Algorithm 3 and equations 12 to 14. In training by mini-batches, a batch of s of
the n vertices is drawn at random and the adjacency that it induces takes the place of the whole one: net j is then
{i in the batch : a_ij != 0}, for each j in the batch.

The paper unites the hypergraphs of sampled batches. An entry a_ij lies in a batch with probability (s / n)^2 only, so
before (n / s)^2 batches are drawn most of the graph is in no net, and its vertices are placed at random. The nets are
therefore drawn one by one, with the same distribution: each column deals its neighbours at random to n / s batches,
and each hand, with the column's own vertex, is a net. One round of this holds every entry exactly once, and its nets
are independent between columns, as Hoeffding's inequality behind the number of nets wants them.
"""
from __future__ import annotations

import itertools
import math

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import InternalError
from hpgcn.machine import available_memory

BATCH = 20_000  # vertices of a mini-batch, or a tenth of all where that is less
MAX_ROUNDS = 32  # with many parts of a small graph the bound on nets asks for millions, mostly the same ones
THETA, DELTA = 0.5, 0.1  # the mean connectivity of a net is within theta of its estimate, but for a chance of delta
BYTES_PER_PIN = 256  # that the engine takes at its peak
MAX_PINS = 2**30  # engines add costs in 32 bits
CHUNK = 2**22  # entries dealt at once
ROUND_KEY = 2**63  # keeps the draws of rounds apart from those of batches


def batch_size(n):
    """Vertices of a mini-batch of a graph of n vertices."""
    return min(BATCH, max(1, n // 10))


def nets_wanted(k, theta=THETA, delta=DELTA):
    """Least number of nets whose mean connectivity under k parts is within theta of the expected one, with
    probability 1 - delta (demirci-2022, equation 14).
    """
    return math.ceil((k - 1) ** 2 * math.log(2 / delta) / (2 * theta**2))


def draw_batch(n, size, seed, number):
    """Draw a mini-batch: `size` of n vertices, all sets equally likely, by (seed, number) alone.

    Returns
    -------
    (size,) int64, increasing
    """
    keys = np.random.Philox(key=seed | number << 64).random_raw(n)
    return np.sort(np.argsort(keys, kind="stable")[:size])


def batch_nets(columns, batch):
    """Column-net hypergraph of the subgraph that a mini-batch induces; nets of one pin are left out.

    Parameters
    ----------
    columns : csc_array (n, n)
        `hpgcn.partition.model.pattern` of a graph, by columns.
    batch : (s,) int64, distinct vertices

    Returns
    -------
    offsets : (nets + 1,) int64
    pins : (pins,) integers
        Vertices of the whole graph: net e joins pins[offsets[e]:offsets[e + 1]].
    """
    member = np.zeros(columns.shape[1], bool)
    member[batch] = True
    starts = columns.indptr[batch].astype(np.int64)
    offsets = _offsets(columns.indptr[batch + 1] - starts)
    pins = _runs(columns.indices, starts, offsets)
    inside = member[pins]
    sizes = np.diff(_offsets(inside)[offsets])
    return _offsets(sizes[sizes > 1]), pins[inside & np.repeat(sizes > 1, np.diff(offsets))]


def expected_volume(rows, part, k, batches):
    """Mean number of rows that an exchange sends within mini-batches: the sum over nets of (lambda - 1).

    Parameters
    ----------
    rows : csr_array (n, n)
        `hpgcn.partition.model.pattern` of a graph.
    part : (n,) integers in [0, k)
    k : int
    batches : non-empty list of (s,) int64
        Distinct vertices of each mini-batch, as `draw_batch` gives them.

    Returns
    -------
    float
    """
    columns = sp.csc_array(rows)
    part = np.asarray(part).astype(np.int64)
    total = 0
    for batch in batches:
        offsets, pins = batch_nets(columns, batch)
        nets = np.arange(offsets.size - 1)
        total += np.unique(np.repeat(nets, np.diff(offsets)) * k + part[pins]).size - nets.size
    return total / len(batches)


def stochastic_nets(rows, k, *, seed=0, size=None, memory=None):
    """Draw the stochastic hypergraph of a graph: a round, and more until it holds `nets_wanted(k)` nets.

    Equal nets are merged into one of a higher cost, and nets of one pin left out. The same arguments give the same
    nets. There are at most MAX_ROUNDS rounds, and none after the first that might pass the limit on memory.

    Parameters
    ----------
    rows : csr_array (n, n) with a full diagonal
        `hpgcn.partition.model.pattern` of a graph.
    k : int
        Number of parts.
    seed : int, in [0, 2^63)
    size : int, optional
        Vertices of a mini-batch, by default `batch_size(n)`.
    memory : int, optional
        Bytes that the nets may take in an engine, at BYTES_PER_PIN; by default 80% of the memory available.

    Returns
    -------
    dict
        offsets (nets + 1,) int64, pins (pins,) integers, and costs (nets,) int64: the times that a net was drawn.

    Raises
    ------
    InternalError
        The nets of one round do not fit the limit on memory.
    """
    columns = sp.csc_array(rows)
    columns.sort_indices()
    n = columns.shape[1]
    memory = available_memory() * 4 // 5 if memory is None else memory
    limit = memory // BYTES_PER_PIN
    most = 2 * (columns.nnz - n)  # pins of a round in which no net joins more than two vertices
    if most > limit:
        raise InternalError(f"stochastic nets of {columns.nnz - n} edges take up to {most * BYTES_PER_PIN / 2**30:.2f}"
                            f" GiB in a partitioner, over the limit of {memory / 2**30:.2f} GiB")
    batches = max(1, round(n / (size or batch_size(n))))
    union = np.zeros(1, np.int64), columns.indices[:0], np.zeros(0, np.int64)
    wanted = nets_wanted(k)
    for number in range(MAX_ROUNDS):
        enough = union[2].sum() >= wanted or union[2].size == 0
        full = union[1].size + most > limit or (number + 1) * most > MAX_PINS
        if number and (enough or full):
            break
        union = merge_nets(*_joined(union, deal(columns, batches, seed, number)), n)
    return dict(zip(("offsets", "pins", "costs"), union))


def deal(columns, batches, seed, number):
    """One round: each column deals its neighbours to batches, and each hand with the column's vertex is a net.

    Parameters
    ----------
    columns : csc_array (n, n) with a full diagonal, indices sorted
    batches : int
    seed, number : int
        What the draws depend on, besides the entry's place.

    Returns
    -------
    offsets, pins, costs
        Nets of two pins or more, increasing within each net; all costs are 1.
    """
    indptr = columns.indptr
    draws = np.random.Philox(key=seed | (ROUND_KEY | number) << 64)
    # columns [cuts[c], cuts[c + 1]) at once
    cuts = np.unique(np.append(np.searchsorted(indptr, np.arange(0, indptr[-1], CHUNK)), indptr.size - 1))
    hands = [_hands(columns.indices[indptr[lo]:indptr[hi]], np.diff(indptr[lo:hi + 1]), lo, batches, draws)
             for lo, hi in itertools.pairwise(cuts)]
    sizes = np.concatenate([np.zeros(0, np.int64), *(sizes for sizes, _ in hands)])
    pins = np.concatenate([columns.indices[:0], *(pins for _, pins in hands)])
    return _offsets(sizes), pins, np.ones(sizes.size, np.int64)


def merge_nets(offsets, pins, costs, n):
    """Merge nets that join the same vertices into one that costs their sum.

    Parameters
    ----------
    offsets : (nets + 1,) int64
    pins : (pins,) integers below n, increasing within each net
    costs : (nets,) int64

    Returns
    -------
    offsets, pins, costs
        Each set of vertices once.
    """
    if costs.size == 0:
        return offsets, pins, costs
    sizes = np.diff(offsets)
    code = np.add.reduceat(np.random.Philox(key=n).random_raw(n)[pins], offsets[:-1])  # equal nets, equal sums
    order = np.lexsort((sizes, code))
    sizes, code, starts = sizes[order], code[order], offsets[:-1][order]
    offsets = _offsets(sizes)
    pins = _runs(pins, starts, offsets)
    like = np.append(False, (code[1:] == code[:-1]) & (sizes[1:] == sizes[:-1]))  # the net before, by its sum
    place = np.flatnonzero(np.repeat(like, sizes))
    other = pins[place] != pins[place - np.repeat(sizes[like], sizes[like])]
    differs = np.zeros(pins.size, bool)
    differs[place] = other
    new = ~like | np.logical_or.reduceat(differs, offsets[:-1])
    costs = np.add.reduceat(costs[order], np.flatnonzero(new))
    return _offsets(sizes[new]), pins[np.repeat(new, sizes)], costs


def _hands(pins, counts, first, batches, draws):
    """Sizes and pins of the nets of some columns, of which `first` is the number of the first."""
    column = np.repeat(np.arange(counts.size), counts)
    owner = column + first
    neighbour = pins != owner
    column, pins = column[neighbour], pins[neighbour]
    high = draws.random_raw(pins.size) >> np.uint64(32)
    batch = (high * np.uint64(batches) >> np.uint64(32)).astype(np.int64)
    hand = column * batches + batch
    used, sizes = np.unique(hand, return_counts=True)
    own = used // batches
    hand, pins = np.concatenate([hand, used]), np.concatenate([pins, (own + first).astype(pins.dtype)])
    return sizes + 1, pins[np.lexsort((pins, hand))]


def _joined(one, two):
    """Both lists of nets, one after the other."""
    return (np.append(one[0], two[0][1:] + one[0][-1]), np.concatenate([one[1], two[1]]),
            np.concatenate([one[2], two[2]]))


def _offsets(sizes):
    """Where each of some runs begins, and the last one ends, int64."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _runs(array, starts, offsets):
    """Runs of an array, one after the other: run e begins at starts[e] and has offsets[e + 1] - offsets[e] entries."""
    return array[np.repeat(starts - offsets[:-1], np.diff(offsets)) + np.arange(offsets[-1])]
