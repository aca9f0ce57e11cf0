"""A strategy for each product with A, such as `mop+p2p`.

H and G have row blocks with all columns, in one BlockLayout for all strategies. So the
result of one layer is the input of the next one, and a switch between strategies sends
nothing. A forward product and its backward use the same strategy. Each strategy in use
has its own blocks of A and its own buffers; layers of the same strategy share them.

Source: none. Layers differ by the rows that later layers read, and by attention: not
every number of ranks can share its heads.
"""
from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Self

import numpy as np

from hpgcn.strategies.plan import Plan, RankGrid, Traffic
from hpgcn.strategies.strategy import Strategy

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.graph_source import AdjacencySource
    from hpgcn.graphs.normalization import NormalizedAdjacency
    from hpgcn.parallel.layout import BlockLayout
    from hpgcn.parallel.pattern import Pattern
    from hpgcn.runtime.device import Host
    from hpgcn.strategies.plan import Operand, Product
    from hpgcn.strategies.strategy import StrategyOptions

BETWEEN = "+"  # names of strategies in that of the whole


def keeps_rows(strategy: type[Strategy]) -> bool:
    """Return whether a strategy leaves all columns of a row with one rank, on every grid."""
    axes = len(strategy.axes.split("x"))
    return strategy.block_grid((2,) * axes)[1] == 1


class PerLayerTraffic(Traffic):
    """Layout that several strategies share.

    The Traffic of each strategy counts its own products.
    """

    kinds: tuple[type[Strategy], ...]  # class for each product with A

    @classmethod
    def columns(cls, product: Product) -> int:
        # All buffers have the largest width.
        return max(kind.Plan.Traffic.columns(product) for kind in cls.kinds)


class PerLayerPlan(Plan):
    """The plans of several strategies on one layout; `plan_for_product` returns one of them."""

    kinds: tuple[type[Strategy], ...]  # class for each product with A

    def __init__(self, pattern: Pattern, rank_grid: RankGrid) -> None:
        super().__init__(pattern, rank_grid)
        self.plans = {kind: kind.Plan.of(pattern, own_grid(kind, rank_grid))
                      for kind in dict.fromkeys(self.kinds)}

    def plan_for_product(self, number: int) -> Plan:
        return self.plans[self.kinds[number]]

    @property
    def stored_operands(self) -> list[Operand]:
        # The operands of each strategy.
        return [operand for plan in self.plans.values() for operand in plan.stored_operands]

    def buffer_bytes(self, width: int, itemsize: int) -> np.ndarray:
        # Strategies share no buffers.
        return sum(plan.buffer_bytes(width, itemsize) for plan in self.plans.values())

    def reduced_bytes(self, width: int, itemsize: int) -> np.ndarray:
        # Products run one after the other.
        return np.maximum.reduce([plan.reduced_bytes(width, itemsize)
                                  for plan in self.plans.values()])

    def read_peak_bytes(self, itemsize: int) -> np.ndarray:
        # Strategies read one after the other; the operands of earlier ones stay.
        kept = most = np.zeros(self.num_ranks, np.int64)
        for plan in self.plans.values():
            most = np.maximum(most, kept + plan.read_peak_bytes(itemsize))
            kept = kept + sum(plan.kept_bytes(itemsize))
        return most

    def restrict_bytes(self, itemsize: int) -> np.ndarray:
        # Cut the maps one by one.
        return np.maximum.reduce([plan.restrict_bytes(itemsize) for plan in self.plans.values()])


class PerLayer(Strategy):
    """The maps of several strategies on one layout; `map_for_product` returns one of them."""

    kinds: tuple[type[Strategy], ...]  # class for each product with A
    Plan: type[PerLayerPlan]

    def __init__(self, layout: BlockLayout, comm: SerialComm, maps: dict) -> None:
        self.layout = self.layout_in = layout
        self.comm = comm
        self.maps = maps

    @classmethod
    def own_options(cls, options: StrategyOptions, device: Host) -> dict:
        # The options of each strategy, by its name.
        return {kind.name: kind.own_options(options, device) for kind in cls.kinds}

    @classmethod
    def mask_slices(cls, shape: tuple[int, ...]) -> int:
        # Columns are divided by one strategy at most; a sum over ranks excludes masks.
        slices = [kind.mask_slices(shape) for kind in cls.kinds]
        return max(slices) if all(slices) else 0

    @classmethod
    def unsupported_reason(cls, heads: list[int], ranks: int, edges: bool = False) -> str:
        # Query each strategy about its own products only.
        if len(heads) != len(cls.kinds):
            return (f"it names strategies for {len(cls.kinds)} products with A, but the model has "
                    f"{len(heads)}")
        reasons = [kind.unsupported_reason([count], ranks, edges)
                   for kind, count in zip(cls.kinds, heads)]
        return next(filter(None, reasons), "")

    @classmethod
    def build(cls, adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm, *,
              width: int = 0) -> Self:
        maps = {kind: kind.build(adjacency, own_grid(kind, rank_grid), comm, width=width)
                for kind in dict.fromkeys(cls.kinds)}
        return cls(rank_grid.layout, comm, maps)

    def map_for_product(self, number: int) -> Strategy:
        return self.maps[self.kinds[number]]

    def read_edge_features(self, source: AdjacencySource, dtype: DTypeLike) -> None:
        for each in self.maps.values():
            each.read_edge_features(source, dtype)

    @property
    def buffer_bytes(self) -> int:
        return sum(each.buffer_bytes for each in self.maps.values())

    def reserve(self, width: int) -> None:
        for each in self.maps.values():
            each.reserve(width)

    def close(self) -> None:
        for each in self.maps.values():
            each.close()


def own_grid(kind: type[Strategy], rank_grid: RankGrid) -> RankGrid:
    """Return the RankGrid of one strategy: its default grid on the same layout."""
    options = rank_grid.options[kind.name]
    layout = rank_grid.layout
    return RankGrid(kind.default_shape(layout.size), layout, options, rank_grid.nodes)


@cache
def per_layer(*kinds: type[Strategy]) -> type[Strategy]:
    """Return a Strategy class with a strategy for each product with A.

    Product i is computed by the class kinds[i].
    """
    # parts with holders of nonzeros also serve strategies that need only owners of rows
    taker = next((kind for kind in kinds if kind.accepts_nonzero_owners), Strategy)
    traffic = type("PerLayerTraffic", (PerLayerTraffic,), {"kinds": kinds})
    ordered = any(kind.Plan.needs_order for kind in kinds)
    plan = {"kinds": kinds, "Traffic": traffic, "needs_order": ordered}
    about = {"kinds": kinds, "name": BETWEEN.join(kind.name for kind in kinds),
             "Plan": type("PerLayerPlan", (PerLayerPlan,), plan),
             "method": taker.method,
             "options": ("balance",) * any("balance" in kind.options for kind in kinds)}
    for name in ("accepts_partition", "requires_partition", "accepts_nonzero_owners"):
        about[name] = any(getattr(kind, name) for kind in kinds)
    for name in ("supports_pruning", "supports_bf16"):
        about[name] = all(getattr(kind, name) for kind in kinds)
    return type("PerLayer", (PerLayer,), about)
