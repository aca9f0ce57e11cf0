"""Mixture of parallelism: aggregation by columns, update by rows: strategy `mop`.

Each rank owns a block of rows of H, G and Z; W is on every rank. For a product with A
rows are exchanged for columns. Rank q gets its part of the columns of all rows and
multiplies them by all of A-hat, which every rank holds. It sends the rows of the result
back to their owners. The mask of a result travels as bits, before the product, and is
applied within it (S-SpMM).

Both all-to-alls go in s batches of rows (`row_batches`). All batches are sent at once.
Batch i is aggregated as soon as the rows that it reads have arrived, by the columns of
A. It returns while batch i + 1 is aggregated, and is updated then (`product`). Ranks may
own pieces of contiguous batches of an order of bandwidth b < n. With s = ceil(2 n / (n
- b)) the first batch then does not wait for the last (Proposition 3.5). With contiguous
row blocks the same holds with the rows of a rank, m = n / P, for n. Otherwise only the
way back is hidden.

Valid for any P and any row blocks, empty ones included, and for fewer columns than
ranks. Words per product of width f: n f - sum of m_p f_p each way over all ranks,
whatever the graph. A masked result adds ceil(f_q / 8) bytes of rank q's columns for
each row of the others. Messages: one for each non-empty (source, destination, batch)
each way; the bits go in one batch. Memory: all of A on every rank (and A^T if A is not
symmetric), 2 n ceil(f / P) words of columns. Rows under way take m f words.

Restricted to some rows (out) of the result and some (in) of H, only these travel: n_in
f words there, n_out f back. Such a map holds its entries of A, once in each direction
that differs, and works in the buffers of the whole one.

Rows may be updated on a GPU and aggregated on the cores of the host (MixGCN-CPU). A,
and the columns that a rank gets, are then in host memory, which is larger. Batches are
packed on the GPU and copied to pinned memory one after the other, each sent when it is
there. Returning rows are copied back batch by batch while others are aggregated.

Source: mixgcn, sections 3.1 and 3.2.
"""
from itertools import pairwise

import numpy as np

from hpgcn import kernels
from hpgcn.graphs.reordering import bandwidth
from hpgcn.parallel.csr import TILES, in_order, rows_of
from hpgcn.parallel.layout import split
from hpgcn.parallel.workspace import Workspace
from hpgcn.runtime.device import HOST
from hpgcn.runtime.gpu_limits import check_nonzeros
from hpgcn.strategies.masked_additions import count_masked
from hpgcn.strategies.mixture.batched_operand import BatchedOperand
from hpgcn.strategies.mixture.mop_attention import BatchProduct, ColumnAttention
from hpgcn.strategies.mixture.mop_plan import MopPlan, MopTraffic
from hpgcn.strategies.mixture.row_batches import (
    PackedBatches,
    RowBatches,
    count_batches,
    count_fewer,
    pieces,
)
from hpgcn.strategies.mixture.staged_buffers import Shared, StagedBuffers
from hpgcn.strategies.strategy import Strategy, product_name


