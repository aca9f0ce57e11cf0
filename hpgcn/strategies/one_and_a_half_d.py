"""Row-parallel aggregation by broadcasts in fewer, taller stages on replicas: strategy `1.5d`.

Ranks stand in P / c groups of c replicas; rank = group x c + replica. Group i owns big block i of the rows of H and G,
each replica a piece of it; every element has one owner, and W is on every rank. The P / c big blocks are stages, dealt
evenly to the replicas in order: replica j holds, of the rows of A in big block i, the columns of its stages alone. A
product is an allgather of the big block over its replicas, then `1d` among the P / c ranks of each replica in its own
stages, and a reduce_scatter over the replicas, which adds up the stages. On a directed graph the backward reduces
partial sums instead of broadcasting, as `1d` does.

Valid for any c that divides P; c^2 need not: where P / c < c some replicas multiply nothing. With c = 1 it is `1d`, to
the bit. A product of width f sends n f (c - 1) words to gather, n f (P/c - 1) in stages and n f (c - 1) to add up; the
stages take P/c (P/c - 1) messages, the rest 2 P (c - 1); empty blocks send nothing. Memory: 1 / c of the columns of
the big block's rows of A, two buffers as tall as the largest big block that arrives, and two as tall as the own one.

To fewer rows from fewer rows: rows of H are gathered and broadcast, rows of the result added up, all in the same
buffers; the backward as in `1d`.

Source: cagnet-2020, section IV-B, Algorithm 2; there H itself is stored c times.
"""
from __future__ import annotations

import numpy as np

from hpgcn import cost, kernels
from hpgcn.layout import split
from hpgcn.operator import Operator
from hpgcn.strategies.one_d import Staged


class OneAndAHalfD(Staged):
    """A-hat on rows distributed by the row blocks of `grid` (a single column block): c pieces of each big block.

    Parameters
    ----------
    source : hpgcn.graph.Graph with all rows, or hpgcn.store.StoredGraph
    grid : hpgcn.layout.Grid
        Block i c + j is piece j of big block i.
    comm : hpgcn.comm.SerialComm or MpiComm
    norm, self_loops, dtype
        As hpgcn.operator.Operator.
    max_width : int
        Widest H that will be multiplied.
    slab : hpgcn.graph.Graph, optional
        Not read.
    axes : (P / c, c), optional
        Default: hpgcn.cost.default_grid.

    Raises
    ------
    UsageError
        The axes do not multiply to the number of ranks.
    """

    def __init__(self, source, grid, comm, *, norm="sym", self_loops=True, dtype=np.float32, max_width=1, slab=None,
                 axes=None):
        axes = cost.default_grid("1.5d", comm.size) if axes is None else axes
        self.axes = groups, replicas = cost.check_grid("1.5d", comm.size, axes)
        self.layout = self.layout_in = grid
        self.comm, self.dtype = comm, np.dtype(dtype)
        self.group, replica = divmod(comm.rank, replicas)
        big = grid.offsets[::replicas]
        first, last = split(groups, replicas)[replica:replica + 2].tolist()
        stages = big[first:last + 1]
        self.held = slice(*big[self.group:self.group + 2].tolist()), slice(int(stages[0]), int(stages[-1]))
        self.groups = self.row, self.column = (
            comm.group(range(self.group * replicas, (self.group + 1) * replicas)),
            comm.group(range(replica, comm.size, replicas)))
        with comm.together():
            operator = Operator(source, norm=norm, self_loops=self_loops, dtype=dtype)
            self._read(operator, stages, first, self.column, max_width)
        heights = self._heights(grid)
        rows, arriving = int(heights.sum()), (replicas - 1) * int(heights[replica])
        tall = max_width * (replicas > 1)
        self.whole = comm.device.empty(max(rows, arriving) * tall, dtype)  # the big block, then what is added up
        self.partial = comm.device.empty(rows * tall, dtype)
        self.buffer_bytes += self.whole.nbytes + self.partial.nbytes

    def forward(self, H, *, layer, mask=None, out=None):
        """Return this rank's rows of A H: see `hpgcn.strategies.Strategy`."""
        return self._product(self.product.multiply, self.layout_in, self.layout, H, mask, out, f"layer {layer} forward")

    def backward(self, G, *, layer, mask=None, out=None):
        """Return this rank's rows of A^T G: see `hpgcn.strategies.Strategy`."""
        product = self.reverse.multiply if self.symmetric else self.product.adjoint
        return self._product(product, self.layout, self.layout_in, G, mask, out, f"layer {layer} backward")

    def _product(self, product, grid, grid_out, H, mask, out, what):
        """Multiply rows of H, cut by `grid`, to rows cut by `grid_out`."""
        width = H.shape[1]
        out = self.comm.device.empty((grid_out.rows.num_rows, width), self.dtype) if out is None else out
        if self.row.size == 1:
            product(H, out, what)
        else:
            counts, counts_out = self._heights(grid) * width, self._heights(grid_out) * width
            whole, partial = self.whole[:counts.sum()], self.partial[:counts_out.sum()]
            self.row.start_allgather(H, whole, counts, "aggregation").wait(f"the rows of a big block in {what}")
            product(self._rows(whole, grid, width), self._rows(partial, grid_out, width), what)
            self.row.start_reduce_scatter(partial, out, counts_out, "aggregation", work=self.whole).wait(
                f"the sum over replicas in {what}")
        if mask is not None:  # partial sums are added by then: only their total may be masked
            with self.comm.clock("spmm"):
                kernels.backend(out).apply_mask(out, mask)
        return out

    def _rows(self, array, grid, width):
        return array.reshape(int(self._heights(grid).sum()), width)

    def _heights(self, grid):
        """Rows of each piece of this rank's big block; (c,) int64."""
        return np.diff(grid.offsets).reshape(self.axes)[self.group]
