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

from dataclasses import dataclass, field, replace

import numpy as np

from hpgcn import kernels
from hpgcn.check import index_dtype
from hpgcn.errors import ConfigError
from hpgcn.layout import BlockLayout, divisors, image, split, stages
from hpgcn.layout import Stages as Cuts
from hpgcn.parallel.counts import reduce_scatter
from hpgcn.parallel.csr import rows_of
from hpgcn.parallel.workspace import Workspace
from hpgcn.strategies.blocks import POINTER_BYTES, Blocks
from hpgcn.strategies.plan import INDEX, POINTER, Operand, Plan
from hpgcn.strategies.strategy import Strategy, most_square

TWICE, TWICE_LAYERS = 2, 2.7  # blocks as read, as they are cut or packed, and as transposes are read


def cube_of(shape):
    """(R, L, C): big row blocks, pieces of each, column blocks; ranks are numbered in this order."""
    rows, columns, *layers = shape
    return rows, layers[0] if layers else 1, columns


@dataclass(frozen=True, eq=False)
class Travelling:
    """The blocks of A in one direction; hpgcn.strategies.blocks.Blocks has the same attributes.

    Attributes
    ----------
    layout, layout_in : hpgcn.layout.BlockLayout
        Who owns rows of the result, and of what is multiplied.
    cuts : hpgcn.layout.Stages
    nonzeros : (R, S) int64
        Entries by big row block and stage.
    """

    layout: BlockLayout
    layout_in: BlockLayout
    cuts: Cuts
    nonzeros: np.ndarray


