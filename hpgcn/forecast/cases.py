"""The ways to train a graph that a forecast compares: strategy, parts, ranks and grid, each with its exact volumes."""
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hpgcn import cost
from hpgcn.cost.buffers import buffers
from hpgcn.cost.operands import Pair, adjoint, point_to_point, stored_order, touched_by_part
from hpgcn.cost.shares import Levels, Share
from hpgcn.cost.strategies import ADJOINTS
from hpgcn.errors import DataError, UsageError, setting
from hpgcn.forecast.options import MOST_RANKS, QUICK
from hpgcn.layout import image
from hpgcn.layout import stages as cut_stages
from hpgcn.partition import make_partition
from hpgcn.partition.quality import exchange_counts
from hpgcn.strategies.batches import count_batches, count_fewer

OWN_PARTS = ("p2p", "1d")  # strategies that keep to the parts of a partitioned file


@dataclass(frozen=True, eq=False)
class Case:
    """One way to train.

    Attributes
    ----------
    strategy : str
    parts : str
        Method of the partition, or "stored" where the stored order of rows is cut.
    ranks : int
    grid : tuple of int
    prediction : hpgcn.cost.Prediction
    share : hpgcn.cost.shares.Share
    """

    strategy: str
    parts: str
    ranks: int
    grid: tuple[int, ...]
    prediction: cost.Prediction
    share: Share


def plans(survey, config, ranks=None, methods=None):
    """What there is to compare: a list of (strategy, parts, ranks, grid), fewest ranks first.

    Parameters
    ----------
    survey : hpgcn.forecast.survey.Survey
    config : hpgcn.Config
        Its grid and replication: cases of that strategy on which they do not fit are left out.
    ranks : tuple of int, optional
    methods : tuple of str, optional
        As hpgcn.forecast.Options.

    Raises
    ------
    DataError
        More ranks than vertices.
    UsageError
        Methods, of a file that is partitioned already; a grid or a replication that fits none of the ranks.
    """
    n = survey.header.num_nodes
    own = None if survey.offsets is None else survey.offsets.size - 1
    if own is not None and methods:
        raise UsageError(f"{survey.name}: partitioned already; give --method with the graph it was made from")
    if ranks is None:
        ranks = (own,) if own else tuple(2**e for e in range(min(n, MOST_RANKS).bit_length()))
    if max(ranks) > n:
        raise DataError(f"{survey.name}: {max(ranks)} ranks for {n} vertices, expected 1..{n}")
    methods = methods or QUICK
    given, found = arrangements(config, ranks), []
    for k in ranks:
        whole = ("whole",) if k == 1 else methods
        parts = whole if own is None else (survey.method or "given",) if k == own else ()
        found += [("p2p", name, k, (k,)) for name in parts]
        if k > 1 or not parts:  # on a single rank all strategies are one
            found += [(name, (survey.method or "given") if own and name in OWN_PARTS else "stored", k, grid)
                      for name in cost.STRATEGIES[1:] for grid in [given[name, k]]
                      if grid and (own in (None, k) or name not in OWN_PARTS)]
    return found


