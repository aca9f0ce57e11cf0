"""Two- and three-dimensional products in broadcast stages (SUMMA): strategies `2d` and `3d`.

Ranks form a grid of R big row blocks x L layers x C column blocks (2d: L = 1). Rank (i L + l) C + j owns the columns of
block j of H, G and Z in rows il, piece l of big block i. Layer l multiplies by the columns of A that are piece l of
every big block, cut into the stages of hpgcn.layout.stages: rank (i, l, j) holds the rows of big block i in those
stages of layer l that fall to column block j. W is on every rank.

A stage broadcasts its block of A (row pointers, values, column numbers: one message) to the C ranks of row (i, l), and
its interval of H to the R ranks that have columns j in layer l; each rank adds the product to T, big block i in its
columns. With L > 1 a reduce_scatter over the layers adds up T and leaves each rank its own rows. Stage s + 1 travels
while stage s is multiplied. The backward is the same with the blocks of A^T, read at load if A is not symmetric.

Valid for any R, C and L; blocks may be empty, and columns fewer than C. Words of H and T in a product of width f:
n f (R - 1 + L - 1) over all ranks. Bytes of A: C - 1 times those of all blocks; one of nnz > 0 entries in n_i rows has
8 (n_i + 1) + nnz (4 + s), s being those of a number (8 + s where n > 2^31 - 1). Messages in each of the
R + C - gcd(R, C) stages of a layer: R - 1 a column of ranks, C - 1 a row of ranks; for T: L - 1 a rank; none that would
be empty. Memory: nnz / P entries of A (again for A^T if A is not symmetric), two blocks of A and two intervals of H
under way; if L > 1 also n / R rows of T, and (L - 1) m rows of the other layers' T.

Restricted to some rows (out) of the result and some (in) of H, blocks and intervals keep their ranks and lose what is
not asked for; the backward multiplies by blocks of A[in, out] (symmetric A) or of A^T[in, out]. Such a map holds its
entries of A, once in each direction that differs, and shares all messages with the whole one.

Source: cagnet-2020, sections IV-C and IV-D (Algorithm 2); van de Geijn and Watts 1997 (SUMMA).
"""
from __future__ import annotations

import copy
from dataclasses import dataclass, field

import numpy as np

from hpgcn import cost, kernels
from hpgcn.errors import ConfigError
from hpgcn.layout import stages
from hpgcn.operator import Operator
from hpgcn.strategies.blocks import Blocks
from hpgcn.strategies.tiles import TILES, rows_of, tiles


