"""Batches of parts of a partition, drawn uniformly: --batch parts:Q, parts:Q:K or parts:Q:FILE.

A step trains on the matrix that the vertices of Q parts induce (Chiang et al. 2019,
Cluster-GCN, section 3.2), with degrees of the whole graph. Its entries are not
rescaled, although products are then biased. Most neighbors are in the own part. A
factor (K - 1) / (Q - 1) on the few entries between two parts makes them so noisy that
models learn less. The parts are those of the training file, K that are made for the
purpose, or those of another partitioned file of the same graph.
"""
from __future__ import annotations

import re

from hpgcn.sampling.batch_request import BatchRequest, positive
from hpgcn.sampling.sampler import Sampler


class PartSampler(Sampler):
    """Sampler of parts of a partition. A unit is a part."""

    name = "parts"
    stream = 2
    forms = "Q", "Q:K", "Q:FILE"
    example = "8:100"
    samples_parts = True

    @classmethod
    def parse(cls, words: list[str]) -> BatchRequest:
        size, *made = words
        parts = ":".join(made)  # a path may have colons
        if made and not parts:
            raise ValueError("a colon at the end")
        if re.fullmatch("[0-9]+", parts):
            parts = str(positive(parts))
        return BatchRequest(cls.name, positive(size), parts)

    def factor(self, batch: int) -> float:
        # Entries between parts stay as they are.
        return 1.0
