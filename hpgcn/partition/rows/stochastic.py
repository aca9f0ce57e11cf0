"""The stochastic hypergraph, whose connectivity estimates the rows that a mini-batch sends.

Source: demirci-2022, section 4.3.3, Algorithm 3 and equations 12 to 14. A mini-batch
draws s of the n vertices and trains on the adjacency that they induce. Its nets are {i
in the batch : a_ij != 0}.

The paper unites the hypergraphs of sampled batches. An entry a_ij lies in a batch with
a probability of only (s / n)^2. So until (n / s)^2 batches are drawn, most of the graph
is in no net, and its vertices are placed at random.

Therefore nets are drawn one by one here, with the same distribution. Each column
assigns its neighbors at random to n / s batches. Each of these sets, with the column's
own vertex, is a net. One round of this holds every entry exactly once. Its nets are
independent between columns, as Hoeffding's inequality behind the number of nets
requires.

Batches of parts unite Q of K parts of the graph. Batches of neighbors have B rows that
read K random neighbors each. Their nets are drawn by rounds as well. A net is the rows
of one batch that read a column, with the column's own vertex.
"""
import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import InternalError, UsageError
from hpgcn.graphs.partition import positions_of, run_offsets
from hpgcn.partition.rows import net_samplers
from hpgcn.runtime.machine import available_memory
from hpgcn.setting_words import checked_batch

# samplers of `hpgcn train --batch` that nets are drawn for, and the numbers in their names
FORMS = {"vertices": "B", "parts": "Q:K", "neighbors": "K:B"}
BATCH = 20_000  # vertices of a mini-batch, or a tenth of all if that is less
MAX_ROUNDS = 32  # many parts of a small graph would need millions of nets, mostly equal
THETA = 0.5  # error of the estimated mean connectivity of a net
DELTA = 0.1  # chance of a larger error
BYTES_PER_PIN = 256  # at the peak of an engine
MAX_PINS = 2**30  # engines add costs in 32 bits
CHUNK = 2**22  # entries dealt at once
ROUND_KEY = 2**63  # makes the keys of rounds differ from all seeds


class NetSampling(NamedTuple):
    """Arguments of Algorithm 3, with the symbols of demirci-2022, section 4.3.3.

    Attributes
    ----------
    sampler : str
        One of FORMS.
    numbers : tuple of int
        The numbers of its form: B rows of a mini-batch (s = |V'|), Q parts of K, K
        neighbors of each of B rows.
    theta : float
        Error of the estimated mean connectivity of a net.
    delta : float
        Chance of a larger error (equation 14).
    asked : bool
        The user gave theta or delta, so that fewer nets than they demand are reported.
    """

    sampler: str
    numbers: tuple
    theta: float = THETA
    delta: float = DELTA
    asked: bool = False

    @property
    def name(self):
        """Description of the mini-batches, like the setting `--batch` of `hpgcn train`."""
        return ":".join([self.sampler, *map(str, self.numbers)])

    def batches(self, n):
        """Return the number of batches of one round over n vertices."""
        whole, batch = n, self.numbers[-1]
        if self.sampler == "parts":
            batch, whole = self.numbers
        return max(1, round(whole / batch))

    def choose(self, part):
        """Return the `hpgcn.partition.rows.net_samplers` function; `part` (n,) of sampler parts."""
        if self.sampler == "parts":
            return net_samplers.by_parts(part, self.numbers[1])
        if self.sampler == "neighbors":
            return net_samplers.by_neighbors(self.numbers[0])
        return net_samplers.by_vertices


def parse_sampling(n, batch=None, theta=None, delta=None):
    """Return the NetSampling for a graph of n vertices; None selects a default.

    Invalid values raise UsageError.
    """
    sampler, *words = f"vertices:{batch_size(n)}".split(":") if batch is None else \
        checked_batch(str(batch)).split(":")
    numbers = tuple(int(word) if word.isascii() and word.isdigit() and len(word) < 20 else 0
                    for word in words)
    known = sampler in FORMS and len(numbers) == len(FORMS[sampler].split(":"))
    fits = known and all(1 <= number <= max(1, n) for number in numbers)
    if not fits or (sampler == "parts" and numbers[0] > numbers[1]):
        forms = " or ".join(f"{name}:{form}" for name, form in FORMS.items())
        raise UsageError(f"batch = {batch!r:.80}: method stochastic takes {forms}, numbers from 1 "
                         f"to {n}, Q at most K")
    for name, value, most in (("theta", theta, math.inf), ("delta", delta, 1)):
        if value is not None and not 0 < value < most:
            bound = "above 0" if most == math.inf else "between 0 and 1"
            raise UsageError(f"{name} = {value}: expected a number {bound}")
    asked = theta is not None or delta is not None
    theta = THETA if theta is None else theta
    return NetSampling(sampler, numbers, theta, DELTA if delta is None else delta, asked)


