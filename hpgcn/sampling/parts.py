"""Batches of parts of a partition, drawn uniformly: --batch parts:Q, parts:Q:K or parts:Q:FILE.

A step trains on the matrix that the vertices of Q parts induce (Chiang et al. 2019, Cluster-GCN,
section 3.2). The parts are those of the file that is trained on, K that are made for the purpose,
or those of another partitioned file of the same graph: the more parts than ranks, the better.
"""
from __future__ import annotations

from hpgcn.sampling.sampler import Sampler


class Parts(Sampler):
    """Each part is a unit."""

    name = "parts"
    stream = 2
    takes_parts = True
