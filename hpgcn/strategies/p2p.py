"""Row-parallel aggregation with point-to-point messages: strategy `p2p`.

Each rank holds the rows of A, H and G that its part owns; W is on every rank. The rows of H that a neighbour reads
are sent to it and to nobody else, while the local block is multiplied; ghost blocks follow in order of their owners. If
A is symmetric the backward is the same code applied to G; otherwise it is the adjoint of each step: partial products of
the transposed ghost blocks return to the owners, who add them in the order of ranks.

Valid for any P and any partition, empty parts included. Rows sent by one product with A or A^T: the connectivity-1
metric of the partition, sum over columns of (parts that read it - 1) with the owner counted in; messages: non-empty
(owner, reader) pairs. Memory: the slab of A (and its transpose if A is not symmetric), ghost rows and send rows of the
widest exchange. A restricted map holds its own blocks, and sends in the buffers of the whole one.

Source: demirci-2022, sections 3 and 4.1, Algorithms 1 and 2.
"""
from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from hpgcn import cost
from hpgcn.capacity import check_nonzeros
from hpgcn.check import index_dtype
from hpgcn.exchange import Exchange
from hpgcn.operator import scales, with_self_loops
from hpgcn.plan import by_owner, complete, needs
from hpgcn.strategies.halo import HaloProduct


class PointToPoint:
    """A-hat on rows distributed by the row blocks of `grid` (a single column block).

    Parameters
    ----------
    source : hpgcn.graph.Graph or hpgcn.store.StoredGraph
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
        This rank's rows, if they were read already.
    axes : tuple of int, optional
        Not read: p2p has but one arrangement.
    """

    def __init__(self, source, grid, comm, *, norm="sym", self_loops=True, dtype=np.float32, max_width=1, slab=None,
                 axes=None):
        self.layout = self.layout_in = grid
        self.comm, rows = comm, grid.rows
        slab = source.slab(rows.start, rows.stop) if slab is None else slab
        self.symmetric = not slab.header.directed and norm != "row"
        if self_loops:
            indptr, indices, data, added = with_self_loops(slab)
        else:
            indptr, indices, data, added = slab.indptr, slab.indices, slab.data, 0
        plan = self._plan(rows, needs(indices, rows))
        columns = local_columns(indices, plan.ghosts, rows)
        values = np.ones(indices.size) if data is None else data.astype(np.float64)
        if norm != "none":
            row, column = scales(slab.degree_row + added, slab.degree_column + added, norm)
            values *= np.repeat(row, np.diff(indptr)) * self._with_ghosts(plan, column)[columns]
        indptr = indptr.astype(index_dtype(indptr[-1]), copy=False)  # keeps SciPy from widening the column numbers
        matrix = sp.csr_array((values.astype(dtype), columns, indptr),
                              shape=(rows.num_rows, rows.num_rows + plan.ghosts.size))
        check_nonzeros(comm, comm.device, matrix.nnz)
        exchange = Exchange(plan, comm, dtype, max_width)
        self.product = self.product_back = HaloProduct(matrix, exchange, transposed=not self.symmetric)

    def _plan(self, rows, ghosts):
        """The plan of a rank that owns `rows` (a Layout) and reads `ghosts`; all ranks make theirs together."""
        cuts = by_owner(ghosts, rows)
        return complete(rows, ghosts, self.comm.alltoallv([ghosts[cuts[q]:cuts[q + 1]] for q in range(rows.size)]))

    def _with_ghosts(self, plan, values):
        """Append the ghosts' values to those of the own rows, through an exchange of width 1."""
        exchange, (put, get) = Exchange(plan, self.comm, values.dtype, 1), (self.comm.device.put, self.comm.device.get)
        channel = exchange.forward(put(values[:, None].copy()))
        arrived = [get(part)[:, 0] for _, part in exchange.arrivals(channel, "exchange of degrees")]
        result = np.concatenate([values, *arrived])
        exchange.close()
        return result

    def restrict(self, rows_out, rows_in):
        """The same map to some rows from some rows: see `hpgcn.strategies.Strategy`."""
        part = object.__new__(PointToPoint)
        part.comm, part.symmetric = self.comm, self.symmetric
        part.layout, part.layout_in = (self.layout.restricted(rows) for rows in (rows_out, rows_in))
        part.product = part.product_back = self._cut(rows_out, rows_in, part.layout_in.rows)
        if self.symmetric and not np.array_equal(rows_out, rows_in):
            part.product_back = self._cut(rows_in, rows_out, part.layout.rows)
        return part

    def _cut(self, rows, columns, layout):
        """A[rows][:, columns]; `layout`: of its columns."""
        plan, own = self.product.plan, slice(self.layout.rows.start, self.layout.rows.stop)
        matrix = self.product.whole()[rows[own]][:, np.concatenate([columns[own], columns[plan.ghosts]])]
        read = np.zeros(matrix.shape[1], bool)
        read[:layout.num_rows] = True
        read[matrix.indices] = True
        ghosts = (np.cumsum(columns) - 1)[plan.ghosts[columns[plan.ghosts]]][read[layout.num_rows:]]
        exchange = self.product.exchange
        exchange = Exchange(self._plan(layout, ghosts), self.comm, exchange.dtype, 0, lender=exchange)
        return HaloProduct(matrix[:, read], exchange, transposed=not self.symmetric)

    def forward(self, H, *, layer, mask=None, out=None):
        """Return this rank's rows of A H: see `hpgcn.strategies.Strategy`."""
        return self.product.multiply(H, mask, out, f"layer {layer} forward")

    def backward(self, G, *, layer, mask=None, out=None):
        """Return this rank's rows of A^T G: see `hpgcn.strategies.Strategy`."""
        back = self.product_back.multiply if self.symmetric else self.product.adjoint
        return back(G, mask, out, f"layer {layer} backward")

    def costs(self):
        """What its products send: see `hpgcn.strategies.Strategy`."""
        forward, backward = self.product.volumes(), self.product_back.volumes()
        return cost.Map(forward, backward, adjoint=not self.symmetric)

    def close(self):
        """Free the persistent requests."""
        for product in {self.product, self.product_back}:
            product.exchange.close()


def local_columns(indices, ghosts, layout):
    """Relabel columns: own ones to 0..m-1, ghosts to m..m+g-1."""
    m = layout.num_rows
    own = (indices >= layout.start) & (indices < layout.stop)
    columns = np.where(own, indices - layout.start, m + np.searchsorted(ghosts, indices))
    return columns.astype(index_dtype(m + ghosts.size))