def batch_size(n):
    """Return the default number of vertices of a mini-batch of a graph of n vertices."""
    return min(BATCH, max(1, n // 10))


def nets_wanted(k, theta=THETA, delta=DELTA):
    """Return the least number of nets for theta and delta.

    Their mean connectivity under k parts is within theta of the expected one with
    probability 1 - delta (demirci-2022, equation 14).
    """
    return math.ceil((k - 1) ** 2 * math.log(2 / delta) / (2 * theta**2))


def stochastic_nets(rows, k, sampling=None, part=None, *, seed=0, memory=None):
    """Draw the stochastic hypergraph by rounds, until there are `nets_wanted` nets.

    Equal nets are merged into one of a higher cost, and nets of one pin are left out.
    The same arguments give the same nets. There are at most MAX_ROUNDS rounds. After
    the first, no round begins that might exceed the limit on memory.

    Parameters
    ----------
    rows : csr_array (n, n) with a full diagonal
        `hpgcn.partition.rows.partition_model.pattern` of a graph.
    k : int
        Number of parts.
    sampling : NetSampling, optional
        By default `parse_sampling` of the number of vertices.
    part : array (n,) integers
        Part of each vertex; of the sampler "parts" only.
    seed : int, in [0, 2^63)
    memory : int, optional
        Bytes that the nets may take in an engine, at BYTES_PER_PIN; by default 80% of
        the memory available.

    Returns
    -------
    dict
        offsets (nets + 1,) int64, pins (pins,) integers, and costs (nets,) int64: the
        times that a net was drawn.

    Raises
    ------
    InternalError
        The nets of one round do not fit the limit on memory.
    """
    # refuse a graph of which one round is too large
    columns = sp.csc_array(rows)
    columns.sort_indices()
    n = columns.shape[1]
    arcs = columns.nnz - n
    memory = available_memory() * 4 // 5 if memory is None else memory
    limit = memory // BYTES_PER_PIN
    round_pins = 2 * arcs  # at most, for nets of two vertices each
    if round_pins > limit:
        raise InternalError(f"stochastic nets of {arcs} edges take up to "
                            f"{round_pins * BYTES_PER_PIN / 2**30:.2f} GiB in a partitioner, over "
                            f"the limit of {memory / 2**30:.2f} GiB")

    # draw rounds until there are enough nets
    sampling = sampling or parse_sampling(n)
    wanted = nets_wanted(k, sampling.theta, sampling.delta)
    batches, choose = sampling.batches(n), sampling.choose(part)
    sizes, pins, costs = merge_nets(*deal(columns, batches, seed, 0, choose), n)
    for number in range(1, MAX_ROUNDS):
        enough = costs.size == 0 or costs.sum() >= wanted
        full = pins.size + round_pins > limit or (number + 1) * round_pins > MAX_PINS
        if enough or full:
            break
        dealt = deal(columns, batches, seed, number, choose)
        sizes, pins, costs = merge_nets(*map(np.append, (sizes, pins, costs), dealt), n)
    return {"offsets": run_offsets(sizes), "pins": pins, "costs": costs}


def deal(columns, batches, seed, number, choose=net_samplers.by_vertices):
    """Draw a round of nets by (seed, number, place).

    `columns` is a sorted csc_array (n, n) with a full diagonal. Each column assigns its
    neighbors to batches at random. Its neighbors in a batch, with the column's own
    vertex, are a net. Return sizes, pins and costs of nets of two pins or more; pins
    increase within each net, and all costs are 1.
    """
    indptr = columns.indptr
    draws = np.random.Philox(key=seed | (ROUND_KEY | number) << 64)
    chunk_ends = np.searchsorted(indptr, np.arange(0, indptr[-1], CHUNK))
    cuts = np.unique(np.append(chunk_ends, indptr.size - 1))
    batch_of = choose(columns, batches, draws)
    hands = [_deal_columns(columns, low, high, batches, batch_of) for low, high in pairwise(cuts)]
    sizes = np.concatenate([np.zeros(0, np.int64), *(sizes for sizes, _ in hands)])
    pins = np.concatenate([columns.indices[:0], *(pins for _, pins in hands)])
    return sizes, pins, np.ones(sizes.size, np.int64)


def _deal_columns(columns, low, high, batches, batch_of):
    """Return the sizes and pins of the nets of columns `low` to `high` - 1."""
    indptr = columns.indptr[low:high + 1]
    column = np.repeat(np.arange(low, high), np.diff(indptr))
    pins = columns.indices[indptr[0]:indptr[-1]]
    entries = np.flatnonzero(pins != column)
    column = column[entries]
    pins = pins[entries]

    # leave out entries of no batch
    batch = batch_of(indptr[0] + entries, column, pins)
    kept = batch >= 0
    column, pins, batch = column[kept], pins[kept], batch[kept]

    hand = column * batches + batch
    hands, neighbors = np.unique(hand, return_counts=True)

    hand = np.append(hand, hands)
    pins = np.append(pins, (hands // batches).astype(pins.dtype))  # the column's own vertex
    return neighbors + 1, pins[np.lexsort((pins, hand))]


def merge_nets(sizes, pins, costs, n):
    """Merge nets that join the same vertices into one net that costs their sum.

    Nets are given by sizes and costs, (nets,) int64, and pins, integers below n, which
    increase within each net.
    """
    if costs.size == 0:
        return sizes, pins, costs

    starts = run_offsets(sizes)[:-1]
    keys = np.random.Philox(key=n).random_raw(n)
    code = np.add.reduceat(keys[pins], starts)  # equal for equal nets
    order = np.lexsort((sizes, code))
    sizes = sizes[order]
    code = code[order]
    offsets, places = positions_of(starts[order], starts[order] + sizes)
    pins = pins[places]

    # nets that may equal the one before are compared with it, pin by pin
    alike = np.append(False, (code[1:] == code[:-1]) & (sizes[1:] == sizes[:-1]))
    place = np.flatnonzero(np.repeat(alike, sizes))
    differs = np.zeros(pins.size, bool)
    differs[place] = pins[place] != pins[place - np.repeat(sizes[alike], sizes[alike])]
    new = ~alike | np.logical_or.reduceat(differs, offsets[:-1])
    merged_costs = np.add.reduceat(costs[order], np.flatnonzero(new))
    return sizes[new], pins[np.repeat(new, sizes)], merged_costs
