"""Decide whether products send a row to each node once, by strategy and settings."""
import numpy as np

from hpgcn.config import Config
from hpgcn.model import MODELS, find_model
from hpgcn.parallel.layout import ONE_NODE, NodeLayout
from hpgcn.strategies import STRATEGIES


def exchange_setting(strategy, nodes: np.ndarray | None, node_aware: str, config) -> NodeLayout:
    """Return the NodeLayout of a run.

    `nodes`: (P,) integers, or None if unknown. `node_aware`: in place of the setting.
    """
    if nodes is None or not nodes.max():
        return ONE_NODE
    shared = int(np.bincount(nodes).max()) > 1 and node_aware != "never"
    return NodeLayout(nodes, shared and not unsupported_exchange(strategy, config))


def unsupported_exchange(strategy, config):
    """Return why products of a run cannot send a row to each node once.

    Return "" if they can.
    """
    if not strategy.supports_nodes:
        able = [name for name, each in STRATEGIES.items() if each.supports_nodes]
        if strategy.name in able:
            return f"does not apply to delayed sums of strategy {strategy.name}"
        return f"does not apply to strategy {strategy.name}, expected one of {', '.join(able)}"
    if config.batch != Config.batch:
        return "supports only full batches"
    if MODELS[find_model(config)].uses_attention and "attention" not in strategy.supports_nodes:
        return f"strategy {strategy.name} does not support it with attention"
    return ""
