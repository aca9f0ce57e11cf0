"""Ways of computing A H in parallel: one file each. They change nothing but rounding.

A strategy derives from Strategy, or from RowStrategy, and has its Plan beside it; STRATEGIES holds
them by the name that --strategy takes, and is all that the rest of the package asks.
"""
from __future__ import annotations

from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.strategies.cover import Cover
from hpgcn.strategies.delayed import DelayedVertexCut
from hpgcn.strategies.mop import MixtureOfParallelism
from hpgcn.strategies.one_d import OneAndAHalfD, OneD
from hpgcn.strategies.p2p import PointToPoint
from hpgcn.strategies.plan import Arrangement, Operand, Plan, Product
from hpgcn.strategies.rows import RowPlan, RowProduct, RowStrategy
from hpgcn.strategies.strategy import Strategy, check_options
from hpgcn.strategies.summa import ThreeD, TwoD
from hpgcn.strategies.vertex_cut import VertexCut

STRATEGIES = {each.name: each for each in (
    PointToPoint, Cover, VertexCut, OneD, OneAndAHalfD, TwoD, ThreeD, MixtureOfParallelism)}
AUTO = Config.strategy  # the default: chosen once ranks and parts are known


def find_strategy(config):
    """Return the strategy that the settings name; of AUTO the one that a single rank takes.

    UsageError: there is none of this name, or a setting is another strategy's.
    """
    if config.strategy not in (AUTO, *STRATEGIES):
        raise UsageError(
            f"strategy = {config.strategy!r}: expected one of {', '.join((AUTO, *STRATEGIES))}")
    strategy = STRATEGIES[next(iter(STRATEGIES)) if config.strategy == AUTO else config.strategy]
    check_options(strategy, config)
    return variant(strategy, config)


def variant(strategy, config):
    """Return what a strategy becomes by the settings: with a delay a vertex cut is another."""
    delayed = strategy is VertexCut and config.delay != Config.delay
    return DelayedVertexCut if delayed else strategy


__all__ = ["AUTO", "STRATEGIES", "Arrangement", "Operand", "Plan", "Product", "RowPlan",
           "RowProduct", "RowStrategy", "Strategy", "find_strategy", "variant"]
