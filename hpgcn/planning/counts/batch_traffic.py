"""Traffic of batches before training: expected in closed form, and counted by replay.

Batches of vertices or parts multiply by the matrix that they induce. They send the rows
and sums of a full product that a nonzero of the batch reads or adds to. The batch of a
vertex is keyed, so every rank can compute all batches of an epoch.
`InducedTraffic.replay` counts the messages of every rank in each.
`InducedTraffic.expected` needs no epoch: rows are exact expectations
(hpgcn.sampling.expectation, demirci-2022, section 4.3.3), messages an estimate. With
drawn neighbours all numbers are estimates, and the caller of a replay gives the draws
(`NeighbourTraffic`). Gradients of weights, and what ranks that share rows send, are
those of a full step, once a batch. Pure: all ranks at once.
"""
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hpgcn.parallel.halo_plan import HaloPlanSizes
from hpgcn.planning.counts.pairs import Pairs, counted, expected
from hpgcn.planning.counts.shaped_step import PHASES, LevelSizes
from hpgcn.planning.counts.traffic import KINDS
from hpgcn.sampling.expectation import (
    any_entry_chance,
    any_of,
    chance,
    deviation,
    entry_chance,
    permutation_ranges,
    sizes_of,
)


@dataclass(frozen=True, eq=False)
class BatchCounts:
    """Counts of P ranks in batches: dicts of (s, P) under (kind, phase), like `Prediction`."""

    repeats: np.ndarray  # (s,) batches of an epoch that each row stands for
    bytes: dict = field(default_factory=dict)
    messages: dict = field(default_factory=dict)

    def by_rank(self, counts):
        """Sum one of the two dicts: what each rank sends in each batch, (s, P)."""
        return sum(counts.values())

    def epoch(self, counts):
        """Return the count of each rank in an epoch, (P,)."""
        return self.repeats @ self.by_rank(counts)

    def summary(self, counts, steps=1):
        """Return total, max over ranks, kind and phase of an epoch over `steps` steps; a dict."""
        sent = self.epoch(counts)
        return {"total": _number(sent.sum(), steps), "max": _number(sent.max(), steps),
                **{kind: {phase: _number(self.repeats @ counts[kind, phase].sum(1), steps)
                          for phase in PHASES} for kind in KINDS}}

    def busiest(self, counts):
        """Return the mean over the batches of the count of the busiest rank."""
        return float(self.repeats @ self.by_rank(counts).max(1) / self.repeats.sum())


def _number(value, steps):
    """Return an int if it is one: a sum of int, of one step."""
    whole = steps == 1 and np.issubdtype(value.dtype, np.integer)
    return int(value) if whole else float(value / steps)


def count_products(traffic, sizes, products, itemsize, symmetric):
    """Sum the calls of products whose transfers have some sizes.

    sizes: what `traffic.merge` takes, of one or more batches. A dict: phase -> [bytes,
    messages].
    """
    layouts = traffic.layout, traffic.layout
    merged = type(traffic)(layouts, symmetric, traffic.merge(*sizes))
    found = {phase: [0 * sizes[0].sent, 0 * sizes[0].sent] for phase in PHASES}
    for product in products:
        for call in merged.calls(product, itemsize):
            for place, amount in enumerate(call[:2]):
                found[product.phase][place] = found[product.phase][place] + amount
    return found


def expected_step(traffic, means, products, itemsize, symmetric):
    """Return (bytes, messages) that all ranks send in products with A of a batch, expected.

    means: of each product a hpgcn.sampling.forecast.Expected; traffic: of all rows.
    """
    totals = np.zeros(2)
    for hop, mean in enumerate(means):
        rows, sums = (HaloPlanSizes(*(np.array([each]) for each in (many, many, ways, ways)))
                      for many, ways in ((mean.pulled, mean.pulling), (mean.pushed, mean.pushing)))
        both = np.array([mean.talking])
        mine = [each for each in products if each.layer == hop]
        found = count_products(traffic, [rows, sums, both, both], mine, itemsize, symmetric)
        totals += np.sum([[each.sum() for each in phase] for phase in found.values()], axis=0)
    return totals


def decreasing_levels(hops):
    """Return levels that each have fewer rows than the one below, as fan-outs make them."""
    rows = [np.array([each]) for each in range(hops + 1, 0, -1)]
    return LevelSizes(rows, [False] * len(rows), [int(each[0]) for each in rows],
                      np.ones((2, 1), np.int64))


