"""List the cases that a plan compares, and count their traffic and memory.

A case has a strategy, parts, a number of ranks and a grid.
"""
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from hpgcn.errors import DataError, UsageError, assigned
from hpgcn.graphs.partition import run_offsets
from hpgcn.model import heads_of, masked_layers, products_of
from hpgcn.parallel.layout import ONE_NODE, BlockLayout
from hpgcn.partition import NONZERO_METHODS
from hpgcn.partition.rows.row_methods import QUICK
from hpgcn.planning.answers.exchange_rule import exchange_setting
from hpgcn.planning.answers.options import MOST_RANKS
from hpgcn.planning.counts.footprint import RankFootprint
from hpgcn.planning.counts.shaped_step import LevelSizes
from hpgcn.planning.seconds.step_seconds import step_seconds
from hpgcn.runtime.device import HOST
from hpgcn.strategies import STRATEGIES, RankGrid, keeps_rows, strategy_by_name, variant
from hpgcn.strategies.strategy import grid_axes


@dataclass(frozen=True)
class Candidate:
    """One case that a plan compares.

    It is a strategy on a partition, a number of ranks and a grid.
    """

    strategy: str
    parts: str  # method of the partition, or "stored" where the stored order of rows is cut
    ranks: int
    shape: tuple[int, ...]  # the grid of ranks

    @property
    def place(self):
        """Number of ranks, and parts: cases with the same ones are counted together."""
        return self.ranks, self.parts


def default_ranks(inputs):
    """Return the numbers of ranks to compare: the parts of the file, else powers of two."""
    powers = tuple(2**e for e in range(min(inputs.header.num_nodes, MOST_RANKS).bit_length()))
    return tuple(sorted(inputs.part_counts)) or powers


def candidates(inputs, ranks=None, methods=None):
    """Return the Candidates to compare, those with fewest ranks first.

    Parameters are as in Options. Numbers of ranks that do not fit the requested grid or
    replication are left out. DataError for more ranks than vertices. UsageError for
    methods with a file that is already partitioned, and for a grid or a replication
    that fits none of the ranks.
    """
    # choose the numbers of ranks, and refuse those that do not fit the file
    n = inputs.header.num_nodes
    part_counts = inputs.part_counts
    if part_counts and methods:
        raise UsageError(f"{inputs.name}: already partitioned; use --method with the graph that is "
                         "not partitioned")
    ranks = default_ranks(inputs) if ranks is None else ranks
    if max(ranks) > n:
        raise DataError(f"{inputs.name}: {max(ranks)} ranks for {n} vertices, expected 1..{n}")

    # list the strategies for each number of ranks
    shapes = grid_shapes(inputs.strategy_options, ranks)
    listed = []
    for k in ranks:
        own = [inputs.prepared[k].method] if k in inputs.prepared else []
        parts = ("whole",) if k == 1 else methods or tuple(dict.fromkeys((*own, *QUICK)))
        if part_counts:
            parts = (inputs.stored_parts,) if k in part_counts else ()
        needy = [strategy for strategy in STRATEGIES.values() if strategy.requires_partition]
        if k == 1 and parts:  # on a single rank all strategies are one
            listed += [Candidate(needy[0].name, name, k, shapes[needy[0].name, k])
                       for name in parts]
            continue

        # strategies that need a partition: one case for each method
        for strategy in needy:
            listed += [Candidate(strategy.name, name, k, shapes[strategy.name, k]) for name in parts
                       if not strategy.accepts_nonzero_owners or name in NONZERO_METHODS
                       or inputs.edge_parts]

        # strategies that take the stored order, or the parts of the file
        for strategy in STRATEGIES.values():
            shape = shapes[strategy.name, k]
            unfit = strategy.accepts_partition and part_counts and k not in part_counts
            if strategy.requires_partition or shape is None or unfit:
                continue
            order = "stored"
            if part_counts and strategy.accepts_partition:
                order = inputs.stored_parts
            listed.append(Candidate(strategy.name, order, k, shape))

    # leave out strategies that do not compute the model
    heads = heads_of(inputs.spec)
    return [strategy for strategy in listed
            if not STRATEGIES[strategy.strategy].unsupported_reason(
                heads, strategy.ranks, inputs.spec.edge_width > 0)
            and (STRATEGIES[strategy.strategy].supports_bf16 or not inputs.spec.halved)
            and (keeps_rows(STRATEGIES[strategy.strategy]) or not inputs.spec.decoder)
            and not (inputs.sized and STRATEGIES[strategy.strategy].needs_entries)]


def grid_shapes(options, ranks):
    """Return the grid for each (strategy, number of ranks), a dict.

    A grid is None if the requested grid does not fit.
    """
    shapes = {(name, k): strategy.default_shape(k)
              for name, strategy in STRATEGIES.items() for k in ranks}

    # a grid is of one strategy and one number of ranks
    if options.grid:
        axes = grid_axes(options.grid)
        product = int(np.prod(axes, dtype=object))
        name = grid_owner(axes)
        shapes.update(((name, k), None) for k in ranks)
        STRATEGIES[name].check_shape(product, axes)
        if product not in ranks:
            raise UsageError(f"{assigned('strategy', f'{name}:{options.grid}')} has {product} "
                             f"ranks, expected one of {', '.join(map(str, ranks))}")
        shapes[name, product] = axes

    # a replication fits its multiples
    if options.replication:
        fits = [k for k in ranks if k % options.replication == 0]
        alone = replace(options, grid="")
        for name, strategy in STRATEGIES.items():
            if "replication" not in strategy.options:
                continue
            if not fits:
                given = assigned("strategy", f"{name}:{options.replication}")
                raise UsageError(f"{given}: expected a divisor of one of "
                                 f"{', '.join(map(str, ranks))}")
            shapes.update(((name, k), strategy.choose_shape(alone, k) if k in fits else None)
                          for k in ranks)

    return shapes


