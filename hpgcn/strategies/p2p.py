"""Row-parallel aggregation with point-to-point messages: strategy `p2p`.

Each rank holds the rows of A, H and G that its part owns; W is on every rank. The rows of H that a neighbour reads
are sent to it and to nobody else, while the local block is multiplied; ghost blocks follow in order of their owners. If
A is symmetric the backward is the same code applied to G; otherwise it is the adjoint of each step: partial products of
the transposed ghost blocks return to the owners, who add them in the order of ranks.

Valid for any P and any partition, empty parts included. Rows sent by one product with A or A^T: the connectivity-1
metric of the partition, sum over columns of (parts that read it - 1) with the owner counted in; messages: non-empty
(owner, reader) pairs. Memory: the slab of A (and its transpose if A is not symmetric), ghost rows and send rows of the
widest exchange.

Source: demirci-2022, sections 3 and 4.1, Algorithms 1 and 2.
"""
from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hpgcn import cost, kernels
from hpgcn.check import index_dtype
from hpgcn.exchange import Exchange
from hpgcn.graph import with_self_loops
from hpgcn.operator import csr, scales
from hpgcn.plan import by_owner, complete, needs

TILES = 8  # the local block is multiplied in tiles, so that messages move between them


class PointToPoint:
    """A-hat on rows distributed by the row blocks of `grid` (a single column block).

    Parameters
    ----------
    source : hpgcn.graph.Graph or hpgcn.store.StoredGraph
    grid : hpgcn.layout.Grid
    comm : hpgcn.comm.SerialComm or MpiComm
    norm : "sym", "row" or "none"
        As hpgcn.operator.Operator. A degree that is not positive gives the factor 0; `zero_degrees` counts such rows
        over all ranks.
    self_loops : bool
        Add a loop of weight 1 where a vertex has none.
    dtype : numpy dtype
    max_width : int
        Widest H that will be multiplied.
    slab : hpgcn.graph.Graph, optional
        This rank's rows, if they were read already.
    axes : tuple of int, optional
        Not read: p2p has but one arrangement.
    """

    def __init__(self, source, grid, comm, *, norm="sym", self_loops=True, dtype=np.float32, max_width=1, slab=None,
                 axes=None):
        self.layout, self.rows, self.comm, self.dtype = grid, grid.rows, comm, np.dtype(dtype)
        slab = source.slab(self.rows.start, self.rows.stop) if slab is None else slab
        self.symmetric = not slab.header.directed and norm != "row"
        if self_loops:
            indptr, indices, data, added = with_self_loops(slab)
        else:
            indptr, indices, data, added = slab.indptr, slab.indices, slab.data, 0
        ghosts = needs(indices, self.rows)
        cuts = by_owner(ghosts, self.rows)
        requested = comm.alltoallv([ghosts[cuts[q]:cuts[q + 1]] for q in range(comm.size)])
        self.plan = complete(self.rows, ghosts, requested)
        columns = local_columns(indices, ghosts, self.rows)
        values = np.ones(indices.size) if data is None else data.astype(np.float64)
        self.zero_degrees = 0
        if norm != "none":
            row, column = slab.degree_row + added, slab.degree_column + added
            self.zero_degrees = int(comm.sum([np.count_nonzero(row <= 0)])[0])
            row, column = scales(row, column, norm)
            values *= np.repeat(row, np.diff(indptr)) * self._with_ghosts(column)[columns]
        if indptr[-1] <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)  # keeps SciPy from widening the column numbers
        shape = self.rows.num_rows, self.rows.num_rows + ghosts.size
        self._split(sp.csr_array((values.astype(dtype), columns, indptr), shape=shape))
        self.exchange = Exchange(self.plan, comm, self.dtype, max_width)

    def _with_ghosts(self, values):
        """Append the ghosts' values to those of the own rows, through an exchange of width 1."""
        exchange = Exchange(self.plan, self.comm, values.dtype, 1)
        channel = exchange.forward(values[:, None].copy())
        arrived = [part[:, 0] for _, part in exchange.arrivals(channel, "exchange of degrees")]
        result = np.concatenate([values, *arrived])
        exchange.close()
        return result

    def _split(self, matrix):
        """Cut the slab into the local block and one block of columns a source; transpose them if A is not symmetric."""
        m = self.rows.num_rows
        matrix.sort_indices()
        self.local = csr(matrix[:, :m])
        ghost = matrix[:, m:].tocsc()  # by column: cutting it is then cheap for any number of sources
        self.blocks = {}
        for source in self.plan.sources.tolist():
            block = csr(ghost[:, self.plan.recv_offsets[source]:self.plan.recv_offsets[source + 1]].tocsr())
            self.blocks[source] = (*block, np.flatnonzero(np.diff(block[0])))
        if not self.symmetric:
            self.local_transposed, self.ghost_transposed = csr(matrix[:, :m].T.tocsr()), csr(ghost.T)

    def forward(self, H, *, layer, mask=None, out=None):
        """Return this rank's rows of A H: see `hpgcn.strategies.Strategy`."""
        return self._product(H, mask, out, f"layer {layer} forward")

    def backward(self, G, *, layer, mask=None, out=None):
        """Return this rank's rows of A^T G: see `hpgcn.strategies.Strategy`."""
        what = f"layer {layer} backward"
        return self._product(G, mask, out, what) if self.symmetric else self._adjoint(G, mask, out, what)

    def _product(self, H, mask, out, what):
        exchange, clock, spmm = self.exchange, self.comm.clock, kernels.backend(H).spmm
        channel = exchange.forward(H)
        out = self._local_product(self.local, H, channel, mask, out)
        for source, rows in exchange.arrivals(channel, what):
            *block, touched = self.blocks[source]
            with clock("spmm"):
                spmm(*block, rows, out, rows=touched, mask=mask, accumulate=True)
        return out

    def _adjoint(self, G, mask, out, what):
        exchange, clock, ops = self.exchange, self.comm.clock, kernels.backend(G)
        with clock("spmm"):
            ops.spmm(*self.ghost_transposed, G, exchange.partials(G.shape[1]))
        channel = exchange.adjoint(G.shape[1])
        out = self._local_product(self.local_transposed, G, channel, None, out)
        for source, rows in exchange.arrivals(channel, what):
            with clock("comm"):
                offsets = self.plan.send_offsets
                ops.scatter_add(rows, self.plan.send_rows[offsets[source]:offsets[source + 1]], out)
        if mask is not None:  # partial sums are added here: only their total may be masked
            ops.apply_mask(out, mask)
        return out

    def _local_product(self, block, H, channel, mask, out):
        """Multiply the local block in tiles of rows, with a look at the messages between them."""
        indptr, indices, data = block
        m, spmm = self.rows.num_rows, kernels.backend(H).spmm
        out = np.empty((m, H.shape[1]), self.dtype) if out is None else out
        tiles = TILES if channel.pending else 1
        cuts = np.searchsorted(indptr, indptr[-1] * np.arange(1, tiles) // tiles)
        cuts = np.concatenate([[0], cuts, [m]])
        for lo, hi in pairwise(cuts):
            with self.comm.clock("spmm"):
                spmm(indptr[lo:hi + 1], indices, data, H, out[lo:hi], mask=None if mask is None else mask[lo:hi])
            self.exchange.progress(channel)
        return out

    def predicted(self, step):
        """What all ranks together send in a training step; a hpgcn.cost.Traffic."""
        plan = self.plan
        volume, pairs = map(int, self.comm.sum([plan.send_rows.size, plan.destinations.size]))
        return cost.p2p_step(volume, pairs, replace(step, directed=not self.symmetric), self.comm.size)

    def close(self):
        """Free the persistent requests."""
        self.exchange.close()


def local_columns(indices, ghosts, layout):
    """Relabel columns: own ones to 0..m-1, ghosts to m..m+g-1."""
    m = layout.num_rows
    own = (indices >= layout.start) & (indices < layout.stop)
    columns = np.where(own, indices - layout.start, m + np.searchsorted(ghosts, indices))
    return columns.astype(index_dtype(m + ghosts.size))
