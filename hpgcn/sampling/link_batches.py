"""Batches of training links, and the neighborhood of their vertices: --batch links:B.

A step scores B links and their negatives. It computes the rows of these vertices exactly, of all
their neighbors; with fan-outs, links:K,...,K:B, of K random neighbors a row, as the sampler
`neighbors`. The first K is of the last product with A.
"""
from __future__ import annotations

from hpgcn.sampling.batch_request import BatchRequest
from hpgcn.sampling.neighbors import ALL, NeighborSampler


class LinkSampler(NeighborSampler):
    """Sampler of training links. A unit is a link, numbered by its place in the file."""

    name = "links"
    stream = 5
    forms = "B", "K,...,K:B"
    example = "1024"
    smallest = "2"
    samples_links = True

    @classmethod
    def parse(cls, words: list[str]) -> BatchRequest:
        return super().parse(words if len(words) > 1 else [str(ALL), *words])