class BatchTraffic:
    """The traffic of batches of a plan of all rows.

    Parameters
    ----------
    plan : hpgcn.strategies.RowPlan
        With `entries`, and `merge` of its traffic.
    prediction : hpgcn.planning.counts.traffic.Prediction
        Of a full step on it.
    products : list of hpgcn.strategies.Product
        Of a step.
    itemsize : int
    sampler : hpgcn.sampling.Sampler
    """

    def __init__(self, plan, prediction, products, itemsize, sampler):
        self.plan = plan
        self.prediction = prediction
        self.products = products
        self.itemsize = itemsize
        self.sampler = sampler

    @cached_property
    def pairs(self):
        """Pairs of columns, which are pulled, and of rows, of which sums are pushed."""
        reader, owner, rows, columns, holder = self.plan.entries()
        k = self.plan.num_ranks
        return Pairs.of(columns, rows, owner, holder, k), Pairs.of(rows, columns, reader, holder, k)

    def counts_of(self, repeats, found):
        """Return BatchCounts of what products send, phase -> [bytes, messages], and all else."""
        counts = BatchCounts(repeats)
        for place, (book, full) in enumerate(((counts.bytes, self.prediction.bytes),
                                              (counts.messages, self.prediction.messages))):
            for kind, phase in full:
                sent = found[phase][place]
                if kind != KINDS[0]:
                    sent = np.tile(full[kind, phase], (repeats.size, 1))
                book[kind, phase] = sent
        return counts


class InducedTraffic(BatchTraffic):
    """Batches that train on the matrix that their vertices induce.

    unit: (n,) int64, the unit of each row of the plan: what the sampler deals.
    """

    def __init__(self, *given, unit):
        super().__init__(*given)
        self.unit = unit

    def _count(self, sizes):
        symmetric = self.plan.pattern.symmetric
        return count_products(self.plan.traffic, sizes, self.products, self.itemsize, symmetric)

    def rows(self, epoch):
        """Count rows and sums of one product in each batch, by the rank that sends; (batches, P).

        Columns sent by their owners, then partial sums by the ranks that form them.
        """
        pulled, pushed, *_ = self._sizes(epoch)
        return pulled.sent, pushed.received

    def _sizes(self, epoch):
        batch = self.sampler.batch_of(self.unit, epoch)
        hits = [pairs.hit(batch) for pairs in self.pairs]
        return counted(*self.pairs, hits, batch, self.sampler.batches, self.plan.num_ranks)

    def replay(self, epoch):
        """Count every batch of an epoch, from 1, as the counters of a run do: BatchCounts."""
        found = self._count(self._sizes(epoch))
        return self.counts_of(np.ones(self.sampler.batches, np.int64), found)

    def expected(self):
        """Return the expected BatchCounts: a row for each size that batches have."""
        sampler = self.sampler
        k = self.plan.num_ranks
        groups, units = self.pairs, self.unit
        if sampler.samples_parts:  # all rows of a part that some other part reads go together
            groups = [pairs.by_unit(self.unit, k) for pairs in self.pairs]
            units = np.arange(sampler.units)

        readers = [[pairs.readers(unit, sampler.units) for pairs in each]
                   for each, unit in ((self.pairs, self.unit), (groups, units))]
        sizes, repeats = sizes_of(sampler.units, sampler.batches)

        found = []
        for size in sizes.tolist():
            rows, some = ([chance(others, sampler.units, size, own) for others, own in each]
                          for each in readers)
            found.append(self._count(expected(self.pairs, rows, groups, some, k)))

        return self.counts_of(repeats, _stacked(found))

    def deviation(self, risk=0.05):
        """Return the largest deviation in bytes of an epoch's total from its expectation, except
        for a risk.

        By Hoeffding's inequality for martingales; see `permutation_ranges`.
        """
        units = self.sampler.units
        changes = sum(weight * pairs.changes(self.unit, units)
                      for weight, pairs in zip(self._row_bytes(), self.pairs))
        return deviation(permutation_ranges(changes), risk)

    def _row_bytes(self):
        """Return the bytes of a step for each row that is pulled, and for each sum that is
        pushed.
        """
        one, none = np.ones(1, np.int64), np.zeros(1, np.int64)
        row = [HaloPlanSizes(*[each] * 4) for each in (one, none)]
        return [sum(int(sent[0].sum()) for sent in self._count([*each, none, none]).values())
                for each in (row, row[::-1])]


