"""Choice of the partition that a run makes first.

Its effort must pay for the epochs of the run. The choice follows from sizes and epochs
alone, never from a clock. So the same command makes the same parts.
"""
from collections import namedtuple
from itertools import pairwise

import numpy as np

from hpgcn.config import Config
from hpgcn.errors import setting
from hpgcn.model import find_model, find_widths
from hpgcn.partition import METHODS
from hpgcn.partition.effort import DEFAULT, FAST, paying_effort

# Seconds of an operation on one core of the machine that `partition.effort` describes
ENTRY = 0.4e-9  # a nonzero times one column of H
MULTIPLY_ADD = 0.07e-9  # a multiplication and addition in a dense product

# the method and effort of a partition, and why they were chosen
Preparation = namedtuple("Preparation", "method effort reason")


def epoch_seconds(nonzeros, rows, widths, ranks):
    """Return the seconds that an epoch takes at least, on ranks of one core each.

    A layer multiplies by A and by W forward, and twice by W and once by A backward.
    """
    pairs = list(pairwise(widths))
    sparse = 2 * nonzeros * sum(map(min, pairs))
    dense = 3 * rows * sum(fan_in * fan_out for fan_in, fan_out in pairs)
    return (ENTRY * sparse + MULTIPLY_ADD * dense) / ranks


def choose_preparation(header, sizes, method, ranks, config):
    """Return the Preparation of a run on an unpartitioned source.

    It depends on the number of epochs. Parts are blocks of rows if no effort
    pays (`hpgcn.partition.effort.paying_effort`).

    Parameters
    ----------
    header : hpgcn.graphs.graph.Header
    sizes : (n,) numbers
        Result of `partition.effort.column_sizes`.
    method : str
        Method of the strategy. It is kept, unless no effort pays: then parts are blocks
        of rows, which take no time and compile no kernels.
    ranks : int
    config : hpgcn.Config
        The settings. An effort other than the default is never changed.
    """
    epochs, effort = config.epochs, config.effort
    if not METHODS[method].effort:
        return Preparation(method, DEFAULT, "")
    if effort != Config.effort:
        return Preparation(method, effort, setting("effort", effort))

    # seconds of the training
    widths = find_widths(config, find_model(config), max(1, header.num_features + config.embedding),
                         max(1, header.num_outputs))
    training = epochs * epoch_seconds(int(np.sum(sizes)), header.num_nodes, widths, ranks)

    # the method and its effort
    holders = METHODS[method].holders
    effort, seconds = paying_effort(sizes, ranks, training, holders=holders)
    if effort is None:
        method, effort = "block", FAST
    reason = (f"about {seconds:.2g} s for {epochs} epochs of about "
              f"{training / epochs:.2g} s; {setting('effort')} asks for other parts")
    return Preparation(method, effort, reason)
