"""A product of strategy mop on ranks that have a Spool, because memory is short.

A rank sends all rows before it waits, its own ones included, and then multiplies its columns of
all rows. It sends all sums before it waits again. So its rows leave memory while it
multiplies. Messages are counted as if they were sent batch by batch.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.record import ALL, repeat
from hpgcn.parallel.csr import rows_of
from hpgcn.parallel.layout import split
from hpgcn.parallel.spooled_exchange import arriving, count_call, next_turn, send_part
from hpgcn.strategies.masked_additions import count_masked
from hpgcn.strategies.mixture.product_in_flight import column_bits
from hpgcn.strategies.strategy import product_name

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.strategies.mixture.row_batches import BatchedOperand, RowBatches


class SpooledProduct:
    """The product of a BatchedOperand and H, (m, f), whose results `work` computes.

    `backward` says whether it is with A^T.
    """

    def __init__(self, comm: SerialComm, operand: BatchedOperand, H: Array, work: Any, *,
                 backward: bool) -> None:
        self.comm = comm
        self.operand = operand
        self.H = H
        self.work = work
        self.product = H.shape[1], backward
        self.what = product_name(comm.clock)
        self.cuts = split(H.shape[1], comm.size)
        self.widths = np.diff(self.cuts)
        self.width = int(self.widths[comm.rank])

    def complete(self, out: Array, mask: Array | None, rows_done: Callable | None) -> None:
        """Write the product to `out`, and call `rows_done` for each batch of its rows."""
        comm, rows, columns = self.comm, self.operand.rows, self.operand.columns
        self._send_rows(mask)
        sources = senders(np.diff(columns.offsets) * self.width)
        if mask is not None:
            sources += senders(np.diff(rows.offsets) * self.width)
        next_turn(comm, sources, self.what, *self.product)
        with comm.device.in_memory():
            self._multiply(mask is not None)
        sources = senders(self.widths * len(out))
        next_turn(comm, sources, self.what, *self.product)
        for source, part in arriving(comm, sources, self.what):
            repeat(operator.setitem, out, (ALL, slice(*self.cuts[source:source + 2])), part)
        if rows_done is not None:
            first = (rows.starts - rows.offsets[:-1])[:, comm.rank].tolist()
            for begin, height in zip(first, rows.counts[:, comm.rank].tolist()):
                if height:
                    rows_done(out, begin, begin + height)

    def _send_rows(self, mask: Array | None) -> None:
        """Send the columns of all ranks, then their bits of a mask."""
        comm, H = self.comm, self.H
        numbers = comm.device.xp.arange(len(H))
        parts = list(enumerate(pairwise(self.cuts.tolist())))
        for target, (lo, hi) in parts:
            send_part(comm, [target], (len(H), hi - lo), H.dtype,
                      lambda to, lo=lo, hi=hi: kernels.backend(H).gather(H[:, lo:hi], numbers, to))
        heights = self.operand.columns.counts[:, comm.rank, None]
        self._count(heights * self.widths * H.itemsize)
        if mask is not None:
            sizes = -(-self.widths // 8)
            for target, (lo, hi) in parts:
                send_part(comm, [target], (len(mask), int(sizes[target])), np.uint8,
                          lambda to, lo=lo, hi=hi: repeat(column_bits, mask, lo, hi, to))
            self._count(sizes[None] * len(mask))

    def _multiply(self, masked: bool) -> None:
        """Multiply own columns of all rows, and send the results to the owners of the rows."""
        comm, operand, dtype = self.comm, self.operand, self.H.dtype
        X = self._received(operand.columns, self.width, dtype)
        bits = self._received(operand.rows, -(-self.width // 8), np.uint8) if masked else None
        Z = comm.device.empty((operand.rows.num_rows, self.width), dtype)
        for first, last in pairwise(operand.columns.bounds.tolist()):
            self.work.receive_rows(X, first, last)
        for block, first in zip(operand.batches, operand.rows.bounds.tolist()):
            for lo, hi, indptr, _ in block.tiles(under_way=False, accumulate=False):
                with comm.clock("spmm"):
                    self.work.tile(block, indptr, X, Z, first + lo, first + hi, bits)
                count_masked(comm, indptr, rows_of(bits, first + lo, first + hi), self.width)

        self.work.finish()

        for target, height in enumerate(np.diff(operand.rows.offsets).tolist()):
            def fill(to: Array, target: int = target) -> None:
                for there, here in places(operand.rows, target):
                    repeat(operator.setitem, to, there, Z[here])

            send_part(comm, [target], (height, self.width), dtype, fill)
        self._count(operand.rows.counts * self.width * dtype.itemsize)

    def _received(self, rows: RowBatches, width: int, dtype: DTypeLike) -> Array:
        """Return own columns of all rows, in the order of batches."""
        found = self.comm.device.empty((rows.num_rows, width), dtype)
        for source, part in arriving(self.comm, senders(np.diff(rows.offsets) * width), self.what):
            for there, here in places(rows, source):
                repeat(operator.setitem, found, here, part[there])
        return found

    def _count(self, sizes: np.ndarray) -> None:
        """Count the messages of each batch; `sizes` are their bytes, (batches, P)."""
        for batch in sizes.tolist():
            count_call(self.comm, dict(enumerate(batch)))


def senders(sizes: np.ndarray) -> list[int]:
    """Return the ranks that send something; `sizes` are the numbers that ranks send."""
    return np.flatnonzero(sizes).tolist()


def places(rows: RowBatches, rank: int) -> Iterator[tuple[slice, slice]]:
    """Yield places of a rank's rows among its own, and among all in the order of batches."""
    own = (rows.starts - rows.offsets[:-1])[:, rank].tolist()
    ends = np.cumsum(rows.counts.ravel()).reshape(rows.counts.shape)[:, rank].tolist()
    for begin, end, height in zip(own, ends, rows.counts[:, rank].tolist()):
        yield slice(begin, begin + height), slice(end - height, end)
