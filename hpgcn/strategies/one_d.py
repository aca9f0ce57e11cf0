"""Row-parallel aggregation by broadcasts: strategy `1d`.

Each rank holds the rows of A, H and G in its block; W is on every rank. The slab of A is cut in one column block a rank
when it is loaded. In stage k rank k broadcasts its rows of H, whoever reads them, and every rank multiplies its block k
by them: the own block first, which waits for nobody, then the others in the order of ranks. Of two buffers one receives
while the other is multiplied; a broadcast starts once its buffer is read no more. If A is symmetric the backward is the
same code applied to G; otherwise it is the adjoint: in stage k every rank forms its partial sum for the rows of rank k,
and these are reduced to rank k while the next one is formed.

Valid for any P and any row blocks, empty ones included. A product of width f sends m_p f (P - 1) words from rank p in
P - 1 messages, or as partial sums (n - m_p) f words to the P - 1 others: n f (P - 1) words and P (P - 1) messages over
all ranks; empty blocks send nothing. Memory: the slab of A, P row pointers a row and the numbers of the rows that each
block touches (and its transpose if A is not symmetric), two buffers as tall as the largest block of another rank.

Source: cagnet-2020, section IV-A, Algorithm 1, with sigma after the sum; mg-gcn-2021, section 4.3.
"""
from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import pairwise

import numpy as np

from hpgcn import cost, kernels
from hpgcn.operator import Operator, csr

TILES, TILE_NONZEROS = 8, 1 << 13  # a block is multiplied in so many tiles at most, of so many nonzeros at least


class OneD:
    """A-hat on rows distributed by the row blocks of `grid` (a single column block).

    Parameters
    ----------
    source : hpgcn.graph.Graph with all rows, or hpgcn.store.StoredGraph
    grid : hpgcn.layout.Grid
    comm : hpgcn.comm.SerialComm or MpiComm
    norm, self_loops, dtype
        As hpgcn.operator.Operator.
    max_width : int
        Widest H that will be multiplied.
    slab : hpgcn.graph.Graph, optional
        Not read.
    axes : tuple of int, optional
        Not read: 1d has but one arrangement.
    """

    def __init__(self, source, grid, comm, *, norm="sym", self_loops=True, dtype=np.float32, max_width=1, slab=None,
                 axes=None):
        self.layout, self.comm, self.dtype = grid, comm, np.dtype(dtype)
        with comm.together():
            operator = Operator(source, norm=norm, self_loops=self_loops, dtype=dtype)
            rows = operator.block(grid.rows.start, grid.rows.stop)
        self.symmetric, self.zero_degrees = operator.symmetric, operator.zero_degrees
        self.product = StagedProduct(rows, grid.offsets, 0, comm, max_width=max_width, transposed=not self.symmetric)
        self.buffer_bytes = self.product.buffer_bytes

    def forward(self, H, *, layer, mask=None, out=None):
        """Return this rank's rows of A H: see `hpgcn.strategies.Strategy`."""
        out = np.empty(H.shape, self.dtype) if out is None else out
        return self.product.multiply(H, out, f"layer {layer} forward", mask)

    def backward(self, G, *, layer, mask=None, out=None):
        """Return this rank's rows of A^T G: see `hpgcn.strategies.Strategy`."""
        out, what = np.empty(G.shape, self.dtype) if out is None else out, f"layer {layer} backward"
        if self.symmetric:
            return self.product.multiply(G, out, what, mask)
        self.product.adjoint(G, out, what)
        if mask is not None:  # partial sums are added by then: only their total may be masked
            with self.comm.clock("spmm"):
                kernels.backend(out).apply_mask(out, mask)
        return out

    def predicted(self, step):
        """What all ranks together send in a training step; a hpgcn.cost.Traffic."""
        step = replace(step, directed=not self.symmetric)
        return cost.predict("1d", step, (self.comm.size,), self.layout.offsets).traffic()

    def close(self):
        """Free nothing: the communicator is the caller's."""


