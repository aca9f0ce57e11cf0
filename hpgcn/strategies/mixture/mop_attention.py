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

        vertex = [self._ordered(comm, operand.columns, heads.vertex_in),
                  self._ordered(comm, operand.rows, heads.vertex_out)]
        self.neighbor, self.vertex = map(strategy.home.put, vertex)

        # positions of the rows that it computes among those that it reads
        positions = np.argsort(vertex[0])
        found = positions[np.searchsorted(vertex[0], vertex[1], sorter=positions)]
        self.own = strategy.home.put(found)
        back = np.full(self.rows_in, self.rows_out)  # past the last: a row of zeros
        back[found] = np.arange(self.rows_out)
        self.back = strategy.home.put(back)

    @property
    def arrays(self) -> list:
        """Arrays stored between steps, except those of `Heads`."""
        return [*self.work.arrays.values(), self.neighbor, self.vertex, self.own, self.back]

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
        work = Gradients(columns)
        device, home = self.strategy.comm.device, self.strategy.home
        self.strategy.product(self.strategy.operand_back, G, dx, work, backward=True)
        matmul = kernels.backend(work.dr).matmul
        gradients = []
        for d, rows in ((work.dl[:-1], derived(operator.getitem, columns.x, self.own)),
                        (work.dr, columns.x)):
            part = device.xp.zeros((heads.count, G.shape[1] // heads.count), G.dtype)
            with self.clock("dense"):
                found = derived(_moved, home, device, self._gathered(matmul(d.T, rows)))
                repeat(operator.setitem, part, self.own_heads, found)
            gradients.append(part)
        return dx, *gradients


def _moved(source: Host, target: Host, array: Array) -> Array:
    """Return an array of a device as one of another device."""
    return array if source is target else target.put(source.get(array))


class AttentionColumns:
    """Forward pass of attention for this rank's heads.

    It computes all rows, in the order of batches.
    """

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
        """Copy the received rows [first, last) of x, and compute their scores r."""
        repeat(operator.setitem, self.x, slice(first, last), X[first:last])
        kernels.backend(X).matmul(self.x[first:last], self.spread_b, self.r[first:last])

    def tile(self, block: Csr, indptr: np.ndarray, X: Array, Z: Array, first: int,
             last: int, bits: Any) -> None:
        """Compute rows [first, last) of the result."""
        ops = kernels.backend(Z)
        own = derived(operator.getitem, self.x, self.owner.own[first:last])
        ops.matmul(own, self.spread_a, self.l[first:last])
        ops.attend(indptr, block.indices, self.x, self.l[first:last], self.r,
                   self.out[first:last], self.lse[first:last],
                   above=rows_of(self.above, first, last), share=rows_of(self.share, first, last),
                   vertex=self.owner.vertex[first:last], neighbor=self.owner.neighbor,
                   **self.drawn)
        repeat(operator.setitem, Z, slice(first, last), self.out[first:last])


class Gradients:
    """Backward pass of attention for this rank's heads.

    It computes all rows, in the order of batches.
    """

    def __init__(self, columns: AttentionColumns) -> None:
        self.columns = columns
        owner = columns.owner
        K, buffer = owner.count, owner.columns.buffer
        self.dl, self.dr = buffer("dl", owner.rows_out + 1, K), buffer("dr", owner.rows_in, K)
        repeat(operator.setitem, self.dl, -1, 0)  # gradient of rows that are not computed
        self.pulled = buffer("pulled", owner.rows_out, columns.out.shape[1] + 3 * K)

    def receive_rows(self, G: Array, first: int, last: int) -> None:
        """Prepare the backward for the received rows [first, last) of G."""
        part = slice(first, last)
        each = self.columns
        kernels.backend(G).attend_dots(
            G[part], each.out[part], each.above[part], each.share[part], each.l[part],
            each.lse[part], self.pulled[part], self.dl[part], slope=SLOPE)

    def tile(self, block: Csr, indptr: np.ndarray, G: Array, Z: Array, first: int,
             last: int, bits: Any) -> None:
        """Compute rows [first, last) of the gradient of x."""
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


class BatchProduct:
    """Product with the matrix, computed in tiles as batches of rows arrive."""

    def receive_rows(self, X: Array, first: int, last: int) -> None:
        """Do nothing: the received rows need no preparation."""

    def tile(self, block: Csr, indptr: np.ndarray, X: Array, Z: Array, first: int,
             last: int, bits: Array | None) -> None:
        """Compute rows [first, last) of the product."""
        kernels.backend(X).spmm(indptr, block.indices, block.data, X, rows_of(Z, first, last),
                                mask=rows_of(bits, first, last))


