"""Forecast the seconds of messages within nodes and between nodes, which are added.

Rules for what crosses nodes:

- rows and sums of products with A: as counted by pairs of ranks, if these are known.
  Those of a node-aware exchange are copied within a node, which reads and writes memory;
- other messages between pairs: spread evenly over the other ranks;
- collectives that MPI executes by itself: in two levels. One rank of each node takes
  part in the collective between nodes, so that each byte crosses to a node once. Then, or
  before, the ranks of each node have a collective of their own. An allreduce is a reduce
  within nodes, an allreduce between them and a broadcast within them.
"""
from dataclasses import dataclass, replace

import numpy as np

from hpgcn.planning.seconds.collective_seconds import collective_seconds

WITHIN = {"broadcast": ("broadcast",), "reduce": ("reduce",), "allreduce": ("reduce", "broadcast")}


@dataclass(frozen=True)
class Tier:
    """Rates of messages of one rank, within nodes or between them."""

    latency_s: float
    bytes_per_s: float
    collective_latency_s: float | None = None  # None: as of a message
    collective_bytes_per_s: float | None = None
    hidden: float = 0.0  # share of a message that travels while a rank computes

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
    """Return the share of each rank's messages to other nodes, if all other ranks get
    equally many, (P,).
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


def of_collectives(call, nodes, between, within):
    """Return the seconds of a Collective on each rank, between and within nodes, two (P,).

    `between`, `within`: Tiers. `nodes`: (P,) int64.
    """
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
    return [groups.of_ranks(each) for each in found]


def split_by_tier(call, nodes, floor=False):
    """Return the bytes and messages of an exchange between nodes, and those within nodes:
    two pairs of (P,) float64.

    `floor`: bytes whose receivers are unknown are taken to stay within nodes.
    """
    whole = [np.ravel(each).astype(float) for each in call[:2]]
    between = getattr(call, "between", None)
    if between is None:
        share = 0.0 if floor else even_share(nodes)
        between = [share * each for each in whole]
    away = [np.ravel(each).astype(float) for each in between]
    return away, [each - far for each, far in zip(whole, away)]


def bytes_between(prediction, nodes, floor=False):
    """Return the bytes that each rank of a Prediction sends to other nodes, (P,) float64;
    `floor`: as of `split_by_tier`.
    """
    sent = np.zeros(prediction.ranks)
    for call, times in prediction.exchanges:
        sent += times * split_by_tier(call, nodes, floor)[0][0]
    for call, times in prediction.collectives:
        sent += times * np.ravel(call.bytes) * GroupsByNode(call, nodes).share_between()
    return sent / prediction.period
