"""Products on grids of two and three axes in broadcast stages (SUMMA): `2d` and `3d`.

Ranks form a grid of R big row blocks x L layers x C column blocks (2d: L = 1). Rank (i
L + l) C + j owns the columns of block j of H, G and Z. Its rows are il, piece l of big
block i. Layer l multiplies by the columns of A that are piece l of every big block, cut
into the stages of hpgcn.parallel.layout. Rank (i, l, j) holds the rows of big block i
in the stages of layer l that fall to column block j. W is on every rank.

A stage broadcasts two blocks. Its block of A (row pointers, values, column numbers: one
message) goes to the C ranks of row (i, l). Its interval of H goes to the R ranks that
have columns j in layer l. Each rank adds the product to T, big block i in its columns.
With L > 1 a reduce_scatter over the layers adds up T and leaves each rank its own rows.
Stage s + 1 is sent while stage s is multiplied. The backward is the same with the
blocks of A^T, read at load if A is not symmetric.

Valid for any R, C and L; blocks may be empty, and columns fewer than C.

Words of H and T in a product of width f: n f (R - 1 + L - 1) over all ranks. Bytes of
A: C - 1 times those of all blocks. A block of nnz > 0 entries in n_i rows has 8 (n_i +
1) + nnz (4 + s), s being those of a number (8 + s if n > 2^31 - 1). Messages in each of
the R + C - gcd(R, C) stages of a layer: R - 1 a column of ranks, C - 1 a row of ranks.
For T: L - 1 a rank. Empty messages are not sent. Memory: nnz / P entries of A (again
for A^T if A is not symmetric), two blocks of A and two intervals of H under way. If L >
1 also n / R rows of T, and (L - 1) m rows of the other layers' T.

Restricted to some rows (out) of the result and some (in) of H, blocks and intervals
keep their ranks and lose the other rows. The backward multiplies by blocks of A[in,
out] (symmetric A) or of A^T[in, out]. Such a map holds its entries of A, once in each
direction that differs, and uses the buffers and communicators of the unrestricted map.

Source: cagnet-2020, section IV-C, Algorithm 3 (block 2D), and section IV-D (block 3D);
van de Geijn and Watts 1997 (SUMMA).
"""
from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from hpgcn import kernels
from hpgcn.errors import ConfigError
from hpgcn.kernels.host.record import ALL, repeat
from hpgcn.parallel.csr import rows_of
from hpgcn.parallel.layout import divisors, stages
from hpgcn.parallel.workspace import Workspace
from hpgcn.strategies.grids.packed_blocks import Blocks
from hpgcn.strategies.grids.spooled_summa import SpooledSumma
from hpgcn.strategies.grids.summa_plan import SummaPlan, SummaTraffic, cube_of
from hpgcn.strategies.masked_additions import count_masked
from hpgcn.strategies.plan import Product
from hpgcn.strategies.strategy import Strategy, most_square, product_name

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.normalization import NormalizedAdjacency
    from hpgcn.kernels import Array
    from hpgcn.strategies.plan import RankGrid


