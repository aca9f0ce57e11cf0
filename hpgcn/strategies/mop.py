"""Mixture of parallelism: aggregation by columns, update by rows, an all-to-all between them: strategy `mop`.

Each rank owns a block of rows of H, G and Z; W is on every rank. For a product with A rows are exchanged for columns:
rank q gets its part of the columns of all rows, multiplies them by all of A-hat, which every rank holds, and sends
the rows of the result back to their owners. The mask of a result travels as bits, before the product, and is applied
within it (S-SpMM).

Both all-to-alls go in s batches of rows (hpgcn.strategies.batches). All batches are sent at once; batch i is aggregated
as soon as the rows that it reads have arrived, known from the columns of A, and returns while batch i + 1 is
aggregated. With bandwidth b < m = n / P and s = ceil(2 m / (m - b)) the first batch does not wait for the last
(Proposition 3.5 with the rows of a rank for all rows). With a wider matrix the way back alone is hidden.

Valid for any P and any row blocks, empty ones included, and for fewer columns than ranks. Words per product of width f:
n f - sum of m_p f_p each way over all ranks, whatever the graph; a masked result adds ceil(f_q / 8) bytes of rank q's
columns for each row of the others. Messages: one for each non-empty (source, destination, batch) each way; the bits go
in one batch. Memory: all of A on every rank (and A^T if A is not symmetric), 2 n ceil(f / P) words of columns, m f of
rows on their way.

Restricted to some rows (out) of the result and some (in) of H, only these travel: n_in f words there, n_out f back.
Such a map holds its entries of A, once in each direction that differs, and works in the buffers of the whole one.

Rows may be updated on a GPU and aggregated on the cores of the host (MixGCN-CPU): A, and the columns that a rank gets,
are in host memory then, where there is more of it. Batches are packed on the GPU and copied to pinned memory one after
the other, each sent when it is there; what returns is copied back batch by batch while others are aggregated.

Source: mixgcn, sections 3.1 and 3.2.
"""
from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from hpgcn import cost, kernels
from hpgcn.capacity import check_nonzeros
from hpgcn.device import Host
from hpgcn.layout import split
from hpgcn.operator import Operator, csr, on, select
from hpgcn.reorder import bandwidth
from hpgcn.strategies.batches import Batches, Parcels, count_batches, count_fewer, in_order, pieces
from hpgcn.strategies.ferry import Ferry, Shared
from hpgcn.strategies.tiles import TILES, rows_of, tiles


@dataclass(frozen=True, eq=False)
class Operand:
    """A matrix (n_out, n_in) in the order of batches, as it is multiplied by.

    Attributes
    ----------
    matrix : tuple of arrays
        CSR, on `device`.
    pointers : list of S arrays
        The row pointers of each batch.
    order : (n_out,) int64
        That of `rows`, on `device`.
    rows, columns : Batches
        Of the result; of what it is multiplied by.
    needed : list of S int
        How many batches of columns must have arrived before each batch of rows is aggregated.
    """

    device: Host
    matrix: tuple
    pointers: list
    order: np.ndarray
    rows: Batches
    columns: Batches
    needed: list

    @staticmethod
    def of(device, matrix, rows, columns):
        """Hold a csr_array that is in the order of batches."""
        arrays = csr(matrix)
        needed = columns.read(*arrays[:2], rows).tolist()
        arrays, bounds = on(device, arrays), rows.bounds.tolist()
        pointers = [rows_of(arrays[0], first, last + 1) for first, last in pairwise(bounds)]
        order = device.put(rows.order) if rows.stages > 1 else None
        return Operand(device, arrays, pointers, order, rows, columns, needed)

    def restricted(self, rows, columns, kept_rows, kept_columns):
        """Some rows and columns, (n,) bool in the distributed order, put in the order of other batches."""
        kept_rows, row_numbers = self.rows.kept(kept_rows)
        kept_columns, column_numbers = self.columns.kept(kept_columns)
        matrix = select(tuple(map(self.device.get, self.matrix)), kept_rows, kept_columns)
        if self.rows.stages > 1:
            matrix = in_order(matrix, rows.places(row_numbers), columns.places(column_numbers))
        return Operand.of(self.device, matrix, rows, columns)


