"""Base classes for messages and memory of a strategy on all ranks.

The module is pure: it uses no MPI. A Traffic counts the messages of ranks, in a run and
in planning. A Plan has the pattern of the matrix, a Traffic, and the bytes that ranks
store.

Sizes by rank are (P,) int64 in rank order, or arrays in the shape of the grid that
ravel to it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpgcn.graphs.normalization import CHUNK
from hpgcn.parallel.layout import ONE_NODE, BlockLayout, NodeLayout

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.parallel.csr import Csr
    from hpgcn.parallel.pattern import Pattern

INDEX = 4  # bytes of a column number, below 2^31 rows and entries a rank
POINTER = 8
WEIGHT = 4  # bytes of a weight as it is stored
CHUNK_READ, CHUNK_KEPT = 5, 35  # bytes of an entry that is read, CHUNK at a time; more if kept
CHUNK_LOOPS = 21  # bytes of an entry that is read, while loops are put in
HALF, WHOLE = 2, 4  # bytes of a number in rows of 16 bits, and of one in their sums
CUT = 12  # bytes of an entry of a block while fewer rows are cut from it


def sum_bytes(itemsize: int) -> int:
    """Return the bytes of a number in partial sums and in A.

    `itemsize` is that of numbers in rows.
    """
    return WHOLE if itemsize == HALF else itemsize


@dataclass(frozen=True)
class Product:
    """One product with A, or with A^T."""

    layer: int  # from 0
    width: int  # columns of the dense matrix, over all ranks
    masked: bool = False  # whether the result is masked (S-SpMM)
    backward: bool = False  # with A^T
    # heads of attention, whose values are its own; 0: a product with the fixed matrix
    heads: int = 0
    edge_width: int = 0  # columns of edge features that its messages read
    kept: int = 0  # columns of other ranks' rows that are pulled once and stored

    @property
    def phase(self) -> str:
        """Phase of a training step: "forward" or "backward"."""
        return "backward" if self.backward else "forward"

    @property
    def is_spmm(self) -> bool:
        """Whether it is a sparse product, not attention or messages that read edge features."""
        return not (self.heads or self.edge_width)

    def arrays_read(self, block: Csr) -> list[Array]:
        """Return the arrays of a block that it reads: attention has values of its own."""
        return block.read_arrays(values=not self.heads, numbers=self.is_spmm)


@dataclass(frozen=True, eq=False)
class RankGrid:
    """Grid of ranks, and owners of rows, in a run of one strategy."""

    shape: tuple[int, ...]  # the grid of ranks; its product is P
    layout: BlockLayout
    options: dict  # the strategy's own settings
    nodes: NodeLayout = ONE_NODE


@dataclass(frozen=True, eq=False)
class Operand:
    """Sizes of a matrix that ranks store in blocks; each field has a number per rank."""

    entries: np.ndarray  # stored entries
    pointers: np.ndarray  # row pointers of the blocks
    index_entries: np.ndarray  # row numbers kept: rows to send, to receive, or touched by a block
    entries_read: np.ndarray  # entries that a product reads
    results: np.ndarray  # rows of the result, partial ones included
    blocks: np.ndarray  # blocks that are multiplied one by one: kernel calls of a product
    copied_pointers: np.ndarray  # row pointers that a GPU copies from blocks of other ranks

    @staticmethod
    def of(shape: int | tuple, entries: int | np.ndarray, pointers: int | np.ndarray, *,
           index_entries: int | np.ndarray = 0, entries_read: np.ndarray | None = None,
           results: int | np.ndarray = 0, blocks: int | np.ndarray = 1,
           copied_pointers: int | np.ndarray = 0) -> Operand:
        """Return an Operand whose sizes are broadcast to `shape`, the shape of the grid."""
        entries_read = entries if entries_read is None else entries_read
        sizes = entries, pointers, index_entries, entries_read, results, blocks, copied_pointers
        return Operand(*(np.broadcast_to(size, shape).astype(np.int64).ravel() for size in sizes))

    def nbytes(self, itemsize: int) -> np.ndarray:
        """Return the bytes of entries and row pointers, (P,).

        `itemsize` is that of numbers in the multiplied rows; 0 leaves out the values of A.
        """
        return self.entries * (INDEX + sum_bytes(itemsize)) + self.pointers * POINTER


class SpoolMemory(NamedTuple):
    """The most bytes of messages in a Spool that one product has in memory."""

    joined: int  # rows of several messages, put together in arrays
    largest: int  # the largest message
    stored: int = 0  # the largest block of the matrix that is stored


class Traffic:
    """Messages of all ranks to multiply by A (forward) and by A^T (backward).

    A strategy's traffic derives from this class, and defines `calls`.

    Parameters
    ----------
    layouts : pair of hpgcn.parallel.layout.BlockLayout
        The attributes `layout` and `layout_in`.

    Attributes
    ----------
    layout, layout_in : hpgcn.parallel.layout.BlockLayout
        Owners of rows of the result of the forward product, and of the multiplied matrix.
    slices : int
        A product is of at most ceil(width / slices) columns on each rank.
    period : int
        Number of training steps that `calls` counts together: more than 1 if steps send
        different rows.
    packing : dict
        Number of times that a sent number is packed or unpacked, for "pack" (whole
        rows) or "pack pieces" (columns of rows).
    """

    period = 1
    packing = MappingProxyType({"pack": 1})

    def __init__(self, layouts: tuple[BlockLayout, ...]) -> None:
        self.layout, self.layout_in = layouts
        self.slices = self.layout.columns

    @property
    def num_ranks(self) -> int:
        """Number of ranks (P)."""
        return self.layout.size

    def calls(self, product: Product, itemsize: int) -> Iterator:
        """Yield (bytes, messages), arrays by rank, of each communication call of a Product.

        MPI's own collectives are `hpgcn.parallel.counts.Collective`. The calls are
        those of `period` training steps. `itemsize`: bytes of a number in rows of H and
        G; a number of a partial sum has `sum_bytes`.
        """
        raise NotImplementedError

    def moves(self, product: Product, itemsize: int) -> list[tuple]:
        """Return the transfers of a Product between single ranks, in order; by default none.

        Each is (plan of a transfer, bytes of a row, whether sums are pushed).
        """
        return []

    def spooled(self, product: Product, itemsize: int, in_files: int,
                rule: Callable) -> np.ndarray:
        """Return the bytes that each rank reads from a Spool and writes to it, (2, P).

        It is for strategies that send own rows as well, like `held`. `rule` is a function of
        hpgcn.parallel.counts for messages; the first `in_files` ranks have arrays in files.
        """
        raise NotImplementedError

    def held(self, product: Product, itemsize: int) -> SpoolMemory:
        """Return the SpoolMemory of messages in a Spool."""
        raise NotImplementedError

    def counts(self, product: Product, itemsize: int) -> np.ndarray:
        """Return the sums over `calls` of bytes and of messages, (2, P) int64."""
        sums = np.zeros((2, self.num_ranks), np.int64)
        for call in self.calls(product, itemsize):
            for total, amount in zip(sums, call):
                total += np.asarray(amount, np.int64).ravel()
        return sums

    @staticmethod
    def columns(product: Product) -> int:
        """Return the columns of the widest message of a Product, over all ranks."""
        return product.width + 3 * product.heads


class Plan:
    """Base class of plans.

    Memory of all ranks to multiply by a known matrix, and its Traffic.

    A strategy's plan derives from this class, and sets at least `Traffic`. By default
    memory is computed from the pattern. Each rank stores the rows of A that it owns,
    and of A^T as well if A is not symmetric.

    Parameters
    ----------
    pattern : hpgcn.parallel.pattern.Pattern
        Pattern of the matrix.
    rank_grid : RankGrid
        Grid and owners of all rows.

    Attributes
    ----------
    traffic : Traffic
    vertices : (rows,) int64 or None
        Rows of the pattern that the rows of `layout` are copies of; None: there are no
        copies.

    Notes
    -----
    Bytes by rank, (P,). itemsize: bytes of a number in rows of H and G. The last three
    methods count terms of `read_peak_bytes`.

    ==================  ==================================================  =========
    method              counts                                              held
    ==================  ==================================================  =========
    `kept_bytes`        A, and its transpose if it is another matrix        always
    `buffer_bytes`      buffers for messages and partial sums of a width    always
    `early_bytes`       second buffers, if a product begins early           in steps
    `persistent_bytes`  arrays that a Product keeps from step to step       always
    `attention_bytes`   row numbers that attention alone reads              always
    `reduced_bytes`     MPI's copies of partial sums of a width             in steps
    `packed_bytes`      packed rows, if the host aggregates for a GPU       in steps
    `read_peak_bytes`   the most while A is made, without the rows as read  in set-up
    `restrict_bytes`    additional memory while maps are restricted         in set-up
    `degree_bytes`      scale factors of the rows and columns of A          in set-up
    `read_chunk_bytes`  the filled part of A, and the last chunk read       in set-up
    `chunk_bytes`       a chunk of entries, as it is read                   in set-up
    ==================  ==================================================  =========
    """

    Traffic: type = Traffic
    # whether plans of fewer rows, or of rows that nodes share, need rows in the order of runs
    needs_order = False
    is_floor = False  # whether numbers are lower bounds, as those of `floor`
    # whether `of` searches for holders of nonzeros, which takes longer than to count rows
    searches_holders = False
    vertices = None
    attention_home = ""  # see Strategy
    # number of batches of rows that the first product waits for, and of all; None if rows
    # are sent in one batch
    first_batches = None
    pipeline_batches = 0  # number of batches if the settings name one above 1

    def __init__(self, pattern: Pattern, rank_grid: RankGrid) -> None:
        self.pattern = pattern
        self.rank_grid = rank_grid
        self.traffic = self.make_traffic(pattern.layouts(rank_grid.layout))
        self._restricted = {}

    @classmethod
    def of(cls, pattern: Pattern, rank_grid: RankGrid) -> Plan:
        """Return the plan of a product with the pattern of all rows on a RankGrid."""
        return cls(pattern, rank_grid)

    @classmethod
    def floor(cls, pattern: Pattern, rank_grid: RankGrid) -> Plan | None:
        """Return a plan with lower bounds, or None.

        Bounds are given if they are found much faster than the counts of `of`. Rows and
        messages that ranks send are lower bounds, also by rank. Entries and blocks are
        means over ranks.
        """
        return None

    def make_traffic(self, layouts: tuple[BlockLayout, ...]) -> Any:
        """Return the Traffic of products with the pattern.

        `layouts` are the layouts of the result and of H.
        """
        return self.Traffic(layouts)

    def restrict(self, rows_out: np.ndarray | None, rows_in: np.ndarray | None) -> Plan:
        """Return the plan of the submatrix A[rows_out][:, rows_in].

        `rows_out` and `rows_in` are (n,) bool, or None for all rows. Repeated calls
        return the same object.
        """
        pattern = self.pattern.restrict(rows_out, rows_in)
        if pattern is self.pattern:
            return self
        if pattern not in self._restricted:
            self._restricted[pattern] = self.make_restricted(pattern)
        return self._restricted[pattern]

    def plan_for_product(self, number: int) -> Plan:
        """Return the unrestricted plan for product `number` with A, counted from 0.

        Default: self.
        """
        return self

    def make_restricted(self, pattern: Pattern) -> Plan:
        """Return a plan for `pattern`, some rows and columns of this plan's pattern."""
        return type(self)(pattern, self.rank_grid)

    @property
    def num_ranks(self) -> int:
        """Number of ranks (P)."""
        return self.rank_grid.layout.size

    @property
    def layout(self) -> BlockLayout:
        """Owners of rows of the result of the forward product."""
        return self.traffic.layout

    @property
    def layout_in(self) -> BlockLayout:
        """Owners of rows of the matrix that the forward product multiplies."""
        return self.traffic.layout_in

    @cached_property
    def operands(self) -> tuple[Operand, Operand]:
        """The Operands of A and of A^T, a pair.

        Both are one object if A is symmetric and square.
        """
        forward = self.operand(self.pattern, self.layout)
        if not self.pattern.symmetric:
            return forward, self.adjoint(forward)
        if self.pattern.square:
            return forward, forward
        return forward, self.operand(self.pattern.transposed, self.layout_in)

    def operand(self, pattern: Pattern, layout: BlockLayout) -> Operand:
        """Return the Operand of `pattern` if ranks store the rows they own.

        `layout` has the owners.
        """
        offsets = self.rank_grid.layout.offsets
        entries = np.repeat(np.diff(pattern.indptr[offsets]), layout.columns)
        rows = np.repeat(np.diff(layout.offsets), layout.columns)
        return Operand.of(entries.shape, entries, rows + 1, results=rows)

    def adjoint(self, forward: Operand) -> Operand:
        """Return the Operand of A^T for an A that is not symmetric.

        `forward` is the Operand of A.
        """
        return self.operand(self.pattern.transposed, self.layout_in)

    @property
    def stored_operands(self) -> list[Operand]:
        """The distinct Operands that ranks store: one if it serves A and A^T, else two."""
        forward, backward = self.operands
        return [forward] if backward is forward else [forward, backward]

    def kept_bytes(self, itemsize: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes that ranks store of A, and of A^T; two (P,) int64.

        The latter are 0 if both are the same matrix.
        """
        forward, *back = (operand.nbytes(itemsize) for operand in self.stored_operands)
        return forward, sum(back, np.zeros_like(forward))

    def rows(self) -> np.ndarray:
        """Return the number of rows that each rank owns, (P,)."""
        return np.repeat(np.diff(self.layout.offsets), self.layout.columns)

    def reduced_bytes(self, width: int, itemsize: int) -> np.ndarray:
        """Return the bytes of MPI's own copies while it reduces sums, (P,)."""
        return np.zeros(self.num_ranks, np.int64)

    def buffer_bytes(self, width: int, itemsize: int) -> np.ndarray:
        """Return the bytes of buffers for messages and sums, (P,).

        Messages have at most `width` columns. By default every rank has room for all
        rows of the multiplied matrix.
        """
        rows = int(self.layout_in.offsets[-1]) * (self.num_ranks > 1)
        return np.full(self.num_ranks, rows * -(-width // self.traffic.slices) * itemsize)

    def sums_held(self, width: int, itemsize: int) -> np.ndarray:
        """Return the bytes of `buffer_bytes` that are sums of own rows, (P,); by default 0."""
        return np.zeros(self.num_ranks, np.int64)

    def begins_early(self, following: Plan) -> bool:
        """Return whether a product of plan `following` may begin early after this one."""
        return False

    def early_bytes(self, width: int, itemsize: int) -> np.ndarray:
        """Return the bytes of buffers for a product that begins early, (P,)."""
        return np.zeros(self.num_ranks, np.int64)

    def persistent_bytes(self, product: Product, itemsize: int) -> np.ndarray:
        """Return the bytes that a Product keeps between steps, (P,).

        They include messages under way.
        """
        return np.zeros(self.num_ranks, np.int64)

    @property
    def attention_bytes(self) -> np.ndarray:
        """Bytes of row numbers that attention alone reads, (P,)."""
        return np.zeros(self.num_ranks, np.int64)

    def packed_bytes(self, width: int, itemsize: int) -> np.ndarray | None:
        """Return the bytes of packed rows, (P,), if the host aggregates for a GPU.

        Return None otherwise.
        """
        return None

    def read_peak_bytes(self, itemsize: int) -> np.ndarray:
        """Return the peak bytes of each rank while it makes its part of A, (P,).

        The rows as they are read (the slab) are not counted.
        """
        held, transposes = self.kept_bytes(itemsize)
        rows = np.maximum(self.operands[0].entries, 1)
        filling = self.read_chunk_bytes(held, rows)
        return self.degree_bytes() + np.maximum(filling, held + transposes)

    def degree_bytes(self) -> int:
        """Return the bytes of the scale factors of all rows and columns of A.

        Each rank stores them while it reads A.
        """
        return self.pattern.num_rows * 2 * POINTER

    def restrict_bytes(self, itemsize: int) -> np.ndarray:
        """Return the additional bytes of each rank while it makes restricted maps, (P,)."""
        forward = self.operands[0]
        return forward.entries // np.maximum(forward.blocks // self.layout.columns, 1) * CUT

    def read_chunk_bytes(self, held: np.ndarray, rows: np.ndarray,
                         portions: int | np.ndarray = 1) -> np.ndarray:
        """Return the bytes in use while the last chunk of A is read.

        They are those of the filled part of the matrix and of the chunk. `held`, (P,)
        int64, are the bytes of the matrix. `rows`, (P,) int64, are the entries in the
        rows that are read in `portions` portions; only those in some columns are kept.
        """
        read = np.minimum(rows // portions, CHUNK)
        kept = self.operands[0].entries / rows
        return held * (1 - read / np.maximum(rows, 1)) + self.chunk_bytes(read, kept)

    def chunk_bytes(self, entries: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Return the bytes of a chunk of `entries` entries while it is read.

        The share `kept` of them is stored.
        """
        entries = np.minimum(entries, CHUNK)
        weight = WEIGHT * self.pattern.weighted
        return entries * np.maximum(CHUNK_LOOPS + weight, CHUNK_READ + weight + CHUNK_KEPT * kept)

    def of_big_rows(self, entries: np.ndarray, together: int) -> np.ndarray:
        """Return the sums of `entries` over `together` consecutive ranks, (P,).

        They are at least 1. Each of these ranks reads the entries of all of them.
        """
        return np.repeat(np.maximum(entries.reshape(-1, together).sum(1), 1), together)
