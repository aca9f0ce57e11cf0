"""A product of strategy mop: its batches of rows are sent, aggregated, and sent back.

The next product may begin before this one is complete (mixgcn, Figure 5d): each batch
is sent for it as soon as it is updated. At most two products are under way. The
messages of a product have two lanes, one for each way. So each rank may interleave the
batches of both products in an order of its own.
"""
from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.accesses import writes
from hpgcn.kernels.host.record import repeat
from hpgcn.parallel.csr import TILES, rows_of
from hpgcn.parallel.layout import split
from hpgcn.strategies.masked_additions import count_masked
from hpgcn.strategies.mixture.row_batches import PackedBatches, pieces
from hpgcn.strategies.strategy import product_name

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.comm.pending import Pending
    from hpgcn.kernels import Array
    from hpgcn.strategies.mixture.mop import MopBuffers
    from hpgcn.strategies.mixture.mop_attention import AttentionColumns, BatchProduct, Gradients
    from hpgcn.strategies.mixture.row_batches import BatchedOperand, RowBatches


class ProductInFlight:
    """A product with A under way, from the first batch sent to the last one updated.

    `work`, such as a BatchProduct, receives rows as they arrive, and tiles of rows of
    the result. Create it while the clock has the name of its layer.
    """

    def __init__(self, comm: SerialComm, buffers: MopBuffers, operand: BatchedOperand, H: Array,
                 work: AttentionColumns | BatchProduct | Gradients) -> None:
        self.comm = comm
        self.buffers = buffers
        self.operand = operand
        self.H = H
        self.work = work
        self.num_batches = operand.rows.num_batches
        self.detail = comm.clock.detail
        self.what = product_name(comm.clock)
        self.bits = None
        # by batch: functions that wait until it is packed, and messages each way
        self.packed, self.sends, self.returns = [], [], []
        self.num_received = self.num_updated = 0

    def reads(self, operand: BatchedOperand, H: Array) -> bool:
        """Return whether this is the product of `operand` and the array H."""
        return self.operand is operand and self.H is H

    def _timed(self, batch: int) -> Any:
        """Record the events of a block under this product and a batch of it."""
        return self.comm.clock.named(self.detail, batch)

    def begin(self) -> None:
        """Choose buffers for own columns and for rows under way."""
        comm, operand, H = self.comm, self.operand, self.H
        f = H.shape[1]
        self.buffers.reserve(f)
        number, X, Z, self.staged = self.buffers.for_next_product()
        self.cuts = split(f, comm.size)
        self.width = int(self.cuts[comm.rank + 1] - self.cuts[comm.rank])
        self.X, self.Z = (
            flat[:batches.num_rows * self.width].reshape(batches.num_rows, self.width)
            for flat, batches in ((X, operand.columns), (Z, operand.rows)))
        self.lanes = 1 + 2 * (number % 2), 2 + 2 * (number % 2)

        # messages, by batch of rows
        room = self.buffers.room
        m = int(np.diff(operand.rows.offsets)[comm.rank])
        self.going = self._parcels(operand.columns, slice((room - len(H)) * f, room * f))
        self.coming = self._parcels(operand.rows, slice(m * f))
        self.staged.begin()

    def _parcels(self, batches: RowBatches, place: slice) -> list[PackedBatches]:
        """Return PackedBatches of a slice of both buffers: on the device, and for MPI."""
        return [PackedBatches(batches, self.comm.rank, flat[place], self.cuts)
                for flat in (self.staged.near, self.staged.far)]

    def send_all(self) -> None:
        """Start to send all rows of H."""
        for batch in range(self.num_batches):
            self._pack(batch)
            if not self.staged.eager:
                self._post()
        self._post()

    def send_next(self) -> None:
        """Start to send the next batch of H, whose rows are final.

        A GPU beside the host is still computing them: the batch before is sent.
        """
        if not self.packed:
            self.begin()
        batch = len(self.packed)
        with self._timed(batch):
            self._pack(batch)
            self._post(batch + 1 - self.staged.eager)

    def _pack(self, batch: int) -> None:
        near, far = self.going
        ops = kernels.backend(self.H)
        with self.comm.clock("comm"):
            for block, rows in near.pairs(batch, self.H):
                ops.gather(rows, self.buffers.positions[:len(rows)], block)
            self.packed.append(self.staged.lower(near.parts[batch], far.parts[batch]))

    def _post(self, before: Any = None) -> None:
        """Start the messages of packed batches, those before the batch `before`."""
        batches = self.operand.columns
        far = self.going[1]
        for batch in range(len(self.sends), len(self.packed) if before is None else before):
            self.packed[batch]()
            first, last = batches.bounds[batch:batch + 2]
            self.sends.append(self.comm.start_alltoall(
                far.parts[batch], far.sizes(batch), self.X[first:last],
                batches.counts[batch] * self.width, "aggregation", self.lanes[0]))

    @property
    def ready(self) -> bool:
        """Whether a batch is left whose rows have arrived."""
        rows = self.rows_of_next()
        return rows is not None and all(each.test() for each in rows)

    def rows_of_next(self) -> list[Pending] | None:
        """Return the messages that the next batch waits for; None if one is not sent."""
        batch = len(self.returns)
        if batch == self.num_batches or self.operand.needed[batch] > len(self.sends):
            return None
        return self.sends[self.num_received:self.operand.needed[batch]]

    def aggregate_next(self, between: Callable) -> None:
        """Wait for the rows that the next batch reads, multiply, and return the result.

        `between()` is called before each tile.
        """
        comm, rows = self.comm, self.operand.rows
        batch = len(self.returns)
        self._receive(self.operand.needed[batch])
        under_way = [*self.sends[self.num_received:], *self.returns[self.num_updated:]]
        block = self.operand.batches[batch]
        begin, end = rows.bounds[batch:batch + 2].tolist()
        most = -(-TILES // self.num_batches)
        tiles = block.tiles(bool(under_way), accumulate=False, most=most)
        for lo, hi, indptr, _ in tiles:
            between()
            with self._timed(batch):
                with comm.clock("spmm"):
                    self.work.tile(block, indptr, self.X, self.Z, begin + lo, begin + hi, self.bits)
                    count_masked(comm, indptr, rows_of(self.bits, begin + lo, begin + hi),
                                 self.width)
                under_way = [handle for handle in under_way if not handle.test()]

        # the rows of my columns go back to their owners
        with self._timed(batch):
            self.returns.append(comm.start_alltoall(
                self.Z[begin:end], rows.counts[batch] * self.width, self.coming[1].parts[batch],
                self.coming[1].sizes(batch), "aggregation", self.lanes[1]))

    def _receive(self, needed: int) -> None:
        """Wait for the rows of batches before `needed`."""
        bounds = self.operand.columns.bounds
        for batch in range(self.num_received, needed):
            with self._timed(batch):
                self.sends[batch].wait(f"{self.what}, rows of batch {batch}")
                self.work.receive_rows(self.X, *bounds[batch:batch + 2].tolist())
        self.num_received = max(self.num_received, needed)

    @property
    def returned(self) -> bool:
        """Whether the sums of the next batch are back."""
        return self.num_updated < len(self.returns) and self.returns[self.num_updated].test()

    def take_next(self, out: Array, rows_done: Callable | None,
                  following: ProductInFlight | None) -> None:
        """Write the sums of the next batch to `out`, and call `rows_done` if given.

        These rows are then sent for the product `following`, if there is one.
        """
        batch = self.num_updated
        near, far = self.coming
        self.num_updated += 1
        with self._timed(batch):
            self.returns[batch].wait(f"{self.what}, sums of batch {batch}")
            ops = kernels.backend(out)
            with self.comm.clock("comm"):
                self.staged.lift(near.parts[batch], far.parts[batch])
                for block, rows in near.pairs(batch, out):
                    ops.gather(block, self.buffers.positions[:len(rows)], rows)
            if rows_done is not None and near.counts[batch]:
                rows_done(out, *near.rows(batch))
        if following is not None:
            following.send_next()

    def complete(self, out: Array, rows_done: Callable | None,
                 following: ProductInFlight | None) -> None:
        """Aggregate, return and update the remaining batches, and begin `following`.

        On one device batch k + 1 is sent back before batch k is updated. A GPU beside the
        host gets batches between tiles, as soon as they are back. It updates them while
        the host aggregates. Once all batches are aggregated, those of `following` are
        aggregated in between, as soon as their rows are there.
        """
        eager = self.staged.eager
        self._post()

        def take_returned(before: int) -> None:
            while rows_done is not None and self.num_updated < before and self.returned:
                self.take_next(out, rows_done, following)

        def between() -> None:
            if eager:
                take_returned(len(self.returns))

        while len(self.returns) < self.num_batches:
            self.aggregate_next(between)
            take_returned(len(self.returns) - 1)

        # a batch of the next product for each that is updated, more while sums are not back
        while self.num_updated < self.num_batches:
            if following is None:
                self.take_next(out, rows_done, following)
                continue
            if following.ready:
                following.aggregate_next(between)
            elif not self.returned:
                self._wait_for_either(following)
            if self.returned:
                self.take_next(out, rows_done, following)

    def _wait_for_either(self, following: ProductInFlight) -> None:
        """Wait for the next sums of this product or the next rows of `following`."""
        batch = self.num_updated
        rows = following.rows_of_next()
        groups = [[self.returns[batch]]] if rows is None else [[self.returns[batch]], rows]
        with self._timed(batch):
            self.comm.wait_for_one(groups, f"{self.what}, sums of batch {batch}")

    def abandon(self) -> None:
        """Receive all messages of a product that no rank goes on with."""
        while len(self.packed) < self.num_batches:
            self.send_next()
        self._post()
        while len(self.returns) < self.num_batches:
            self.aggregate_next(lambda: None)
        for handle in self.returns:
            handle.wait(f"{self.what}, which is left")

    def exchange_bits(self, mask: Array) -> None:
        """Exchange a mask of own rows for own columns of all rows' mask, in batches."""
        comm = self.comm
        batches = self.operand.rows
        sizes = -(-np.diff(self.cuts) // 8)
        mask = self.staged.fetch(mask)
        n = batches.num_rows
        m = len(mask)

        own_bytes = int(sizes[comm.rank])
        outgoing = self.buffers.packed_bits[:m * sizes.sum()]
        incoming = self.buffers.bits[0, :n * own_bytes].reshape(n, own_bytes)

        # cut the bits of each rank's columns out
        with comm.clock("comm"):
            blocks = pieces(outgoing, m * sizes)
            for block, (lo, hi) in zip(blocks, pairwise(self.cuts.tolist())):
                repeat(column_bits, mask, lo, hi, block.reshape(m, -(-(hi - lo) // 8)))
        comm.start_alltoall(outgoing, m * sizes, incoming, np.diff(batches.offsets) * own_bytes,
                            "aggregation").wait(f"{self.what}, masks")

        self.bits = incoming
        if self.num_batches > 1:
            with comm.clock("comm"):
                in_batches = self.buffers.bits[1, :n * own_bytes].reshape(n, own_bytes)
                self.bits = kernels.backend(mask).gather(incoming, self.operand.order, in_batches)


@writes(3)
def column_bits(mask: Array, first: int, last: int, out: Array) -> None:
    """Copy mask bits of columns [first, last) to `out`, (m, ceil((last - first) / 8)).

    Column `first` is bit 0; bits past the last column are 0.
    """
    byte, shift = divmod(first, 8)
    size, rest = out.shape[1], (last - first) % 8
    out[:] = mask[:, byte:byte + size] >> shift
    if shift:
        high = mask[:, byte + 1:byte + 1 + size]
        out[:, :high.shape[1]] |= high << (8 - shift)
    if rest:
        out[:, -1] &= (1 << rest) - 1
