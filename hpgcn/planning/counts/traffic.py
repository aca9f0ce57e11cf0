"""Predict the bytes and messages of a training step.

A prediction includes products with A, and messages between ranks that share rows.
"""
import math
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from hpgcn.model.parameters import parameter_shapes
from hpgcn.parallel.counts import Collective, allreduce, replicate
from hpgcn.parallel.layout import split
from hpgcn.parallel.sizes import ExchangeSizes
from hpgcn.planning.counts.shaped_step import PHASES

KINDS = ("aggregation", "dense", "weights")


@dataclass(frozen=True, eq=False)
class Prediction:
    """Bytes and messages of each of P ranks in a training step.

    They are dicts of (P,) int64 under (kind, phase). The phase is "forward" or
    "backward". The kinds are:

    - "aggregation": products with A and A^T;
    - "dense": products with W and softmax if columns are divided;
    - "weights": gradients of weights and biases.

    Sums over ranks are exact. An allreduce over q ranks sends 2 m (q - 1) bytes in all.
    Each rank counts the quotient by q, and the first ranks one more until the remainder
    is used up. If steps send different amounts, the dicts are of `period` steps, and
    methods give the mean, rounded down. `collectives` lists the Collective counts among
    them, `exchanges` the other calls, and how often each is called. `between` has the
    "bytes" and "messages" of products with A that go to other nodes, (P,) int64 each. It
    is empty if the nodes of ranks, or the receivers, are unknown.
    """

    ranks: int
    period: int = 1
    bytes: dict = field(default_factory=dict)
    messages: dict = field(default_factory=dict)
    collectives: list = field(default_factory=list)
    exchanges: list = field(default_factory=list)
    between: dict = field(default_factory=dict)

    def __post_init__(self):
        self.between.update({name: np.zeros(self.ranks, np.int64)
                             for name in ("bytes", "messages")})
        for counts in (self.bytes, self.messages):
            for kind in KINDS:
                for phase in PHASES:
                    counts.setdefault((kind, phase), np.zeros(self.ranks, np.int64))

    def add(self, kind, phase, counts, times=1):
        """Add a call: a Collective, or (bytes, messages) by rank.

        Arrays by rank have P elements.
        """
        for book, amount in zip((self.bytes, self.messages), counts):
            book[kind, phase] += times * np.asarray(amount, np.int64).reshape(-1)
        known = self.collectives if isinstance(counts, Collective) else self.exchanges
        known.append((counts, times))
        if kind == KINDS[0] and self.between:
            self._add_between(counts, times)

    def _add_between(self, counts, times):
        tier = getattr(counts, "between", None)
        if tier is None:
            if np.any(counts[1]):
                self.between.clear()
            return
        for name, amount in zip(self.between, tier):
            self.between[name] += times * np.ravel(amount)

    def per_epoch_between(self):
        """Return the totals over ranks of `between`, by the names of summary.json.

        Return {} if they are unknown.
        """
        return {f"predicted_{name}_between_nodes_per_epoch": int(sent.sum()) // self.period
                for name, sent in self.between.items()}

    def rank_bytes(self):
        """Return the bytes that each rank sends in a step, (P,) int64."""
        return sum(self.bytes.values()) // self.period

    def total_bytes(self):
        return self._total(self.bytes)

    def total_messages(self):
        return self._total(self.messages)

    def _total(self, counts):
        return int(sum(counts.values()).sum()) // self.period

    def non_aggregation_total(self, name):
        """Return bytes or messages of all ranks, except for products with A.

        `name` is "bytes" or "messages".
        """
        return sum(int(sent.sum()) for (kind, _), sent in getattr(self, name).items()
                   if kind != KINDS[0])

    def summary(self, name):
        """Return total, maximum of a rank, and totals by kind and phase, a dict.

        `name` is "bytes" or "messages".
        """
        counts = getattr(self, name)
        by_rank = sum(counts.values())
        return {"total": int(by_rank.sum()) // self.period,
                "max": int(by_rank.max()) // self.period,
                **{kind: {phase: int(counts[kind, phase].sum()) // self.period for phase in PHASES}
                   for kind in KINDS}}

    def max_bytes(self):
        """Return the bytes of the rank that sends most."""
        return int(self.rank_bytes().max())


def predict_step(spec, traffics, levels, layout, steps):
    """Count the bytes and messages that each rank sends in one training step.

    Parameters
    ----------
    spec : hpgcn.model.ModelSpec
    traffics : list of hpgcn.strategies.Traffic
        Traffic of each product with A; None for one that was computed before training.
    levels : pair of hpgcn.planning.counts.shaped_step.LevelSizes
        Sizes in a training step, and in an evaluation.
    layout : hpgcn.parallel.layout.BlockLayout
        Layout of all rows.
    steps : hpgcn.planning.counts.shaped_step.Steps

    Returns
    -------
    Prediction
    """
    # the products with A
    period = max((traffic.period for traffic in traffics if traffic), default=1)
    prediction = Prediction(layout.size, period)
    for product in steps.products(spec, levels):
        for call in traffics[product.layer].calls(product, spec.row_itemsize):
            prediction.add("aggregation", product.phase, call)

    # the dense part: messages between ranks that share rows, sums over them and over columns
    row_blocks = layout.size // layout.columns
    of_ranks = [steps.of(spec, levels, rank, layout.columns) for rank in range(layout.size)]
    for phase in PHASES:
        sent = np.array([step.dense[phase] for step in of_ranks])
        prediction.add("dense", phase, sent.T)
        for axis, noted in ((2, [step.reductions for step in of_ranks]),
                            (1, [step.column_reductions for step in of_ranks])):
            sizes = list(zip_longest(*(sums.get(phase, ()) for sums in noted), fillvalue=0))
            shape = len(sizes), row_blocks, layout.columns
            sums = allreduce(np.array(sizes, np.int64).reshape(shape), axis)
            prediction.add("dense", phase, sums._replace(
                bytes=sums.bytes.sum(0), messages=sums.messages.sum(0), sizes=sums.sizes[0],
                axis=axis - 1))

    # the gradients of weights
    for counts in weights(row_blocks, layout.columns, spec):
        prediction.add("weights", "backward", counts, period)
    return prediction


def add_links(prediction, spec, table, nodes=None):
    """Add to a Prediction the rows that pairs of links pull, and gradients that they push.

    `table` is that of `hpgcn.parallel.pulled_rows.pulled_table`, (P, P). `nodes`, (P,), are the
    nodes of ranks, if messages between them are counted.
    """
    for phase, call in link_calls(spec, table, nodes):
        prediction.add("aggregation", phase, call, prediction.period)


def link_calls(spec, table, nodes=None):
    """Yield the phase and the counts of each call of a step that `add_links` adds."""
    sizes = ExchangeSizes(table, nodes=nodes)
    row_bytes = spec.widths[-1] * spec.itemsize
    for phase, calls in zip(PHASES, (sizes.pull(row_bytes), sizes.push(row_bytes))):
        for call in calls:
            yield phase, call


def weights(row_blocks, columns, spec):
    """Return the traffic of weight gradients.

    It is an allreduce in each grid column, and an allgather in each grid row.
    """
    shapes = parameter_shapes(spec).values()
    size = sum(np.diff(split(shape[0], columns)) * math.prod(shape[1:]) for shape in shapes)
    size = np.broadcast_to(size * spec.itemsize, (row_blocks, columns))
    return allreduce(size, 0), replicate(size, 1)
