"""Choice of the partition that a run makes first: one that pays for the epochs it serves.

It follows from sizes and epochs alone, never from a clock. So the same command makes the
same parts.
"""
from collections import namedtuple
from itertools import pairwise

import numpy as np

from hpgcn.config import Config
from hpgcn.errors import setting
from hpgcn.model import ModelOptions, find_model, find_widths
from hpgcn.partition import NONZERO_METHODS
from hpgcn.partition.effort import DEFAULT, FAST, SHARE, paying_effort
from hpgcn.partition.method_table import WITHOUT_EFFORT

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


def choose_preparation(source, method, ranks, config):
    """Return the Preparation of a run on an unpartitioned source, by the epochs of its
    Config.

    Parameters
    ----------
    source : hpgcn.graphs.graph_source.GraphSource
    method : str
        Method of the strategy. It is kept, unless no effort pays: then parts are blocks
        of rows, which take no time. An effort of the Config is kept in any case.
    ranks : int
    config : hpgcn.Config
    """
    if method in WITHOUT_EFFORT:
        return Preparation(method, DEFAULT, "")
    if config.effort != Config.effort:
        return Preparation(method, config.effort, setting("effort", config.effort))

    # seconds of the training
    header = source.header
    degrees = source.degrees()
    sizes = degrees["column"] + (degrees["loop"] == 0)
    options = config.select(ModelOptions)
    widths = find_widths(options, find_model(options), max(1, header.num_features),
                         max(1, header.num_classes))
    training = config.epochs * epoch_seconds(int(np.sum(sizes)), header.num_nodes, widths, ranks)

    # the method and its effort
    holders = method in NONZERO_METHODS
    effort, seconds = paying_effort(sizes, ranks, training, holders=holders)
    if seconds > max(1.0, SHARE * training):
        method, effort, seconds = "block", FAST, 0.0
    reason = (f"about {seconds:.2g} s for {config.epochs} epochs of about "
              f"{training / config.epochs:.2g} s; {setting('effort')} asks for other parts")
    return Preparation(method, effort, reason)
