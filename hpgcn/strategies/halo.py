"""Rows of a sparse matrix times rows of H that their owners send: the product of strategy `p2p`, and its adjoint."""
from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hpgcn import cost, kernels
from hpgcn.operator import csr, on
from hpgcn.strategies.tiles import TILES, rows_of, tiles


class HaloProduct:
    """Own rows of a matrix A, as a local block and a block of columns for each rank that sends rows of H.

    Parameters
    ----------
    matrix : scipy.sparse.csr_array (m, m_in + g)
        The columns of own rows of H come first, then those of ghosts, in the order of the plan; it is sorted.
    exchange : hpgcn.exchange.Exchange
        Its plan is that of the columns: the rows of H, of which this rank owns m_in.
    transposed : bool
        Keep the transposed blocks, too: `adjoint` needs them.
    """

    def __init__(self, matrix, exchange, *, transposed):
        self.exchange, self.plan, self.comm, self.dtype = exchange, exchange.plan, exchange.comm, matrix.dtype
        self.device, self.num_rows, self.num_columns = self.comm.device, matrix.shape[0], self.plan.layout.num_rows
        matrix.sort_indices()
        local, ghost = matrix[:, :self.num_columns], matrix[:, self.num_columns:]
        self.local = on(self.device, csr(local))
        ghost = ghost.tocsc()  # by column: cutting it is then cheap for any number of sources
        self.blocks = {}
        for source in self.plan.sources.tolist():
            block = csr(ghost[:, self.plan.recv_offsets[source]:self.plan.recv_offsets[source + 1]].tocsr())
            self.blocks[source] = on(self.device, (*block, np.flatnonzero(np.diff(block[0]))))
        if transposed:
            self.local_transposed, self.ghost_transposed = (
                on(self.device, csr(block)) for block in (local.T.tocsr(), ghost.T))
            cuts = pairwise(self.plan.send_offsets.tolist())
            self.returned = [rows_of(exchange.send_rows, first, last) for first, last in cuts]

    def whole(self):
        """The matrix again, on the host, csr_array (m, m_in + g)."""
        widths = [self.num_columns, *(np.diff(self.plan.recv_offsets)[source] for source in self.blocks)]
        blocks = [map(self.device.get, block[:3]) for block in (self.local, *self.blocks.values())]
        return sp.hstack([sp.csr_array((data, indices, indptr), shape=(self.num_rows, width))
                          for (indptr, indices, data), width in zip(blocks, widths)], format="csr")

    def multiply(self, H, mask, out, what):
        """Return A H (m, f) of rows H (m_in, f), in `out` if it is given; `mask` bits of it are kept."""
        exchange, clock, spmm = self.exchange, self.comm.clock, kernels.backend(H).spmm
        channel = exchange.forward(H)
        out = self._local_product(self.local, H, channel, mask, out)
        for source, rows in exchange.arrivals(channel, what):
            *block, touched = self.blocks[source]
            with clock("spmm"):
                spmm(*block, rows, out, rows=touched, mask=mask, accumulate=True)
        return out

    def adjoint(self, G, mask, out, what):
        """Return A^T G (m_in, f) of rows G (m, f): partial sums of ghosts return to their owners, who add them."""
        exchange, clock, ops = self.exchange, self.comm.clock, kernels.backend(G)
        with clock("spmm"):
            ops.spmm(*self.ghost_transposed, G, exchange.partials(G.shape[1]))
        channel = exchange.adjoint(G.shape[1])
        out = self._local_product(self.local_transposed, G, channel, None, out)
        for source, rows in exchange.arrivals(channel, what):
            with clock("comm"):
                ops.scatter_add(rows, self.returned[source], out)
        if mask is not None:  # partial sums are added here: only their total may be masked
            ops.apply_mask(out, mask)
        return out

    def _local_product(self, block, H, channel, mask, out):
        """Multiply the local block in tiles of rows, with a look at the messages between them."""
        indptr, indices, data = block
        spmm = kernels.backend(H).spmm
        out = self.device.empty((indptr.size - 1, H.shape[1]), self.dtype) if out is None else out
        for lo, hi in tiles(indptr, TILES if channel.pending and self.device.in_tiles else 1):
            with self.comm.clock("spmm"):
                spmm(rows_of(indptr, lo, hi + 1), indices, data, H, rows_of(out, lo, hi), mask=rows_of(mask, lo, hi))
            self.exchange.progress(channel)
        return out

    def volumes(self):
        """hpgcn.cost.RankVolumes of all ranks, which call this together."""
        plan = self.plan
        sizes = plan.send_rows.size, plan.ghosts.size, plan.destinations.size, plan.sources.size
        return cost.RankVolumes(*np.array(self.comm.allgather(sizes), np.int64).T)