class Summa(Strategy):
    """Base class of strategies 2d and 3d: broadcasts on a grid of ranks.

    `A` and `A_transposed` are packed_blocks.Blocks; they are one object if A is
    symmetric and the map is square. `parent` is the map of all rows, from which this
    map was cut.
    """

    Plan = SummaPlan
    options = ("grid",)
    word = "grid"
    spools = sends_own_rows = spools_matrix = True

    def __init__(self, rank_grid: RankGrid, comm: SerialComm, A: Blocks, A_transposed: Blocks, *,
                 symmetric: bool, parent: Summa | None = None) -> None:
        self.rank_grid = rank_grid
        self.comm = comm
        self.A = A
        self.A_transposed = A_transposed
        self.symmetric = symmetric
        self.parent = parent
        self.layout = A.layout
        self.layout_in = A.layout_in

        self.shape = R, L, C = cube_of(rank_grid.shape)
        layout = rank_grid.layout
        self.row, self.piece = divmod(layout.block, L)
        self.column = layout.column
        self.own_stages = np.flatnonzero(A.cuts.piece == self.piece).tolist()  # stages of its layer

        # parts of a matrix use the buffers and groups of the whole
        if parent:
            self.workspace, self.groups = parent.workspace, parent.groups
        else:
            self.workspace = Workspace(A.dtype, comm.device)
            self.groups = (
                comm.group(layout.row_ranks.tolist()),
                comm.group(((np.arange(R) * L + self.piece) * C + self.column).tolist()),
                comm.group(((self.row * L + np.arange(L)) * C + self.column).tolist()))

        self.along_row, self.along_column, self.along_layers = self.groups

    @classmethod
    def block_grid(cls, shape: tuple[int, ...]) -> tuple[int, int]:
        R, L, C = cube_of(shape)
        return R * L, C

    @classmethod
    def mask_slices(cls, shape: tuple[int, ...]) -> int:
        _, layers, columns = cube_of(shape)
        return columns if layers == 1 else 0

    @classmethod
    def build(cls, adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm, *,
              width: int = 0) -> Self:
        # ConfigError if the layout has another number of blocks than the grid.
        layout = rank_grid.layout
        rows, columns = cls.block_grid(rank_grid.shape)
        if (layout.offsets.size - 1, layout.columns) != (rows, columns):
            raise ConfigError(
                f"{cls.name}: {layout.offsets.size - 1} row blocks x {layout.columns} column "
                f"blocks given, expected {rows} x {columns} on the grid "
                f"{'x'.join(map(str, rank_grid.shape))}")

        cuts = stages(layout.offsets, *cube_of(rank_grid.shape))
        A = A_transposed = Blocks.read(adjacency, layout, cuts, comm)
        if not adjacency.symmetric:
            A_transposed = Blocks.read(adjacency, layout, cuts, comm, transposed=True)

        strategy = cls(rank_grid, comm, A, A_transposed, symmetric=adjacency.symmetric)
        strategy.reserve(width)
        return strategy

    def reserve(self, width: int) -> None:
        if self.comm.spool is not None:
            return
        # Two buffers for blocks of A and intervals of H, used in turn, and one for T.
        width = -(-width // self.shape[2])
        cuts = self.A.cuts
        heights = np.diff(cuts.offsets)
        L = self.shape[1]

        # two buffers of each kind: one is multiplied, the other arrives
        for parity, turn in enumerate((self.own_stages[::2], self.own_stages[1::2])):
            sizes = [blocks.sizes[stage] for blocks in (self.A, self.A_transposed)
                     for stage in turn if cuts.column[stage] != self.column]
            tall = [heights[stage] for stage in turn if cuts.row[stage] != self.row]
            self.workspace.flat(f"A {parity}", max(sizes, default=0), np.uint8)
            self.workspace.flat(f"H {parity}", int(max(tall, default=0)) * width)

        if L > 1:
            self.workspace.flat("partial", self.A.num_rows * width)
            rows = self.rank_grid.layout.rows.num_rows
            self.workspace.flat("others", (L - 1) * rows * width)

    @property
    def buffer_bytes(self) -> int:
        return 0 if self.parent else self.workspace.nbytes

    def restrict(self, rows_out: np.ndarray, rows_in: np.ndarray) -> Self:
        A = A_transposed = self.A.restricted(rows_out, rows_in, self.comm)
        if not (self.symmetric and np.array_equal(rows_out, rows_in)):
            A_transposed = self.A_transposed.restricted(rows_in, rows_out, self.comm)
        return type(self)(self.rank_grid, self.comm, A, A_transposed,
                          symmetric=self.symmetric, parent=self)

    def forward(self, H: Array, *, mask: Array | None = None,
                out: Array | None = None) -> Array:
        return self._product(self.A, H, mask, out, backward=False)

    def backward(self, G: Array, *, mask: Array | None = None,
                 out: Array | None = None) -> Array:
        return self._product(self.A_transposed, G, mask, out, backward=True)

    def _product(self, blocks: Blocks, H: Array, mask: Array | None, out: Array | None, *,
                 backward: bool) -> Array:
        """Multiply H by the blocks of this layer's stages, and sum over layers.

        A block is multiplied as soon as it has arrived.
        """
        comm = self.comm
        clock = comm.clock
        ops = kernels.backend(H)
        width = H.shape[1]
        L = self.shape[1]
        what = product_name(clock)

        # partial sums of this layer of the grid
        if out is None:
            out = comm.device.empty((blocks.layout.rows.num_rows, width), H.dtype)
        if comm.spool is not None:
            place = self.row, self.piece, self.column
            sums = self.waits(Product(0, width)) > 1
            spooled = SpooledSumma(comm, self.shape, blocks, place, self.own_stages, sums=sums)
            spooled.multiply(H, mask, out, backward=backward)
            return out
        total = out if L == 1 else self.workspace.buffer("partial", blocks.num_rows, width)
        entries_read = [stage for stage in self.own_stages if blocks.entries[stage]]
        if not entries_read:
            repeat(operator.setitem, total, ALL, 0)

        # multiply a stage while the next one arrives
        sending = []
        arriving = self._start(blocks, H, 0)
        for turn, number in enumerate(self.own_stages):
            here = arriving
            arriving = self._start(blocks, H, turn + 1)  # sent while this one is multiplied
            sending += here.sent
            clock.stage = number
            finish(here.received, what)
            if number not in entries_read:
                continue
            block = blocks.arrived(number, here.message)
            handles = [handle for handle, _ in (*sending, *arriving.sent, *arriving.received)
                       if not handle.test()]
            bits = mask if L == 1 else None
            accumulate = number != entries_read[0]
            for lo, hi, indptr, _ in block.tiles(bool(handles), accumulate=False):
                with clock("spmm"):
                    ops.spmm(indptr, block.indices, block.data, here.rows,
                             rows_of(total, lo, hi), mask=rows_of(bits, lo, hi),
                             accumulate=accumulate)
                count_masked(comm, indptr, rows_of(bits, lo, hi), width)
                handles = [handle for handle in handles if not handle.test()]
        clock.stage = -1
        finish(sending, what)
        if L == 1:
            return out

        # add up over layers
        counts = np.diff(blocks.layout.offsets[self.row * L:(self.row + 1) * L + 1]) * width
        others = self.workspace.flat("others", (L - 1) * out.size)
        handle = self.along_layers.start_reduce_scatter(
            total, out, counts.tolist(), "aggregation", work=others)
        handle.wait(f"the sum over layers in {what}")
        if mask is not None:  # partial sums are added here: only their total may be masked
            with clock("spmm"):
                ops.apply_mask(out, mask)
        return out

    def _start(self, blocks: Blocks, H: Array, turn: int) -> Stage:
        """Start the broadcasts of stage number `turn` of this layer.

        After the last stage do nothing.
        """
        stage = Stage()
        if turn == len(self.own_stages):
            return stage
        number = self.own_stages[turn]

        # the block, its rows, and their sender
        cuts = blocks.cuts
        lo, hi = cuts.offsets[number:number + 2].tolist()
        column = int(cuts.column[number])
        row = int(cuts.row[number])

        # the block and the rows: own ones as they are, others into buffers
        if column == self.column:
            stage.message = blocks.messages[number]
        else:
            stage.message = self.workspace.flat(f"A {turn % 2}", blocks.sizes[number], np.uint8)
        if row == self.row:
            first = blocks.layout_in.rows.start
            stage.rows = H[lo - first:hi - first]
        else:
            stage.rows = self.workspace.buffer(f"H {turn % 2}", hi - lo, H.shape[1])

        # one broadcast along the row of ranks, one along the column
        for comm, array, root, name, part in (
                (self.along_row, stage.message, column, "A", "sparse_comm"),
                (self.along_column, stage.rows, row, "H", None)):
            if array.size:
                with comm.clock.messages(part):
                    handle = comm.start_bcast(array, root, "aggregation")
                handles = stage.sent if root == comm.rank else stage.received
                handles.append((handle, f"block {number} of {name}"))

        return stage

    def matrix_arrays(self, product: Product) -> list[Array]:
        return []

    def traffic(self) -> SummaTraffic:
        layouts = self.layout, self.layout_in
        return SummaTraffic(layouts, self.rank_grid.shape, (self.A, self.A_transposed))

    def close(self) -> None:
        """Free the communicators; a restricted map leaves that to its parent."""
        if not self.parent:
            for group in self.groups:
                group.close()


class TwoD(Summa):
    """Strategy `2d` on R x C ranks.

    The default grid is the most square one with R >= C.

    Columns cost more than rows, because A itself and the products with W are sent along
    them, and features may be fewer than columns.
    """

    name = "2d"
    axes = "RxC"

    @classmethod
    def default_shape(cls, ranks: int) -> tuple[int, ...]:
        return most_square(ranks)


class ThreeD(Summa):
    """Strategy `3d` on L layers of R x C ranks.

    The default grid has the least R + C + L, with R >= L >= C.
    """

    name = "3d"
    axes = "RxCxL"

    @classmethod
    def waits(cls, product: Product) -> int:
        # Rows, then sums over layers.
        return 2

    @classmethod
    def default_shape(cls, ranks: int) -> tuple[int, ...]:
        cubes = [(rows, layers, ranks // (rows * layers))
                 for rows in divisors(ranks) for layers in divisors(ranks // rows)
                 if rows >= layers >= ranks // (rows * layers)]
        rows, layers, columns = min(cubes, key=lambda cube: (sum(cube), cube[0]))
        return rows, columns, layers


@dataclass(eq=False)
class Stage:
    """A stage whose broadcasts have been started."""

    message: np.ndarray | None = None  # (b,) uint8: block of A, packed; empty without entries
    rows: np.ndarray | None = None  # (hi - lo, f_j): interval of H
    sent: list = field(default_factory=list)  # (handle, what it is): this rank is the root
    received: list = field(default_factory=list)  # messages of other roots


def finish(under_way: list[tuple], what: str) -> None:
    """Wait for all broadcasts in `under_way`."""
    for handle, name in under_way:
        handle.wait(f"the broadcast of {name} in {what}")
