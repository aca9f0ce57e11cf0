"""Batches of vertices drawn uniformly, as the node sampler of GraphSAINT: --batch vertices:B.

A step trains on the matrix that its vertices induce. Degrees are those of the whole
graph. Entries off the diagonal are divided by (b - 1) / (n - 1), the chance that the
neighbor is in the batch of b vertices. Source: demirci-2022, section 4.3.3; Zeng et
al. 2020, section 3.2.
"""
from hpgcn.sampling.sampler import Sampler


class VertexSampler(Sampler):
    """Sampler of vertices. A unit is a vertex, numbered by its ORIGINAL number."""

    name = "vertices"
    stream = 1
