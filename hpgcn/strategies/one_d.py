"""Row-parallel aggregation by broadcasts: strategy `1d`.

Each rank holds the rows of A, H and G in its block; W is on every rank. The slab of A is cut in one column block a rank
as it is read. In stage k rank k broadcasts its rows of H, whoever reads them, and every rank multiplies its block k
by them: the own block first, which waits for nobody, then the others in the order of ranks. Of two buffers one receives
while the other is multiplied; a broadcast starts once its buffer is read no more. If A is symmetric the backward is the
same code applied to G; otherwise it is the adjoint: in stage k every rank forms its partial sum for the rows of rank k,
and these are reduced to rank k while the next one is formed.

Valid for any P and any row blocks, empty ones included. A product of width f sends m_p f (P - 1) words from rank p in
P - 1 messages, or as partial sums (n - m_p) f words to the P - 1 others: n f (P - 1) words and P (P - 1) messages over
all ranks; empty blocks send nothing. Memory: the slab of A, P row pointers a row and the numbers of the rows that each
block touches (and its transpose if A is not symmetric), two buffers as tall as the largest block of another rank.

To fewer rows from fewer rows the same code runs on blocks cut anew, in the same buffers; m_p and n are rows of H then.
The backward broadcasts rows of G if A is symmetric, by blocks of their own unless both sets of rows are equal;
otherwise it reduces rows of H.

Source: cagnet-2020, section IV-A, Algorithm 1, with sigma after the sum; mg-gcn-2021, section 4.3.
"""
from __future__ import annotations

from collections import deque
from copy import copy
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hpgcn import cost, kernels
from hpgcn.capacity import check_nonzeros
from hpgcn.layout import split
from hpgcn.operator import PORTIONS, Operator, csr, on, select
from hpgcn.strategies.tiles import TILES, rows_of, tiles

TILE_NONZEROS = 1 << 13  # of a tile, at least


class Staged:
    """What 1d and 1.5d share: how A is read, the map to fewer rows, and what the products send.

    Attributes
    ----------
    layout, layout_in : hpgcn.layout.Grid
        Who owns rows of the result of `forward`, and rows of H; the same unless restricted.
    axes : (P / c, c)
    held : (slice, slice)
        Rows and columns of A that this rank multiplies.
    product, reverse : StagedProduct
        Of A; and of its transpose if A is symmetric, else None: the backward is the adjoint of `product`.
    groups : tuple of hpgcn.comm.MpiComm
        Made here, and freed here.
    buffer_bytes : int
        Memory of messages, made once; 0 if restricted.
    """

    def _read(self, operator, offsets, first, comm, max_width):
        """Read what is held in stages: rank `first` + s of `comm` owns rows [offsets[s], offsets[s + 1]) of H."""
        self.symmetric = operator.symmetric
        blocks, transposed = read(operator, self.held[0], offsets, transposed=not self.symmetric)
        check_nonzeros(self.comm, comm.device, sum(block[1].size for block in blocks))
        heights = np.diff(offsets).tolist()
        others = [height for stage, height in enumerate(heights) if first + stage != comm.rank]
        buffers = [comm.device.empty(max(others) * max_width, self.dtype) for _ in others[:2]]
        self.product = StagedProduct(blocks, transposed, heights, first, comm, buffers)
        self.reverse = self.product if self.symmetric else None
        self.buffer_bytes = sum(buffer.nbytes for buffer in buffers)

    def restrict(self, rows_out, rows_in):
        """The same map to fewer rows from fewer rows: see `hpgcn.strategies.Strategy`."""
        made, (rows, columns) = copy(self), self.held
        made.layout, made.layout_in = self.layout.restricted(rows_out), self.layout.restricted(rows_in)
        made.groups, made.buffer_bytes = (), 0
        with self.comm.together():
            made.product = self.product.restricted(rows_out[rows], rows_in[columns])
            if self.symmetric:
                same = np.array_equal(rows_out, rows_in)
                made.reverse = made.product if same else self.product.restricted(rows_in[rows], rows_out[columns])
        return made

    def costs(self):
        """What its products send: see `hpgcn.strategies.Strategy`."""
        rows, rows_out = (np.diff(grid.offsets).reshape(self.axes) for grid in (self.layout_in, self.layout))
        forward = backward = cost.Blocks(rows, rows_out, 1)
        if self.symmetric and not np.array_equal(rows, rows_out):
            backward = cost.Blocks(rows_out, rows, 1)
        return cost.Map(forward, backward, adjoint=not self.symmetric)

    def close(self):
        """Free the communicators that were made, which a restricted map leaves to the whole one."""
        for comm in self.groups:
            comm.close()


class OneD(Staged):
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
        self.layout = self.layout_in = grid
        self.axes, self.comm, self.dtype, self.groups = (comm.size, 1), comm, np.dtype(dtype), ()
        self.held = slice(grid.rows.start, grid.rows.stop), slice(0, int(grid.offsets[-1]))
        with comm.together():
            operator = Operator(source, norm=norm, self_loops=self_loops, dtype=dtype)
            self._read(operator, grid.offsets, 0, comm, max_width)

    def forward(self, H, *, layer, mask=None, out=None):
        """Return this rank's rows of A H: see `hpgcn.strategies.Strategy`."""
        out = self.comm.device.empty((self.layout.rows.num_rows, H.shape[1]), self.dtype) if out is None else out
        return self.product.multiply(H, out, f"layer {layer} forward", mask)

    def backward(self, G, *, layer, mask=None, out=None):
        """Return this rank's rows of A^T G: see `hpgcn.strategies.Strategy`."""
        out = self.comm.device.empty((self.layout_in.rows.num_rows, G.shape[1]), self.dtype) if out is None else out
        what = f"layer {layer} backward"
        if self.symmetric:
            return self.reverse.multiply(G, out, what, mask)
        self.product.adjoint(G, out, what)
        if mask is not None:  # partial sums are added by then: only their total may be masked
            with self.comm.clock("spmm"):
                kernels.backend(out).apply_mask(out, mask)
        return out


