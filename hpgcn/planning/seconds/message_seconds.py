"""Forecast the seconds of messages within nodes and between nodes, which are added.

The seconds of MPI's collectives follow from the critical path of their messages. A long
broadcast over q ranks is scattered along a tree and gathered in a ring; each rank
forwards 2 (q - 1) / q of the bytes. A short broadcast uses a binomial tree. MPI is assumed
to use the faster algorithm. Rules for what crosses nodes:

- rows and sums of products with A: as counted by pairs of ranks, if these are known.
  Those of a node-aware exchange are copied within a node, which reads and writes memory;
- other messages between pairs: spread evenly over the other ranks;
- collectives that MPI executes by itself: in two levels. One rank of each node takes
  part in the collective between nodes, so that each byte crosses to a node once. Then, or
  before, the ranks of each node have a collective of their own. An allreduce is a reduce
  within nodes, an allreduce between them and a broadcast within them.

Sources: Thakur, Rabenseifner and Gropp 2005; Chan, Heimlich, Purkayastha and van de
Geijn 2007.
"""
from dataclasses import dataclass, replace

import numpy as np

from hpgcn.parallel.counts import Collective

WITHIN = {"broadcast": ("broadcast",), "reduce": ("reduce",), "allreduce": ("reduce", "broadcast")}


def algorithms(kind, ranks):
    """Return (rounds, copies) of the algorithms that MPI may use for a collective.

    The critical path over `ranks` ranks consists of `rounds` messages in sequence,
    which together have `copies` times the bytes of the collective. `kind` is
    "broadcast", "reduce" or "allreduce".
    """
    depth = (ranks - 1).bit_length()  # messages from the root of a binomial tree to the last rank
    twice = 2 * (ranks - 1) / ranks  # the blocks of all other ranks, scattered and gathered
    rounds = {"broadcast": depth + ranks - 1,  # a tree, then a ring
              "reduce": 2 * depth, "allreduce": 2 * depth}  # halving, then a tree or doubling
    return (depth, depth), (rounds[kind], twice)


def collective_seconds(kind, ranks, sizes, latency_s, byte_s):
    """Return the seconds of collectives of `sizes` bytes, an array.

    A collective of 0 bytes takes 0 seconds.
    """
    if ranks == 1:
        return np.zeros(np.shape(sizes))
    found = [rounds * latency_s + copies * byte_s * np.asarray(sizes)
             for rounds, copies in algorithms(kind, ranks)]
    return np.where(np.asarray(sizes) > 0, np.minimum(*found), 0.0)


def measured_rate(kind, ranks, size, latency_s, seconds):
    """Return the bytes per second at which `collective_seconds` gives the measured seconds."""
    return max(1e-15, min(copies * size / max(seconds - rounds * latency_s, 1e-15)
                          for rounds, copies in algorithms(kind, ranks)))


@dataclass(frozen=True)
class Tier:
    """Rates of messages of one rank, within nodes or between them."""

    latency_s: float
    bytes_per_s: float
    collective_latency_s: float | None = None  # None: as of a message
    collective_bytes_per_s: float | None = None
    hidden: float = 0.0  # share of a message that passes while a rank computes

    def of_messages(self, sent, messages):
        """Return the seconds that ranks need to send `sent` bytes in `messages` messages."""
        return messages * self.latency_s + sent / self.bytes_per_s * (1 - self.hidden)

    def by_copies(self, memory_bytes_per_s):
        """Return the Tier of messages without content, whose rows are copied in memory."""
        return replace(self, bytes_per_s=memory_bytes_per_s / 2, hidden=0.0)

    def of_collectives(self, kind, ranks, sizes):
        """Return the seconds of collectives of `sizes` bytes over `ranks` ranks."""
        latency, rate = self.collective_latency_s, self.collective_bytes_per_s
        latency = self.latency_s if latency is None else latency
        rate = self.bytes_per_s if rate is None else rate
        return collective_seconds(kind, ranks, sizes, latency, (1 - self.hidden) / rate)


def even_share(nodes):
    """Return the share of messages to other nodes, (P,).

    All other ranks are assumed to get equally many.
    """
    others = nodes.size - np.bincount(nodes)[nodes]
    return others / max(1, nodes.size - 1)


