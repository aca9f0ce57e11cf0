"""Strategies to compute A H in parallel, one per file.

The results of exact strategies differ only by rounding.

A strategy derives from Strategy, or from RowStrategy, and has a Plan class. STRATEGIES
maps the names that --strategy accepts to these classes; the rest of the package uses
nothing else.
"""
from __future__ import annotations

from dataclasses import replace

from hpgcn.config import Config
from hpgcn.errors import UsageError, assigned, only_for, setting, suggestion
from hpgcn.setting_words import OF_STRATEGY, word_value
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
from hpgcn.strategies.strategy import Strategy, StrategyOptions
from hpgcn.strategies.vertex_cut import VertexCut

STRATEGIES = {each.name: each for each in (
    PointToPoint, Cover, VertexCut, OneD, OneAndAHalfD, TwoD, ThreeD, MixtureOfParallelism)}
DELAYED = {"": DelayedVertexCut, "paper": PaperVertexCut}  # by the word before the steps of `delay`
AUTO = Config.strategy  # the default: chosen once ranks and parts are known
AUTO_PER_LAYER = "auto-per-layer"  # chosen for each layer
CHOOSING = (AUTO, AUTO_PER_LAYER)
OF_CONFIG = "delay", "aggregate_on", "update_on"  # settings that only some strategies read


def read_options(config: Config) -> StrategyOptions:
    """Return the StrategyOptions of a Config; UsageError for a word of no strategy."""
    names, words = [], {}
    for part in config.strategy.split(BETWEEN):
        name, *given = part.split(":")
        names.append(name)
        for text in given:
            key, _, word = text.rpartition("=")
            key = key or _word(name)
            if key not in OF_STRATEGY:
                if name not in CHOOSING:
                    strategy_by_name(name)
                takers = [each for each, strategy in STRATEGIES.items() if strategy.word]
                raise UsageError(f"{assigned('strategy', config.strategy)}: a word is "
                                 f"{only_for('strategy', takers)}, not {name}")
            words[key] = word_value(key, word, config.strategy)
    return StrategyOptions(config, BETWEEN.join(names), **words)


def strategy_setting(name: str, options: StrategyOptions) -> str:
    """Return the setting `strategy`: names, with the words of StrategyOptions.

    For a name in CHOOSING the text has all words, each with its own name.
    """
    changed = {word: value for word in OF_STRATEGY
               if (value := getattr(options, word)) != getattr(StrategyOptions, word)}
    if name in CHOOSING:
        return ":".join([name, *(f"{word}={value}" for word, value in changed.items())])
    return BETWEEN.join(f"{part}:{changed[_word(part)]}" if _word(part) in changed else part
                        for part in name.split(BETWEEN))


def _word(name: str) -> str:
    return STRATEGIES[name].word if name in STRATEGIES else ""


def without_grid(config: Config) -> str:
    """Return the setting `strategy` of a Config for any number of ranks."""
    options = replace(read_options(config), grid="", replication=0)
    return strategy_setting(options.strategy, options)


def find_strategy(options: StrategyOptions) -> type[Strategy]:
    """Return the strategy class that StrategyOptions name.

    For a name in CHOOSING, such as "auto", it is the first of STRATEGIES. Raise a
    UsageError if the name is unknown, or if a setting belongs to another strategy.
    """
    name = next(iter(STRATEGIES)) if options.strategy in CHOOSING else options.strategy
    strategy = strategy_by_name(name)
    places = [(options.config, name) for name in OF_CONFIG]
    places += [(options, word) for word in OF_STRATEGY]
    for place, field in places:
        value = getattr(place, field)
        ignored = field == "pipeline_batches"  # earlier versions took it with every strategy
        if value != getattr(type(place), field) and field not in strategy.options and not ignored:
            takers = strategies_that_read(field)
            raise UsageError(f"{assigned(field, value)}: {only_for('strategy', takers)}; add "
                             f"{setting('strategy', takers[0])}")
    return variant(strategy, options.config)


def strategies_that_read(field: str) -> list[str]:
    """Return the names of the strategies that read a setting."""
    return [name for name, strategy in STRATEGIES.items() if field in strategy.options]


def strategy_by_name(name: str) -> type[Strategy]:
    """Return the strategy class for a name.

    The name is a key of STRATEGIES, or several keys joined by +, one for each product
    with A, in order. Raise a UsageError if it is unknown.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    names = name.split(BETWEEN)
    able = [part for part, strategy in STRATEGIES.items() if keeps_rows(strategy)]
    if len(names) == 1:
        words = ", ".join((AUTO, *STRATEGIES, AUTO_PER_LAYER))
        raise UsageError(f"{assigned('strategy', name)}: expected one of {words}, or one for each "
                         f"product with A, such as {BETWEEN.join((able[-1], able[0]))}"
                         f"{suggestion(name, STRATEGIES)}")
    for part in names:
        if part not in STRATEGIES:
            empty = "a name is missing before or after +" if not part else f"{part!r} is unknown"
            raise UsageError(f"{assigned('strategy', name)}: {empty}{suggestion(part, able)}; "
                             f"expected some of {', '.join(able)}, joined by +")
        if part not in able:
            raise UsageError(f"{assigned('strategy', name)}: {part!r} divides rows, expected "
                             f"strategies that keep rows whole: {', '.join(able)}")
    return per_layer(*(STRATEGIES[part] for part in names))


def variant(strategy: type[Strategy], config: Config) -> type[Strategy]:
    """Return the class of a strategy under the setting `delay` of a Config.

    A vertex cut with a delay has a class of its own. Raise a UsageError if it excludes
    another setting.
    """
    delayed = strategy is VertexCut and config.delay != Config.delay
    for name in ("training_graph", "embedding") * delayed:
        value = getattr(config, name)
        if value != getattr(Config, name):
            raise UsageError(f"{setting(name, value)}: excludes {setting('delay', config.delay)}, "
                             f"which keeps rows of the whole graph; remove {setting('delay')}")
    return DELAYED[config.delay.rpartition(":")[0]] if delayed else strategy


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
    "read_options",
    "strategies_that_read",
    "strategy_by_name",
    "strategy_setting",
    "variant",
    "without_grid",
]
