"""Sums over the copies of a vertex on several ranks, either exact or some steps late.

One copy of a vertex is on the rank that owns it; the others are replicas. Each rank has
the rows that it owns, then its replicas by number. Partial sums are sent up from
replicas to owners, totals down. Source: distgnn-2021, section 5.3 and Algorithm 4.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn import kernels
from hpgcn.kernels.host.record import recording, repeat
from hpgcn.parallel.halo_exchange import HaloExchange
from hpgcn.parallel.workspace import HaloBuffers

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.parallel.halo_plan import HaloPlan


SLICE_BYTES = 64  # bytes of a row that are sent to replicas at a time


class ReplicaExchange(HaloExchange):
    """Messages between the owners and the replicas of a HaloPlan, whose ghosts are the replicas.

    replicas: (c,) int64, their numbers among the rows of this rank, on the device.
    """

    def __init__(self, plan: HaloPlan, replicas: np.ndarray, comm: SerialComm,
                 dtype: DTypeLike) -> None:
        super().__init__(plan, comm, HaloBuffers(comm.device, comm.stager, dtype))
        self.replicas = replicas

    def begin(self, width: int, up: bool) -> None:
        """Choose the channel for messages of this width.

        Messages go up to the owners or down to the replicas.
        """
        self.exchange.channel = self.exchange.begin(width, adjoint=up)

    def fill(self, Z: Array, up: bool) -> Array:
        """Copy rows of Z (m, f) into the messages up or down.

        Return these rows, (rows, f). The previous messages must have arrived.
        """
        self.begin(Z.shape[1], up)
        with self.comm.clock("comm"):
            rows = self.replicas if up else self.send_rows
            return kernels.backend(Z).gather(Z, rows, self.outgoing)

    def launch(self) -> None:
        """Send the filled buffers."""
        with self.comm.clock("comm"):
            self.exchange.launch()

    def received(self, what: str) -> Iterator[tuple]:
        """Yield (rank, rows from it) in increasing order of ranks.

        Wait for all sends at the end.
        """
        return ((rank, self.exchange.received(rank)) for rank in self.exchange.arriving(what))

    def wait_all(self, what: str) -> Array:
        """Wait for all messages; return the received rows (rows, f) by rank."""
        for _ in self.received(what):
            pass
        return self.incoming


class WholeSum:
    """Exact sums over all copies of a vertex, sent to all copies, in two phases."""

    def __init__(self, exchange: ReplicaExchange) -> None:
        self.exchange = exchange

    def reserve(self, width: int) -> None:
        """Allocate the buffers for rows of `width` columns."""
        self.exchange.reserve(width)

    def add(self, Z: Array, what: str) -> None:
        """Replace the partial sums Z (m, f) by the totals, which are added in rank order."""
        exchange = self.exchange
        exchange.fill(Z, up=True)
        exchange.launch()
        for rank, rows in exchange.received(what):
            with exchange.comm.clock("comm"):
                kernels.backend(Z).scatter_add(rows, exchange.returned[rank], Z)
        exchange.fill(Z, up=False)
        exchange.launch()
        repeat(operator.setitem, Z, exchange.replicas, exchange.wait_all(what))

    def persistent_arrays(self) -> list:
        """Return an empty list: nothing is stored between steps."""
        return []

    @property
    def nbytes(self) -> int:
        """Bytes of buffers."""
        return self.exchange.nbytes

    def close(self) -> None:
        """Free the requests."""
        self.exchange.close()


def assign_bins(plan: HaloPlan, count: int, comm: SerialComm) -> list[tuple]:
    """Divide the vertices that have replicas into `count` bins.

    All ranks call this together. Vertex t of those with replicas, counted in the
    distributed order, goes to bin t mod `count`. Bins differ by at most one vertex, and
    so do the shares of each owner in them.

    Parameters
    ----------
    plan : HaloPlan
        Plan of the exchange between all replicas and their owners.

    Returns
    -------
    list of (HaloPlan, numbers of its replicas among the rows of this rank)
    """
    layout = plan.layout
    marks = np.zeros(int(layout.offsets[-1]), np.uint8)
    marks[plan.ghosts] = 1
    comm.allreduce(marks, "plan", op="max")
    bin_of = (np.cumsum(marks, dtype=np.int64) - 1) % count
    ghosts, sent = bin_of[plan.ghosts], bin_of[layout.start + plan.send_rows]
    return [(plan.subset(ghosts == number, sent == number),
             comm.device.put(layout.num_rows + np.flatnonzero(ghosts == number)))
            for number in range(count)]


class DelayedSum:
    """Sums over the copies of a vertex, with delayed partial sums.

    Partial sums of other ranks are some steps old. `assign_bins` makes r bins. Each
    step serves one bin: its replicas send their partial sums. The owners add them r
    steps later, when the bin is served again, and send totals. The replicas add the
    totals another r steps later. Received sums are used in this one step only. Vertices
    of other bins have only their partial sums, and so have those of a bin before
    anything has arrived. The partial sum of a copy itself is always that of the current
    step: a replica receives the total less the sum that it sent.
    """

    replaces = False  # whether a replica takes the total in place of its own share

    def __init__(self, bins: list[tuple], width: int, comm: SerialComm, dtype: DTypeLike) -> None:
        self.comm = comm
        self.step = 0
        self.legs = []  # by bin: up, down
        for plan, replicas in bins:
            legs = [ReplicaExchange(plan, replicas, comm, dtype) for _ in range(2)]
            for leg, up in zip(legs, (True, False)):
                leg.begin(width, up)
                leg.incoming[:] = 0
            self.legs.append(legs)

    def add(self, Z: Array, what: str) -> None:
        """Add the partial sums of earlier steps to Z (m, f).

        Other ranks sent these sums. Z has the sums of this rank.
        """
        if (active := recording()) is not None:
            active.refusal = "the bins of delayed sums take turns"
        rounds, turn = divmod(self.step, len(self.legs))
        up, down = self.legs[turn]
        scatter_add = kernels.backend(Z).scatter_add

        # add what arrived since the last round
        if rounds:
            for rank, rows in up.received(what):
                with self.comm.clock("comm"):
                    scatter_add(rows, up.returned[rank], Z)
        up.fill(Z, up=True)  # once the last message has left, before anything is added to replicas

        if rounds > 1:
            others = down.wait_all(what)
            with self.comm.clock("comm"):
                if self.replaces:
                    Z[down.replicas] = others
                else:
                    scatter_add(others, down.replicas, Z)

        # start the next round
        if rounds:
            totals = down.fill(Z, up=False)
            if not self.replaces:
                totals -= up.incoming
            down.launch()
        up.launch()

        self.step += 1

    def persistent_arrays(self) -> list:
        """Wait for all messages; return a list of the arrays that later steps read."""
        return [leg.wait_all("the end of a step") for legs in self.legs for leg in legs]

    @property
    def nbytes(self) -> int:
        """Bytes of buffers."""
        return sum(leg.nbytes for legs in self.legs for leg in legs)

    def close(self) -> None:
        """Free the requests, once all messages have arrived."""
        self.persistent_arrays()
        for legs in self.legs:
            for leg in legs:
                leg.close()


class DelayedTotal(DelayedSum):
    """A DelayedSum in which the owner's total replaces partial sums.

    See distgnn-2021, Algorithm 4.
    """

    replaces = True


def with_replicas(array: Any, plan: HaloPlan, comm: SerialComm) -> Any:
    """Extend an array (m, ...) of own rows by the rows of replicas.

    All ranks call this together. The result for a csr_array is a csr_array. Rows are
    sent as bits, some columns at a time.
    """
    if sp.issparse(array):
        return _sparse_with_replicas(array, plan, comm)

    m, replicas = len(array), plan.ghosts.size
    out = np.empty((m + replicas, *array.shape[1:]), array.dtype)
    out[:m] = array
    columns = out.reshape(m + replicas, math.prod(array.shape[1:]))
    step = max(1, SLICE_BYTES // array.itemsize)

    # send a slice of columns at a time, as words of 8 bytes
    for first in range(0, columns.shape[1], step):
        part = np.ascontiguousarray(columns[:m, first:first + step]).view(np.uint8)
        words = np.zeros((m, -(-part.shape[1] // 8)), np.int64)  # only integers are sent like this
        words.view(np.uint8)[:, :part.shape[1]] = part
        received = _sent([words[rows].ravel() for rows in _by_rank(plan)], comm)
        received = received.reshape(replicas, words.shape[1]).view(np.uint8)[:, :part.shape[1]]
        columns[m:, first:first + step] = np.ascontiguousarray(received).view(array.dtype)

    return out


def _sparse_with_replicas(array: Any, plan: HaloPlan, comm: SerialComm) -> Any:
    counts = with_replicas(np.diff(array.indptr), plan, comm)
    parts = [array[rows] for rows in _by_rank(plan)]
    indices = _sent([part.indices for part in parts], comm)
    bits = _sent([part.data.view(f"i{array.dtype.itemsize}") for part in parts], comm)
    data = bits.astype(f"i{array.dtype.itemsize}").view(array.dtype)
    indices = np.concatenate([array.indices, indices.astype(array.indices.dtype)])
    pointers = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_array((np.concatenate([array.data, data]), indices, pointers),
                        shape=(counts.size, array.shape[1]))


def _by_rank(plan: HaloPlan) -> list[np.ndarray]:
    return [plan.send_rows[first:last] for first, last in pairwise(plan.send_offsets.tolist())]


def _sent(arrays: list[np.ndarray], comm: SerialComm) -> np.ndarray:
    return np.concatenate(comm.alltoallv(arrays))
