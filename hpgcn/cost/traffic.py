"""Bytes and messages: of all ranks together (Traffic), of each rank (Prediction), and of each collective call.

Definitions, whatever MPI does: broadcast of m bytes over q ranks, (q - 1) m at the root; allgather, (q - 1) times the
own block; reduce and reduce_scatter, all but the own block; alltoallv, what goes to others; allreduce of m bytes,
2 m (q - 1) over all q ranks and 2 (q - 1) messages a rank.
"""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

KINDS = ("aggregation", "dense", "weights")
PHASES = ("forward", "backward")


@dataclass(frozen=True)
class Traffic:
    """Payload bytes and messages over all ranks, by what they are for."""

    aggregation_bytes: int = 0
    aggregation_messages: int = 0
    weights_bytes: int = 0
    weights_messages: int = 0
    dense_bytes: int = 0
    dense_messages: int = 0

    @property
    def bytes(self):
        """All payload bytes."""
        return self.aggregation_bytes + self.weights_bytes + self.dense_bytes

    @property
    def messages(self):
        """All messages."""
        return self.aggregation_messages + self.weights_messages + self.dense_messages


@dataclass(frozen=True, eq=False)
class Prediction:
    """What each rank sends in one training step.

    Attributes
    ----------
    strategy : str
    grid : tuple of int
        As `default_grid` returns it; its product is P.
    bytes, messages : dict of (P,) int64
        Under (kind, phase): kind "aggregation" (products with A and A^T), "dense" (products with W and softmax where
        columns are divided), "weights" (gradients of weights and biases); phase "forward" or "backward".
        Sums over ranks are exact. Of an allreduce over q ranks, 2 m (q - 1) bytes in all, each rank counts
        the quotient by q, and the first ranks one more until the remainder is used up.
    """

    strategy: str
    grid: tuple[int, ...]
    bytes: dict = field(default_factory=dict)
    messages: dict = field(default_factory=dict)

    def __post_init__(self):
        for counts in (self.bytes, self.messages):
            for kind in KINDS:
                for phase in PHASES:
                    counts.setdefault((kind, phase), np.zeros(self.ranks, np.int64))

    @property
    def ranks(self):
        """Number of ranks (P)."""
        return int(np.prod(self.grid, dtype=np.int64))

    def add(self, kind, phase, counts):
        """Count a call: (bytes, messages), each of P elements in rank order."""
        for book, amount in zip((self.bytes, self.messages), counts):
            book[kind, phase] += np.asarray(amount, np.int64).reshape(-1)

    def rank_bytes(self):
        """Bytes that each rank sends, (P,) int64."""
        return sum(self.bytes.values())

    def rank_messages(self):
        """Messages that each rank sends, (P,) int64."""
        return sum(self.messages.values())

    def total_bytes(self):
        """Bytes sent by all ranks."""
        return int(self.rank_bytes().sum())

    def total_messages(self):
        """Messages sent by all ranks."""
        return int(self.rank_messages().sum())

    def max_bytes(self):
        """Bytes sent by the rank that sends most."""
        return int(self.rank_bytes().max())

    def traffic(self):
        """Totals over ranks and phases."""
        return Traffic(**{f"{kind}_{name}": int(sum(book[kind, phase].sum() for phase in PHASES))
                          for kind in KINDS for name, book in (("bytes", self.bytes), ("messages", self.messages))})


def replicate(own, axis):
    """Allgather, or each rank's own broadcast, along an axis of the grid.

    Parameters
    ----------
    own : int64 array, shaped like the grid of ranks
        Bytes of each rank's block.

    Returns
    -------
    bytes, messages : arrays shaped like `own`
    """
    others = own.shape[axis] - 1
    return own * others, (own > 0) * others


def reduce_scatter(own, axis):
    """Reduce_scatter along an axis, or a reduce to every rank in turn; `own`: bytes that each rank keeps."""
    full = own > 0
    return own.sum(axis, keepdims=True) - own, full.sum(axis, keepdims=True) - full


def allreduce(size, axis):
    """Allreduce along an axis; `size`: bytes, equal along the axis.

    The total over q ranks is 2 m (q - 1); the remainder of its division by q goes to the first ranks.
    """
    ranks = size.shape[axis]
    place = np.arange(ranks).reshape([-1 if axis % size.ndim == d else 1 for d in range(size.ndim)])
    quotient, remainder = np.divmod(2 * size * (ranks - 1), ranks)
    return quotient + (place < remainder), (size > 0) * (2 * (ranks - 1))
