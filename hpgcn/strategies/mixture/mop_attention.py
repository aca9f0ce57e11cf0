"""Attention by columns: each rank has some heads of all rows, so scores and softmax are local.

Rows of x are exchanged for columns, K / P heads a rank, and rows of the result return,
as in any product of strategy mop. The backward does the same with gradients. A rank
computes a batch as soon as the rows that the batch reads have arrived. Nothing else is
sent: ranks compute the gradients of the vectors a and b of their own heads.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.record import derived, repeat
from hpgcn.parallel.csr import rows_of
from hpgcn.parallel.layout import split
from hpgcn.strategies.attention import SLOPE, Attention

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.parallel.csr import Csr
    from hpgcn.runtime.device import Host
    from hpgcn.strategies.attention import Heads
    from hpgcn.strategies.mixture.mop import MixtureOfParallelism
    from hpgcn.strategies.mixture.row_batches import RowBatches


class ColumnAttention(Attention):
    """Attention of strategy mop: each rank computes some heads of all rows.

    All ranks make it together.
    """

    def __init__(self, strategy: MixtureOfParallelism, heads: Heads) -> None:
        super().__init__(strategy.home, strategy.comm.clock, heads)
        self.strategy = strategy
        comm = strategy.comm
        cuts = split(heads.count, comm.size).tolist()
        self.own_heads = slice(*cuts[comm.rank:comm.rank + 2])
        self.count = self.own_heads.stop - self.own_heads.start

        operand = strategy.operand
        self.rows_in, self.rows_out = operand.columns.num_rows, operand.rows.num_rows
        # on the device these are the arrays that attention by rows would use
        self.work = strategy.buffers.attended
        on_device = strategy.home is comm.device
        self.columns = heads if on_device else replace(heads, buffer=self.work.buffer)

        if strategy.row_numbers is None:  # all layers with this map share them
            strategy.row_numbers = self._row_numbers(heads)
        self.row_numbers = strategy.row_numbers
        self.neighbor, self.vertex, self.own, self.back = self.row_numbers

    def _row_numbers(self, heads: Heads) -> list[Array]:
        """Return the vertices of all rows that are read and computed, and places of rows.

        They are those of computed rows among the read ones, and the reverse.
        """
        comm, operand = self.strategy.comm, self.strategy.operand
        vertex = [self._ordered(comm, operand.columns, heads.vertex_in),
                  self._ordered(comm, operand.rows, heads.vertex_out)]

        positions = np.argsort(vertex[0])
        found = positions[np.searchsorted(vertex[0], vertex[1], sorter=positions)]
        back = np.full(self.rows_in, self.rows_out)  # past the last: a row of zeros
        back[found] = np.arange(self.rows_out)
        return [self.strategy.home.put(each) for each in (*vertex, found, back)]

    @property
    def arrays(self) -> list:
        """Arrays stored between steps, except those of `Heads`."""
        return [*self.work.arrays.values(), *self.row_numbers]

    @staticmethod
    def _ordered(comm: SerialComm, batches: RowBatches, vertex: np.ndarray) -> np.ndarray:
        """Return the vertex numbers of all rows in the order of batches, on the host."""
        every = np.concatenate(comm.allgather(comm.device.get(vertex)))
        ordered = np.empty_like(every)
        ordered[batches.positions(np.arange(every.size))] = every
        return ordered

    def forward(self, x: Array, a: np.ndarray, b: np.ndarray, *, W: Array | None = None,
                epoch: int = 0) -> tuple[np.ndarray, Callable]:
        # x has the own rows of all heads.
        keep = epoch > 0
        width = x.shape[1] // self.heads.count * self.count
        device, home = self.strategy.comm.device, self.strategy.home
        a, b = (derived(_moved, device, home, each[self.own_heads]) for each in (a, b))
        spread_a, spread_b = (self._spread(each, x) for each in (a, b))
        columns = AttentionColumns(self, spread_a, spread_b, width, keep, epoch)
        out = self.heads.array("attended", self.heads.vertex_out.size, x.shape[1], keep)
        out = self.strategy.product(self.strategy.operand, x, out, columns)
        return out, partial(self._backward, columns)

    def _backward(self, columns: AttentionColumns, G: Array) -> tuple[np.ndarray, ...]:
        heads = self.heads
        dx = heads.buffer("scratch", heads.vertex_in.size, G.shape[1])
        device, home, work = self.strategy.comm.device, self.strategy.home, Gradients(columns)
        self.strategy.product(self.strategy.operand_back, G, dx, work, backward=True)
        gradients = []
        for own in work.of_vectors:
            part = device.xp.zeros((heads.count, G.shape[1] // heads.count), G.dtype)
            with self.clock("dense"):
                repeat(operator.setitem, part, self.own_heads, derived(_moved, home, device, own))
            gradients.append(part)
        return dx, *gradients


def _moved(source: Host, target: Host, array: Array) -> Array:
    """Return an array of a device as one of another device."""
    return array if source is target else target.put(source.get(array))


class ColumnWork:
    """Base class of work on the columns of a rank, in the order of batches of rows."""

    def receive_rows(self, X: Array, first: int, last: int) -> None:
        """Prepare the received rows [first, last). By default does nothing."""

    def tile(self, block: Csr, indptr: np.ndarray, X: Array, Z: Array, first: int,
             last: int, bits: Array | None) -> None:
        """Compute rows [first, last) of the result `Z`, whose `bits` are kept."""
        raise NotImplementedError

    def finish(self) -> None:
        """End the work, after all rows. By default does nothing."""


class AttentionColumns(ColumnWork):
    """Forward pass of attention for this rank's heads."""

    def __init__(self, owner: ColumnAttention, spread_a: np.ndarray, spread_b: np.ndarray,
                 width: int, keep: bool, epoch: int) -> None:
        self.owner = owner
        self.spread_a, self.spread_b = spread_a, spread_b
        self.drawn = {**owner.columns.drawn(epoch), "first": owner.own_heads.start}
        K, n, m = owner.count, owner.rows_in, owner.rows_out

        def taken(name: str, rows: int, columns: int) -> np.ndarray:
            return owner.columns.array(name, rows, columns, keep)

        self.x, self.out = taken("columns x", n, width), taken("columns out", m, width)
        self.r, self.l, self.lse = taken("r", n, K), taken("l", m, K), taken("lse", m, K)
        self.above = self.share = None
        if keep:
            self.above, self.share = taken("above", m, width), taken("share", m, K)

    def receive_rows(self, X: Array, first: int, last: int) -> None:
        # Copy them, and compute their scores r.
        repeat(operator.setitem, self.x, slice(first, last), X[first:last])
        kernels.backend(X).matmul(self.x[first:last], self.spread_b, self.r[first:last])

    def tile(self, block: Csr, indptr: np.ndarray, X: Array, Z: Array, first: int,
             last: int, bits: Any) -> None:
        ops = kernels.backend(Z)
        own = derived(operator.getitem, self.x, self.owner.own[first:last])
        ops.matmul(own, self.spread_a, self.l[first:last])
        ops.attend(indptr, block.indices, self.x, self.l[first:last], self.r,
                   self.out[first:last], self.lse[first:last],
                   above=rows_of(self.above, first, last), share=rows_of(self.share, first, last),
                   vertex=self.owner.vertex[first:last], neighbor=self.owner.neighbor,
                   **self.drawn)
        repeat(operator.setitem, Z, slice(first, last), self.out[first:last])