def grid_owner(axes):
    """Return the name of the strategy whose grids have this number of axes."""
    for name, each in STRATEGIES.items():
        if "grid" in each.options and len(each.axes.split("x")) == len(axes):
            return name
    return next(name for name, each in STRATEGIES.items() if "grid" in each.options)


def count_candidate(inputs, candidate, *, floor=False, nodes=None, node_aware=None):
    """Return the RankFootprint of a Candidate: its traffic and memory.

    `floor`: as in `count`. `nodes`: (P,), the node of each rank; None if unknown.
    `node_aware`: in place of the setting.
    """
    config = inputs.config
    node_aware = "never" if inputs.sized else node_aware  # which rows go where is unknown
    strategy = variant(strategy_by_name(candidate.strategy), config)
    ordered, offsets = arranged(inputs, candidate, strategy)
    layout = exchange_setting(strategy, nodes, node_aware or config.node_aware, config)
    return count(ordered, inputs, strategy, candidate.shape, offsets, nodes=layout, floor=floor)


def count_fastest(inputs, candidate, machine, *, floor=False):
    """Return the RankFootprint of a Candidate with the exchange that takes fewer seconds.

    If ranks share nodes and the setting `node_aware` is auto, these are the seconds with and
    without a node-aware exchange on the Machine.
    """
    nodes = machine.nodes(candidate.ranks)
    counted = count_candidate(inputs, candidate, floor=floor, nodes=nodes)
    if not counted.node_aware or inputs.config.node_aware != "auto":
        return counted
    direct = count_candidate(inputs, candidate, floor=floor, nodes=nodes, node_aware="never")
    return min(counted, direct, key=lambda footprint: sum(step_seconds(machine, footprint)))


def arranged(inputs, candidate, strategy):
    """Return the OrderedRows of a Candidate, and the offsets of its row blocks."""
    ordered = inputs.ordered
    if candidate.parts == "stored":
        return ordered, inputs.row_offsets(strategy, candidate.shape)
    if candidate.ranks in inputs.part_counts:
        size = inputs.part_counts[0] // candidate.ranks
        return ordered.merged(size), inputs.offsets[::size]
    if candidate.parts == "whole":
        return ordered, np.array([0, inputs.header.num_nodes])
    return inputs.divided(candidate.parts, candidate.ranks)


def count(ordered, inputs, strategy, shape, offsets, *, nodes=ONE_NODE, floor=False):
    """Return the RankFootprint of a strategy on divided OrderedRows.

    The rows are divided at `offsets`, (B + 1,). `nodes` is a NodeLayout. With `floor`
    lower bounds are enough, if they are found much faster.
    """
    layout = BlockLayout(np.asarray(offsets, np.int64), strategy.block_grid(shape)[1], 0)
    links, pulled = None, None
    if inputs.links:
        links = inputs.links.sizes(ordered.vertex, layout.offsets)
        pulled = inputs.links.last_table(ordered.vertex, layout.offsets)
    rank_grid = RankGrid(shape, layout, strategy.own_options(inputs.strategy_options, HOST),
                         nodes)
    plan = strategy.Plan.floor(ordered.pattern, rank_grid) if floor else None
    if plan is None:
        levels = [*ordered.train, *ordered.evaluated] if strategy.supports_pruning else []
        levels.append(ordered.within)
        fewer = any(level is not None for level in levels)
        several = ordered.evaluation is not None
        if strategy.Plan.needs_order and (fewer or several or nodes.aware):
            ordered = ordered.in_order()
        plan = strategy.Plan.of(ordered.pattern, rank_grid)
    train, evaluated = ordered.train, ordered.evaluated
    if not strategy.supports_pruning:
        train = evaluated = [None] * len(train)

    # the plan of the graph that training vertices induce
    training, of_training = plan, train
    if ordered.within is not None:
        inner = ordered.of_training
        training = strategy.Plan.of(inner.pattern, replace(
            rank_grid, layout=layout.restricted(ordered.within)))
        of_training = inner.train if strategy.supports_pruning else train
    if ordered.evaluation is not None:
        plan = strategy.Plan.of(ordered.evaluation, rank_grid)

    def plans(plan, levels):
        return [None if inputs.spec.precomputed and hop == 0
                else plan.plan_for_product(hop).restrict(rows_out, rows_in)
                for hop, (rows_in, rows_out) in enumerate(pairwise(levels))]

    pointers = None
    if ordered.feature_entries is not None:
        entries = ordered.feature_entries
        pointers = run_offsets(entries if plan.vertices is None else entries[plan.vertices])
    # products that dropout masks
    config = inputs.config
    spec = replace(inputs.spec, masked=masked_layers(
        inputs.spec, config.masked_products, strategy.mask_slices(shape),
        inputs.header.row_entries,
        on_gpu=config.device == "cuda" and not config.aggregates_on_host))

    products = products_of(inputs.spec)[0]
    views = [LevelSizes.of(levels, plan.layout, pointers, products)
             for levels in (train, evaluated)]
    entries = np.repeat(np.diff(ordered.stored_before(layout.offsets)), layout.columns)
    return RankFootprint(spec, plan.layout, *views, inputs.steps, plan, training,
                         plans(training, of_training), plans(plan, evaluated), entries,
                         inputs.locality, strategy.name, links, pulled)