class StagedProduct:
    """Some rows of A in blocks of columns, one a stage: in stage s, rank `first` + s broadcasts the rows that it owns.

    Parameters
    ----------
    blocks : list of S (indptr, indices, data, rows that hold something)
        This rank's m rows of A, in stage s their heights[s] columns; given on the host, kept on the device.
    transposed : list of S likewise, or None
        Their transposes: `adjoint` needs them.
    heights : list of S int
        Rows that rank `first` + s owns of what is multiplied.
    first : int
        Rank of `comm` whose rows are broadcast first.
    comm : hpgcn.comm.SerialComm or MpiComm
        Ranks whose rows of A have these columns.
    buffers : list of arrays
        Two for the rows of others, or one for each if there are fewer.
    """

    def __init__(self, blocks, transposed, heights, first, comm, buffers):
        self.blocks, self.transposed = ([on(comm.device, block) for block in each] if each is not None else None
                                        for each in (blocks, transposed))
        self.first, self.comm, self.buffers, self.heights = first, comm, buffers, heights
        stage = comm.rank - first
        self.own = stage if 0 <= stage < len(heights) else None
        self.started = deque()  # (stage, buffer or None, rows, collective) under way, in order

    def restricted(self, rows, columns):
        """The product of some rows, (m,) bool, and columns, (sum(heights),) bool; itself if of all; shares buffers."""
        if rows.all() and columns.all():
            return self
        bounds = pairwise(np.cumsum([0, *self.heights]).tolist())
        columns = [columns[lo:hi] for lo, hi in bounds]
        get = self.comm.device.get
        blocks = [with_rows(select(tuple(map(get, block)), rows, part)) for block, part in zip(self.blocks, columns)]
        transposed = None
        if self.transposed is not None:
            transposed = [with_rows(select(tuple(map(get, block)), part, rows))
                          for block, part in zip(self.transposed, columns)]
        heights = [int(np.count_nonzero(part)) for part in columns]
        return StagedProduct(blocks, transposed, heights, self.first, self.comm, self.buffers)

    def multiply(self, x, out, what, mask=None):
        """Write the rows of A x to out (m, f) and return it; x (m_in, f): the rows that this rank owns."""
        written = False
        for stage, rows in self._arrivals(x, what):
            self._spmm(self.blocks[stage], rows, out, mask, accumulate=written)
            written = True
        if not written:
            out[:] = 0
        return out

    def adjoint(self, x, out, what):
        """Write the own rows of A^T x, x (m, f), to out (m_in, f) and return it; zeros if they are in no stage."""
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
        several = self.comm.size > 1 and self.comm.device.in_tiles
        for lo, hi in tiles(indptr, min(TILES, 1 + indices.size // TILE_NONZEROS) if several else 1):
            with self.comm.clock("spmm"):
                rows = within(touched, lo, hi, indptr.size - 1) if accumulate else None
                rows = None if rows is None or rows.size == hi - lo else rows
                spmm(rows_of(indptr, lo, hi + 1), indices, data, x, rows_of(out, lo, hi), rows=rows,
                     accumulate=accumulate, mask=rows_of(mask, lo, hi))
            for *_, handle in self.started:
                handle.test()


def within(touched, first, last, num_rows):
    """Those of increasing row numbers that are in [first, last), counted from first; themselves if these are all."""
    if (first, last) == (0, num_rows):
        return touched
    return touched[slice(*np.searchsorted(touched, (first, last)))] - first


def read(operator, rows, offsets, *, transposed):
    """Some rows of A in blocks of columns, and the transposes of these blocks.

    Rows are read in portions: no more than one portion, or one block, is in memory twice.

    Parameters
    ----------
    operator : hpgcn.operator.Operator
    rows : slice
    offsets : (S + 1,) int64
        Block s has the columns [offsets[s], offsets[s + 1]).
    transposed : bool

    Returns
    -------
    blocks, transposed : lists of S (indptr, indices, data, rows that hold something)
        The latter is None unless asked for.
    """
    first, cuts = int(offsets[0]), list(pairwise((offsets - offsets[0]).tolist()))
    parts = [[] for _ in cuts]
    for lo, hi in pairwise(split(rows.stop - rows.start, PORTIONS if len(cuts) > 1 else 1).tolist() if cuts else []):
        whole = operator.block(rows.start + lo, rows.start + hi, first, int(offsets[-1]))
        for part, (start, stop) in zip(parts, cuts):
            part.append(whole if len(cuts) == 1 else whole[:, start:stop])
        del whole
    blocks, flipped = [], [] if transposed else None
    while parts:
        part = parts.pop(0)
        block = part.pop() if len(part) == 1 else sp.vstack(part, format="csr")
        blocks.append(with_rows(block))
        if transposed:
            flipped.append(with_rows(block.T.tocsr()))
    return blocks, flipped


def with_rows(matrix):
    """(indptr, indices, data) of a SciPy CSR array, and the rows that hold something, (r,) int64."""
    indptr, indices, data = csr(matrix)
    return indptr, indices, data, np.flatnonzero(np.diff(indptr))
