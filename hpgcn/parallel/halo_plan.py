"""The rows that a rank stores, sends and receives for a product.

The matrix is distributed by rows. The module is pure: it uses no MPI.

A rank derives the rows that it needs from its slab (`needs`), but not those to send.
Once every rank's needs are exchanged, by an Alltoallv of row numbers, `complete` makes
the plan. Source: demirci-2022, section 4.1 and Algorithm 1 (the sets of rows a
processor sends and receives).
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpgcn.graphs.partition import run_offsets
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
    def sources(self) -> np.ndarray:
        """Ranks that send to this one, increasing."""
        return np.flatnonzero(np.diff(self.recv_offsets))

    @property
    def destinations(self) -> np.ndarray:
        """Ranks that this one sends to, increasing."""
        return np.flatnonzero(np.diff(self.send_offsets))

    def subset(self, ghosts: np.ndarray, sent: np.ndarray) -> HaloPlan:
        """Return the plan of the marked ghosts and the marked rows to send.

        Marks are (g,) bool and (s,) bool. The other ranks must mark the same rows.
        """
        received = self.ghosts[ghosts], compressed_offsets(self.recv_offsets, ghosts)
        returned = self.send_rows[sent], compressed_offsets(self.send_offsets, sent)
        return HaloPlan(self.layout, *received, *returned)

    @property
    def parts(self) -> tuple[HaloPlan]:
        """The HaloPlans of its exchanges: itself."""
        return (self,)


def needs(indices: np.ndarray, layout: RowPartition) -> np.ndarray:
    """Return the rows of other ranks among column numbers, (g,) increasing.

    `indices` are the column numbers of a slab.
    """
    if layout.size == 1:
        return np.empty(0, np.int64)
    seen = np.zeros(int(layout.offsets[-1]), bool)
    seen[indices] = True
    seen[layout.start:layout.stop] = False
    return np.flatnonzero(seen)


def by_owner(rows: np.ndarray, layout: RowPartition) -> np.ndarray:
    """Return the offsets of owners in sorted row numbers, (P + 1,)."""
    return np.searchsorted(rows, layout.offsets).astype(np.int64)


def complete(layout: RowPartition, ghosts: np.ndarray, requested: list[np.ndarray]) -> HaloPlan:
    """Return the HaloPlan of a rank that reads `ghosts`.

    `requested` lists by rank the own rows that other ranks read.
    """
    offsets = run_offsets([len(rows) for rows in requested])
    send_rows = np.concatenate([np.empty(0, np.int64), *requested]).astype(np.int64) - layout.start
    return HaloPlan(layout, ghosts, by_owner(ghosts, layout), send_rows, offsets)
