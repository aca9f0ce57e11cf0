"""Row strategies: A H = S A_loc R H.

R pulls the rows of H that are needed; S pushes partial sums. A_loc are the nonzeros
stored on a rank, in blocks: by target of the partial sums, then by source of the rows.
The backward swaps the two: R^T pushes, S^T pulls, and the blocks are transposed. One
executor serves all row strategies. Each of them defines the blocks that a rank stores,
and the transfers of rows.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partialmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp

from hpgcn import kernels
from hpgcn.graphs.edge_features import read_chosen
from hpgcn.kernels.bits16 import BF16
from hpgcn.kernels.host.record import ALL, repeat
from hpgcn.parallel.csr import pack, rows_of
from hpgcn.parallel.halo_plan import complete
from hpgcn.parallel.layout import ONE_NODE, BlockLayout
from hpgcn.parallel.transfers import LOCAL, tiles_of
from hpgcn.parallel.waits import NextTurns, Waits
from hpgcn.parallel.workspace import Workspace
from hpgcn.runtime.gpu_limits import check_nonzeros
from hpgcn.strategies.distributed_attention import RowAttention
from hpgcn.strategies.masked_additions import count_masked
from hpgcn.strategies.messages import RowMessages
from hpgcn.strategies.plan import HALF, POINTER, Operand, Plan, Product, Traffic, sum_bytes
from hpgcn.strategies.strategy import Strategy, product_name

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.graph_source import AdjacencySource
    from hpgcn.graphs.normalization import NormalizedAdjacency
    from hpgcn.kernels import Array
    from hpgcn.parallel.csr import Csr
    from hpgcn.parallel.halo_plan import HaloPlan
    from hpgcn.parallel.layout import NodeLayout
    from hpgcn.strategies.attention import Heads
    from hpgcn.strategies.plan import RankGrid


SUMS = "float32 sums"  # name of the work array of sums of 16-bit rows


@dataclass(frozen=True, eq=False)
class RowProduct:
    """One direction of a map.

    It holds the blocks of a rank, and the transfers of rows and partial sums.

    Attributes
    ----------
    blocks : dict of dict of hpgcn.parallel.csr.Csr
        Blocks by target, then by source, both as numbered by `push` and `pull`. The source
        of own rows, which are multiplied first, is the first of each target.
    pull, push : transfers
        See hpgcn.parallel.transfers.
    num_rows : int
        Rows of the result that this rank owns.
    """

    blocks: dict
    pull: Any
    push: Any
    num_rows: int

    def transposed(self, num_rows: int) -> RowProduct:
        """Return the RowProduct of the transpose.

        This rank owns `num_rows` rows of its result.
        """
        flipped = {}
        for target in sorted(self.blocks, key=lambda each: each != LOCAL):
            for source, block in self.blocks[target].items():
                flipped.setdefault(source, {})[target] = block.transposed()
        return RowProduct(flipped, self.push, self.pull, num_rows)

    def partial_sums(self, H: Array, out: Array, what: str, waits: Waits) -> Iterator:
        """Pull rows of H, and push the sums that the caller forms.

        Yield (target, Z, blocks to multiply): Z is the array for the sum of these blocks.
        The last target are own rows, whose sums of other ranks the caller adds by
        `push.finish`.
        """
        self.pull.start(H, what)
        waits.first(self.pull, what)
        if waits.twice:
            self.pull.collect(what)
        for target, Z in self.push.partial_sums(out, what):
            if target == LOCAL:
                waits.resume()
            yield target, Z, self._arriving(target, Z, H, what, waits)
            self.push.send(target)
        waits.last()

    def _arriving(self, target: int, Z: Array, H: Array, what: str,
                  waits: Waits) -> Iterator:
        """Yield (source, block, its rows, whether others were added before) as rows arrive."""
        blocks = self.blocks[target]
        accumulate = False
        for source, rows in self.pull.rows_for(target, blocks, what):
            yield source, blocks[source], rows, accumulate
            accumulate = True
            if target == LOCAL:  # the last target
                self.pull.multiplied(source)
                if rows is H:
                    waits.last()
        if not accumulate:
            repeat(operator.setitem, Z, ALL, 0)

    def all_blocks(self) -> list[Csr]:
        """Return the list of all blocks."""
        return [block for row in self.blocks.values() for block in row.values()]


class RowStrategy(Strategy):
    """Base class of strategies whose ranks own rows of H with all columns.

    `build` and `build_submatrix` make the blocks that a rank stores.

    Parameters
    ----------
    layout, layout_in : hpgcn.parallel.layout.BlockLayout
        Layouts of the result and of H, as in Strategy.
    comm : hpgcn.comm.SerialComm or MpiComm
    product : RowProduct
        Product with A, from the blocks that this rank read.
    symmetric : bool
        A is symmetric: the backward is a product of the same kind, else the adjoint.
    parent : RowStrategy, optional
        The map of all rows, if this one is a part of it.
    reverse : RowProduct, optional
        Product with A[rows_in][:, rows_out], if A is symmetric and the two sets differ.
    row_dtype : optional
        Dtype of the multiplied rows, if it differs from that of the values (16 bits).
    nodes : hpgcn.parallel.layout.NodeLayout, optional
        Nodes of the ranks; by default those of `parent`, or one node.
    """

    def __init__(self, layout: BlockLayout, layout_in: BlockLayout, comm: SerialComm,
                 product: RowProduct, *, symmetric: bool, parent: RowStrategy | None = None,
                 reverse: RowProduct | None = None, row_dtype: np.dtype | None = None,
                 nodes: NodeLayout = ONE_NODE) -> None:
        self.layout = layout
        self.layout_in = layout_in
        self.comm = comm
        self.product = product
        self.symmetric = symmetric
        self.parent = parent

        self.nodes = parent.nodes if parent else nodes
        self.row_dtype = parent.row_dtype if parent else row_dtype
        self.float32_sums = parent.float32_sums if parent else Workspace(np.float32, comm.device)
        self.edge_features = None  # (u, d), one row for each stored entry
        self.cached_ghost_rows = None  # constant rows of other ranks, set by `RowAttention`

        if not symmetric:
            self.back = product.transposed(layout_in.rows.num_rows)
        else:
            self.back = reverse or product

        if parent is None:  # a part has no more entries than its parent
            entries = sum(block.indices.size for block in product.all_blocks())
            check_nonzeros(comm, comm.device, entries)

    @classmethod
    def of(cls, adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm,
           product: RowProduct, width: int, **others: Any) -> Self:
        """Return the map of all rows, with buffers of a width."""
        layout = rank_grid.layout
        strategy = cls(layout, layout, comm, product, symmetric=adjacency.symmetric,
                       row_dtype=adjacency.row_dtype, nodes=rank_grid.nodes, **others)
        strategy.pack()
        strategy.reserve(width)
        return strategy

    def build_submatrix(self, rows_out: np.ndarray, rows_in: np.ndarray) -> RowProduct:
        """Return the RowProduct of A[rows_out][:, rows_in].

        `rows_out` and `rows_in` are (n,) bool over all rows. All ranks call this
        together.
        """
        raise NotImplementedError

    def restrict(self, rows_out: np.ndarray, rows_in: np.ndarray) -> Self:
        reverse = None
        product = self.build_submatrix(rows_out, rows_in)
        if self.symmetric and not np.array_equal(rows_out, rows_in):
            reverse = self.build_reverse_submatrix(product, rows_out, rows_in)
        layouts = self.layout.restricted(rows_out), self.layout.restricted(rows_in)
        part = type(self)(*layouts, self.comm, product, symmetric=self.symmetric, parent=self,
                          reverse=reverse)
        part.pack()
        return part

    def pack(self) -> None:
        """Store the arrays of all blocks of a product in one array of each kind."""
        for product in dict.fromkeys((self.product, self.back)):
            added = [block for row in product.blocks.values() for block in [*row.values()][1:]]
            pack(product.all_blocks(), added)

    def local_matrix(self) -> Any:
        """Return the local matrix of A, a csr_array (m + t, m_in + g) on the host.

        Rows: own rows, then rows of other ranks whose partial sums are formed here.
        Columns: own columns, then ghosts.
        """
        rows = []
        for target in (LOCAL, *self.product.push.sources):
            blocks = [block.to_scipy() for block in self.product.blocks[target].values()]
            rows.append(blocks[0] if len(blocks) == 1 else sp.hstack(blocks, format="csr"))
        if len(rows) == 1:
            return rows[0]
        for each in rows[1:]:  # sums for other ranks may have own columns only
            each.resize(each.shape[0], rows[0].shape[1])
        return sp.vstack(rows, format="csr")

    def transfers_of(self, pull: HaloPlan, push: HaloPlan) -> Sequence:
        """Return the transfers (pull, push) for two HaloPlans, in this map's buffers."""
        raise NotImplementedError

    @property
    def plans(self) -> tuple[HaloPlan, HaloPlan]:
        """The HaloPlans (of pulled rows, of pushed sums); the second may be empty."""
        pull, push = self.product.pull.plan, getattr(self.product.push, "plan", None)
        return pull, push or complete(pull.layout, pull.ghosts[:0], [()] * pull.layout.size)

    def submap(self, blocks: dict[int, dict], plans: tuple[HaloPlan, HaloPlan],
               sizes: tuple[int, int], *, symmetric: bool) -> RowStrategy:
        """Return a map with some nonzeros of this map, without sending messages.

        Close it before this map. `blocks` are by target, then by source, as in
        RowProduct. `plans` are the HaloPlans of pulled rows and of pushed sums. `sizes`
        are the own rows of the result and of the multiplied matrix.
        """
        layout, layout_in = (BlockLayout(np.array([0, rows]), 1, 0) for rows in sizes)
        product = RowProduct(blocks, *self.transfers_of(*plans), num_rows=sizes[0])
        return type(self)(layout, layout_in, self.comm, product, symmetric=symmetric, parent=self)

    def build_reverse_submatrix(self, product: RowProduct, rows_out: np.ndarray,
                                rows_in: np.ndarray) -> RowProduct:
        """Return the RowProduct of A[rows_in][:, rows_out] for a symmetric A.

        `product` is the RowProduct of A[rows_out][:, rows_in].
        """
        return self.build_submatrix(rows_in, rows_out)

    def multiply(self, direction: str, H: Array, *, mask: Array | None = None,
                 out: Array | None = None, kernel: Callable | None = None) -> Array:
        """Multiply A, or A^T, by H (m_in, f), and return the result (m, f).

        Rows are pulled, multiplied as they arrive, and partial sums are pushed.
        `direction` is "product" (A) or "back" (A^T). A 16-bit result that is added up
        from parts is summed in float32, in an array of the Workspace `float32_sums`,
        and rounded once. So it does not depend on the owners of nonzeros. `kernel` is
        called in place of the sparse product, for each tile of a block: see
        hpgcn.strategies.messages.
        """
        product, comm, clock = getattr(self, direction), self.comm, self.comm.clock
        pull, push = product.pull, product.push
        ops = kernels.backend(H)
        what = product_name(clock)

        if out is None:
            out = comm.device.empty((product.num_rows, H.shape[1]), H.dtype)
        total = out
        in_parts = push.adds or any(len(row) > 1 for row in product.blocks.values())
        if out.dtype == BF16 and in_parts and comm.size > 1:
            total = self.float32_sums.buffer(SUMS, *out.shape)
        # if sums are added later, only their total may be masked
        bits = None if push.adds else mask

        # 1. send the rows that other ranks read, and form partial sums, those for other ranks first
        waits = self.waits_of(H.shape[1], direction == "back")
        self._form_sums(product, product.partial_sums(H, total, what, waits), bits, kernel)
        pull.release()
        waits.sums(push, what)

        # 2. add the partial sums that other ranks have formed
        push.finish(total, what)
        pull.discard()  # the buffers of `push` are the same
        waits.end()

        # 3. mask the total, and round it as it is stored
        if bits is not mask:
            with clock("spmm"):
                ops.apply_mask(total, mask)
        if total is not out:
            with clock("spmm"):
                ops.convert(total, out)
        return out

    def _form_sums(self, product: RowProduct, sums: Iterator, bits: Array | None,
                   kernel: Callable | None) -> None:
        """Multiply by the blocks of a RowProduct into `sums`, those of `partial_sums`.

        Afterwards nothing refers to received rows and to sums of other ranks.
        """
        comm, clock = self.comm, self.comm.clock
        for target, Z, blocks in sums:
            spmm = kernels.backend(Z).spmm
            for source, block, X, accumulate in blocks:
                for lo, hi, indptr, rows in tiles_of(block, product.pull, product.push, accumulate):
                    if kernel:
                        with clock("spmm"):
                            kernel(target, source, block, X, lo, hi, indptr, rows_of(Z, lo, hi),
                                   accumulate=accumulate)
                        continue
                    with clock("spmm"):
                        spmm(indptr, block.indices, block.data, X, rows_of(Z, lo, hi),
                             rows=rows, mask=rows_of(bits, lo, hi), accumulate=accumulate)
                    count_masked(comm, indptr, rows_of(bits, lo, hi), Z.shape[1], rows)

    def waits_of(self, width: int, backward: bool, heads: int = 0, kept: int = 0) -> Waits:
        """Return the Waits of a product of this map; parameters as of a Product."""
        count = self.waits(Product(0, width, backward=backward, heads=heads, kept=kept))
        kind = NextTurns if self.sends_own_rows and self.comm.spool else Waits
        return kind(self.comm, count > 1, kept > 0, width, backward)

    def matrix_arrays(self, product: Product) -> list[Array]:
        blocks = (self.back if product.backward else self.product).all_blocks()
        return [array for block in blocks for array in product.arrays_read(block)]

    # A H and A^T G run the same code; partialmethod saves a frame of the call stack
    forward = partialmethod(multiply, "product")
    backward = partialmethod(multiply, "back")

    def attention(self, heads: Heads) -> RowAttention:
        return RowAttention(self, heads)

    def messages(self, dtype: DTypeLike) -> RowMessages:
        return RowMessages(self, dtype)

    def read_edge_features(self, source: AdjacencySource, dtype: DTypeLike) -> None:
        blocks = [block for product in dict.fromkeys((self.product, self.back))
                  for block in product.all_blocks()]
        device = self.comm.device
        numbers = np.unique(np.concatenate([device.get(block.data) for block in blocks]))
        self.edge_features = device.put(read_chosen(source, numbers).astype(dtype, copy=False))
        place = np.dtype(f"i{np.dtype(dtype).itemsize}")  # as wide as a value of a matrix
        for block in blocks:
            block.data = device.put(np.searchsorted(numbers, device.get(block.data)).astype(place))
        self.pack()

    @property
    def returns_gradients(self) -> bool:
        """Whether the backward of attention pushes gradients for other ranks' rows."""
        return not self.symmetric

    @property
    def attention_back(self) -> RowProduct:
        """The RowProduct that the backward pass of attention uses."""
        return self.back

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the matrix values."""
        return self.product.all_blocks()[0].data.dtype

    def reserve(self, width: int) -> None:
        self.product.pull.reserve(width)
        self.product.push.reserve(width)
        if self.row_dtype == BF16 and self.comm.size > 1:
            self.float32_sums.buffer(SUMS, self.layout.rows.num_rows, width)

    def traffic(self) -> Traffic:
        # Made from layouts only; a strategy may override this.
        return self.Plan.Traffic((self.layout, self.layout_in), self.symmetric)

    @property
    def buffer_bytes(self) -> int:
        return 0 if self.parent else self.product.pull.nbytes + self.float32_sums.nbytes

    def close(self) -> None:
        for product in (self.product, self.back):
            product.pull.close()
            product.push.close()
        if self.parent is None:  # maps that are cut from this one use its buffers
            for transfer in (self.product.pull, self.product.push):
                if transfer.buffers is not None:
                    transfer.buffers.close()


class RowTraffic(Traffic):
    """Traffic of a row strategy: pulled rows and pushed partial sums.

    Parameters
    ----------
    layouts : as Traffic
    symmetric : bool
        Whether A is symmetric.
    transfers : list
        The plans of R and S of the forward product; then of the backward, if A is
        symmetric and the backward is another product.

    Attributes
    ----------
    joined : bool
        Whether a rank sends rows and sums to another one in one message.
    one_block : bool
        Whether the rows of all other ranks are one array.
    """

    joined = one_block = False

    def __init__(self, layouts: tuple[BlockLayout, ...], symmetric: bool,
                 transfers: Sequence) -> None:
        super().__init__(layouts)
        self.symmetric = symmetric
        self.slices = 1
        self.right, self.left, *back = transfers
        self.reverse = back or None

    def transfers(self, product: Product) -> Sequence:
        """Return the plans of R and S of a Product: of pulled rows, and of pushed sums."""
        if product.backward and not self.symmetric:
            return self.left, self.right
        return self.reverse if product.backward and self.reverse else (self.right, self.left)

    def calls(self, product: Product, itemsize: int) -> Iterator:
        for transfer, nbytes, pushed in self.moves(product, itemsize):
            yield from (transfer.push if pushed else transfer.pull)(nbytes)

    def moves(self, product: Product, itemsize: int) -> list[tuple]:
        # Attention sends the scores of a row to the ranks that hold nonzeros of the row,
        # and their partial results return (RowAttention).
        width, heads = product.width, product.heads
        pull, push = self.transfers(product)
        if not heads:
            return [(pull, width * itemsize, False), (push, width * sum_bytes(itemsize), True)]
        if product.backward:
            return [(pull, (width + 3 * heads) * itemsize, False),
                    (push, (width + heads) * itemsize, True)]
        rows = [(pull, width * itemsize, False)] * (not product.kept)
        return [(push, heads * itemsize, False), *rows,
                (push, 2 * (width + heads) * itemsize, True)]


class RowPlan(Plan):
    """Plan of a row strategy.

    `Traffic` is RowTraffic or a subclass; `make_traffic` makes it.
    """

    Traffic: type = RowTraffic

    def make_traffic(self, layouts: tuple[BlockLayout, ...]) -> RowTraffic:
        return self.Traffic(layouts, self.pattern.symmetric)

    def persistent_bytes(self, product: Product, itemsize: int) -> np.ndarray:
        # Attention and messages keep arrays for rows of other ranks, beside the buffers.
        if product.backward or not (product.heads or product.edge_width):
            return super().persistent_bytes(product, itemsize)
        width, heads = product.width, product.heads
        ghosts = np.broadcast_to(np.ravel(self.traffic.right.ghost_rows), (self.num_ranks,))
        if product.edge_width:
            return ghosts * width * itemsize
        columns = heads + product.kept
        if product.kept or self.returns:
            columns += width
        kept = ghosts * columns
        if self.returns:
            own = np.repeat(np.diff(self.layout_in.offsets), self.layout_in.columns)
            kept = kept + (ghosts + own) * (width + heads)
        return kept * itemsize + ghosts * POINTER

    @property
    def returns(self) -> bool:
        """Whether the backward of attention pushes gradients for rows of other ranks."""
        return not self.pattern.symmetric

    def adjoint(self, forward: Operand) -> Operand:
        # The transpose of the rows that each rank owns.
        rows = int(self.layout_in.offsets[-1])
        return Operand.of(forward.entries.shape, forward.entries, rows + 1, results=rows)

    def buffer_bytes(self, width: int, itemsize: int) -> np.ndarray:
        # If A is not symmetric, sums pass through the same buffers as rows.
        rows = np.broadcast_to(np.ravel(self.traffic.right.buffer_rows), (self.num_ranks,))
        number = itemsize if self.pattern.symmetric else sum_bytes(itemsize)
        return rows * width * number + self.sums_held(width, itemsize)

    def sums_held(self, width: int, itemsize: int) -> np.ndarray:
        # In float32; 0 unless rows have 16 bits.
        rounded = itemsize == HALF and self.num_ranks > 1
        return self.rows() * width * sum_bytes(itemsize) * rounded