class StagedProduct:
    """Columns of a slab of A in blocks, one a stage: in stage s, rank `first` + s broadcasts the rows that it owns.

    Parameters
    ----------
    slab : scipy.sparse.csr_array (m, offsets[-1] - offsets[0])
        This rank's rows of A, in the columns of all stages.
    offsets : (S + 1,) int64
        Stage s multiplies columns [offsets[s], offsets[s + 1]) of A, the rows that rank `first` + s owns.
    first : int
        Rank of `comm` whose rows are broadcast first.
    comm : hpgcn.comm.SerialComm or MpiComm
        Ranks whose slabs have these columns.
    max_width : int
    transposed : bool
        Keep the transposed blocks, too: `adjoint` needs them.
    """

    def __init__(self, slab, offsets, first, comm, *, max_width, transposed):
        self.comm, self.first = comm, first
        self.heights = np.diff(offsets).tolist()
        stage = comm.rank - first
        self.own = stage if 0 <= stage < len(self.heights) else None
        tall, cuts = slab.tocsc(), list(pairwise((offsets - offsets[0]).tolist()))  # columns are cut at no cost
        self.blocks = [with_rows(tall[:, lo:hi].tocsr()) for lo, hi in cuts]
        self.transposed = [with_rows(tall[:, lo:hi].T) for lo, hi in cuts] if transposed else None
        others = [height for stage, height in enumerate(self.heights) if stage != self.own]
        size = max(others, default=0) * max_width
        self.buffers = [np.empty(size, slab.dtype) for _ in others[:2]]
        self.buffer_bytes = sum(buffer.nbytes for buffer in self.buffers)
        self.started = deque()  # (stage, buffer or None, rows, collective) under way, in order

    def multiply(self, x, out, what, mask=None):
        """Write A x, of which this rank has the rows x (m, f) that it owns, to out (m, f) and return it."""
        written = False
        for stage, rows in self._arrivals(x, what):
            self._spmm(self.blocks[stage], rows, out, mask, accumulate=written)
            written = True
        if not written:
            out[:] = 0
        return out

    def adjoint(self, x, out, what):
        """Write the rows of A^T x that this rank owns to out (m, f) and return it; zeros if they are in no stage."""
        free, what = list(self.buffers), f"the sum of block {{}} in {what}"
        if self.own is None:
            out[:] = 0
        for stage, block in enumerate(self.transposed):
            while stage != self.own and not free:
                self._finish(free, what)
            buffer = None if stage == self.own else free.pop()
            partial = out if buffer is None else self._rows(buffer, stage, x.shape[1])
            self._spmm(block, x, partial)
            handle = self.comm.start_reduce(partial, None, self.first + stage, "aggregation")
            self.started.append((stage, buffer, partial, handle))
        while self.started:
            self._finish(free, what)
        return out

    def _arrivals(self, x, what):
        """Yield (stage, rows it reads): the own ones at once, the others in order, the next one being on its way."""
        free, waiting = list(self.buffers), deque(range(len(self.heights)))
        self._start(waiting, free, x)
        if self.own is not None:
            yield self.own, x
        while self.started:
            stage, buffer, rows, handle = self.started.popleft()
            handle.wait(f"the broadcast of block {self.first + stage} in {what}")
            if stage != self.own:
                yield stage, rows
                free.append(buffer)
            self._start(waiting, free, x)

    def _start(self, waiting, free, x):
        """Start the next broadcasts, as many as there are buffers for; own rows need none."""
        while waiting and (waiting[0] == self.own or free):
            stage = waiting.popleft()
            buffer = None if stage == self.own else free.pop()
            rows = x if buffer is None else self._rows(buffer, stage, x.shape[1])
            handle = self.comm.start_bcast(rows, self.first + stage, "aggregation")
            self.started.append((stage, buffer, rows, handle))

    def _finish(self, free, what):
        """Wait for the oldest reduction, and free its buffer."""
        stage, buffer, _, handle = self.started.popleft()
        handle.wait(what.format(self.first + stage))
        if buffer is not None:
            free.append(buffer)

    def _rows(self, buffer, stage, width):
        return buffer[:self.heights[stage] * width].reshape(self.heights[stage], width)

    def _spmm(self, block, x, out, mask=None, *, accumulate=False):
        """Multiply in tiles of rows, the same ones whatever has arrived, and let messages move between them."""
        (indptr, indices, data, touched), spmm = block, kernels.backend(x).spmm
        tiles = min(TILES, 1 + int(indptr[-1]) // TILE_NONZEROS) if self.comm.size > 1 else 1
        cuts = np.searchsorted(indptr, indptr[-1] * np.arange(1, tiles) // tiles)
        for lo, hi in pairwise([0, *cuts.tolist(), indptr.size - 1]):
            with self.comm.clock("spmm"):
                if accumulate:
                    rows = touched[slice(*np.searchsorted(touched, (lo, hi)))]
                    spmm(indptr, indices, data, x, out, rows=rows, mask=mask, accumulate=True)
                else:
                    spmm(indptr[lo:hi + 1], indices, data, x, out[lo:hi], mask=None if mask is None else mask[lo:hi])
            for *_, handle in self.started:
                handle.test()


def with_rows(matrix):
    """(indptr, indices, data) of a SciPy CSR array, and the rows that hold something, (r,) int64."""
    indptr, indices, data = csr(matrix)
    return indptr, indices, data, np.flatnonzero(np.diff(indptr))