class GroupsByNode:
    """Groups of ranks that have collectives together, and the nodes they are on.

    count, most : (G,) int64
        Nodes of each group, and its ranks on the node with most.
    """

    def __init__(self, call, nodes):
        self.shape = np.moveaxis(call.bytes, call.axis, -1).shape
        self.axis = call.axis
        members = np.moveaxis(nodes.reshape(call.bytes.shape), call.axis, -1)
        members = np.sort(members.reshape(-1, call.ranks), 1)
        new = np.diff(members, axis=1, prepend=-1) != 0
        self.count = new.sum(1)
        run = np.cumsum(new.ravel()) - 1
        first = np.flatnonzero(new[:, 0])
        sizes = np.bincount(run)
        self.most = np.maximum.reduceat(sizes, run.reshape(members.shape)[first, 0])

    def of_ranks(self, values):
        """Return the value of each rank's group, (P,); `values`: (G,)."""
        spread = np.repeat(values, self.shape[-1]).reshape(self.shape)
        return np.moveaxis(spread, -1, self.axis).ravel()

    def share_between(self):
        """Return the share of the bytes of a rank's collectives that cross nodes, (P,)."""
        return self.of_ranks((self.count - 1) / max(1, self.shape[-1] - 1))


def of_calls(calls: list, ranks: int, nodes: np.ndarray | None, between: Tier, within: Tier, *,
             copied: Tier | None = None, floor: bool = False) -> np.ndarray:
    """Return the seconds of calls on each rank, between and within nodes.

    The result is (2, P). An exchange takes as long as its slowest rank: other ranks
    wait for its messages.

    Parameters
    ----------
    calls : pairs of a call and the number of times that it is made
        Collectives and PairMessages, as in `Traffic.calls`.
    ranks : int
        Number of ranks (P).
    nodes : (P,) int64, or None
        Node of each rank; None: all messages are `between` nodes.
    between, within : Tier
    copied : Tier, optional
        Tier of rows that a rank copies from memory shared within its node.
    floor : bool
        Only the messages of the rank itself are counted. Those whose receivers are
        unknown are taken to stay within nodes.
    """
    seconds = np.zeros((2, ranks))
    for call, times in calls:
        if isinstance(call, Collective):
            seconds += times * of_collectives(call, nodes, between, within)
            continue
        away, near = split_by_tier(call, nodes, floor)
        tier = copied if copied and getattr(call, "shared", False) else within
        each = np.array([between.of_messages(*away), tier.of_messages(*near)])
        seconds += times * (each if floor else each[:, [np.argmax(each.sum(0))]])
    return seconds


def of_collectives(call, nodes, between, within):
    """Return the seconds of a Collective on each rank, as `of_calls`."""
    if nodes is None:
        seconds = between.of_collectives(call.kind, call.ranks, call.sizes).sum(0)
        seconds = np.broadcast_to(seconds, call.bytes.shape).ravel()
        return np.array([seconds, 0 * seconds])
    groups = GroupsByNode(call, nodes)
    sizes = np.broadcast_to(call.sizes, (len(call.sizes), *call.bytes.shape))
    sizes = np.moveaxis(sizes, 1 + call.axis, -1)[..., 0].reshape(len(sizes), groups.count.size)
    found = np.zeros((2, groups.count.size))

    # groups that are spread alike are priced together
    for count, most in np.unique([groups.count, groups.most], axis=1).T.tolist():
        alike = (groups.count == count) & (groups.most == most)
        found[0, alike] = between.of_collectives(call.kind, count, sizes[:, alike]).sum(0)
        for kind in WITHIN[call.kind]:
            found[1, alike] += within.of_collectives(kind, most, sizes[:, alike]).sum(0)
    return np.array([groups.of_ranks(each) for each in found])


def split_by_tier(call, nodes, floor=False):
    """Return bytes and messages between nodes, and within nodes.

    They are two pairs of (P,) float64. With `floor`, bytes whose receivers are unknown
    are taken to stay within nodes.
    """
    whole = [np.ravel(each).astype(float) for each in call[:2]]
    if nodes is None:
        return whole, [0 * each for each in whole]
    between = getattr(call, "between", None)
    if between is None:
        share = 0.0 if floor else even_share(nodes)
        between = [share * each for each in whole]
    away = [np.ravel(each).astype(float) for each in between]
    return away, [each - far for each, far in zip(whole, away)]


def bytes_between(prediction, nodes, floor=False):
    """Return the bytes that each rank sends to other nodes, (P,) float64.

    They are those of a Prediction. `floor` is as in `split_by_tier`.
    """
    sent = np.zeros(prediction.ranks)
    for call, times in prediction.exchanges:
        sent += times * split_by_tier(call, nodes, floor)[0][0]
    for call, times in prediction.collectives:
        sent += times * np.ravel(call.bytes) * GroupsByNode(call, nodes).share_between()
    return sent / prediction.period
