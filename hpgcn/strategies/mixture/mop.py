"""Mixture of parallelism: aggregation by columns, update by rows: strategy `mop`.

Each rank owns a block of rows of H, G and Z; W is on every rank. For a product with A,
rows are exchanged for columns. Rank q receives its part of the columns of all rows. It
multiplies them by all of A-hat, which every rank holds. It sends the rows of the result
back to their owners. The mask of a result is sent as bits before the product, and is
applied within it (S-SpMM).

Both all-to-alls are sent in s batches of rows (`row_batches`). Batch i is aggregated as
soon as the rows that it reads have arrived, by the columns of A. Its result is sent
back while batch i + 1 is aggregated, and is updated at the same time
(`product_in_flight`). Ranks may own pieces of contiguous batches of an order of
bandwidth b < n. With s = ceil(2 n / (n - b)) the first batch then does not wait for the
last (Proposition 3.5). With contiguous row blocks the same is true if n is replaced by
the rows of a rank, m = n / P. Otherwise only the way back is hidden.

If layers announce the next product (`expect`), it begins before this one is complete.
An updated batch is then sent at once. Batches whose rows have arrived are aggregated
while the last sums of this product are under way (Figure 5d). Other products send all
rows when they are called.

The strategy is valid for any P and any row blocks, empty ones included, and for fewer
columns than ranks. A product of width f sends n f - sum of m_p f_p words each way over
all ranks, for any graph. A masked result adds ceil(f_q / 8) bytes of rank q's columns
for each row of other ranks. There is one message each way for each non-empty (source,
destination, batch); the bits are sent in one batch. Each rank stores all of A (and A^T
if A is not symmetric) and 2 n ceil(f / P) words of columns. Rows under way take m f
words. A product that begins early takes n ceil(f / P) + m f more.

A map may be restricted to some rows (out) of the result and some (in) of H. Then only
these are sent: n_in f words to the columns, n_out f back. The map holds its entries of
A, once in each direction that differs, and uses the buffers of the map of all rows.

Rows may be updated on a GPU and aggregated on the cores of the host (MixGCN-CPU). A,
and the columns of a rank, are then in host memory, which is larger. Batches are packed
on the GPU and copied to pinned memory one after the other; each is sent as soon as its
copy is complete. Returning rows are copied back batch by batch while others are
aggregated.

Source: mixgcn, sections 3.1 and 3.2.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hpgcn.graphs.reordering import bandwidth
from hpgcn.parallel.csr import in_order
from hpgcn.parallel.layout import split
from hpgcn.parallel.workspace import Workspace
from hpgcn.runtime.device import HOST
from hpgcn.runtime.gpu_limits import check_nonzeros
from hpgcn.strategies.masked_additions import count_masked
from hpgcn.strategies.mixture.mop_attention import BatchProduct, ColumnAttention
from hpgcn.strategies.mixture.mop_plan import MopPlan, MopTraffic
from hpgcn.strategies.mixture.product_in_flight import ProductInFlight
from hpgcn.strategies.mixture.row_batches import (
    BatchedOperand,
    RowBatches,
    count_batches,
    count_fewer,
)
from hpgcn.strategies.mixture.spooled_product import SpooledProduct
from hpgcn.strategies.mixture.staged_buffers import Shared, StagedBuffers
from hpgcn.strategies.strategy import Strategy

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.normalization import NormalizedAdjacency
    from hpgcn.kernels import Array
    from hpgcn.parallel.csr import Csr
    from hpgcn.parallel.layout import BlockLayout
    from hpgcn.runtime.device import Host
    from hpgcn.strategies.attention import Heads
    from hpgcn.strategies.mixture.mop_attention import AttentionColumns, Gradients
    from hpgcn.strategies.plan import Product, RankGrid
    from hpgcn.strategies.strategy import StrategyOptions


class MopBuffers:
    """Buffers for own columns of all rows, packed rows and masks, which all maps use.

    `home`: the device where rows are aggregated; `batched`: rows are sent in more than one
    batch. Products use the buffers in turns. If one may begin before the last is
    complete, there is a second place for packed rows. There are three buffers of
    columns: results are written where the last product read its rows.
    """

    def __init__(self, layout: BlockLayout, comm: SerialComm, home: Host, dtype: DTypeLike,
                 batched: bool) -> None:
        self.comm = comm
        self.home = home
        self.dtype = dtype
        self.batched = batched
        self.num_rows = int(layout.offsets[-1])
        self.room = layout.rows.num_rows
        self.positions = comm.device.xp.arange(self.room)  # where the rows of a piece are
        self.attended = Workspace(dtype, home)  # by layers that attend
        self.num_products = 0  # that used the buffers so far
        # the next ProductInFlight, if it was announced, and if its rows are being sent
        self.expected = self.early = None
        self.columns: list[Any] = [None, None]
        self.packed: list[Any] = [None]
        self.width = -1
        self.reserve(0)

    def reserve(self, width: int) -> None:
        """Make room for products of this width."""
        if width <= self.width:
            return
        self.width = width
        own_width = -(-width // self.comm.size)
        # columns of H and of the result
        self.columns = [self._column_buffer() for _ in self.columns]
        self.packed = [self._packed_rows() for _ in self.packed]
        bits = 1 + self.batched, self.num_rows * -(-own_width // 8)  # as they come, and in batches
        self.bits = self.home.empty(bits, np.uint8)
        packed_bits = self.room * self.comm.size * -(-own_width // 8)
        self.packed_bits = self.home.empty(packed_bits, np.uint8)

    def _column_buffer(self) -> np.ndarray:
        return self.home.empty(self.num_rows * -(-self.width // self.comm.size), self.dtype)

    def _packed_rows(self) -> Shared:
        device = self.comm.device
        kind = Shared if self.home is device else StagedBuffers
        return kind(device, self.room * self.width, self.dtype)

    def make_second(self) -> None:
        """Make room for a product that begins before the last one is complete."""
        if len(self.packed) == 1:
            self.num_products = 0
            self.columns.append(self._column_buffer())
            self.packed.append(self._packed_rows())

    def for_next_product(self) -> tuple:
        """Return the number of a product, its two column buffers, and its packed rows."""
        number = self.num_products
        self.num_products += 1
        columns = [self.columns[(2 * number + k) % len(self.columns)] for k in range(2)]
        return number, *columns, self.packed[number % len(self.packed)]

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        packed = [each.far for each in self.packed]
        return sum(each.nbytes for each in
                   (*self.columns, *packed, self.bits, self.packed_bits))


class MixtureOfParallelism(Strategy):
    """Strategy `mop`: each rank owns rows, and aggregates some columns of all rows.

    `operands`: BatchedOperands of the forward and of the backward product, one object
    if it serves both. `pipeline_batches`: number of batches in the settings, or 0.
    `parent`: the map of all rows, from which this map was cut.
    """

    name = "mop"
    Plan = MopPlan
    supports_attention = spools = sends_own_rows = True
    options = ("pipeline_batches", "aggregate_on", "update_on")
    word = "pipeline_batches"
    row_numbers: list[Array] | None = None  # those that attention reads

    def __init__(self, layout: BlockLayout, layout_in: BlockLayout, comm: SerialComm,
                 operands: tuple[BatchedOperand, BatchedOperand], buffers: MopBuffers, *,
                 symmetric: bool, pipeline_batches: int,
                 parent: MixtureOfParallelism | None = None) -> None:
        self.layout = layout
        self.layout_in = layout_in
        self.comm = comm
        self.operand, self.operand_back = operands
        self.buffers = buffers
        self.home = buffers.home
        self.symmetric = symmetric
        self.pipeline_batches = pipeline_batches
        self.parent = parent
        self.num_batches = self.operand.rows.num_batches

    @classmethod
    def row_offsets(cls, shape: tuple[int, ...], indptr: np.ndarray) -> np.ndarray:
        # Even row blocks, since every rank multiplies by all of A.
        return split(indptr.size - 1, shape[0])

    @classmethod
    def mask_slices(cls, shape: tuple[int, ...]) -> int:
        return shape[0]

    @classmethod
    def own_options(cls, options: StrategyOptions, device: Host) -> dict:
        # Rows may be aggregated on the host beside a GPU (mixgcn, MixGCN-CPU).
        config = options.config
        home = HOST if config.aggregates_on_host else device
        on_host = config.updates_on == "cuda" and config.aggregates_on_host
        return {"pipeline_batches": options.pipeline_batches, "home": home, "on_host": on_host}

    @classmethod
    def build(cls, adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm, *,
              width: int = 0) -> Self:
        layout = rank_grid.layout
        home = rank_grid.options["home"]
        pipeline_batches = rank_grid.options["pipeline_batches"]
        with comm.collective_errors():  # each rank reads all of A: each may meet its own error
            matrix = adjacency.block(0, adjacency.num_rows)
        check_nonzeros(comm, home, matrix.nnz, cut=False)
        matrix.sort_indices()

        # batches of rows, if they are worth it
        num_batches = count_batches(layout.offsets, pipeline_batches, lambda: bandwidth(matrix))
        batches = RowBatches.best(layout.offsets, num_batches, matrix.indptr, matrix.indices)
        if num_batches > 1:
            place = batches.positions(np.arange(batches.num_rows))
            matrix = in_order(matrix, place, place)

        operand = operand_back = BatchedOperand.of(home, matrix, batches, batches)
        if not adjacency.symmetric:
            operand_back = BatchedOperand.of(home, matrix.T.tocsr(), batches, batches)

        buffers = MopBuffers(layout, comm, home, adjacency.dtype, num_batches > 1)
        strategy = cls(layout, layout, comm, (operand, operand_back), buffers,
                       symmetric=adjacency.symmetric, pipeline_batches=pipeline_batches)
        strategy.reserve(width)
        return strategy

    def reserve(self, width: int) -> None:
        if self.comm.size > 1 and self.comm.spool is None:
            self.buffers.reserve(width)

    @property
    def buffer_bytes(self) -> int:
        return 0 if self.parent else self.buffers.nbytes

    def restrict(self, rows_out: np.ndarray, rows_in: np.ndarray) -> Self:
        # Deal the batches anew.
        layouts = self.layout.restricted(rows_out), self.layout.restricted(rows_in)
        num_batches = count_fewer(self.num_batches, self.pipeline_batches, layouts)
        in_order = self.operand.rows.in_order
        out, into = (RowBatches.of(layout.offsets, num_batches, in_order) for layout in layouts)
        operand = operand_back = self.operand.restricted(out, into, rows_out, rows_in)
        if not (self.symmetric and np.array_equal(rows_out, rows_in)):
            operand_back = self.operand_back.restricted(into, out, rows_in, rows_out)
        return type(self)(*layouts, self.comm, (operand, operand_back), self.buffers,
                          symmetric=self.symmetric, pipeline_batches=self.pipeline_batches,
                          parent=self)

    @classmethod
    def waits(cls, product: Product) -> int:
        # Rows, then sums.
        return 2

    def matrix_arrays(self, product: Product) -> list[Array]:
        block = (self.operand_back if product.backward else self.operand).block
        return product.arrays_read(block)

    @property
    def returns_batches(self) -> bool:
        return self.num_batches > 1 and self.comm.size > 1

    def forward(self, H: Array, *, mask: Array | None = None,
                out: Array | None = None) -> Array:
        return self.product(self.operand, H, out, BatchProduct(), mask)

    def backward(self, G: Array, *, mask: Array | None = None,
                 out: Array | None = None) -> Array:
        return self.product(self.operand_back, G, out, BatchProduct(), mask, backward=True)

    @classmethod
    def unsupported_reason(cls, heads: list[int], ranks: int, edges: bool = False) -> str:
        # A rank takes whole heads.
        if any(count % ranks for count in heads):
            return f"{ranks} ranks cannot share {', '.join(map(str, sorted(set(heads))))} heads"
        return super().unsupported_reason(heads, ranks, edges)

    @property
    def attention_home(self) -> Any:
        return "device" if self.home is self.comm.device else "host"

    def attention(self, heads: Heads) -> ColumnAttention:
        return ColumnAttention(self, heads)

    def expect(self, H: Array, *, backward: bool = False) -> None:
        operand = self.operand_back if backward else self.operand
        self.buffers.expected = ProductInFlight(self.comm, self.buffers, operand, H, BatchProduct())

    def product(self, operand: BatchedOperand, H: Array, out: Array,
                work: AttentionColumns | BatchProduct | Gradients,
                mask: Array | None = None, *, backward: bool = False) -> Array:
        """Exchange rows of H for columns, run `work` on them, send the results back."""
        comm, buffers = self.comm, self.buffers
        rows_done, self.rows_done = self.rows_done, None
        if out is None:
            m = int(np.diff(operand.rows.offsets)[comm.rank])
            out = comm.device.empty((m, H.shape[1]), H.dtype)
        if comm.size == 1:
            with comm.clock("spmm"):
                out = self._alone(operand.block, H, mask, out, work)
            work.finish()
            return out
        if comm.spool is not None:
            spooled = SpooledProduct(comm, operand, H, work, backward=backward)
            buffers.expected = None
            spooled.complete(out, mask, rows_done)
            return out

        # the product that is next, if it reads the batches that return here
        following, buffers.expected = buffers.expected, None
        if rows_done is None or (following and not operand.rows.same(following.operand.columns)):
            following = None
        if following is not None:
            buffers.make_second()

        # this product, which may have begun
        flight, buffers.early = buffers.early, None
        if flight is not None and not (flight.reads(operand, H) and mask is None):
            flight.abandon()
            flight = None
        if flight is None:
            flight = ProductInFlight(comm, buffers, operand, H, work)
            flight.begin()
            if mask is not None:
                flight.exchange_bits(mask)
            flight.send_all()
        buffers.early = following
        flight.complete(out, rows_done, following)
        work.finish()
        return out

    def _alone(self, block: Csr, H: Array, mask: Array, out: Array,
               work: Any) -> Array:
        """Return the product on a single rank, whose host may aggregate for its GPU."""
        Z = out
        if self.home is not self.comm.device:
            H, mask = map(self.buffers.packed[0].fetch, (H, mask))
            Z = self.home.empty(out.shape, out.dtype)
        work.receive_rows(H, 0, len(H))
        work.tile(block, block.indptr, H, Z, 0, len(Z), mask)
        count_masked(self.comm, block.indptr, mask, Z.shape[1])
        if Z is not out:
            self.buffers.packed[0].put_back(Z, out)
        return out

    def traffic(self) -> MopTraffic:
        return MopTraffic((self.layout, self.layout_in), self.num_batches)

