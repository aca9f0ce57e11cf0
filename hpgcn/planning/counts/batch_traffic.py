"""Count the traffic of mini-batches before training, in some batches of the first epoch.

Batches and draws are keyed, so that any process can form a batch without messages. Each
batch has its own plan, for the entries that it multiplies, with the owners of the full
plan. Traffic of gradients, and of ranks that share rows, is that of a full step, once
per batch. All ranks are counted at once, without messages.
"""
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.model import ModelSpec
from hpgcn.parallel.pulled_rows import pulled_table
from hpgcn.planning.counts.shaped_step import PHASES, LevelSizes
from hpgcn.planning.counts.traffic import KINDS, Prediction, add_links
from hpgcn.sampling import Sampler, key_of, sample_entries
from hpgcn.sampling.negatives import DrawnLinks
from hpgcn.strategies import RowPlan

COUNTED = 8  # batches of an epoch that are counted: all, if there are no more


def counted_batches(batches):
    """Return the numbers of the batches to count, evenly spaced over an epoch."""
    return np.unique(np.linspace(0, batches - 1, COUNTED).astype(int)).tolist()


def decreasing_levels(hops):
    """Return LevelSizes that decrease from level to level, as of sampled neighbors."""
    rows = [np.array([count]) for count in range(hops + 1, 0, -1)]
    return LevelSizes(rows, [False] * len(rows), [int(count[0]) for count in rows],
                      np.ones((2, 1), np.int64))


@dataclass(frozen=True, eq=False)
class BatchPlans:
    """Communication plans of the mini-batches of a sampler.

    They are derived from the plan of all rows.

    Attributes
    ----------
    plan : hpgcn.strategies.RowPlan
        The plan of all rows.
    full_step : hpgcn.planning.counts.traffic.Prediction
        Traffic of a step of all training vertices.
    products : list of hpgcn.strategies.Product
        The products of a step.
    spec : hpgcn.model.ModelSpec
    sampler : hpgcn.sampling.Sampler
    unit : (n,) int64 or None
        The unit of the sampler that each row belongs to; -1 if it belongs to none. None if
        units are links.
    vertex : (n,) int64
        ORIGINAL number of each row.
    draws : hpgcn.sampling.negatives.DrawnLinks or None
        All links to train on, if units are links.
    """

    plan: RowPlan
    full_step: Prediction
    products: list
    spec: ModelSpec
    sampler: Sampler
    unit: np.ndarray | None
    vertex: np.ndarray
    draws: DrawnLinks | None = None

    def predict(self, epoch, number):
        """Return the Prediction of a batch.

        It equals the traffic that the batch's training step counts.
        """
        _, plans = self.step(epoch, number)

        # products by these plans; all else as in a full step
        prediction = Prediction(self.plan.num_ranks)
        for kind in KINDS[1:]:
            for phase in PHASES:
                prediction.add(kind, phase, (self.full_step.bytes[kind, phase],
                                             self.full_step.messages[kind, phase]))
        for product in self.products:
            counts = plans[product.layer].traffic.counts(product, self.spec.row_itemsize)
            prediction.add(KINDS[0], product.phase, counts)
        if self.draws:
            grid = self.plan.rank_grid
            table = pulled_table(*self._pairs(epoch, number), grid.layout.offsets)
            add_links(prediction, self.spec, table, grid.nodes.numbers)
        return prediction

    def _pairs(self, epoch, number):
        """Return the rows of the `DrawnLinks.pairs` of a batch."""
        row = np.empty_like(self.vertex)
        row[self.vertex] = np.arange(row.size)
        step = (epoch - 1) * self.sampler.batches + number + 1
        found = self.draws.in_batch(self.sampler, epoch, number).pairs(step)
        return [row[each] for each in found]

    def step(self, epoch, number):
        """Return the rows of a batch at each level, and each product's plan.

        Both are lists; rows are (n,) bool.
        """
        members = np.zeros(self.vertex.size, bool)
        if self.draws:
            members[np.concatenate(self._pairs(epoch, number))] = True
            return self._drawn(members, (epoch - 1) * self.sampler.batches + number + 1)
        dealt = self.unit >= 0
        members[dealt] = self.sampler.batch_of(self.unit[dealt], epoch) == number
        return self._induced(members) if self.sampler.induced else self._drawn(members, epoch)

    def _induced(self, members):
        """Return levels and plans on the submatrix that some rows, (n,) bool, induce."""
        pattern = self.plan.pattern
        kept = members[pattern.rows] & members[pattern.indices]
        plan = self._plan(pattern.select(kept, members, members))
        products = 1 + max(product.layer for product in self.products)
        return [members] * (products + 1), [plan] * products

    @cached_property
    def _off_diagonal(self):
        """Entries off the diagonal, sorted by row, then by ORIGINAL column.

        A tuple of their positions among all entries, their row pointers, and their
        number in each row.
        """
        pattern = self.plan.pattern
        off = np.flatnonzero(pattern.rows != pattern.indices)
        off = off[np.lexsort((self.vertex[pattern.indices[off]], pattern.rows[off]))]
        degrees = np.bincount(pattern.rows[off], minlength=pattern.num_rows)
        return off, run_offsets(degrees), degrees

    def _drawn(self, members, draw):
        """Return levels and plans of the entries that are sampled for the rows of each level.

        An epoch, or a step of links, keys the draw.
        """
        pattern, sampler = self.plan.pattern, self.sampler
        off, indptr, degrees = self._off_diagonal
        values = np.empty(off.size, np.float32)

        # from the last product to the first: rows that are read are needed in the one before
        levels, plans = [members], []
        for product in reversed(range(len(sampler.fan_outs))):
            key = key_of(sampler.seed, sampler.stream, draw, product)
            rows = np.flatnonzero(members)
            _, drawn, _ = sample_entries(
                indptr[rows], indptr[rows + 1], off, values, np.empty(0, np.int64), degrees,
                self.vertex, rows, sampler.fan_outs[product], key, int(degrees.max(initial=0)))
            kept = np.zeros(pattern.indices.size, bool)
            kept[drawn] = True
            plans.insert(0, self._plan(pattern.select(kept, symmetric=False)))
            members = members.copy()
            members[pattern.indices[drawn]] = True
            levels.insert(0, members)
        return levels, plans

    def _plan(self, pattern):
        """Return the plan of a submatrix, on the same grid of ranks."""
        return type(self.plan)(pattern, self.plan.rank_grid)
