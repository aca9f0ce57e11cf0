"""DistGNN's own delayed sums: `vertex-cut --delay paper:R`. Approximate.

This strategy differs from `hpgcn.strategies.delayed` in three ways:

    forward   a replica replaces its partial sum by the owner's total of 2r steps before
              (Algorithm 4, lines 19 and 20); `delayed` adds the sums of other copies
    backward  each rank multiplies by its own A_loc^T, and sends nothing: totals that
              arrived count as constants
    loss      it includes all copies: a split training vertex counts once for each

The paper describes the forward. The other two follow the authors' program.

Source: distgnn-2021, section 5.3, Algorithm 4.
"""
from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.parallel.replicas import DelayedTotal, with_replicas
from hpgcn.strategies.delayed import DelayedPlan, DelayedTraffic, DelayedVertexCut
from hpgcn.strategies.plan import Plan

if TYPE_CHECKING:
    from hpgcn.graphs.graph import Graph
    from hpgcn.kernels import Array
    from hpgcn.strategies.plan import Product
    from hpgcn.strategies.strategy import Strategy, StrategyOptions


class PaperTraffic(DelayedTraffic):
    """Traffic of the paper's variant: only forward products send messages."""

    def calls(self, product: Product, itemsize: int) -> Iterator:
        if not product.backward:
            yield from super().calls(product, itemsize)


class PaperPlan(DelayedPlan):
    """Plan of the paper's variant.

    Only messages of forward products are under way between steps.
    """

    Traffic = PaperTraffic

    def persistent_bytes(self, product: Product, itemsize: int) -> np.ndarray:
        if product.backward:
            return Plan.persistent_bytes(self, product, itemsize)
        return super().persistent_bytes(product, itemsize)


class PaperVertexCut(DelayedVertexCut):
    """Strategy `vertex-cut` with the delay of distgnn-2021, Algorithm 4."""

    Plan = PaperPlan

    @classmethod
    def title(cls, options: StrategyOptions) -> str:
        return f"{super().title(options)} paper"

    def replicate_slab(self, slab: Graph) -> Graph:
        # Replicas of training vertices have a loss of their own; evaluations count owners.
        replicated = super().replicate_slab(slab)
        if slab.masks is None:
            return replicated
        train = with_replicas(slab.masks["train"], self.replicas, self.comm)
        return dataclasses.replace(replicated, masks=replicated.masks | {"train": train})

    def training_map(self, *widths: int) -> Strategy:
        made = copy.copy(self)
        made.parent = self
        made.sums = [DelayedTotal(self.bins, widths[0], self.comm, self.workspace.dtype)
                     ] if self.delay else []
        self.trained.append(made)
        return made

    def backward(self, G: Array, *, mask: Array | None = None,
                 out: Array | None = None) -> Array:
        # Training multiplies by own nonzeros; other maps are exact.
        if self.parent:
            return self.multiply("back", G, mask=mask, out=out)
        return super().backward(G, mask=mask, out=out)
