"""Rows of other ranks that pairs of vertices read: a pull of rows, and a push of gradients."""
from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np

from hpgcn.parallel.halo_exchange import HaloExchange
from hpgcn.parallel.halo_plan import by_owner, complete, needs
from hpgcn.parallel.layout import RowPartition
from hpgcn.parallel.sizes import pair_table

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.parallel.halo_plan import HaloPlan
    from hpgcn.parallel.workspace import HaloBuffers, Workspace

WHAT = "rows of pairs"


class PulledRows:
    """The rows that a rank reads: its own m rows, then g pulled ones in increasing order.

    `plan` has the messages. Exchanges that share `buffers` are used one at a time; all ranks
    make them together, at the first pull.
    """

    def __init__(self, plan: HaloPlan, comm: SerialComm, buffers: HaloBuffers) -> None:
        self.plan = plan
        self.comm = comm
        self.buffers = buffers

    @cached_property
    def exchange(self) -> HaloExchange:
        """The messages."""
        return HaloExchange(self.plan, self.comm, self.buffers)

    @classmethod
    def of(cls, rows: np.ndarray, layout: RowPartition, comm: SerialComm,
           buffers: HaloBuffers) -> Self:
        """Plan the pull of `rows`, numbers in [0, n) that may repeat; collective."""
        ghosts = needs(rows, layout)
        cuts = by_owner(ghosts, layout)
        wanted = comm.alltoallv([ghosts[first:last] for first, last in pairwise(cuts.tolist())])
        return cls(complete(layout, ghosts, wanted), comm, buffers)

    def restricted(self, rows: np.ndarray) -> PulledRows:
        """Return the same pull if a rank stores only these own rows, (m',) increasing.

        They include all rows that are sent.
        """
        plan = replace(self.plan, layout=RowPartition(np.array([0, rows.size]), 0),
                       send_rows=np.searchsorted(rows, self.plan.send_rows))
        return PulledRows(plan, self.comm, self.buffers)

    def table(self) -> np.ndarray:
        """Return how many rows each rank pulls of each other one; collective.

        The result is (P, P) int64, as that of `pulled_table`.
        """
        return np.stack(self.comm.allgather(np.diff(self.plan.send_offsets)))

    @property
    def num_rows(self) -> int:
        """Number of own and of pulled rows, m + g."""
        return self.plan.layout.num_rows + self.plan.ghosts.size

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the places of `rows` among the own and the pulled ones, int64 like `rows`."""
        layout = self.plan.layout
        pulled = layout.num_rows + np.searchsorted(self.plan.ghosts, rows)
        own = (rows >= layout.start) & (rows < layout.stop)
        return np.where(own, rows - layout.start, pulled)

    def array(self, name: str, own: Array, workspace: Workspace) -> Array:
        """Return an array of the workspace for own and pulled rows, (m + g, f).

        It is `own`, (m, f), on a single rank, which pulls nothing.
        """
        if self.comm.size == 1:
            return own
        return workspace.buffer(name, self.num_rows, own.shape[1])

    def pull(self, own: Array, out: Array) -> None:
        """Fill `out`, (m + g, f), with own rows, (m, f), and those of other ranks."""
        if out is own:
            return
        m = self.plan.layout.num_rows
        self.exchange.start(own, WHAT)
        out[:m] = own
        for source, rows in self.exchange.received_rows(self.exchange.sources, WHAT):
            place = self.exchange.ghosts[source]
            out[m + place.start:m + place.stop] = rows
        self.exchange.release()

    def push(self, sums: Array, out: Array) -> None:
        """Write sums of own rows to `out`, (m, f), and add those of other ranks, in their order.

        `sums`, (m + g, f), are this rank's sums for the rows that `pull` returns.
        """
        if out is sums:
            return
        m = self.plan.layout.num_rows
        out[...] = sums[:m]
        for source, buffer in self.exchange.send_buffers(out.shape[1]):
            place = self.exchange.ghosts[source]
            buffer[...] = sums[m + place.start:m + place.stop]
            self.exchange.send(source)
        self.exchange.finish(out, WHAT)

    def close(self) -> None:
        """Free the requests."""
        if "exchange" in self.__dict__:
            self.exchange.close()


def table_of(rows: np.ndarray, layout: RowPartition, comm: SerialComm) -> np.ndarray:
    """Count the rows that each rank pulls of each other one; (P, P), collective.

    `rows`, in [0, n), are those that this rank reads.
    """
    return np.stack(comm.allgather(np.diff(by_owner(needs(rows, layout), layout))))


def largest_table(table: np.ndarray, draws: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Bound the rows that ranks pull in any epoch; (P, P), a table of ExchangeSizes.

    Each rank reads the rows of `table`, (P, P), and those of `draws`, (P,), random ones of all
    n. An epoch pulls more with a probability below 1e-7 (Chernoff): 6 standard deviations.

    Examples
    --------
    >>> from hpgcn.parallel.pulled_rows import largest_table
    >>> table = np.array([[0, 5], [0, 0]])
    >>> largest_table(table, np.array([100, 0]), np.array([0, 5000, 10000]))
    array([[ 0, 103],
           [ 0,   0]])
    """
    left = np.diff(offsets) - table
    mean = left * -np.expm1(np.log1p(-1 / offsets[-1]) * draws[:, None])
    most = np.where(mean > 0, np.ceil(mean + 6 * np.sqrt(mean) + 6), 0)
    found = table + np.minimum(left, most).astype(np.int64)
    np.fill_diagonal(found, 0)
    return found


def pulled_table(sources: np.ndarray, rows: np.ndarray, shared: np.ndarray,
                 offsets: np.ndarray) -> np.ndarray:
    """Count the rows that ranks pull for pairs; (P, P), a table of ExchangeSizes.

    The owner of row sources[i] reads rows[i], and all rows in `shared`. Arrays are (k,) and
    (M,). Rank q owns the rows [offsets[q], offsets[q + 1]).

    Examples
    --------
    >>> from hpgcn.parallel.pulled_rows import pulled_table
    >>> sources, rows = np.array([0, 0, 1]), np.array([2, 2, 3])
    >>> pulled_table(sources, rows, np.array([], int), np.array([0, 2, 4]))
    array([[0, 2],
           [0, 0]])
    """
    ranks, n = offsets.size - 1, offsets[-1]
    reader = np.searchsorted(offsets, sources, "right") - 1
    every = (np.unique(reader)[:, None] * n + shared).ravel()
    reader, row = np.divmod(np.unique(np.concatenate([reader * n + rows, every])), n)
    return pair_table(np.searchsorted(offsets, row, "right") - 1, reader, ranks)
