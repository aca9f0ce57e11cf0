"""What a rank must hold, send and receive to multiply by a row-distributed sparse matrix (pure: no MPI).

From its slab a rank knows what it needs (`needs`), not what it must send; once every rank's needs are known, `complete`
makes the plan. Between the two lies one exchange of row numbers: an Alltoallv in a run, a list in `build_all`.
Source: demirci-2022, section 4.1 and Algorithm 1 (the sets of rows a processor sends and receives).
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.partition import run_offsets
from hpgcn.parallel.layout import RowPartition


@dataclass(frozen=True, eq=False)
class HaloPlan:
    """Point-to-point messages of one rank, for rows of any width.

    Attributes
    ----------
    layout : RowPartition
    ghosts : (g,) int64
        Rows needed from others, increasing, hence sorted by (owner, row): a receive lands in place.
    recv_offsets : (P + 1,) int64
        Ghosts [recv_offsets[q], recv_offsets[q + 1]) come from rank q.
    send_rows : (s,) int64
        Own rows to send, as numbers within the block, sorted by (destination, row).
    send_offsets : (P + 1,) int64
        Entries [send_offsets[q], send_offsets[q + 1]) of send_rows go to rank q.
    """

    layout: RowPartition
    ghosts: np.ndarray
    recv_offsets: np.ndarray
    send_rows: np.ndarray
    send_offsets: np.ndarray

    @property
    def sources(self):
        """Ranks that send to this one, increasing."""
        return np.flatnonzero(np.diff(self.recv_offsets))

    @property
    def destinations(self):
        """Ranks that this one sends to, increasing."""
        return np.flatnonzero(np.diff(self.send_offsets))


@dataclass(frozen=True, eq=False)
class HaloPlanSizes:
    """Rows and messages of a halo exchange, by rank.

    Attributes
    ----------
    sent, received : (P,) int64
        Rows that each rank sends and receives.
    destinations, sources : (P,) int64
        Ranks that it sends to, and receives from.
    """

    sent: np.ndarray
    received: np.ndarray
    destinations: np.ndarray
    sources: np.ndarray

    @staticmethod
    def of(read, part):
        """Sizes of the exchange that brings rank p the columns of row p of `read`, csr_array (P, n); part: owners."""
        k = read.shape[0]
        reader = np.repeat(np.arange(k), np.diff(read.indptr))
        owner = part[read.indices].astype(np.int64)
        others = reader != owner
        return HaloPlanSizes.of_pairs(owner[others], reader[others], k)

    @staticmethod
    def of_pairs(owner, reader, k):
        """Sizes of an exchange of rows, each from its owner to a reader; (rows,) integers below k, never equal."""
        pairs = np.unique(owner * k + reader)
        return HaloPlanSizes(*(np.bincount(ranks, minlength=k)
                               for ranks in (owner, reader, pairs // k, pairs % k)))

    @staticmethod
    def between(rows, part, k):
        """Sizes of the exchange between the owners, (n,) integers below k, of the rows of a csr_array (n, n)."""
        offsets = run_offsets(np.bincount(part, minlength=k))
        members = sp.csr_array((np.ones(part.size, bool), np.argsort(part, kind="stable"), offsets),
                               shape=(k, part.size))
        return HaloPlanSizes.of(members @ rows, part)  # row p: the columns that rank p reads, each once

    @property
    def buffer_rows(self):
        """Rows of the two buffers of messages, (P,)."""
        return self.sent + self.received

    def pull(self, row_bytes):
        """Yield (bytes, messages) of each rank."""
        yield self.sent * row_bytes, self.destinations

    def push(self, row_bytes):
        """Yield (bytes, messages) of each rank: the lists are swapped."""
        yield self.received * row_bytes, self.sources


def needs(indices, layout):
    """Rows of others that a slab reads.

    Parameters
    ----------
    indices : (nnz,) integers
        Column numbers of the slab's entries.

    Returns
    -------
    (g,) int64, increasing
    """
    seen = np.zeros(int(layout.offsets[-1]), bool)
    seen[indices] = True
    seen[layout.start:layout.stop] = False
    return np.flatnonzero(seen)


def by_owner(rows, layout):
    """Offsets at which sorted row numbers pass from one owner to the next, (P + 1,) int64."""
    return np.searchsorted(rows, layout.offsets).astype(np.int64)


def complete(layout, ghosts, requested):
    """Make the plan of one rank.

    Parameters
    ----------
    ghosts : (g,) int64
        What this rank needs.
    requested : list of P arrays of int64
        Rows of this rank that rank q needs, increasing.
    """
    sizes = [len(rows) for rows in requested]
    send_rows = np.concatenate([np.empty(0, np.int64), *requested]).astype(np.int64) - layout.start
    return HaloPlan(layout, ghosts, by_owner(ghosts, layout), send_rows, np.concatenate([[0], np.cumsum(sizes)]))


def build_all(indptr, indices, offsets):
    """Plans of all P ranks in one process.

    Parameters
    ----------
    indptr, indices
        CSR pattern of the whole matrix, rows in the distributed order.
    offsets : (P + 1,) int64
    """
    layouts = [RowPartition(offsets, rank) for rank in range(offsets.size - 1)]
    wanted = [needs(indices[indptr[one.start]:indptr[one.stop]], one) for one in layouts]
    cuts = [by_owner(rows, one) for rows, one in zip(wanted, layouts)]
    return [complete(one, wanted[p], [rows[cut[p]:cut[p + 1]] for rows, cut in zip(wanted, cuts)])
            for p, one in enumerate(layouts)]
