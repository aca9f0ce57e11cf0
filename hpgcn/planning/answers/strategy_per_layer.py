"""Choose the strategy with the least forecast seconds separately for each layer.

Candidates are the strategies that keep rows whole. On the same parts they store H and G
alike, and a switch between them costs nothing.
"""
import math
from itertools import accumulate, pairwise

import numpy as np

from hpgcn.config import Config
from hpgcn.model import products_of
from hpgcn.planning.answers.candidates import Candidate, arranged, count
from hpgcn.planning.seconds.step_seconds import product_seconds
from hpgcn.strategies import STRATEGIES, keeps_rows, per_layer

# settings that want one strategy, by its name
NAMING = ("grid", "replication", "delay", "delay_variant", "batch")


def of_layers(inputs, known, machine, limits=()):
    """Choose a strategy for each layer, all on the same parts.

    Each layer gets the strategy with the least seconds for its products with A, forward
    and backward, on the slowest rank. Ties go to the strategy that sends least, further
    ties to the first in STRATEGIES. A layer whose only product is computed in advance
    gets the strategy of the next layer.

    Parameters
    ----------
    known : dict
        Candidates on these parts, at least one, and what was counted of them, their
        RankFootprints.
    limits : types of Strategy
        A layer takes none that sends more bytes than one of these would.

    Returns
    -------
    (Candidate, RankFootprint), or None
        None where all layers take the same strategy.
    """
    # group the products with A by layer; stop if there is nothing to choose
    spec = inputs.spec
    groups = [range(*ends) for ends in pairwise(accumulate(products_of(spec), initial=0))
              if ends[0] < ends[1]]
    candidate = next(iter(known))
    if len(groups) - spec.precomputed < 2 or candidate.ranks == 1:
        return None
    if any(getattr(inputs.config, name) != getattr(Config, name) for name in NAMING):
        return None

    # count each strategy once, and price its products layer by layer
    ordered, offsets = arranged(inputs, candidate, STRATEGIES[candidate.strategy])
    costs_by_layer = [[] for _ in groups]  # for each layer: (seconds, bytes, kind) of each strategy
    counted = {candidate.strategy: footprint for candidate, footprint in known.items()}
    for kind in _able(inputs, ordered):
        footprint = counted.get(kind.name)
        if footprint is None:
            shape = kind.default_shape(candidate.ranks)
            footprint = count(ordered, inputs, kind, shape, offsets)
        for group, costs in zip(groups, costs_by_layer):
            products = [product for product in footprint.products if product.layer in group]
            heads = [product.heads for product in products]
            if products and not kind.unsupported_reason(heads, candidate.ranks):
                costs.append((*_cost(machine, footprint, products), kind))

    # choose the fastest strategy for each layer
    if not costs_by_layer[0]:
        costs_by_layer[0] = costs_by_layer[1]
    chosen = [min(_within(costs, limits), key=lambda cost: cost[:2])[-1]
              for costs in costs_by_layer]
    if len(set(chosen)) == 1:
        return None

    # count the mixture
    strategy = per_layer(*(kind for kind, group in zip(chosen, groups) for _ in group))
    shape = (candidate.ranks,)
    made = Candidate(strategy.name, candidate.parts, candidate.ranks, shape)
    return made, count(ordered, inputs, strategy, shape, offsets)


def _able(inputs, ordered):
    """Return the strategies that can share a layout; those by nonzero owners only if
    the pattern has owners.
    """
    return [kind for kind in STRATEGIES.values() if keeps_rows(kind)
            and (kind.supports_bf16 or not inputs.spec.halved)
            and (not kind.accepts_nonzero_owners or ordered.pattern.holders is not None)]


def _cost(machine, footprint, products):
    """Return the seconds of some products on the slowest rank, and the bytes that all
    ranks send in them.
    """
    seconds = sum(product_seconds(machine, footprint, each) for each in products)
    itemsize = footprint.spec.row_itemsize
    sent = sum(int(footprint.train_plans[each.layer].traffic.counts(each, itemsize)[0].sum())
               for each in products)
    return float(np.max(seconds)), sent


def _within(costs, limits):
    """Return the costs whose bytes do not exceed those of any strategy in `limits`."""
    limit = min((sent for _, sent, kind in costs if kind in limits), default=math.inf)
    return [cost for cost in costs if cost[1] <= limit]
