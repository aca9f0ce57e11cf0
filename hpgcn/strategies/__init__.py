"""Strategies to compute A H in parallel, one per file. Exact strategies differ only by
rounding.

A strategy derives from Strategy, or from RowStrategy, and has a Plan class. STRATEGIES
maps the names that --strategy accepts to these classes; the rest of the package uses
nothing else.
"""
from hpgcn.config import Config
from hpgcn.errors import UsageError, suggestion
from hpgcn.strategies.cover import Cover
from hpgcn.strategies.delayed import DelayedVertexCut
from hpgcn.strategies.delayed_paper import PaperVertexCut
from hpgcn.strategies.grids.summa import ThreeD, TwoD
from hpgcn.strategies.mixture.mop import MixtureOfParallelism
from hpgcn.strategies.one_d import OneAndAHalfD, OneD
from hpgcn.strategies.p2p import PointToPoint
from hpgcn.strategies.per_layer import BETWEEN, keeps_rows, per_layer
from hpgcn.strategies.plan import Operand, Plan, Product, RankGrid, Traffic
from hpgcn.strategies.rows import RowPlan, RowProduct, RowStrategy, RowTraffic
from hpgcn.strategies.strategy import Strategy, StrategyOptions, check_options
from hpgcn.strategies.vertex_cut import VertexCut

STRATEGIES = {each.name: each for each in (
    PointToPoint, Cover, VertexCut, OneD, OneAndAHalfD, TwoD, ThreeD, MixtureOfParallelism)}
DELAYED = {"own": DelayedVertexCut, "paper": PaperVertexCut}  # by `delay_variant`
AUTO = Config.strategy  # the default: chosen once ranks and parts are known
AUTO_PER_LAYER = "auto-per-layer"  # chosen for each layer
CHOOSING = (AUTO, AUTO_PER_LAYER)


def find_strategy(options):
    """Return the strategy class that StrategyOptions name. For a name in CHOOSING, such
    as "auto", return the first of STRATEGIES.

    Raise UsageError if the name is unknown, or a setting belongs to another strategy.
    """
    name = next(iter(STRATEGIES)) if options.strategy in CHOOSING else options.strategy
    strategy = strategy_by_name(name)
    check_options(strategy, options)
    return variant(strategy, options)


def strategy_by_name(name):
    """Return the strategy class for a name: a key of STRATEGIES, or several keys joined
    by +.

    Each of several keys names the strategy of one product with A, in order. Raise
    UsageError if the name is unknown.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    names = name.split(BETWEEN)
    able = [part for part, strategy in STRATEGIES.items() if keeps_rows(strategy)]
    if len(names) == 1:
        words = ", ".join((AUTO, *STRATEGIES, AUTO_PER_LAYER))
        raise UsageError(f"strategy = {name!r}: expected one of {words}, or one for each product "
                         f"with A, such as {BETWEEN.join((able[-1], able[0]))}"
                         f"{suggestion(name, STRATEGIES)}")
    for part in names:
        if part not in STRATEGIES:
            empty = "a name is missing before or after +" if not part else f"{part!r} is unknown"
            raise UsageError(f"strategy = {name!r}: {empty}{suggestion(part, able)}; expected some "
                             f"of {', '.join(able)}, joined by +")
        if part not in able:
            raise UsageError(f"strategy = {name!r}: {part!r} divides rows, expected strategies "
                             f"that keep rows whole: {', '.join(able)}")
    return per_layer(*(STRATEGIES[part] for part in names))


def variant(strategy, options):
    """Return the class of a strategy under the settings `delay` and `delay_variant`.

    A vertex cut with a delay has a class of its own. `options`: StrategyOptions, or a
    Config.
    """
    delayed = strategy is VertexCut and options.delay != Config.delay
    return DELAYED[options.delay_variant] if delayed else strategy


__all__ = [
    "AUTO",
    "AUTO_PER_LAYER",
    "CHOOSING",
    "STRATEGIES",
    "Operand",
    "Plan",
    "Product",
    "RankGrid",
    "RowPlan",
    "RowProduct",
    "RowStrategy",
    "RowTraffic",
    "Strategy",
    "StrategyOptions",
    "Traffic",
    "find_strategy",
    "keeps_rows",
    "per_layer",
    "strategy_by_name",
    "variant",
]
