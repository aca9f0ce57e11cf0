"""Correct the seconds of each strategy by factors that `hpgcn bench machine` has measured.

A factor is the seconds of a training step on a small generated graph over their
forecast: one for computing, one for messages. A strategy without factors has 1.
"""
from dataclasses import replace

import numpy as np

NODE_AWARE = " node-aware"
FACTORS = ("computing", "messages")  # names in a machine file


def factor_name(strategy, node_aware):
    """Return the name under which a machine file has the factors of a strategy."""
    return strategy + NODE_AWARE * bool(node_aware)


def corrected(machine, footprint):
    """Return the Machine with the factors of a RankFootprint's strategy in its own.

    A mixture such as mop+p2p takes the means of its strategies. One rank has no factors.
    """
    if footprint.rows.size == 1:
        return machine
    names = [factor_name(name, footprint.node_aware) for name in footprint.strategy.split("+")]
    found = [machine.steps[name] for name in names if name in machine.steps]
    if not found:
        return machine
    computing, messages = np.mean(found, 0)
    return replace(machine, steps={}, compute_factor=machine.compute_factor * float(computing),
                   communication_factor=machine.communication_factor * float(messages))
