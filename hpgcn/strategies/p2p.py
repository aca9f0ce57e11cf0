"""Row-parallel aggregation with point-to-point messages: strategy `p2p`.

Each rank holds the rows of A, H and G that its part owns; W is on every rank. A row of
H is sent only to the ranks that read it, while the local block is multiplied. Then the
ghost blocks are multiplied in the order of their owners. If A is symmetric, the
backward is the same code applied to G. Otherwise it is the adjoint of each step.
Products of the transposed ghost blocks are sent to the owners of their rows, which add
them in the order of ranks.

The strategy is valid for any P and any partition, empty parts included. The rows that
one product with A or A^T sends are the connectivity-1 metric of the partition. This is
the sum over columns of (parts that read it - 1), including the owner. The number of
messages is the number of non-empty (owner, reader) pairs. A rank stores the slab of A,
and its transpose if A is not symmetric. It also stores the ghost rows and send rows of
the widest exchange. A restricted map has blocks of its own, and uses the buffers of the
map of all rows.

Source: demirci-2022, sections 3 and 4.1, Algorithms 1 and 2.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.normalization import scales
from hpgcn.graphs.validation import index_dtype
from hpgcn.kernels import entries
from hpgcn.parallel.csr import Csr
from hpgcn.parallel.halo_exchange import HaloExchange
from hpgcn.parallel.halo_plan import HaloPlan, by_owner, complete, needs
from hpgcn.parallel.layout import ONE_NODE
from hpgcn.parallel.nodes.node_exchange import exchange_of
from hpgcn.parallel.nodes.node_plan import make_node_plan, sources_of_entries, tables_of_pairs
from hpgcn.parallel.nodes.shared_buffers import make_buffers
from hpgcn.parallel.pattern import elsewhere
from hpgcn.parallel.sizes import ExchangeSizes, gather_tables
from hpgcn.parallel.transfers import LOCAL, OwnRows, OwnRowsPlan
from hpgcn.parallel.workspace import HaloBuffers
from hpgcn.strategies.plan import INDEX, POINTER, WEIGHT, Operand, sum_bytes
from hpgcn.strategies.rows import RowPlan, RowProduct, RowStrategy, RowTraffic

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.normalization import NormalizedAdjacency
    from hpgcn.parallel.layout import BlockLayout, NodeLayout, RowPartition
    from hpgcn.parallel.nodes.node_plan import NodePlan
    from hpgcn.parallel.pattern import Pattern
    from hpgcn.parallel.transfers import Transfer
    from hpgcn.strategies.plan import RankGrid

ENTRY, TRANSPOSE, ROW = 34, 4, 100  # bytes of an entry while blocks are cut; of a row beside ghosts
CUT = 25  # bytes of an entry of the matrix, while fewer rows are cut from it


class PointToPointPlan(RowPlan):
    """Plan of strategy p2p: halo exchanges send rows of H to their readers."""

    def make_traffic(self, layouts: tuple[BlockLayout, ...]) -> RowTraffic:
        plans = [self._sizes(self.pattern), OwnRowsPlan()]
        if self.pattern.symmetric and not self.pattern.square:
            plans += [self._sizes(self.pattern.transposed), OwnRowsPlan()]
        return self.Traffic(layouts, self.pattern.symmetric, plans)

    def _sizes(self, pattern: Pattern) -> ExchangeSizes:
        grid = self.rank_grid
        if not grid.nodes.aware:
            tables = pattern.ghosts(grid.layout.offsets)[:1]
        else:
            block, columns = grid.layout.row_blocks, pattern.indices.astype(np.int64)
            pairs = elsewhere(columns, block[columns], block[pattern.rows], self.num_ranks)
            tables = tables_of_pairs(pairs, pattern.restricted_numbers(pattern.rows_in),
                                     grid.nodes, self.num_ranks)
        return ExchangeSizes(*tables, nodes=grid.nodes.numbers)

    def operand(self, pattern: Pattern, layout: BlockLayout) -> Operand:
        # A local block, and one for each source.
        right, reverse = self.traffic.right, self.traffic.reverse
        sizes = right if pattern is self.pattern else reverse[0]
        offsets = self.rank_grid.layout.offsets
        entries = np.diff(pattern.indptr[offsets]).astype(np.int64)
        if not self.rank_grid.nodes.aware:
            touched = pattern.touched_rows(offsets, offsets)
            touched = touched.sum(1) - np.diagonal(touched)
        else:
            touched = self._touched(pattern)
        rows = np.diff(layout.offsets)
        return Operand.of(
            entries.shape, entries, (1 + sizes.sources) * (rows + 1),
            index_entries=sizes.sent + sizes.received + touched, results=rows,
            blocks=1 + sizes.sources)

    def _touched(self, pattern: Pattern) -> np.ndarray:
        """Return how many rows with entries the blocks of ghosts have, (P,).

        There is a block for each message. A row counts once for each block.
        """
        k = self.num_ranks
        block = self.rank_grid.layout.row_blocks
        columns = pattern.indices.astype(np.int64)
        owner, reader = block[columns], block[pattern.rows]
        source = sources_of_entries(columns, owner, reader,
                                    pattern.restricted_numbers(pattern.rows_in),
                                    self.rank_grid.nodes.numbers)
        touched = np.unique((pattern.rows * (2 * k) + source)[owner != reader])
        return np.bincount(block[touched // (2 * k)], minlength=k)

    def adjoint(self, forward: Operand) -> Operand:
        # The transposes of the blocks.
        rows = np.diff(self.layout_in.offsets) + self.traffic.right.received
        sources = self.traffic.right.sources
        return Operand.of(rows.shape, forward.entries, rows + sources + 1, results=rows,
                          blocks=1 + sources)

    def read_peak_bytes(self, itemsize: int) -> np.ndarray:
        # Column numbers as read and local, weights in float64, and copies.
        forward, *back = self.stored_operands
        alone = forward.blocks == 1
        weight = WEIGHT * self.pattern.weighted
        entry = ENTRY + TRANSPOSE * len(back) * alone + weight + 2 * (sum_bytes(itemsize) - INDEX)
        return (forward.entries * entry + forward.pointers * POINTER
                + (self.rows() + self.traffic.right.buffer_rows) * ROW * ~alone)

    def restrict_bytes(self, itemsize: int) -> np.ndarray:
        # All of the matrix is put together again.
        forward = self.operands[0]
        beside = (forward.blocks > 1) * (self.rows() + self.traffic.right.buffer_rows) * ROW
        return forward.entries * CUT + beside


class PointToPoint(RowStrategy):
    """Strategy `p2p`: each rank owns a part and receives rows that it reads."""

    name = "p2p"
    Plan = PointToPointPlan
    accepts_partition = requires_partition = spools = True
    supports_attention = supports_minibatches = supports_bf16 = True
    supports_edge_features = True
    supports_nodes = "products", "attention"

    @classmethod
    def mask_slices(cls, shape: tuple[int, ...]) -> int:
        return 1

    @classmethod
    def build(cls, adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm, *,
              width: int = 0) -> Self:
        matrix, plan = own_rows(adjacency, rank_grid.layout.rows, comm, rank_grid.nodes)
        buffers = make_buffers(comm, rank_grid.nodes, adjacency.row_dtype, adjacency.dtype,
                               pushes=not adjacency.symmetric)
        product = product_of(matrix, exchange_of(plan, comm, buffers))
        return cls.of(adjacency, rank_grid, comm, product, width)

    def build_submatrix(self, rows_out: np.ndarray, rows_in: np.ndarray) -> RowProduct:
        exchange = self.product.pull
        ghosts = exchange.plan.ghosts
        own = slice(self.layout.rows.start, self.layout.rows.stop)
        columns = np.concatenate([rows_in[own], rows_in[ghosts]])
        matrix = _columns(self.local_matrix()[rows_out[own]], columns)

        layout = self.layout.restricted(rows_in).rows
        plan, read = cut_plan(exchange.plan, layout, rows_in, matrix.indices, self.comm,
                              self.nodes)
        part = exchange_of(plan, self.comm, exchange.buffers)
        return product_of(_columns(matrix, read), part)

    def transfers_of(self, pull: HaloPlan, push: HaloPlan) -> Sequence:
        return HaloExchange(pull, self.comm, self.product.pull.buffers), OwnRows()

    def traffic(self) -> RowTraffic:
        transfers = [self._sizes(self.product), OwnRowsPlan()]
        if self.symmetric and self.back is not self.product:
            transfers += [self._sizes(self.back), OwnRowsPlan()]
        return RowTraffic((self.layout, self.layout_in), self.symmetric, transfers)

    def _sizes(self, product: RowProduct) -> ExchangeSizes:
        tables, = gather_tables(self.comm, product.pull.plan)
        return ExchangeSizes(*tables, nodes=self.nodes.numbers)


def _columns(matrix: Any, kept: np.ndarray) -> Any:
    """Return the columns `kept` of a csr_array, marked or by number.

    If all are marked, return the matrix itself.
    """
    return matrix if kept.dtype == bool and kept.all() else matrix[:, kept]


def own_rows(adjacency: NormalizedAdjacency, rows: RowPartition, comm: SerialComm,
             nodes: NodeLayout = ONE_NODE) -> tuple:
    """Read and scale the rows of this rank; all ranks call this together.

    Returns
    -------
    matrix : csr_array (m, m + g)
        Own columns first, then ghosts; entries in the order in which they are stored.
    plan : HaloPlan or NodePlan
        The plan that `halo_plan` returns.
    """
    slab = adjacency.slab or adjacency.source.slab(rows.start, rows.stop)
    plan = halo_plan(rows, needs(slab.indices, rows), comm, nodes)
    added = np.zeros(rows.num_rows, bool)
    if adjacency.self_loops:
        added = entries.missing_loops(slab.indptr, slab.indices, slab.start)

    # factors of rows, and of columns by their local numbers
    degrees = slab.degree_row + added, slab.degree_column + added
    row_scale, column_scale = scales(*degrees, adjacency.norm)
    if adjacency.norm != "none":
        column_scale = with_ghosts(plan, column_scale, comm)
    else:
        column_scale = np.ones(rows.num_rows + plan.ghosts.size)

    indptr, columns, values = entries.scaled_rows(
        slab.indptr, slab.indices, slab.data, slab.start, added, (row_scale, column_scale),
        table_of_numbers(plan.ghosts, rows), adjacency.dtype)
    if adjacency.numbered:
        first = adjacency.source.pointers(rows.start, rows.start)[0]
        values = first + np.arange(columns.size, dtype=adjacency.entry_dtype)
    indptr = indptr.astype(index_dtype(indptr[-1]), copy=False)  # SciPy widens no columns then
    shape = rows.num_rows, rows.num_rows + plan.ghosts.size
    return sp.csr_array((values, columns, indptr), shape=shape), plan


def halo_plan(rows: RowPartition, ghosts: np.ndarray, comm: SerialComm,
              nodes: NodeLayout = ONE_NODE) -> HaloPlan | NodePlan:
    """Return the HaloPlan of a rank that owns `rows` and reads `ghosts`.

    All ranks call this together. If the NodeLayout `nodes` is aware, return the
    NodePlan of an exchange that sends a row to each node once.
    """
    if nodes.aware:
        return make_node_plan(rows, ghosts, nodes.numbers, comm)
    cuts = by_owner(ghosts, rows)
    wanted = comm.alltoallv([ghosts[cuts[q]:cuts[q + 1]] for q in range(rows.size)])
    return complete(rows, ghosts, wanted)


def cut_plan(plan: HaloPlan, layout: RowPartition, chosen: np.ndarray, read: np.ndarray,
             comm: SerialComm, nodes: NodeLayout) -> tuple:
    """Restrict a HaloPlan or NodePlan to the rows marked in `chosen`.

    `chosen` is (n,) bool. All ranks call this together. `layout` is the RowPartition of
    the chosen rows. `read` are numbers that are still read, own rows first, then ghosts
    among the chosen. `nodes` is as in `halo_plan`. Return the plan, and the own rows
    and ghosts that are left. They are marked in a bool array, or listed by number in
    the order of a NodePlan.
    """
    m = layout.num_rows
    ghosts = (np.cumsum(chosen) - 1)[plan.ghosts[chosen[plan.ghosts]]]
    left = np.zeros(m + ghosts.size, bool)
    left[:m] = True
    left[read] = True
    ghosts = ghosts[left[m:]]
    if isinstance(plan, HaloPlan):
        return halo_plan(layout, ghosts, comm, nodes), left

    # a NodePlan has an order of its own, and gateways that still read the rows
    order = np.argsort(ghosts)
    plan = halo_plan(layout, ghosts[order], comm, nodes)
    places = order[np.searchsorted(ghosts[order], plan.ghosts)]
    return plan, np.concatenate([np.arange(m), m + np.flatnonzero(left[m:])[places]])


def with_ghosts(plan: HaloPlan | NodePlan, values: np.ndarray, comm: SerialComm) -> np.ndarray:
    """Return the values of own rows, (m,), followed by those of ghosts.

    The values of ghosts are received from their owners.
    """
    exchange = exchange_of(plan, comm, HaloBuffers(comm.device, comm.stager, values.dtype))
    what = "exchange of degrees"
    exchange.start(comm.device.put(values[:, None].copy()), what)
    received = {source: comm.device.get(part)[:, 0].copy()
                for source, part in exchange.received_rows(exchange.sources, what)}
    exchange.close()
    return np.concatenate([values, *(received[source] for source in exchange.sources)])


def table_of_numbers(ghosts: np.ndarray, rows: RowPartition) -> np.ndarray:
    """Return the number on this rank of each row that it stores or receives, (n,) integers.

    Without ghosts the table is empty: rows are then numbered from their first one on.
    """
    m = rows.num_rows
    if not ghosts.size:
        return np.empty(0, index_dtype(m))
    table = np.empty(int(rows.offsets[-1]), index_dtype(m + ghosts.size))
    table[rows.start:rows.stop] = np.arange(m)
    table[ghosts] = np.arange(m, m + ghosts.size)
    return table


def local_numbers(indices: np.ndarray, ghosts: np.ndarray, rows: RowPartition) -> np.ndarray:
    """Renumber rows or columns: own ones to 0..m-1, ghosts to m..m+g-1.

    `ghosts` may be in any order.
    """
    if not ghosts.size:
        return (indices - rows.start).astype(index_dtype(rows.num_rows), copy=False)
    return table_of_numbers(ghosts, rows)[indices]


def product_of(matrix: Any, exchange: Transfer) -> RowProduct:
    """Return the RowProduct of a csr_array (m, m_in + g).

    It has a block for each owner of columns. Own columns come first.
    """
    plan = exchange.plan
    device = exchange.comm.device
    m = plan.layout.num_rows
    counts = exchange.ghost_counts
    if not counts:
        return RowProduct({LOCAL: {LOCAL: Csr.of(matrix, device)}}, exchange, OwnRows(),
                          matrix.shape[0])

    # own columns, then those of each source, numbered from 0
    bounds = np.cumsum([0, m, *counts.values()])
    if not isinstance(plan, HaloPlan):  # rows of an owner come by several sources
        matrix.sort_indices()
    numbers = matrix.indices.astype(index_dtype(matrix.shape[1]), copy=False)  # SciPy widens them
    split = entries.split_columns(matrix.indptr.astype(np.int64, copy=False), numbers,
                                  matrix.data, bounds)
    blocks = {}
    for source, width, (indptr, columns, data) in zip([LOCAL, *counts], np.diff(bounds), split):
        columns = columns.astype(index_dtype(width), copy=False)
        blocks[source] = Csr(*map(device.put, (indptr, columns, data)), num_columns=int(width),
                             device=device)
    return RowProduct({LOCAL: blocks}, exchange, OwnRows(), matrix.shape[0])
