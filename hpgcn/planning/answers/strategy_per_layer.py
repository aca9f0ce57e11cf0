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
from hpgcn.planning.seconds.step_seconds import other_seconds, product_seconds
from hpgcn.strategies import STRATEGIES, keeps_rows, per_layer

ALIKE = 1.02  # factor between seconds of a step that are not worth the count of a cover
# settings that want one strategy
NEED_ONE = ("delay", "batch")


def of_layers(inputs, footprints, machine, limits=(), *, floor=False):
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
    floor : bool
        Lower bounds are enough, if they are found much faster.

    Returns
    -------
    (Candidate, RankFootprint), None or float
        None where all layers take the same strategy. A number if the choice depends on
        lower bounds: no mixture takes fewer seconds.
    """
    # group the products with A by layer; stop if there is nothing to choose
    spec = inputs.spec
    groups = [range(*ends) for ends in pairwise(accumulate(products_of(spec), initial=0))
              if ends[0] < ends[1]]
    candidate = next(iter(footprints))
    if len(groups) - spec.precomputed < 2 or candidate.ranks == 1:
        return None
    options = inputs.strategy_options
    needs_one = any(getattr(inputs.config, name) != getattr(Config, name) for name in NEED_ONE)
    if needs_one or options.grid or options.replication:
        return None

    # count each strategy once
    ordered, offsets = arranged(inputs, candidate, STRATEGIES[candidate.strategy])
    counted = {candidate.strategy: footprint for candidate, footprint in footprints.items()}
    kinds = _combinable(inputs, ordered)

    for kind in kinds:
        if kind.name not in counted:
            shape = kind.default_shape(candidate.ranks)
            counted[kind.name] = count(ordered, inputs, kind, shape, offsets, floor=floor)

    # choose the fastest strategy for each layer
    costs_by_layer = _costs_by_layer(machine, kinds, counted, groups, candidate.ranks)
    chosen = [_fastest(costs, limits) for costs in costs_by_layer]
    if any(counted[kind.name].plan.is_floor for *_, kind in chosen):
        # the slowest rank takes no less than the mean; the rest of a step depends on masks only
        means = _costs_by_layer(machine, kinds, counted, groups, candidate.ranks, np.mean)
        own = slice(int(spec.precomputed and len(groups[0]) == 1), None)
        others = min(other_seconds(machine, footprint) for footprint in counted.values())
        least = others + sum(min(seconds for seconds, *_ in costs) for costs in means[own])

        # strategies that are counted, unless lower bounds are far lower
        chosen = [_fastest([cost for cost in costs if not counted[cost[-1].name].plan.is_floor],
                           limits) for costs in costs_by_layer]
        if others + sum(seconds for seconds, *_ in chosen[own]) > ALIKE * least:
            return least
    chosen = [kind for *_, kind in chosen]
    if len(set(chosen)) == 1:
        return None

    # count the mixture
    strategy = per_layer(*(kind for kind, group in zip(chosen, groups) for _ in group))
    shape = (candidate.ranks,)
    mixture = Candidate(strategy.name, candidate.parts, candidate.ranks, shape)
    return mixture, count(ordered, inputs, strategy, shape, offsets)


def _costs_by_layer(machine, kinds, counted, groups, ranks, over_ranks=np.max):
    """Return for each layer a list of (seconds, bytes, strategy).

    Both numbers are those of the products with A in `groups`.
    """
    costs_by_layer = [[] for _ in groups]
    for kind in kinds:
        footprint = counted[kind.name]
        combine = np.mean if footprint.plan.is_floor else over_ranks
        for group, costs in zip(groups, costs_by_layer):
            products = [product for product in footprint.products if product.layer in group]
            heads = [product.heads for product in products]
            edges = any(product.edge_width for product in products)
            if products and not kind.unsupported_reason(heads, ranks, edges):
                costs.append((*_cost(machine, footprint, products, combine), kind))
    if not costs_by_layer[0]:
        costs_by_layer[0] = costs_by_layer[1]
    return costs_by_layer


def _combinable(inputs, ordered):
    """Return the strategies that can share a layout.

    Strategies by holders of nonzeros are among them only if the pattern has holders.
    """
    return [kind for kind in STRATEGIES.values() if keeps_rows(kind)
            and (kind.supports_bf16 or not inputs.spec.halved)
            and (not kind.accepts_nonzero_owners or ordered.pattern.holders is not None)]


def _cost(machine, footprint, products, combine):
    """Return the seconds of some products, and the bytes sent in them.

    Seconds are combined over ranks by a function such as np.max, bytes are of all
    ranks.
    """
    seconds = sum(product_seconds(machine, footprint, each) for each in products)
    itemsize = footprint.spec.row_itemsize
    sent = sum(int(footprint.train_plans[each.layer].traffic.counts(each, itemsize)[0].sum())
               for each in products)
    return float(combine(seconds)), sent


def _fastest(costs, limits):
    """Return the least cost whose bytes do not exceed those of any strategy in `limits`."""
    limit = min((sent for _, sent, kind in costs if kind in limits), default=math.inf)
    return min((cost for cost in costs if cost[1] <= limit), key=lambda cost: cost[:2])