class NeighbourTraffic(BatchTraffic):
    """Batches of rows to train on, and drawn neighbours: a mean field, in which all is estimated.

    Rows are needed, and entries drawn, as if all were independent of one another. p is
    the chance of a row to be needed. For the last product it is 1 / batches for rows to
    train on. Below, p'_j = 1 - (1 - p_j) prod_i (1 - p_i min(1, k / degree_i)) over the
    entries (i, j) off the diagonal.

    seeds: (n,) bool, rows to train on.
    """

    def __init__(self, *given, seeds):
        super().__init__(*given)
        self.seeds = seeds

    @cached_property
    def _entries(self):
        """Rows and columns of entries off the diagonal, which of all they are; degrees of rows."""
        _, _, rows, columns, _ = self.plan.entries()
        off = rows != columns
        return rows[off], columns[off], off, np.bincount(rows[off], minlength=self.seeds.size)

    def needed(self):
        """Yield (product, p, chance of each entry to be drawn), from the last product down."""
        rows, columns, off, degrees = self._entries
        p = self.seeds / self.sampler.batches
        chosen = np.zeros(off.size)
        for hop, fan_out in reversed([*enumerate(self.sampler.fan_outs)]):
            chosen[off] = p[rows] * entry_chance(degrees[rows], fan_out)
            yield hop, p, chosen
            p = 1 - (1 - p) * (1 - any_of(columns, chosen[off], p.size))

    def expected(self):
        """Return the expected BatchCounts, an estimate: one row, for all batches."""
        degrees = self._entries[-1]
        pulled, pushed = self.pairs
        found = []

        for hop, p, chosen in self.needed():
            held = np.bincount(pushed.pair, minlength=pushed.size)
            sums = p[pushed.line] * any_entry_chance(degrees[pushed.line], held,
                                                     self.sampler.fan_outs[hop])
            chances = any_of(pulled.pair, chosen[pulled.entry], pulled.size), sums
            products = [each for each in self.products if each.layer == hop]
            sizes = expected(self.pairs, chances, self.pairs, chances, self.plan.num_ranks)
            found.append(count_products(self.plan.traffic, sizes, products, self.itemsize, False))

        total = {phase: [sum(each[phase][place] for each in found)[None] for place in (0, 1)]
                 for phase in PHASES}
        return self.counts_of(np.array([self.sampler.batches]), total)

    def replay(self, place, epoch, draw):
        """Count every batch of an epoch, from 1, given what is drawn in it: BatchCounts.

        Parameters
        ----------
        place : (n,) int64
            Of each row to train on among these, by ORIGINAL number; any of others.
        draw : callable
            draw(hop, needed, batch) returns which entries are drawn for the rows that a
            product with A computes in a batch, (nnz,) bool of all entries of the plan's
            pattern; needed: (n,) bool. What it says of other rows, and of the diagonal,
            does not matter.
        """
        # deal the rows to train on into batches
        rows, columns, off, _ = self._entries
        k = self.plan.num_ranks
        batch = np.zeros_like(place)
        batch[self.seeds] = self.sampler.batch_of(place[self.seeds], epoch)

        # count each batch, from the last product to the first
        one = np.zeros_like(batch)
        found = []
        for number in range(self.sampler.batches):
            needed = self.seeds & (batch == number)
            sent = []
            for hop in reversed(range(len(self.sampler.fan_outs))):
                chosen = np.zeros(off.size, bool)
                chosen[off] = draw(hop, needed, number)[off] & needed[rows]
                hits = [np.bincount(pairs.pair[chosen[pairs.entry]], minlength=pairs.size) > 0
                        for pairs in self.pairs]
                products = [each for each in self.products if each.layer == hop]
                sent.append(count_products(self.plan.traffic, counted(*self.pairs, hits, one, 1, k),
                                           products, self.itemsize, False))

                # rows that are read are needed in the product before
                needed = needed.copy()
                needed[columns[chosen[off]]] = True

            found.append({phase: [sum(each[phase][which] for each in sent)[0] for which in (0, 1)]
                          for phase in PHASES})
        return self.counts_of(np.ones(self.sampler.batches, np.int64), _stacked(found))


def _stacked(found):
    return {phase: [np.stack([each[phase][place] for each in found]) for place in (0, 1)]
            for phase in PHASES}