class Summa:
    """A-hat on a grid of ranks.

    Parameters
    ----------
    source : hpgcn.graph.Graph with all rows, or hpgcn.store.StoredGraph
    grid : hpgcn.layout.Grid
        R L row blocks, C column blocks.
    comm : hpgcn.comm.SerialComm or MpiComm
    norm : "sym", "row" or "none"
        As hpgcn.operator.Operator. A degree that is not positive gives the factor 0.
    self_loops : bool
        Add a loop of weight 1 where a vertex has none.
    dtype : numpy dtype
    max_width : int
        Widest H that will be multiplied, over all columns.
    slab : hpgcn.graph.Graph, optional
        Not read: blocks of A are not this rank's own rows.
    axes : tuple of int, optional
        (R, C) for 2d, (R, C, L) for 3d; hpgcn.cost.default_grid if absent.

    Attributes
    ----------
    layout, layout_in : hpgcn.layout.Grid
        Who owns rows of the result of `forward`, and rows of H; the same unless restricted.
    buffer_bytes : int
        Memory of messages and of T, made once; 0 if restricted.

    Raises
    ------
    ConfigError
        `grid` has another number of blocks than `axes`.
    """

    name: str

    def __init__(self, source, grid, comm, *, norm="sym", self_loops=True, dtype=np.float32, max_width=1, slab=None,
                 axes=None):
        self.layout = self.layout_in = grid
        self.comm, self.dtype = comm, np.dtype(dtype)
        self.axes = cost.check_grid(self.name, grid.size, axes or cost.default_grid(self.name, grid.size))
        R, L, C = self.shape = cost.cube(self.name, self.axes)
        if (grid.offsets.size - 1, grid.columns) != (R * L, C):
            raise ConfigError(f"{self.name}: {grid.offsets.size - 1} row blocks x {grid.columns} column blocks given, "
                              f"expected {R * L} x {C} on the grid {'x'.join(map(str, self.axes))}")
        self.row, self.piece = divmod(grid.block, L)
        cuts = stages(grid.offsets, R, L, C)
        self.mine = np.flatnonzero(cuts.piece == self.piece).tolist()  # this layer's stages, in order
        operator = Operator(source, norm=norm, self_loops=self_loops, dtype=self.dtype)
        self.symmetric = operator.symmetric
        self.A = Blocks.of(operator, grid, cuts, comm)
        self.A_transposed = self.A if self.symmetric else Blocks.of(operator, grid, cuts, comm, transposed=True)
        self.along_row = comm.group(grid.row_ranks.tolist())
        self.along_column = comm.group(((np.arange(R) * L + self.piece) * C + grid.column).tolist())
        self.along_layers = comm.group(((self.row * L + np.arange(L)) * C + grid.column).tolist())
        self.groups = self.along_row, self.along_column, self.along_layers
        self._allocate(-(-max_width // C))

    def _allocate(self, width):
        """Make two buffers for blocks of A and for intervals of H, used in turn, and, if layers add up, for T."""
        cuts, L, empty = self.A.cuts, self.shape[1], self.comm.device.empty
        heights = np.diff(cuts.offsets)
        turns = self.mine[::2], self.mine[1::2]
        self.sparse = [empty(max([blocks.sizes[s] for blocks in (self.A, self.A_transposed) for s in turn
                                  if cuts.column[s] != self.layout.column], default=0), np.uint8) for turn in turns]
        self.tall = [empty(max([heights[s] for s in turn if cuts.row[s] != self.row], default=0) * width, self.dtype)
                     for turn in turns]
        self.partial = empty(self.A.num_rows * width if L > 1 else 0, self.dtype)
        self.others = empty((L - 1) * self.layout.rows.num_rows * width, self.dtype)
        self.buffer_bytes = sum(buffer.nbytes for buffer in (*self.sparse, *self.tall, self.partial, self.others))

    def restrict(self, rows_out, rows_in):
        """The same map to fewer rows from fewer rows: see `hpgcn.strategies.Strategy`."""
        made = copy.copy(self)
        made.layout, made.layout_in = self.layout.restricted(rows_out), self.layout.restricted(rows_in)
        made.groups, made.buffer_bytes = (), 0
        made.A = self.A.restricted(rows_out, rows_in, self.comm)
        if self.symmetric and np.array_equal(rows_out, rows_in):
            made.A_transposed = made.A
        else:
            made.A_transposed = self.A_transposed.restricted(rows_in, rows_out, self.comm)
        return made

    def forward(self, H, *, layer, mask=None, out=None):
        """Return this rank's block of A H: see `hpgcn.strategies.Strategy`."""
        return self._product(self.A, H, mask, out, f"layer {layer} forward")

    def backward(self, G, *, layer, mask=None, out=None):
        """Return this rank's block of A^T G: see `hpgcn.strategies.Strategy`."""
        return self._product(self.A_transposed, G, mask, out, f"layer {layer} backward")

    def _product(self, blocks, H, mask, out, what):
        width, L = H.shape[1], self.shape[1]
        out = self.comm.device.empty((blocks.layout.rows.num_rows, width), self.dtype) if out is None else out
        if L == 1:
            return self._multiply_stages(blocks, H, mask, out, what)
        total = self.partial[:blocks.num_rows * width].reshape(blocks.num_rows, width)
        self._multiply_stages(blocks, H, None, total, what)
        counts = np.diff(blocks.layout.offsets[self.row * L:(self.row + 1) * L + 1]) * width
        handle = self.along_layers.start_reduce_scatter(total, out, counts.tolist(), "aggregation", work=self.others)
        handle.wait(f"the sum over layers in {what}")
        if mask is not None:  # partial sums are added here: only their total may be masked
            with self.comm.clock("spmm"):
                kernels.backend(H).apply_mask(out, mask)
        return out

    def _multiply_stages(self, blocks, H, mask, total, what):
        """Write the sum of this layer's stages to `total` (n_i, f_j); `mask` applies to it."""
        multiplied = [s for s in self.mine if blocks.entries[s]]
        if not multiplied:
            total[:] = 0
        sending, arriving = [], self._start(blocks, H, 0, what)
        for turn, s in enumerate(self.mine):
            here, arriving = arriving, self._start(blocks, H, turn + 1, what)
            sending += here.sent
            finish(here.received)
            if s in multiplied:
                self._multiply(blocks.arrived(s, here.message), here.rows, total,
                               mask if s == multiplied[-1] else None, s != multiplied[0],
                               [*sending, *arriving.sent, *arriving.received])
        finish(sending)
        return total

    def _start(self, blocks, H, turn, what):
        """Start the broadcasts of a stage; past the last one there are none."""
        stage = Stage()
        if turn == len(self.mine):
            return stage
        s, width = self.mine[turn], H.shape[1]
        cuts = blocks.cuts
        (lo, hi), column, row = cuts.offsets[s:s + 2].tolist(), int(cuts.column[s]), int(cuts.row[s])
        if column == self.layout.column:
            stage.message = blocks.messages[s]
        else:
            stage.message = self.sparse[turn % 2][:blocks.sizes[s]]
        if row == self.row:
            first = blocks.layout_in.rows.start
            stage.rows = H[lo - first:hi - first]
        else:
            stage.rows = self.tall[turn % 2][:(hi - lo) * width].reshape(hi - lo, width)
        for comm, array, root, name in ((self.along_row, stage.message, column, "A"),
                                        (self.along_column, stage.rows, row, "H")):
            if array.size:
                handle = comm.start_bcast(array, root, "aggregation")
                (stage.sent if root == comm.rank else stage.received).append(
                    (handle, f"block {s} of {name} in {what}"))
        return stage

    def _multiply(self, block, rows, total, mask, accumulate, under_way):
        """Add a product to `total`, or write it, in tiles of rows with a look at the messages between them."""
        (indptr, indices, data), spmm = block, kernels.backend(rows).spmm
        handles = [handle for handle, _ in under_way if not handle.test()]
        for lo, hi in tiles(indptr, TILES if handles and self.comm.device.in_tiles else 1):
            with self.comm.clock("spmm"):
                spmm(rows_of(indptr, lo, hi + 1), indices, data, rows, rows_of(total, lo, hi),
                     mask=rows_of(mask, lo, hi), accumulate=accumulate)
            handles = [handle for handle in handles if not handle.test()]

    def costs(self):
        """What its products send: see `hpgcn.strategies.Strategy`."""
        forward = self.A.costs()
        return cost.Map(forward, forward if self.A_transposed is self.A else self.A_transposed.costs())

    def close(self):
        """Free the communicators, which a restricted map leaves to the whole one."""
        for group in self.groups:
            group.close()


class TwoD(Summa):
    """A-hat on R x C ranks; see Summa."""

    name = "2d"


class ThreeD(Summa):
    """A-hat on L layers of R x C ranks; see Summa."""

    name = "3d"


@dataclass(eq=False)
class Stage:
    """A stage under way.

    Attributes
    ----------
    message : (b,) uint8
        Block of A, packed; empty if it has no entries.
    rows : (hi - lo, f_j)
        Interval of H.
    sent, received : lists of (handle, what it is)
        Those of which this rank is the root, and the others.
    """

    message: np.ndarray | None = None
    rows: np.ndarray | None = None
    sent: list = field(default_factory=list)
    received: list = field(default_factory=list)


def finish(under_way):
    """Wait for all of them."""
    for handle, what in under_way:
        handle.wait(f"the broadcast of {what}")