class SummaPlan(Plan):
    """Broadcasts of blocks of A along rows, and of intervals of H along columns, in stages.

    Parameters
    ----------
    pattern, arrangement, layouts
        As hpgcn.strategies.plan.Plan.
    directions : pair of Travelling or Blocks, optional
        Of A, and of what the backward multiplies by: counted from the pattern if absent.
    """

    def __init__(self, pattern, arrangement, layouts=None, directions=None):
        super().__init__(pattern, arrangement, layouts)
        self.shape = cube_of(arrangement.shape)
        self.directions = directions or self._count()

    def _count(self):
        """Count the entries of all blocks."""
        pattern = self.pattern
        offsets = self.arrangement.layout.offsets
        cuts = stages(offsets, *self.shape)
        big = offsets[::self.shape[1]]

        def direction(pattern, layout, layout_in):
            rows_in = pattern.rows_in
            kept = cuts if rows_in is None else replace(cuts, offsets=image(cuts.offsets, rows_in))
            return Travelling(layout, layout_in, kept, pattern.nonzeros(big, cuts.offsets))

        forward = direction(pattern, self.layout, self.layout_in)
        if pattern.symmetric and pattern.square:
            return forward, forward
        return forward, direction(pattern.transposed, self.layout_in, self.layout)

    def _pieces(self, layout):
        """Rows of each piece of each big block, (R, L)."""
        R, L, _ = self.shape
        return np.diff(layout.offsets).reshape(R, L)

    def calls(self, product, itemsize):
        """See `Plan`: A along rows, H along columns, sums over layers."""
        R, L, C = self.shape
        blocks = self.directions[product.backward]
        cuts = blocks.cuts
        rows_out = self._pieces(blocks.layout)
        width = np.diff(split(product.width, C))

        sparse = block_bytes(blocks.nonzeros, rows_out, C, itemsize, int(blocks.layout_in.offsets[-1])).T
        yield tuple(gathered(counts * (C - 1), (cuts.piece, cuts.column), (L, C, R)).transpose(2, 0, 1)
                    for counts in (sparse, sparse > 0))
        tall = np.diff(cuts.offsets)[:, None] * width * itemsize
        yield tuple(gathered(counts * (R - 1), (cuts.row, cuts.piece), (R, L, C))
                    for counts in (tall, tall > 0))
        yield reduce_scatter(rows_out[..., None] * width * itemsize, 1)

    def make_operands(self):
        """See `Plan`."""
        forward, backward = self.directions
        operand = self._operand(forward)
        return operand, operand if backward is forward else self._operand(backward)

    def _operand(self, blocks):
        R, L, C = self.shape
        cuts = blocks.cuts
        rows = self._pieces(blocks.layout).reshape(R, L, 1)
        big = rows.sum(1, keepdims=True)
        holder = (cuts.piece * C + cuts.column)[:, None] == np.arange(L * C)
        entries = (blocks.nonzeros @ holder).reshape(R, L, C)
        full = ((blocks.nonzeros > 0).astype(np.int64) @ holder).reshape(R, L, C)
        results = big + rows * (L > 1)
        count = holder.sum(0).reshape(1, L, C).sum(2, keepdims=True)
        pointers = full * (big + 1)
        return Operand.of((R, L, C), entries, pointers, multiplied=entries.sum(2, keepdims=True),
                          results=results, blocks=count,
                          copied_pointers=np.maximum(count * (results + 1) - pointers, 0))

    def buffer_bytes(self, width, itemsize):
        """See `Plan`: two buffers for blocks of A and for intervals of H, and what layers add up in."""
        R, L, C = self.shape
        rows = self._pieces(self.layout)[..., None]
        big = rows.sum(1)[:, 0]
        cuts = self.directions[0].cuts
        heights = np.diff(cuts.offsets)
        tall, entries, pointers = (np.zeros((R, L, C), np.int64) for _ in range(3))
        for piece in range(L):
            mine = np.flatnonzero(cuts.piece == piece)
            for turn in (mine[::2], mine[1::2]):
                for i in range(R):
                    tall[i, piece] += heights[turn[cuts.row[turn] != i]].max(initial=0)
                for j in range(C):
                    moved = turn[cuts.column[turn] != j]
                    most = np.max([blocks.nonzeros[:, moved].max(1, initial=0)
                                   for blocks in dict.fromkeys(self.directions)], axis=0)
                    entries[:, piece, j] += most
                    pointers[:, piece, j] += np.where(most > 0, big + 1, 0)
        if L > 1:
            tall += big.reshape(R, 1, 1) + (L - 1) * rows
        part = -(-width // C)
        return (tall * part * itemsize + entries * (INDEX + itemsize) + pointers * POINTER).ravel()

    def reading_bytes(self, itemsize):
        """See `Plan`: blocks as they are read, cut and packed."""
        _, L, C = self.shape
        forward, *back = self.held
        held = forward.nbytes(itemsize)
        transposes = sum(operand.nbytes(itemsize) for operand in back)
        rows = self.of_big_rows(forward.entries, L * C)
        chunk = self.chunk_bytes(rows // np.maximum(forward.blocks, 1), forward.entries / rows)
        again = (held + transposes + chunk) * (len(back) > 0)
        twice = held * (TWICE_LAYERS if L > 1 else TWICE)
        return self.factor_bytes() + np.maximum.reduce([self.filling_bytes(held, rows), twice, again])


def block_bytes(nonzeros, rows, columns, itemsize, n):
    """Bytes of the blocks of A, each in one message; an empty block is not sent.

    Parameters
    ----------
    nonzeros : (R, S) int64
    rows : (R, L) int64
        Rows of A in each piece of each big block.
    columns : int
        C; with one column block A stays where it is.
    itemsize : int
    n : int
        Columns of A.
    """
    if columns == 1:
        return np.zeros(nonzeros.shape, np.int64)
    pointers = (rows.sum(1, keepdims=True) + 1) * POINTER_BYTES
    return np.where(nonzeros > 0, pointers + nonzeros * (itemsize + index_dtype(n).itemsize), 0)


def gathered(counts, places, shape):
    """Sum rows of counts, one a stage, at the places of the ranks that send them."""
    sums = np.zeros(shape, np.int64)
    np.add.at(sums, places, counts)
    return sums


class Summa(Strategy):
    """A-hat on a grid of ranks.

    Parameters
    ----------
    arrangement : hpgcn.strategies.plan.Arrangement
    comm : hpgcn.comm.SerialComm or MpiComm
    A, A_transposed : hpgcn.strategies.blocks.Blocks
        The same object if A is symmetric and the map is square.
    symmetric : bool
    whole : Summa, optional
        The map of all rows, which this one was cut from.
    """

    Plan = SummaPlan
    options = ("grid",)

    def __init__(self, arrangement, comm, A, A_transposed, *, symmetric, whole=None):
        self.arrangement = arrangement
        self.comm = comm
        self.A = A
        self.A_transposed = A_transposed
        self.symmetric = symmetric
        self.whole = whole
        self.layout = A.layout
        self.layout_in = A.layout_in
        self.shape = R, L, C = cube_of(arrangement.shape)
        layout = arrangement.layout
        self.row, self.piece = divmod(layout.block, L)
        self.column = layout.column
        self.mine = np.flatnonzero(A.cuts.piece == self.piece).tolist()  # this layer's stages, in order
        if whole:
            self.workspace, self.groups = whole.workspace, whole.groups
        else:
            self.workspace = Workspace(A.dtype, comm.device)
            self.groups = (
                comm.group(layout.row_ranks.tolist()),
                comm.group(((np.arange(R) * L + self.piece) * C + self.column).tolist()),
                comm.group(((self.row * L + np.arange(L)) * C + self.column).tolist()))
        self.along_row, self.along_column, self.along_layers = self.groups

    @classmethod
    def blocks(cls, shape):
        """See `Strategy`."""
        R, L, C = cube_of(shape)
        return R * L, C

    @classmethod
    def build(cls, adjacency, arrangement, comm, *, width=0):
        """See `Strategy`; ConfigError if the layout has another number of blocks than the grid."""
        layout = arrangement.layout
        rows, columns = cls.blocks(arrangement.shape)
        if (layout.offsets.size - 1, layout.columns) != (rows, columns):
            raise ConfigError(f"{cls.name}: {layout.offsets.size - 1} row blocks x {layout.columns} column blocks "
                              f"given, expected {rows} x {columns} on the grid "
                              f"{'x'.join(map(str, arrangement.shape))}")
        cuts = stages(layout.offsets, *cube_of(arrangement.shape))
        A = A_transposed = Blocks.read(adjacency, layout, cuts, comm)
        if not adjacency.symmetric:
            A_transposed = Blocks.read(adjacency, layout, cuts, comm, transposed=True)
        strategy = cls(arrangement, comm, A, A_transposed, symmetric=adjacency.symmetric)
        strategy.reserve(width)
        return strategy

    def reserve(self, width):
        """See `Strategy`: two buffers for blocks of A and for intervals of H, used in turn, and for T."""
        width = -(-width // self.shape[2])
        cuts = self.A.cuts
        heights = np.diff(cuts.offsets)
        L = self.shape[1]
        for parity, turn in enumerate((self.mine[::2], self.mine[1::2])):
            sizes = [blocks.sizes[stage] for blocks in (self.A, self.A_transposed) for stage in turn
                     if cuts.column[stage] != self.column]
            tall = [heights[stage] for stage in turn if cuts.row[stage] != self.row]
            self.workspace.flat(f"A {parity}", max(sizes, default=0), np.uint8)
            self.workspace.flat(f"H {parity}", int(max(tall, default=0)) * width)
        if L > 1:
            self.workspace.flat("partial", self.A.num_rows * width)
            self.workspace.flat("others", (L - 1) * self.arrangement.layout.rows.num_rows * width)

    @property
    def buffer_bytes(self):
        """See `Strategy`."""
        return 0 if self.whole else self.workspace.nbytes

    def restrict(self, rows_out, rows_in):
        """See `Strategy`."""
        A = A_transposed = self.A.restricted(rows_out, rows_in, self.comm)
        if not (self.symmetric and np.array_equal(rows_out, rows_in)):
            A_transposed = self.A_transposed.restricted(rows_in, rows_out, self.comm)
        return type(self)(self.arrangement, self.comm, A, A_transposed, symmetric=self.symmetric, whole=self)

    def forward(self, H, *, mask=None, out=None):
        """See `Strategy`."""
        return self._product(self.A, H, mask, out)

    def backward(self, G, *, mask=None, out=None):
        """See `Strategy`."""
        return self._product(self.A_transposed, G, mask, out)

    def _product(self, blocks, H, mask, out):
        """Multiply the blocks of this layer's stages as they arrive, then add up over layers."""
        comm = self.comm
        clock = comm.clock
        ops = kernels.backend(H)
        width = H.shape[1]
        L = self.shape[1]
        what = clock.detail or "a product with A"
        if out is None:
            out = comm.device.empty((blocks.layout.rows.num_rows, width), H.dtype)
        total = out if L == 1 else self.workspace.take("partial", blocks.num_rows, width)
        multiplied = [stage for stage in self.mine if blocks.entries[stage]]
        if not multiplied:
            total[:] = 0

        sending = []
        arriving = self._start(blocks, H, 0)
        for turn, number in enumerate(self.mine):
            here = arriving
            arriving = self._start(blocks, H, turn + 1)  # travels while this stage is multiplied
            sending += here.sent
            finish(here.received, what)
            if number not in multiplied:
                continue
            block = blocks.arrived(number, here.message)
            under_way = [*sending, *arriving.sent, *arriving.received]
            handles = [handle for handle, _ in under_way if not handle.test()]
            bits = mask if L == 1 and number == multiplied[-1] else None
            accumulate = number != multiplied[0]
            for lo, hi, indptr, _ in block.tiles(bool(handles), accumulate=False):
                with clock("spmm"):
                    ops.spmm(indptr, block.indices, block.data, here.rows, rows_of(total, lo, hi),
                             mask=rows_of(bits, lo, hi), accumulate=accumulate)
                handles = [handle for handle in handles if not handle.test()]
        finish(sending, what)
        if L == 1:
            return out

        counts = np.diff(blocks.layout.offsets[self.row * L:(self.row + 1) * L + 1]) * width
        others = self.workspace.flat("others", (L - 1) * out.size)
        handle = self.along_layers.start_reduce_scatter(
            total, out, counts.tolist(), "aggregation", work=others)
        handle.wait(f"the sum over layers in {what}")
        if mask is not None:  # partial sums are added here: only their total may be masked
            with clock("spmm"):
                ops.apply_mask(out, mask)
        return out

    def _start(self, blocks, H, turn):
        """Start the broadcasts of a stage; past the last one there are none."""
        stage = Stage()
        if turn == len(self.mine):
            return stage
        number = self.mine[turn]
        width = H.shape[1]
        cuts = blocks.cuts
        lo, hi = cuts.offsets[number:number + 2].tolist()
        column = int(cuts.column[number])
        row = int(cuts.row[number])
        if column == self.column:
            stage.message = blocks.messages[number]
        else:
            stage.message = self.workspace.flat(f"A {turn % 2}", blocks.sizes[number], np.uint8)
        if row == self.row:
            first = blocks.layout_in.rows.start
            stage.rows = H[lo - first:hi - first]
        else:
            stage.rows = self.workspace.take(f"H {turn % 2}", hi - lo, width)
        for comm, array, root, name in ((self.along_row, stage.message, column, "A"),
                                        (self.along_column, stage.rows, row, "H")):
            if array.size:
                handle = comm.start_bcast(array, root, "aggregation")
                handles = stage.sent if root == comm.rank else stage.received
                handles.append((handle, f"block {number} of {name}"))
        return stage

    def plan(self):
        """See `Strategy`."""
        layouts = self.layout, self.layout_in
        return SummaPlan(None, self.arrangement, layouts, (self.A, self.A_transposed))

    def close(self):
        """Free the communicators, which a restricted map leaves to the whole one."""
        if not self.whole:
            for group in self.groups:
                group.close()


class TwoD(Summa):
    """A-hat on R x C ranks, by default the most square grid with R >= C.

    Columns cost more than rows, because A itself and the products with W travel along them, and features
    may be fewer than columns.
    """

    name = "2d"
    axes = "RxC"

    @classmethod
    def default_shape(cls, ranks):
        """See `Strategy`."""
        return most_square(ranks)


class ThreeD(Summa):
    """A-hat on L layers of R x C ranks, by default of the least R + C + L, then R >= L >= C (see TwoD)."""

    name = "3d"
    axes = "RxCxL"

    @classmethod
    def default_shape(cls, ranks):
        """See `Strategy`."""
        cubes = [(rows, layers, ranks // (rows * layers)) for rows in divisors(ranks)
                 for layers in divisors(ranks // rows) if rows >= layers >= ranks // (rows * layers)]
        rows, layers, columns = min(cubes, key=lambda cube: (sum(cube), cube[0]))
        return rows, columns, layers


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


def finish(under_way, what):
    """Wait for all of them."""
    for handle, name in under_way:
        handle.wait(f"the broadcast of {name} in {what}")
