"""The rows a rank stores, sends and receives to multiply by a row-distributed matrix (pure: no
MPI).

A rank derives the rows that it needs from its slab (`needs`), but not those to send.
Once every rank's needs are exchanged, by an Alltoallv of row numbers, `complete` makes
the plan. Source: demirci-2022, section 4.1 and Algorithm 1 (the sets of rows a
processor sends and receives).
"""
from dataclasses import dataclass

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.parallel.counts import PairMessages
from hpgcn.parallel.layout import RowPartition, compressed_offsets


@dataclass(frozen=True, eq=False)
class HaloPlan:
    """Point-to-point messages of one rank, for rows of any width.

    Ghosts [recv_offsets[q], recv_offsets[q + 1]) come from rank q, and send_rows
    [send_offsets[q], send_offsets[q + 1]) go to it. Ghosts are sorted by (owner, row):
    a receive lands in place.
    """

    layout: RowPartition
    ghosts: np.ndarray  # (g,) int64: rows needed from other ranks, increasing
    recv_offsets: np.ndarray  # (P + 1,) int64
    send_rows: np.ndarray  # (s,) int64: numbers within the block, sorted by (destination, row)
    send_offsets: np.ndarray  # (P + 1,) int64

    @property
    def sources(self):
        """Ranks that send to this one, increasing."""
        return np.flatnonzero(np.diff(self.recv_offsets))

    @property
    def destinations(self):
        """Ranks that this one sends to, increasing."""
        return np.flatnonzero(np.diff(self.send_offsets))

    def subset(self, ghosts, sent):
        """Return the plan of the marked ghosts, (g,) bool, and the marked rows to send,
        (s,) bool.

        The other ranks must mark the same rows.
        """
        received = self.ghosts[ghosts], compressed_offsets(self.recv_offsets, ghosts)
        returned = self.send_rows[sent], compressed_offsets(self.send_offsets, sent)
        return HaloPlan(self.layout, *received, *returned)

    def sizes(self, away=None):
        """Return the values of this rank for HaloPlanSizes.of_ranks.

        `away`: (P,) bool, ranks on other nodes, if messages between nodes are counted.
        """
        masks = [np.ones(self.recv_offsets.size - 1, bool)]
        if away is not None:
            masks.append(away)
        sent, received = np.diff(self.send_offsets), np.diff(self.recv_offsets)
        return [int(number) for mask in masks for number in (
            sent[mask].sum(), received[mask].sum(), np.count_nonzero(sent[mask]),
            np.count_nonzero(received[mask]))]


@dataclass(frozen=True, eq=False)
class HaloPlanSizes:
    """Rows and messages of a halo exchange, by rank; (P,) int64 each."""

    sent: np.ndarray  # rows sent
    received: np.ndarray  # rows received
    destinations: np.ndarray  # number of ranks that a rank sends to
    sources: np.ndarray  # number of ranks that a rank receives from
    between: "HaloPlanSizes | None" = None  # sizes of messages between nodes, if known

    @staticmethod
    def of_ranks(table):
        """Return the sizes from the `HaloPlan.sizes` of all ranks, (P, 4) or (P, 8)."""
        table = np.array(table, np.int64).T
        between = HaloPlanSizes(*table[4:]) if len(table) > 4 else None
        return HaloPlanSizes(*table[:4], between)

    @staticmethod
    def of(read, part):
        """Return the sizes of an exchange in which rank p receives the rows listed in
        row p of `read`.

        `read`: csr_array (k, n). `part`: (n,) owner of each row that is sent.
        """
        k = read.shape[0]
        reader = np.repeat(np.arange(k), np.diff(read.indptr))
        owner = part[read.indices].astype(np.int64)
        others = reader != owner
        return HaloPlanSizes.of_pairs(owner[others], reader[others], k)

    @staticmethod
    def of_pairs(owner, reader, k, nodes=None):
        """Return the sizes of an exchange that sends row i from rank owner[i] to rank
        reader[i].

        `k`: number of ranks. `nodes`: as in `of_table`.
        """
        between = None
        if nodes is not None:
            away = nodes[owner] != nodes[reader]
            between = HaloPlanSizes.of_pairs(owner[away], reader[away], k)
        pairs = np.unique(owner * k + reader)
        return HaloPlanSizes(*(np.bincount(ranks, minlength=k)
                               for ranks in (owner, reader, pairs // k, pairs % k)), between)

    @staticmethod
    def of_table(table, nodes=None):
        """Return the sizes of an exchange in which rank p receives table[p, q] rows of
        rank q; (P, P) int64.

        `nodes`: (P,), the node of each rank, if messages between nodes are counted.
        """
        pairs = (table > 0).astype(np.int64)
        between = None
        if nodes is not None:
            between = HaloPlanSizes.of_table(table * np.not_equal.outer(nodes, nodes))
        return HaloPlanSizes(table.sum(0), table.sum(1), pairs.sum(0), pairs.sum(1), between)

    @property
    def reversed(self):
        """Sizes of the exchange in which each row goes the other way."""
        return HaloPlanSizes(self.received, self.sent, self.sources, self.destinations,
                             self.between and self.between.reversed)

    @property
    def received_parts(self):
        """Number of rows that each rank receives, by exchange; (1, P)."""
        return self.received[None]

    @property
    def message_transfer(self):
        """Sizes of the transfer with messages of its own: self."""
        return self

    @property
    def ghost_rows(self):
        """Number of rows that each rank receives from other ranks, (P,)."""
        return self.received

    @property
    def buffer_rows(self):
        """Number of rows in the two message buffers of each rank, (P,)."""
        return self.sent + self.received

    def pull(self, row_bytes):
        """Yield (bytes, messages) that each rank sends when rows are pulled."""
        tier = self.between
        yield PairMessages(self.sent * row_bytes, self.destinations,
                           tier and (tier.sent * row_bytes, tier.destinations))

    def push(self, row_bytes):
        """Yield (bytes, messages) that each rank sends when sums are pushed back to the
        owners.
        """
        tier = self.between
        yield PairMessages(self.received * row_bytes, self.sources,
                           tier and (tier.received * row_bytes, tier.sources))


def needs(indices, layout):
    """Return the rows of other ranks among the column numbers `indices` of a slab, (g,)
    int64, increasing.
    """
    if layout.size == 1:
        return np.empty(0, np.int64)
    seen = np.zeros(int(layout.offsets[-1]), bool)
    seen[indices] = True
    seen[layout.start:layout.stop] = False
    return np.flatnonzero(seen)


def by_owner(rows, layout):
    """Return the offsets at which sorted row numbers pass from one owner to the next,
    (P + 1,) int64.
    """
    return np.searchsorted(rows, layout.offsets).astype(np.int64)


def complete(layout, ghosts, requested):
    """Return the HaloPlan of a rank that reads `ghosts`. `requested`: list by rank of
    the own rows that other ranks read.
    """
    offsets = run_offsets([len(rows) for rows in requested])
    send_rows = np.concatenate([np.empty(0, np.int64), *requested]).astype(np.int64) - layout.start
    return HaloPlan(layout, ghosts, by_owner(ghosts, layout), send_rows, offsets)