class MixtureOfParallelism:
    """A-hat by columns, on rows distributed by the row blocks of `grid` (a single column block).

    Parameters
    ----------
    source : hpgcn.graph.Graph with all rows, or hpgcn.store.StoredGraph
    grid : hpgcn.layout.Grid
    comm : hpgcn.comm.SerialComm or MpiComm
    norm : "sym", "row" or "none"
        As hpgcn.operator.Operator. A degree that is not positive gives the factor 0.
    self_loops : bool
        Add a loop of weight 1 where a vertex has none.
    dtype : numpy dtype
    max_width : int
        Widest H that will be multiplied.
    slab : hpgcn.graph.Graph, optional
        Not read: every rank holds all rows of A.
    axes : tuple of int, optional
        Not read: mop has but one arrangement.
    stages : int
        Batches of rows (s); 0: `default_stages`. More than the longest row block has rows are not made.
    home : hpgcn.device.Host or Cuda, optional
        Where rows are aggregated: HOST, where those of `comm` are updated on a GPU (mixgcn, MixGCN-CPU); by default
        the device of `comm`.

    Attributes
    ----------
    layout, layout_in : hpgcn.layout.Grid
        Who owns rows of the result of `forward`, and rows of H; the same unless restricted.
    symmetric : bool
    stages : int
        Batches that are made.
    buffer_bytes : int
        Of columns, of rows on their way and of masks; 0 if restricted.
    """

    def __init__(self, source, grid, comm, *, norm="sym", self_loops=True, dtype=np.float32, max_width=1, slab=None,
                 axes=None, stages=0, home=None):
        self.home = home or comm.device
        self.layout = self.layout_in = grid
        self.comm, self.dtype = comm, np.dtype(dtype)
        with comm.together():  # each rank reads all of A: each may meet an error of its own
            operator = Operator(source, norm=norm, self_loops=self_loops, dtype=dtype)
            self.symmetric = operator.symmetric
            matrix = operator.block(0, operator.num_rows)
        check_nonzeros(comm, self.home, matrix.nnz, cut=False)
        matrix.sort_indices()
        self.asked, self.stages = stages, count_batches(grid.offsets, stages, lambda: bandwidth(matrix))
        batches = Batches.deal(grid.offsets, self.stages)
        if self.stages > 1:
            place = batches.places(np.arange(batches.num_rows))
            matrix = in_order(matrix, place, place)
        self.operand = self.operand_back = Operand.of(self.home, matrix, batches, batches)
        if not self.symmetric:
            self.operand_back = Operand.of(self.home, matrix.T.tocsr(), batches, batches)
        self._allocate(max_width if comm.size > 1 else 0)

    def _allocate(self, width):
        n, self.room, mine = int(self.layout.offsets[-1]), self.layout.rows.num_rows, -(-width // self.comm.size)
        device, empty = self.comm.device, self.home.empty
        self.columns = empty((2, n * mine), self.dtype)  # of H and of the result
        self.packed = (Shared if self.home is device else Ferry)(device, self.room * width, self.dtype)
        self.bits = empty((1 + (self.stages > 1), n * -(-mine // 8)), np.uint8)  # as they arrive, and in batches
        self.packed_bits = empty(self.room * self.comm.size * -(-mine // 8) if width else 0, np.uint8)
        self.places = device.xp.arange(self.room)  # of the rows of a piece
        buffers = self.columns, self.packed.far, self.bits, self.packed_bits
        self.buffer_bytes = sum(buffer.nbytes for buffer in buffers)

    def restrict(self, rows_out, rows_in):
        """The same map to fewer rows from fewer rows: see `hpgcn.strategies.Strategy`.

        Batches are dealt afresh: as many as here, unless the longest row block, of either, is too short for them.
        """
        made = copy.copy(self)
        made.layout, made.layout_in = self.layout.restricted(rows_out), self.layout.restricted(rows_in)
        longest = max(int(np.diff(layout.offsets).max()) for layout in (made.layout, made.layout_in))
        made.stages, made.buffer_bytes = count_fewer(self.stages, self.asked, longest), 0
        out, into = (Batches.deal(layout.offsets, made.stages) for layout in (made.layout, made.layout_in))
        made.operand = made.operand_back = self.operand.restricted(out, into, rows_out, rows_in)
        if not (self.symmetric and np.array_equal(rows_out, rows_in)):
            made.operand_back = self.operand_back.restricted(into, out, rows_in, rows_out)
        return made

    def forward(self, H, *, layer, mask=None, out=None):
        """Return this rank's rows of A H: see `hpgcn.strategies.Strategy`."""
        return self._product(self.operand, H, mask, out, f"layer {layer} forward")

    def backward(self, G, *, layer, mask=None, out=None):
        """Return this rank's rows of A^T G: see `hpgcn.strategies.Strategy`."""
        return self._product(self.operand_back, G, mask, out, f"layer {layer} backward")

    def _product(self, operand, H, mask, out, what):
        rank, f, rows, columns = self.comm.rank, H.shape[1], operand.rows, operand.columns
        m = int(rows.offsets[rank + 1] - rows.offsets[rank])
        out = self.comm.device.empty((m, f), self.dtype) if out is None else out
        if self.comm.size == 1:
            with self.comm.clock("spmm"):
                return self._alone(operand, H, mask, out)
        cuts = split(f, self.comm.size)
        width = int(cuts[rank + 1] - cuts[rank])
        X, Z = (buffer[:batches.num_rows * width].reshape(batches.num_rows, width)
                for buffer, batches in zip(self.columns, (columns, rows)))
        going = self._parcels(columns, slice((self.room - len(H)) * f, self.room * f), cuts)
        coming = self._parcels(rows, slice(m * f), cuts)
        self.packed.begin()
        bits = None if mask is None else self._exchange_bits(operand, mask, cuts, what)
        there, back, arrived = self._send_rows(columns, going, H, X), [], 0
        for batch, needed in enumerate(operand.needed):
            for earlier in range(arrived, needed):
                there[earlier].wait(f"{what}, rows of batch {earlier}")
            arrived = max(arrived, needed)
            self._aggregate(batch, operand, X, Z, bits, there[arrived:] + back)
            back.append(self._return_rows(rows, coming[1], batch, Z))
        for batch, handle in enumerate(back):
            handle.wait(f"{what}, sums of batch {batch}")
            self._unpack(*coming, batch, out)
        return out

    def _alone(self, operand, H, mask, out):
        """The product of a single rank, which exchanges nothing."""
        if self.home is self.comm.device:
            return kernels.backend(H).spmm(*operand.matrix, H, out, mask=mask)
        H, mask = map(self.packed.fetch, (H, mask))
        self.packed.put_back(kernels.backend(H).spmm(*operand.matrix, H, mask=mask), out)
        return out

    def _parcels(self, batches, place, cuts):
        """Parcels in a part of the room: where they are packed, and where they are sent and received."""
        return [Parcels(batches, self.comm.rank, flat[place], cuts) for flat in (self.packed.near, self.packed.far)]

    def _send_rows(self, batches, going, H, X):
        """Start sending my rows of H in batches, cut by columns; all rows of my columns land in place in X."""
        packed, handles = [], []
        for batch in range(self.stages):
            packed.append(self._pack(*going, batch, H))
            if not self.packed.eager:
                handles.append(self._send(batches, going[1], batch, X))
        for batch in range(len(handles), self.stages):
            packed[batch]()
            handles.append(self._send(batches, going[1], batch, X))
        return handles

    def _pack(self, near, far, batch, H):
        """Copy a batch of my rows of H to where it is sent; returns what waits until it is there."""
        ops, packed = kernels.backend(H), near.pairs(batch, H)
        with self.comm.clock("comm"):
            for block, rows in packed:
                ops.gather(rows, self.places[:len(rows)], block)
            return self.packed.lower(near.parts[batch], far.parts[batch])

    def _send(self, batches, going, batch, X):
        first, last = batches.bounds[batch:batch + 2]
        return self.comm.start_alltoall(going.parts[batch], going.sizes(batch), X[first:last],
                                        batches.counts[batch] * X.shape[1], "aggregation")

    def _return_rows(self, batches, coming, batch, Z):
        """Start returning the rows of a batch of my columns to their owners."""
        first, last = batches.bounds[batch:batch + 2]
        return self.comm.start_alltoall(Z[first:last], batches.counts[batch] * Z.shape[1], coming.parts[batch],
                                        coming.sizes(batch), "aggregation")

    def _unpack(self, near, far, batch, out):
        ops = kernels.backend(out)
        with self.comm.clock("comm"):
            self.packed.lift(near.parts[batch], far.parts[batch])
            for block, rows in near.pairs(batch, out):
                ops.gather(block, self.places[:len(rows)], rows)

    def _aggregate(self, batch, operand, X, Z, bits, under_way):
        """Multiply the rows of a batch in tiles, with a look at the messages between them."""
        (_, indices, data), indptr, spmm = operand.matrix, operand.pointers[batch], kernels.backend(X).spmm
        first, last = operand.rows.bounds[batch:batch + 2]
        Z, bits = rows_of(Z, first, last), rows_of(bits, first, last)
        for lo, hi in tiles(indptr, -(-TILES // self.stages) if under_way and self.home.in_tiles else 1):
            with self.comm.clock("spmm"):
                spmm(rows_of(indptr, lo, hi + 1), indices, data, X, rows_of(Z, lo, hi), mask=rows_of(bits, lo, hi))
            under_way = [handle for handle in under_way if not handle.test()]

    def _exchange_bits(self, operand, mask, cuts, what):
        """Exchange a mask of my rows for the bits of my columns, bit 0 the first of them; rows in batches."""
        batches, sizes, mask = operand.rows, -(-np.diff(cuts) // 8), self.packed.fetch(mask)
        n = batches.num_rows
        m, mine = len(mask), int(sizes[self.comm.rank])
        outgoing, incoming = self.packed_bits[:m * sizes.sum()], self.bits[0, :n * mine].reshape(n, mine)
        with self.comm.clock("comm"):
            for block, (lo, hi) in zip(pieces(outgoing, m * sizes), pairwise(cuts.tolist())):
                column_bits(mask, lo, hi, block.reshape(m, -(-(hi - lo) // 8)))
        self.comm.start_alltoall(outgoing, m * sizes, incoming, np.diff(batches.offsets) * mine,
                                 "aggregation").wait(f"{what}, masks")
        if self.stages == 1:
            return incoming
        with self.comm.clock("comm"):
            return kernels.backend(mask).gather(incoming, operand.order, self.bits[1, :n * mine].reshape(n, mine))

    def costs(self):
        """What its products send: see `hpgcn.strategies.Strategy`."""
        rows, rows_in = (np.diff(layout.offsets)[:, None] for layout in (self.layout, self.layout_in))
        forward = cost.Blocks(rows_in, rows, 1, batches=self.stages)
        if self.layout_in is self.layout:
            return cost.Map(forward, forward)
        return cost.Map(forward, replace(forward, rows=rows, rows_out=rows_in))

    def close(self):
        """Nothing to free: mop speaks through the communicator that it was given."""


def column_bits(mask, first, last, out):
    """Copy the bits of columns [first, last) of a mask to `out` (m, ceil((last - first) / 8)): column `first` is bit 0.

    Bits past the last column are 0.
    """
    byte, shift = divmod(first, 8)
    size, rest = out.shape[1], (last - first) % 8
    out[:] = mask[:, byte:byte + size] >> shift
    if shift:
        high = mask[:, byte + 1:byte + 1 + size]
        out[:, :high.shape[1]] |= high << (8 - shift)
    if rest:
        out[:, -1] &= (1 << rest) - 1