def arrangements(config, ranks):
    """The grid of each (strategy, number of ranks); None where the one that was asked for does not fit."""
    found = {(name, k): cost.default_grid(name, k) for name in cost.STRATEGIES for k in ranks}
    try:
        axes = tuple(int(axis) for axis in config.grid.split("x")) if config.grid else ()
    except ValueError:
        raise UsageError(f"{setting('grid', config.grid)}: expected RxC or RxCxL, e.g. 2x2") from None
    if axes:
        product = int(np.prod(axes, dtype=object))
        name = "3d" if len(axes) == 3 else "2d"
        found.update(((name, k), None) for k in ranks)
        cost.check_grid(name, product, axes)
        if product not in ranks:
            raise UsageError(f"{setting('grid', config.grid)} holds {product} ranks, "
                             f"expected one of {', '.join(map(str, ranks))}")
        found[name, product] = axes
    if config.replication:
        fits = [k for k in ranks if k % config.replication == 0]
        if not fits:
            raise UsageError(f"{setting('replication', config.replication)}: expected a divisor of one of "
                             f"{', '.join(map(str, ranks))}")
        found.update((("1.5d", k), (k // config.replication, config.replication) if k in fits else None) for k in ranks)
    return found


def case(survey, strategy, parts, ranks, grid, *, stages=0):
    """Count one way to train, as `plans` names it: a Case."""
    if parts == "stored":
        return count(survey, strategy, parts, grid, cost.row_blocks(strategy, grid, survey.pointers), stages=stages)
    if survey.offsets is not None and ranks == survey.offsets.size - 1:
        return count(survey, strategy, parts, grid, survey.offsets, stages=stages)
    if parts == "whole":
        return count(survey, strategy, parts, grid, np.array([0, survey.header.num_nodes]))
    part = make_partition(survey.graph, ranks, method=parts, rcm=False).part
    return _case(survey, parts, ByPart(survey, part, ranks))


def count(survey, strategy, parts, grid, offsets, *, stages=0):
    """Count training on row blocks of the stored order: a Case.

    Parameters
    ----------
    survey : hpgcn.forecast.survey.Survey
    strategy, parts, grid
        As Case.
    offsets : (B + 1,) int64
    stages : int
        mop, as hpgcn.Config.
    """
    offsets = np.asarray(offsets, np.int64)
    if strategy == "p2p":
        return _case(survey, parts, ByPart(survey, np.repeat(np.arange(grid[0], dtype=np.int32), np.diff(offsets)),
                                           grid[0]))
    return _case(survey, parts, ByBlock(survey, strategy, grid, offsets, stages))


def _case(survey, parts, way):
    step, found = survey.step, {}

    def of(part):
        if part is not None and id(part) not in found:
            found[id(part)] = way.map(part)
        return (None, None) if part is None else found[id(part)]

    def level(rows):
        return way.by_rank(way.rows(rows))

    both = []
    for rows in (survey.train, survey.evaluated):
        entries = [way.features(each) for each in rows[:2]]
        both.append(Levels([level(each) for each in rows], [each is None for each in rows],
                                  survey.totals(rows), [of(part)[1] for part in survey.maps(rows)], entries))
    _, whole = of(survey.whole)
    rows = [way.rows(each) for each in survey.train]
    prediction = cost.predict_step(way.strategy, step, way.grid, [of(part)[0] for part in survey.maps(survey.train)],
                                   rows)
    _, L, C = cost.cube(way.strategy, way.grid)
    slices = prediction.ranks if way.strategy == "mop" else C
    share = Share(way.strategy, C, slices, level(None), way.by_rank(way.entries()), survey.header.num_nodes,
                  not survey.header.all_ones, L, way.batches, whole, *both, way.buffers())
    return Case(way.strategy, parts, prediction.ranks, way.grid, prediction, share)


class ByPart:
    """Strategy p2p on parts in any order.

    Parameters
    ----------
    survey : hpgcn.forecast.survey.Survey
    part : (n,) int32 in [0, k)
    k : int
    """

    strategy, batches = "p2p", 1

    def __init__(self, survey, part, k):
        self.survey, self.part, self.k, self.grid, self.sent = survey, part, k, (k,), None

    def _sums(self, weights):
        return np.bincount(self.part, weights, self.k).astype(np.int64)

    def rows(self, keep):
        """Rows of a level by big row block and piece, (R, L) int64."""
        return self._sums(keep)[:, None]

    def by_rank(self, counts):
        """(R, L) counts by rank, (P,)."""
        return counts.ravel()

    def entries(self):
        """Stored entries of A, (R, L)."""
        return self._sums(np.diff(self.survey.graph.indptr))[:, None]

    def features(self, keep):
        """Stored entries of sparse features in the rows of a level, (P,)."""
        pointers = self.survey.feature_pointers
        if pointers is None:
            return np.zeros(self.k, np.int64)
        return self._sums(np.diff(pointers) * (True if keep is None else keep))

    def map(self, part):
        """(hpgcn.cost.Map, hpgcn.cost.operands.Pair) of a hpgcn.forecast.survey.Part."""
        symmetric = self.survey.symmetric
        forward, operands = self._one_way(part.pattern, part.rows_out, part.rows_in, not symmetric)
        if part is self.survey.whole:
            self.sent = forward
        if not symmetric or part.square:
            return cost.Map(forward, forward, adjoint=not symmetric), operands
        backward, other = self._one_way(part.transposed, part.rows_in, part.rows_out, False)
        return cost.Map(forward, backward), Pair(operands.forward, other.forward)

    def _one_way(self, rows, rows_out, rows_in, adjoint):
        found = exchange_counts(rows, self.part, self.k)
        sent = cost.RankVolumes(found.sent, found.received, found.pairs, found.sources)
        touched = touched_by_part(rows.indptr, rows.indices, self.part, self.k)
        return sent, point_to_point(self._sums(np.diff(rows.indptr)), touched, self._sums(rows_out),
                                           self._sums(rows_in), sent, adjoint=adjoint)

    def buffers(self):
        """hpgcn.cost.buffers.Buffers."""
        return buffers("p2p", self.grid, None, sent=self.sent)


class ByBlock:
    """The other strategies, on blocks of the stored order; methods as ByPart.

    Parameters
    ----------
    survey : hpgcn.forecast.survey.Survey
    strategy : str
    grid : tuple of int
    offsets : (B + 1,) int64
    stages : int
        As hpgcn.Config.
    """

    def __init__(self, survey, strategy, grid, offsets, stages=0):
        self.survey, self.strategy, self.grid, self.offsets = survey, strategy, grid, offsets
        self.R, self.L, self.C = self.shape = cost.cube(strategy, grid)
        self.travelling, self.asked, self.batches = [], stages, 1
        if strategy == "mop":
            self.batches = count_batches(offsets, stages, lambda: survey.bandwidth)

    def _places(self, keep):
        """Offsets in the numbering of the rows that are kept."""
        return self.offsets if keep is None else image(self.offsets, keep)

    def rows(self, keep):
        return np.diff(self._places(keep)).reshape(self.R, self.L)

    def by_rank(self, counts):
        return np.repeat(counts.ravel(), self.C)

    def entries(self):
        return np.diff(self.survey.graph.indptr[self.offsets]).reshape(self.R, self.L)

    def features(self, keep):
        pointers = self.survey.feature_pointers
        if pointers is None:
            return np.zeros(self.R * self.L * self.C, np.int64)
        counts = np.diff(pointers) * (True if keep is None else keep)
        return -(-self.by_rank(np.diff(image(self.offsets, counts))) // self.C)

    def map(self, part):
        symmetric = self.survey.symmetric
        returns = not symmetric and self.strategy in ADJOINTS
        batches = self._batches(part)
        forward, operand = self._one_way(part.pattern, part.rows_out, part.rows_in, batches)
        if returns:
            back = part.transposed
            back = adjoint(self.strategy, self.grid, self.offsets, (back.indptr, back.indices), operand,
                                  self.rows(part.rows_in).ravel())
            return cost.Map(forward, forward, adjoint=True), Pair(operand, back)
        if symmetric and part.square:
            return cost.Map(forward, forward), Pair(operand, operand)
        backward, back = self._one_way(part.transposed, part.rows_in, part.rows_out, batches)
        return cost.Map(forward, backward), Pair(operand, back)

    def _one_way(self, pattern, rows_out, rows_in, batches):
        into, out, name = self.rows(rows_in), self.rows(rows_out), self.strategy
        arrays, stages, sparse, nonzeros = (pattern.indptr, pattern.indices), None, None, None
        if name in ("2d", "3d"):
            nonzeros = cost.stage_nonzeros(name, self.grid, self.offsets, *arrays)
            if rows_out is None and rows_in is None:
                self.travelling.append(nonzeros)
            cuts = cut_stages(self.offsets, *self.shape)
            stages = cuts if rows_in is None else replace(cuts, offsets=image(cuts.offsets, rows_in))
            sparse = cost.block_bytes(nonzeros, out, self.C, self.survey.step.itemsize, int(into.sum()))
        return (cost.Blocks(into, out, self.C, stages, sparse, batches),
                stored_order(name, self.grid, self.offsets, *arrays, out.ravel(), blocks=nonzeros))

    def _batches(self, part):
        if part is self.survey.whole or self.strategy != "mop":
            return self.batches
        longest = max(int(self.rows(keep).max()) for keep in (part.rows_in, part.rows_out))
        return count_fewer(self.batches, self.asked, longest)

    def buffers(self):
        return buffers(self.strategy, self.grid, self.offsets, blocks=self.travelling, batches=self.batches)
