"""Batches of training vertices, and some of their neighbors: --batch neighbors:K,...,K:B.

A step computes the logits of B training vertices. For each row that it needs, K entries
off the diagonal are drawn, and multiplied by degree / K. The first K of the setting is
of the last product with A. Draws are keyed by seed, epoch, product and ORIGINAL vertex;
-1 takes all entries. Source: Hamilton, Ying and Leskovec 2017 (GraphSAGE), section 3.1,
Algorithm 2.
"""
from __future__ import annotations

from hpgcn.sampling.batch_request import BatchRequest, positive
from hpgcn.sampling.sampler import Sampler

ALL = -1


class NeighborSampler(Sampler):
    """Sampler of training vertices and neighbors.

    A unit is a training vertex. Units are numbered in the order of ORIGINAL numbers.
    """

    name = "neighbors"
    stream = 3
    forms = "K,...,K:B",
    example = "15,10:1024"
    smallest = "1:2"
    induced = False

    @classmethod
    def parse(cls, words: list[str]) -> BatchRequest:
        drawn, size = words
        fan_outs = tuple(ALL if each == str(ALL) else positive(each) for each in drawn.split(","))
        return BatchRequest(cls.name, positive(size), fan_outs=fan_outs)

    def __init__(self, units: int, size: int, seed: int, fan_outs: tuple[int, ...]) -> None:
        super().__init__(units, size, seed)
        self.fan_outs = fan_outs  # fan-out of each product with A, the first product's first
