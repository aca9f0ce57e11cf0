"""What a training step will send, computed from numbers known before it runs (pure).

Bytes are the payload that ranks contribute to OTHER ranks, whatever MPI's algorithm; an allreduce of m bytes over P
ranks counts 2 m (P - 1) / P a rank. A message is one non-empty (source, destination) pair of a call; an allreduce
counts 2 (P - 1) a rank. Scalars (losses, counts, times) are not counted.
"""
from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Traffic:
    """Payload bytes and messages, by what they are for."""

    aggregation_bytes: int = 0
    aggregation_messages: int = 0
    weights_bytes: int = 0
    weights_messages: int = 0

    @property
    def bytes(self):
        """All payload bytes."""
        return self.aggregation_bytes + self.weights_bytes

    @property
    def messages(self):
        """All messages."""
        return self.aggregation_messages + self.weights_messages


def aggregate_first(fan_in, fan_out, sparse=False):
    """Whether a layer multiplies by A before W: the narrower side is exchanged (mg-gcn-2021, section 4.4).

    Sparse input goes through W first, so that it stays sparse; at equal widths W goes first too.
    """
    return fan_in < fan_out and not sparse


def gcn_exchanges(widths, sparse_features=False, constant=False):
    """Widths of the products with A, then with A^T, of one training step of a GCN.

    Parameters
    ----------
    widths : sequence of L + 1 int
        Features, hidden widths, classes.
    sparse_features : bool
    constant : bool
        A X was formed once, before the first step: layer 1 multiplies by neither A nor A^T.

    Returns
    -------
    forward, backward : lists of int
        The first layer's backward multiplies by A^T only if W came first: its input needs no gradient.
    """
    forward, backward = [], []
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths)):
        if constant and layer == 0:
            continue
        first = aggregate_first(fan_in, fan_out, sparse_features and layer == 0)
        forward.append(fan_in if first else fan_out)
        if layer or not first:
            backward.append(forward[-1])
    return forward, backward


def num_parameters(widths):
    """Elements of all weights and biases of a GCN."""
    return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(widths))


def p2p_step(volume, pairs, widths, itemsize, ranks, *, sparse_features=False, constant=False):
    """Traffic of one training step over all ranks, strategy p2p.

    Parameters
    ----------
    volume : int
        Rows sent in one exchange, over all ranks (connectivity-1 of the partition).
    pairs : int
        Non-empty (source, destination) pairs of one exchange.
    widths : sequence of int
    itemsize : int
        Bytes of a number.
    ranks : int
        P.
    sparse_features, constant : bool
        As `gcn_exchanges`.
    """
    forward, backward = gcn_exchanges(widths, sparse_features, constant)
    parameters = num_parameters(widths) * itemsize
    return Traffic(
        volume * sum(forward + backward) * itemsize, pairs * len(forward + backward),
        2 * parameters * (ranks - 1), 2 * ranks * (ranks - 1))