class MopBuffers:
    """Buffers for own columns of all rows, packed rows and masks; one map at a time
    uses them.

    `home`: the device where rows are aggregated; `batched`: rows travel in more than
    one batch.
    """

    def __init__(self, layout, comm, home, dtype, batched):
        self.comm = comm
        self.home = home
        self.dtype = dtype
        self.batched = batched
        self.num_rows = int(layout.offsets[-1])
        self.room = layout.rows.num_rows
        self.row_numbers = comm.device.xp.arange(self.room)  # positions of the rows of a piece
        self.attended = Workspace(dtype, home)  # by layers that attend
        self.width = -1
        self.reserve(0)

    def reserve(self, width):
        """Make room for products of this width."""
        if width <= self.width:
            return
        self.width = width
        mine = -(-width // self.comm.size)
        device = self.comm.device
        empty = self.home.empty
        # columns of H and of the result
        self.columns = empty((2, self.num_rows * mine), self.dtype)
        kind = Shared if self.home is device else StagedBuffers
        self.packed = kind(device, self.room * width, self.dtype)
        bits = 1 + self.batched, self.num_rows * -(-mine // 8)  # as they come, and in batches
        self.bits = empty(bits, np.uint8)
        packed_bits = self.room * self.comm.size * -(-mine // 8)
        self.packed_bits = empty(packed_bits, np.uint8)

    @property
    def nbytes(self):
        """Bytes of all buffers."""
        return sum(each.nbytes for each in
                   (self.columns, self.packed.far, self.bits, self.packed_bits))


class MixtureOfParallelism(Strategy):
    """Strategy `mop`: each rank owns rows, and aggregates some columns of all rows.

    `operands`: BatchedOperands of the forward and of the backward product, one object
    if it serves both. `asked`: number of batches in the settings, or 0. `parent`: the
    map of all rows, from which this map was cut.
    """

    name = "mop"
    Plan = MopPlan
    supports_attention = True
    options = ("pipeline_batches", "aggregate_on", "update_on")

    def __init__(self, layout, layout_in, comm, operands, buffers, *, symmetric, asked,
                 parent=None):
        self.layout = layout
        self.layout_in = layout_in
        self.comm = comm
        self.operand, self.operand_back = operands
        self.buffers = buffers
        self.home = buffers.home
        self.symmetric = symmetric
        self.asked = asked
        self.parent = parent
        self.num_batches = self.operand.rows.num_batches

    @classmethod
    def row_offsets(cls, shape, indptr):
        # Even row blocks, since every rank multiplies by all of A.
        return split(indptr.size - 1, shape[0])

    @classmethod
    def mask_slices(cls, shape):
        return shape[0]

    @classmethod
    def own_options(cls, options, device):
        # Rows may be aggregated on the host beside a GPU (mixgcn, MixGCN-CPU).
        home = HOST if options.aggregates_on_host else device
        on_host = options.updates_on == "cuda" and options.aggregates_on_host
        return {"pipeline_batches": options.pipeline_batches, "home": home, "on_host": on_host}

    @classmethod
    def build(cls, adjacency, rank_grid, comm, *, width=0):
        layout = rank_grid.layout
        home = rank_grid.options["home"]
        asked = rank_grid.options["pipeline_batches"]
        with comm.collective_errors():  # each rank reads all of A: each may meet its own error
            matrix = adjacency.block(0, adjacency.num_rows)
        check_nonzeros(comm, home, matrix.nnz, cut=False)
        matrix.sort_indices()

        # batches of rows, if they are worth it
        num_batches = count_batches(layout.offsets, asked, lambda: bandwidth(matrix))
        batches = RowBatches.best(layout.offsets, num_batches, matrix.indptr, matrix.indices)
        if num_batches > 1:
            place = batches.positions(np.arange(batches.num_rows))
            matrix = in_order(matrix, place, place)

        operand = operand_back = BatchedOperand.of(home, matrix, batches, batches)
        if not adjacency.symmetric:
            operand_back = BatchedOperand.of(home, matrix.T.tocsr(), batches, batches)

        buffers = MopBuffers(layout, comm, home, adjacency.dtype, num_batches > 1)
        strategy = cls(layout, layout, comm, (operand, operand_back), buffers,
                       symmetric=adjacency.symmetric, asked=asked)
        strategy.reserve(width)
        return strategy

    def reserve(self, width):
        if self.comm.size > 1:
            self.buffers.reserve(width)

    @property
    def buffer_bytes(self):
        return 0 if self.parent else self.buffers.nbytes

    def restrict(self, rows_out, rows_in):
        # Deal the batches anew.
        layouts = self.layout.restricted(rows_out), self.layout.restricted(rows_in)
        num_batches = count_fewer(self.num_batches, self.asked, layouts)
        in_order = self.operand.rows.in_order
        out, into = (RowBatches.of(layout.offsets, num_batches, in_order) for layout in layouts)
        operand = operand_back = self.operand.restricted(out, into, rows_out, rows_in)
        if not (self.symmetric and np.array_equal(rows_out, rows_in)):
            operand_back = self.operand_back.restricted(into, out, rows_in, rows_out)
        return type(self)(*layouts, self.comm, (operand, operand_back), self.buffers,
                          symmetric=self.symmetric, asked=self.asked, parent=self)

    @property
    def updates_in_batches(self):
        return self.num_batches > 1 and self.comm.size > 1

    def forward(self, H, *, mask=None, out=None, update=None):
        return self.product(self.operand, H, out, BatchProduct(), mask, update)

    def backward(self, G, *, mask=None, out=None, update=None):
        return self.product(self.operand_back, G, out, BatchProduct(), mask, update)

    @classmethod
    def unsupported_reason(cls, heads, ranks, edges=False):
        # A rank takes whole heads.
        if any(count % ranks for count in heads):
            return f"{ranks} ranks cannot share {', '.join(map(str, sorted(set(heads))))} heads"
        return super().unsupported_reason(heads, ranks, edges)

    def attention(self, heads):
        return ColumnAttention(self, heads)

    def product(self, operand, H, out, work, mask=None, update=None):
        """Exchange rows of H for columns, run `work` on them, send the results back.

        `work`, such as a BatchProduct, receives rows as they arrive, and tiles of rows
        of the result. `update` gets ranges of own rows that have returned, in the order
        of batches. On one device batch k + 1 is sent back before batch k is updated. A
        GPU beside the host gets batches between tiles, as soon as they are back. It
        updates them while the host aggregates.
        """
        comm = self.comm
        rows, columns = operand.rows, operand.columns
        f = H.shape[1]
        m = int(rows.offsets[comm.rank + 1] - rows.offsets[comm.rank])
        what = product_name(comm.clock)

        if out is None:
            out = comm.device.empty((m, f), H.dtype)
        if comm.size == 1:
            with comm.clock("spmm"):
                return self._alone(operand.block, H, mask, out, work)

        # this rank gets all rows, but only its own columns
        self.reserve(f)
        cuts = split(f, comm.size)
        width = int(cuts[comm.rank + 1] - cuts[comm.rank])
        X, Z = (buffer[:batches.num_rows * width].reshape(batches.num_rows, width)
                for buffer, batches in zip(self.buffers.columns, (columns, rows)))
        room = self.buffers.room

        # messages, by batch of rows
        going = self._parcels(columns, slice((room - len(H)) * f, room * f), cuts)
        coming = self._parcels(rows, slice(m * f), cuts)
        self.buffers.packed.begin()
        bits = None if mask is None else self._exchange_bits(operand, mask, cuts, what)

        # multiply each batch of rows once the rows that it reads have arrived
        there = self._send_rows(columns, going, H, X)
        back = []
        arrived = returned = 0
        two_devices = self.buffers.packed.eager

        def take(batch):
            comm.clock.stage = batch
            back[batch].wait(f"{what}, sums of batch {batch}")
            self._unpack(*coming, batch, out)
            if update is not None and coming[0].counts[batch]:
                update(*coming[0].rows(batch))
            return batch + 1

        def take_returned(returned, before):
            while update is not None and returned < before and back[returned].test():
                returned = take(returned)
            return returned

        for batch, needed in enumerate(operand.needed):
            for earlier in range(arrived, needed):
                comm.clock.stage = earlier
                there[earlier].wait(f"{what}, rows of batch {earlier}")
                work.receive_rows(X, *columns.bounds[earlier:earlier + 2].tolist())
            arrived = max(arrived, needed)
            under_way = [*there[arrived:], *back]
            block = operand.batches[batch]
            begin, end = rows.bounds[batch:batch + 2].tolist()
            most = -(-TILES // self.num_batches)
            tiles = block.tiles(bool(under_way), accumulate=False, most=most)
            for lo, hi, indptr, _ in tiles:
                if two_devices:
                    returned = take_returned(returned, batch)
                comm.clock.stage = batch
                with comm.clock("spmm"):
                    work.tile(block, indptr, X, Z, begin + lo, begin + hi, bits)
                    count_masked(comm, indptr, rows_of(bits, begin + lo, begin + hi), width)
                under_way = [handle for handle in under_way if not handle.test()]

            # the rows of my columns go back to their owners
            back.append(comm.start_alltoall(
                Z[begin:end], rows.counts[batch] * width, coming[1].parts[batch],
                coming[1].sizes(batch), "aggregation"))

            # take earlier batches that are back
            returned = take_returned(returned, batch)

        # put the columns of all ranks together again
        for batch in range(returned, len(back)):
            take(batch)
        comm.clock.stage = -1
        return out

    def _alone(self, block, H, mask, out, work):
        """Return the product on a single rank, whose host may aggregate for its GPU."""
        Z = out
        if self.home is not self.comm.device:
            H, mask = map(self.buffers.packed.fetch, (H, mask))
            Z = self.home.empty(out.shape, out.dtype)
        work.receive_rows(H, 0, len(H))
        work.tile(block, block.indptr, H, Z, 0, len(Z), mask)
        count_masked(self.comm, block.indptr, mask, Z.shape[1])
        if Z is not out:
            self.buffers.packed.put_back(Z, out)
        return out

    def _parcels(self, batches, place, cuts):
        """Return PackedBatches of a slice of both buffers: on the device, and for MPI."""
        packed = self.buffers.packed
        return [PackedBatches(batches, self.comm.rank, flat[place], cuts)
                for flat in (packed.near, packed.far)]

    def _send_rows(self, batches, going, H, X):
        """Start to send own rows of H in batches; X receives columns of all rows."""

        def send(batch):
            first, last = batches.bounds[batch:batch + 2]
            return self.comm.start_alltoall(
                going[1].parts[batch], going[1].sizes(batch), X[first:last],
                batches.counts[batch] * X.shape[1], "aggregation")

        packed = []
        handles = []
        for batch in range(self.num_batches):
            packed.append(self._pack(*going, batch, H))
            if not self.buffers.packed.eager:
                handles.append(send(batch))
        for batch in range(len(handles), self.num_batches):
            packed[batch]()
            handles.append(send(batch))
        return handles

    def _pack(self, near, far, batch, H):
        """Pack own rows of a batch for sending; return a function that waits for it."""
        ops = kernels.backend(H)
        packed = near.pairs(batch, H)
        with self.comm.clock("comm"):
            for block, rows in packed:
                ops.gather(rows, self.buffers.row_numbers[:len(rows)], block)
            return self.buffers.packed.lower(near.parts[batch], far.parts[batch])

    def _unpack(self, near, far, batch, out):
        ops = kernels.backend(out)
        with self.comm.clock("comm"):
            self.buffers.packed.lift(near.parts[batch], far.parts[batch])
            for block, rows in near.pairs(batch, out):
                ops.gather(block, self.buffers.row_numbers[:len(rows)], rows)

    def _exchange_bits(self, operand, mask, cuts, what):
        """Exchange a mask of own rows for own columns of all rows' mask, in batches."""
        batches = operand.rows
        sizes = -(-np.diff(cuts) // 8)
        mask = self.buffers.packed.fetch(mask)
        n = batches.num_rows
        m = len(mask)

        mine = int(sizes[self.comm.rank])
        outgoing = self.buffers.packed_bits[:m * sizes.sum()]
        incoming = self.buffers.bits[0, :n * mine].reshape(n, mine)

        # cut the bits of each rank's columns out
        with self.comm.clock("comm"):
            for block, (lo, hi) in zip(pieces(outgoing, m * sizes), pairwise(cuts.tolist())):
                column_bits(mask, lo, hi, block.reshape(m, -(-(hi - lo) // 8)))
        self.comm.start_alltoall(outgoing, m * sizes, incoming, np.diff(batches.offsets) * mine,
                                 "aggregation").wait(f"{what}, masks")

        if self.num_batches == 1:
            return incoming
        with self.comm.clock("comm"):
            in_batches = self.buffers.bits[1, :n * mine].reshape(n, mine)
            return kernels.backend(mask).gather(incoming, operand.order, in_batches)

    def traffic(self):
        return MopTraffic((self.layout, self.layout_in), self.num_batches)


def column_bits(mask, first, last, out):
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
