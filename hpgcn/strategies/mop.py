"""Mixture of parallelism: aggregation by columns, update by rows, an all-to-all between them: strategy `mop`.

Each rank owns a block of rows of H, G and Z; W is on every rank. For a product with A rows are exchanged for columns:
rank q gets its part of the columns of all rows, multiplies them by all of A-hat, which every rank holds, and sends
the rows of the result back to their owners. The mask of a result travels as bits, before the product, and is applied
within it (S-SpMM).

Both all-to-alls go in s batches of rows, each a piece of every rank's rows: all links are loaded alike at any time. All
batches are sent at once; batch i is aggregated as soon as the rows that it reads have arrived, known from the columns
of A, and returns while batch i + 1 is aggregated. Ranks deal their pieces alternately upwards and downwards, so that
rows on both sides of a border between ranks are in one batch. With bandwidth b < m = n / P a batch then reads no
further than b rows beyond its pieces, and the first of s = ceil(2 m / (m - b)) batches does not wait for the last
(Proposition 3.5 with the rows of a rank for all rows). With a wider matrix the way back alone is hidden.

Valid for any P and any row blocks, empty ones included, and for fewer columns than ranks. Words per product of width f:
n f - sum of m_p f_p each way over all ranks, whatever the graph; a masked result adds ceil(f_q / 8) bytes of rank q's
columns for each row of the others. Messages: one for each non-empty (source, destination, batch) each way; the bits go
in one batch. Memory: all of A on every rank (and A^T if A is not symmetric), 2 n ceil(f / P) words of columns, m f of
rows on their way.

Source: mixgcn, sections 3.1 and 3.2.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hpgcn import cost, kernels
from hpgcn.layout import split
from hpgcn.operator import Operator, csr
from hpgcn.reorder import bandwidth, pipeline_stages

TILES = 8  # a product is multiplied in about as many tiles, so that messages move between them
MAX_STAGES = 16
BATCH_ROWS = 1024  # a rank's rows in a batch, at least: messages of fewer cost more than they hide


@dataclass(frozen=True, eq=False)
class Batches:
    """Rows dealt into S batches of one piece of every row block: piece i of even blocks, S - 1 - i of odd ones (pure).

    Attributes
    ----------
    starts, counts : (S, P) int64
        First row, and number of rows, of rank p's piece in batch i.
    """

    starts: np.ndarray
    counts: np.ndarray

    @staticmethod
    def deal(offsets, stages):
        """Cut each of P row blocks, (P + 1,) int64 offsets, in `stages` pieces as even as they can be."""
        cuts = np.array([start + split(stop - start, stages) for start, stop in pairwise(offsets.tolist())]).T
        cuts, counts = cuts[:-1], np.diff(cuts, axis=0)
        odd = np.arange(offsets.size - 1) % 2 == 1
        return Batches(np.where(odd, cuts[::-1], cuts), np.where(odd, counts[::-1], counts))

    @cached_property
    def bounds(self):
        """Batch i is rows [bounds[i], bounds[i + 1]) of the new order; (S + 1,) int64."""
        return np.concatenate([[0], np.cumsum(self.counts.sum(1))])

    @property
    def order(self):
        """New -> old: batch after batch, in each the pieces in rank order; (n,) int64."""
        counts = self.counts.ravel()
        begins = np.cumsum(counts) - counts
        return np.repeat(self.starts.ravel() - begins, counts) + np.arange(counts.sum())

    def read(self, indptr, indices):
        """How many batches must have arrived before each can be aggregated; (S,) int64, rising, own batch included.

        Parameters
        ----------
        indptr, indices
            CSR of the matrix in the new order, columns sorted.
        """
        bounds, full = self.bounds, np.diff(indptr) > 0
        last = np.zeros(full.size + 1, np.int64)  # one more: reduceat takes no place past the end
        last[:-1][full] = indices[indptr[1:][full] - 1]
        needed = np.searchsorted(bounds, np.maximum.reduceat(last, bounds[:-1]), side="right")
        return np.maximum.accumulate(np.maximum(needed, np.arange(1, bounds.size)))


def default_stages(offsets, bandwidth):
    """Batches of rows for row blocks, (P + 1,) offsets, and a matrix of some bandwidth.

    Those of Proposition 3.5 where they let aggregation begin before all rows are there, TILES where the bandwidth
    forbids it; at most MAX_STAGES, and at least BATCH_ROWS rows of a rank in each. 1 for a single rank.
    """
    ranks, rows = offsets.size - 1, int(np.diff(offsets).max())
    if ranks == 1:
        return 1
    stages = pipeline_stages(rows, bandwidth) if bandwidth < rows else TILES
    return max(1, min(stages, MAX_STAGES, rows // BATCH_ROWS))


class MixtureOfParallelism:
    """A-hat by columns, on rows distributed by the row blocks of `grid` (a single column block).

    Parameters
    ----------
    source : hpgcn.graph.Graph with all rows, or hpgcn.store.StoredGraph
    grid : hpgcn.layout.Grid
    comm : hpgcn.comm.SerialComm or MpiComm
    norm : "sym", "row" or "none"
        As hpgcn.operator.Operator. A degree that is not positive gives the factor 0; `zero_degrees` counts such rows.
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

    Attributes
    ----------
    layout : hpgcn.layout.Grid
    symmetric : bool
    zero_degrees : int
    stages : int
        Batches that are made.
    buffer_bytes : int
        Of columns, of rows on their way and of masks.
    """

    def __init__(self, source, grid, comm, *, norm="sym", self_loops=True, dtype=np.float32, max_width=1, slab=None,
                 axes=None, stages=0):
        self.layout, self.rows, self.comm, self.dtype = grid, grid.rows, comm, np.dtype(dtype)
        with comm.together():  # each rank reads all of A: each may meet an error of its own
            operator = Operator(source, norm=norm, self_loops=self_loops, dtype=dtype)
            self.zero_degrees, self.symmetric = operator.zero_degrees, operator.symmetric
            matrix = operator.block(0, operator.num_rows)
        matrix.sort_indices()
        stages = stages or default_stages(grid.offsets, bandwidth(matrix))
        self.stages = max(1, min(stages, int(np.diff(grid.offsets).max()))) if comm.size > 1 else 1
        self.batches = Batches.deal(grid.offsets, self.stages)
        if self.stages > 1:
            self.order = self.batches.order
            matrix = in_order(matrix, self.order)
        self.operands = [self._operand(matrix)] * 2
        if not self.symmetric:
            self.operands[1] = self._operand(matrix.T.tocsr())
        self._allocate(max_width if comm.size > 1 else 0)

    def _operand(self, matrix):
        arrays = csr(matrix)
        return *arrays, self.batches.read(*arrays[:2]).tolist()

    def _allocate(self, width):
        n, m, mine = int(self.rows.offsets[-1]), self.rows.num_rows, -(-width // self.comm.size)
        self.columns = np.empty((2, n * mine), self.dtype)  # of H and of the result
        self.packed = np.empty(m * width, self.dtype)  # rows on their way out, then on their way back
        self.bits = np.empty((1 + (self.stages > 1), n * -(-mine // 8)), np.uint8)  # as they arrive, and in batches
        self.packed_bits = np.empty(m * self.comm.size * -(-mine // 8) if width else 0, np.uint8)
        self.places = np.arange(self.batches.counts[:, self.rows.rank].max())  # of the rows of a piece
        self.buffer_bytes = sum(buffer.nbytes for buffer in (self.columns, self.packed, self.bits, self.packed_bits))

    def forward(self, H, *, layer, mask=None, out=None):
        """Return this rank's rows of A H: see `hpgcn.strategies.Strategy`."""
        return self._product(self.operands[0], H, mask, out, f"layer {layer} forward")

    def backward(self, G, *, layer, mask=None, out=None):
        """Return this rank's rows of A^T G: see `hpgcn.strategies.Strategy`."""
        return self._product(self.operands[1], G, mask, out, f"layer {layer} backward")

    def _product(self, operand, H, mask, out, what):
        *matrix, read = operand
        out = np.empty(H.shape, self.dtype) if out is None else out
        if self.comm.size == 1:
            with self.comm.clock("spmm"):
                return kernels.backend(H).spmm(*matrix, H, out, mask=mask)
        cuts, n = split(H.shape[1], self.comm.size), int(self.rows.offsets[-1])
        width = int(cuts[self.comm.rank + 1] - cuts[self.comm.rank])
        X, Z = (buffer[:n * width].reshape(n, width) for buffer in self.columns)
        bits = None if mask is None else self._exchange_bits(mask, cuts, what)
        there, back = [self._send_rows(batch, H, X, cuts) for batch in range(self.stages)], []
        arrived = 0
        for batch, needed in enumerate(read):
            for earlier in range(arrived, needed):
                there[earlier].wait(f"{what}, rows of batch {earlier}")
            arrived = max(arrived, needed)
            self._aggregate(batch, matrix, X, Z, bits, there[arrived:] + back)
            back.append(self._return_rows(batch, Z, cuts))
        for batch, handle in enumerate(back):
            handle.wait(f"{what}, sums of batch {batch}")
            self._unpack(batch, out, cuts)
        return out

    def _send_rows(self, batch, H, X, cuts):
        """Start sending a batch of my rows of H, cut by columns; all rows of my columns land in place in X."""
        ops, packed = kernels.backend(H), self._blocks(batch, H, cuts)
        with self.comm.clock("comm"):
            for block, rows in packed:
                ops.gather(rows, self.places[:len(rows)], block)
        first, last = self.batches.bounds[batch:batch + 2]
        flat, sizes = self._travelling(batch, cuts)
        return self.comm.start_alltoall(flat, sizes, X[first:last], self.batches.counts[batch] * X.shape[1],
                                        "aggregation")

    def _return_rows(self, batch, Z, cuts):
        """Start returning the rows of a batch of my columns to their owners."""
        first, last = self.batches.bounds[batch:batch + 2]
        flat, sizes = self._travelling(batch, cuts)  # free again: what it held has been sent before this batch began
        return self.comm.start_alltoall(Z[first:last], self.batches.counts[batch] * Z.shape[1], flat, sizes,
                                        "aggregation")

    def _unpack(self, batch, out, cuts):
        ops = kernels.backend(out)
        with self.comm.clock("comm"):
            for block, rows in self._blocks(batch, out, cuts):
                ops.gather(block, self.places[:len(rows)], rows)

    def _travelling(self, batch, cuts):
        """Room for a batch of my rows, and how many elements of it each rank's columns take."""
        counts = self.batches.counts[:, self.rows.rank]
        first, width = int(counts[:batch].sum()), int(cuts[-1])
        return self.packed[first * width:(first + counts[batch]) * width], counts[batch] * np.diff(cuts)

    def _blocks(self, batch, rows, cuts):
        """Pair each rank's block of the packed rows with what it holds: a view of its columns of `rows` (m, f)."""
        flat, sizes = self._travelling(batch, cuts)
        first = self.batches.starts[batch, self.rows.rank] - self.rows.start
        mine = rows[first:first + self.batches.counts[batch, self.rows.rank]]
        blocks = np.split(flat, np.cumsum(sizes)[:-1])
        return [(block.reshape(len(mine), -1), mine[:, lo:hi])
                for block, (lo, hi) in zip(blocks, pairwise(cuts.tolist())) if block.size]

    def _aggregate(self, batch, matrix, X, Z, bits, under_way):
        """Multiply the rows of a batch in tiles, with a look at the messages between them."""
        (indptr, indices, data), spmm = matrix, kernels.backend(X).spmm
        first, last = self.batches.bounds[batch:batch + 2]
        tiles = -(-TILES // self.stages) if under_way else 1
        begin, end = indptr[first], indptr[last]
        cuts = np.searchsorted(indptr[first:last], begin + (end - begin) * np.arange(1, tiles) // tiles) + first
        for lo, hi in pairwise([first, *cuts, last]):
            with self.comm.clock("spmm"):
                spmm(indptr[lo:hi + 1], indices, data, X, Z[lo:hi], mask=None if bits is None else bits[lo:hi])
            under_way = [handle for handle in under_way if not handle.test()]

    def _exchange_bits(self, mask, cuts, what):
        """Exchange a mask of my rows for the bits of my columns, bit 0 the first of them; rows in batches."""
        sizes, n = -(-np.diff(cuts) // 8), int(self.rows.offsets[-1])
        m, mine = len(mask), int(sizes[self.comm.rank])
        outgoing, incoming = self.packed_bits[:m * sizes.sum()], self.bits[0, :n * mine].reshape(n, mine)
        with self.comm.clock("comm"):
            for block, (lo, hi) in zip(np.split(outgoing, np.cumsum(m * sizes)[:-1]), pairwise(cuts.tolist())):
                column_bits(mask, lo, hi, block.reshape(m, -(-(hi - lo) // 8)))
        self.comm.start_alltoall(outgoing, m * sizes, incoming, np.diff(self.rows.offsets) * mine,
                                 "aggregation").wait(f"{what}, masks")
        if self.stages == 1:
            return incoming
        with self.comm.clock("comm"):
            return kernels.backend(mask).gather(incoming, self.order, self.bits[1, :n * mine].reshape(n, mine))

    def predicted(self, step):
        """What all ranks together send in a training step; a hpgcn.cost.Traffic."""
        return cost.predict("mop", replace(step, directed=not self.symmetric), (self.comm.size,), self.rows.offsets,
                            stages=self.stages).traffic()

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


def in_order(matrix, order):
    """Rows and columns of a square csr_array in the order new -> old; columns not sorted."""
    place = np.empty(order.size, matrix.indices.dtype)
    place[order] = np.arange(order.size)
    rows = matrix[order]
    return sp.csr_array((rows.data, place[rows.indices], rows.indptr), shape=matrix.shape)