class Gradients(ColumnWork):
    """Backward pass of attention for this rank's heads.

    At the end `of_vectors` are the gradients of the vectors a and b of these heads.
    """

    def __init__(self, columns: AttentionColumns) -> None:
        self.columns = columns
        owner = columns.owner
        K, buffer = owner.count, owner.columns.buffer
        self.dl, self.dr = buffer("dl", owner.rows_out + 1, K), buffer("dr", owner.rows_in, K)
        self.pulled = buffer("pulled", owner.rows_out, columns.out.shape[1] + 3 * K)

    def receive_rows(self, G: Array, first: int, last: int) -> None:
        if not first:
            repeat(operator.setitem, self.dl, -1, 0)  # gradient of rows that are not computed
        part = slice(first, last)
        each = self.columns
        kernels.backend(G).attend_dots(
            G[part], each.out[part], each.above[part], each.share[part], each.l[part],
            each.lse[part], self.pulled[part], self.dl[part], slope=SLOPE)

    def tile(self, block: Csr, indptr: np.ndarray, G: Array, Z: Array, first: int,
             last: int, bits: Any) -> None:
        each, part = self.columns, slice(first, last)
        owner = each.owner
        ops = kernels.backend(Z)
        ops.attend_backward(indptr, block.indices, self.pulled, each.x[part], each.r[part], Z[part],
                            self.dr[part], vertex=owner.vertex, neighbor=owner.neighbor[part],
                            **each.drawn)
        rows = Z[part]
        repeat(operator.iadd, rows, ops.matmul(self.dr[part], each.spread_b.T))
        own = derived(operator.getitem, self.dl, owner.back[part])
        repeat(operator.iadd, rows, ops.matmul(own, each.spread_a.T))

    def finish(self) -> None:
        each = self.columns
        matmul, owner = kernels.backend(self.dr).matmul, each.owner
        with owner.clock("dense"):
            own = derived(operator.getitem, each.x, owner.own)
            self.of_vectors = [owner.of_heads(matmul(d.T, rows))
                               for d, rows in ((self.dl[:-1], own), (self.dr, each.x))]


class BatchProduct(ColumnWork):
    """Product with the matrix, computed in tiles as batches of rows arrive."""

    def tile(self, block: Csr, indptr: np.ndarray, X: Array, Z: Array, first: int,
             last: int, bits: Array | None) -> None:
        kernels.backend(X).spmm(indptr, block.indices, block.data, X, rows_of(Z, first, last),
                                mask=rows_of(bits, first, last))


