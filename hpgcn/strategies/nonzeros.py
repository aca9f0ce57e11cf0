"""Strategies that assign each nonzero of A to a rank, its holder.

A H = S A_loc R H, exact.

R pulls row j of H to every rank that holds a nonzero of column j and does not own j. S
pushes a partial sum of row i from every rank that holds a nonzero of row i to the owner
of i. The owner adds in the order of ranks. A^T G swaps the two: the number of rows is
the same. Masks apply to whole sums.

Each rank reads the rows that it owns, scales them, and sends every nonzero to its
holder, once.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp

from hpgcn.parallel.halo_plan import needs
from hpgcn.parallel.nodes.node_plan import sources_of_entries, tables_of_pairs
from hpgcn.parallel.nodes.shared_buffers import make_buffers
from hpgcn.parallel.sizes import ExchangeSizes, gather_tables
from hpgcn.strategies.p2p import cut_plan, halo_plan, local_numbers, own_rows
from hpgcn.strategies.plan import POINTER, WEIGHT, sum_bytes
from hpgcn.strategies.rows import RowPlan, RowStrategy, RowTraffic

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.normalization import NormalizedAdjacency
    from hpgcn.parallel.layout import BlockLayout, NodeLayout, RowPartition
    from hpgcn.parallel.pattern import Pattern
    from hpgcn.strategies.plan import Operand, Product, RankGrid
    from hpgcn.strategies.rows import RowProduct

READ, HELD = 70, 60  # bytes of an entry as it is read, and as it is held, while blocks are made
ROW = 100  # bytes of a row in the pipeline
PIECE = 1 << 19  # entries that are counted at a time
CUT = 40  # bytes of an entry of the matrix, while fewer rows are cut from it


class NonzeroTraffic(RowTraffic):
    """Traffic of rows and partial sums if each nonzero has a holder."""

    @classmethod
    def sizes(cls, pulled: list[np.ndarray] | np.ndarray, pushed: list[np.ndarray] | np.ndarray,
              nodes: np.ndarray | None,
              linked: tuple[None, None] = (None, None)) -> list[ExchangeSizes]:
        """Return the ExchangeSizes of R and of S from their tables.

        `nodes`, `linked`: as for ExchangeSizes; `linked` is a pair, of R and of S.
        """
        joined = (pushed[0], pulled[0]) if cls.joined else (None, None)
        return [ExchangeSizes(*tables, nodes=nodes, joined=other, linked=pairs)
                for tables, other, pairs in zip((pulled, pushed), joined, linked)]

    @staticmethod
    def columns(product: Product) -> int:
        # Two sums a row (all entries; entries with scores above 0), with K columns
        # beside each.
        both = 2 * (product.width + product.heads)
        return max(RowTraffic.columns(product), both if product.heads else 0)

    def transfers(self, product: Product) -> Sequence:
        # The backward of attention takes the transposed blocks, even where A is symmetric.
        if not product.heads:
            return super().transfers(product)
        ends = (self.left, self.right) if product.backward else (self.right, self.left)
        return tuple(end.message_transfer for end in ends)


class NonzeroPlan(RowPlan):
    """Plan of a strategy in which each nonzero has a holder.

    The holder is the value in the pattern's matrix. Subclasses define `holders` and
    `block_operand`, and `Traffic` if messages are joined.

    Attributes
    ----------
    back : NonzeroPlan or None
        The plan of A[rows_in][:, rows_out], if the backward is a product of its own;
        None if it multiplies by the transposed blocks.
    """

    Traffic = NonzeroTraffic
    back = None

    @classmethod
    def of(cls, pattern: Pattern, rank_grid: RankGrid) -> Self:
        # The holders are put into the pattern.
        return cls(pattern.assign_holders(cls.holders(pattern, rank_grid)), rank_grid)

    @staticmethod
    def holders(pattern: Pattern, rank_grid: RankGrid) -> np.ndarray:
        """Return the rank that holds each entry of the pattern of all rows, (nnz,)."""
        raise NotImplementedError

    def block_operand(self, transposed: bool) -> Operand:
        """Return the Operand of the blocks of all ranks, or of the transposed blocks."""
        raise NotImplementedError

    def entries(self, piece: slice = slice(None)) -> tuple[np.ndarray, ...]:
        """Return owner of the row, owner of the column, row, column and holder of each entry."""
        owner = self.rank_grid.layout.row_blocks
        pattern = self.pattern
        first, last, _ = piece.indices(pattern.indices.size)
        rows = np.searchsorted(pattern.indptr, np.arange(first, last), side="right") - 1
        columns = pattern.indices[piece].astype(np.int64)
        return owner[rows], owner[columns], rows, columns, pattern.holders[piece].astype(np.int64)

    def _distinct(self, keys_of: Callable) -> np.ndarray:
        """Return the distinct keys of entries, increasing; few entries are in memory at a time.

        keys_of(piece) returns the keys of a slice of the entries.
        """
        found, new = np.empty(0, np.int64), []
        for first in range(0, self.pattern.indices.size, PIECE):
            new.append(np.unique(keys_of(slice(first, first + PIECE))))
            if sum(each.size for each in new) > found.size:
                found, new = np.unique(np.concatenate([found, *new])), []
        return np.unique(np.concatenate([found, *new]))

    def make_traffic(self, layouts: tuple[BlockLayout, ...]) -> NonzeroTraffic:
        pulled, pushed = self.tables()
        transfers = self.Traffic.sizes(pulled, pushed, self.rank_grid.nodes.numbers)
        if self.pattern.symmetric and not self.pattern.square:  # the transpose of these blocks
            transfers += transfers[::-1]
        return self.Traffic(layouts, self.pattern.symmetric, transfers)

    def tables(self) -> Any:
        """Return the tables of pulled rows and of pushed sums, two lists."""
        pattern, k = self.pattern, self.num_ranks

        def pairs(piece: slice, columns: bool) -> np.ndarray:  # holders of others' lines
            reader, owner, rows, column, holder = self.entries(piece)
            line, line_owner = (column, owner) if columns else (rows, reader)
            return (line * k + holder)[line_owner != holder]

        found = []
        for columns, chosen in ((True, pattern.rows_in), (False, pattern.rows_out)):
            line, holder = np.divmod(self._distinct(partial(pairs, columns=columns)), k)
            found.append(tables_of_pairs(
                (self.rank_grid.layout.row_blocks[line], holder, line),
                pattern.restricted_numbers(chosen), self.rank_grid.nodes, k))
        return found

    def added_rows(self, transposed: bool, by_source: bool) -> np.ndarray:
        """Return how many row numbers the blocks of ghost columns store, (P,).

        They number the rows that a product adds to once ghosts arrive. With `by_source`
        there is a block for each rank that sends ghosts; else one for own rows and one
        for rows of other ranks.
        """
        k = self.num_ranks
        aware = self.rank_grid.nodes.aware
        blocks = self._blocks_on_nodes(transposed, by_source) if aware else None

        def added(piece: slice) -> np.ndarray:
            reader, owner, rows, columns, holder = self.entries(piece)
            line, line_owner, other = ((columns, owner, reader) if transposed
                                       else (rows, reader, owner))
            block = other if by_source else (line_owner == holder).astype(np.int64)
            if blocks is not None:
                block = blocks[piece]
            return ((line * (8 * k) + block) * k + holder)[other != holder]

        return np.bincount(self._distinct(added) % k, minlength=k)

    def _blocks_on_nodes(self, transposed: bool, by_source: bool) -> np.ndarray:
        """Return the block of ghost columns of each entry, (nnz,), below 8 P.

        Rows that come from a gateway are in other blocks than those of owners.
        """
        k = self.num_ranks
        reader, owner, rows, columns, holder = self.entries()
        pulled, pushed = (
            sources_of_entries(lines, owners, holder, self.pattern.restricted_numbers(chosen),
                               self.rank_grid.nodes.numbers)
            for lines, owners, chosen in ((columns, owner, self.pattern.rows_in),
                                          (rows, reader, self.pattern.rows_out)))
        sources, targets = (pushed, pulled) if transposed else (pulled, pushed)
        if by_source:
            return sources
        return 4 * (sources >= k) + 2 * (targets >= k) + (targets == holder)

    def listed_rows(self, transposed: bool, by_source: bool) -> np.ndarray:
        """Return how many row numbers each rank stores, (P,).

        The transpose reuses the row numbers of messages.
        """
        index_entries = self.added_rows(transposed, by_source)
        return index_entries + (0 if transposed else self.all_buffer_rows)

    @property
    def all_buffer_rows(self) -> np.ndarray:
        """Number of rows in the message buffers of each rank, (P,)."""
        return self.traffic.right.buffer_rows + self.traffic.left.buffer_rows

    @property
    def held_entries(self) -> np.ndarray:
        """Number of entries stored on each rank, (P,)."""
        return np.bincount(self.pattern.holders, minlength=self.num_ranks)

    def operand(self, pattern: Pattern, layout: BlockLayout) -> Operand:
        # If A is symmetric, other rows take the transposed blocks, or those of `back`.
        if self.back and pattern is not self.pattern:
            return self.back.block_operand(transposed=False)
        return self.block_operand(transposed=pattern is not self.pattern)

    def adjoint(self, forward: Operand) -> Operand:
        return self.block_operand(transposed=True)

    returns = True

    def persistent_bytes(self, product: Product, itemsize: int) -> np.ndarray:
        # The transposes of the blocks, and arrays for rows of other ranks.
        kept = super().persistent_bytes(product, itemsize)
        if not product.heads or product.backward:
            return kept
        others = self.traffic.left.message_transfer
        partial = product.heads + 2 * (product.width + product.heads)
        kept = kept + others.received * (partial * itemsize + POINTER)
        if others is not self.traffic.left:  # messages of one kind have a buffer of their own
            kept = kept + others.buffer_rows * self.traffic.columns(product) * itemsize
        if self.pattern.symmetric and (self.pattern.square or self.back):
            kept = kept + self.block_operand(transposed=True).nbytes(itemsize)
        return kept

    def buffer_bytes(self, width: int, itemsize: int) -> np.ndarray:
        # Rows and sums pass through every buffer.
        return self.all_buffer_rows * width * sum_bytes(itemsize) + self.sums_held(width, itemsize)

    def read_peak_bytes(self, itemsize: int) -> np.ndarray:
        # Own rows as they are read, nonzeros in transit, then blocks.
        read = np.diff(self.pattern.indptr[self.rank_grid.layout.offsets])
        held, _ = self.kept_bytes(itemsize)
        entry = READ + WEIGHT * self.pattern.weighted
        return read * entry + self.held_entries * HELD + held + self.rows() * ROW

    def restrict_bytes(self, itemsize: int) -> np.ndarray:
        # All of the matrix is put together again.
        return self.held_entries * CUT + self.rows() * ROW


class NonzeroStrategy(RowStrategy):
    """Base class of strategies in which each nonzero has a holder.

    Each row has an owner. Subclasses define `holders` and `product_of`.
    """

    needs_entries = spools = True
    accepts_partition = requires_partition = supports_attention = supports_minibatches = True
    supports_edge_features = True

    @classmethod
    def build(cls, adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm, *,
              width: int = 0) -> Self:
        rows = rank_grid.layout.rows
        entries = held_nonzeros(adjacency, rank_grid, comm, cls.holders)
        buffers = [make_buffers(comm, rank_grid.nodes, adjacency.row_dtype, adjacency.dtype)
                   for _ in range(2)]
        product = cls.product_by(entries, rows, rows, comm, buffers, rank_grid.nodes)
        return cls.of(adjacency, rank_grid, comm, product, width)

    @staticmethod
    def holders(adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm,
                rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the holder of each nonzero of the own rows, (nnz,).

        All ranks call this together.
        """
        raise NotImplementedError

    @classmethod
    def product_by(cls, entries: tuple[np.ndarray, ...], rows: RowPartition, rows_in: RowPartition,
                   comm: SerialComm, buffers: list, nodes: NodeLayout) -> RowProduct:
        """Return the RowProduct of the nonzeros stored on this rank.

        All ranks call this together. `entries` are row numbers, column numbers and
        values, (nnz,) each. The RowPartitions `rows` and `rows_in`, of the result and
        of the multiplied matrix, number them. For `buffers` see `product_of`, for
        `nodes` see `halo_plan`.
        """
        i, j, values = entries
        pull = halo_plan(rows_in, needs(j, rows_in), comm, nodes)
        push = halo_plan(rows, needs(i, rows), comm, nodes)
        places = local_numbers(i, push.ghosts, rows), local_numbers(j, pull.ghosts, rows_in)
        shape = rows.num_rows + push.ghosts.size, rows_in.num_rows + pull.ghosts.size
        matrix = sp.csr_array((values, places), shape=shape)
        return cls.product_of(matrix, pull, push, comm, buffers)

    @staticmethod
    def product_of(matrix: Any, pull: Any, push: Any, comm: SerialComm,
                   buffers: list) -> RowProduct:
        """Return the RowProduct of the nonzeros stored on this rank.

        Parameters
        ----------
        matrix : csr_array (m + t, m_in + g)
            Own rows, then those of other ranks; own columns, then ghosts.
        pull, push : hpgcn.parallel.halo_plan.HaloPlan
            Plan of the ghosts, and plan of the rows of other ranks.
        buffers : list of two HaloBuffers
            Maps that are cut from this one borrow them.
        """
        raise NotImplementedError

    returns_gradients = True

    @cached_property
    def attention_back(self) -> RowProduct:
        # The transposes of the blocks, even where A is symmetric.
        if self.back.pull is self.product.push:
            return self.back
        return self.product.transposed(self.layout_in.rows.num_rows)

    def build_submatrix(self, rows_out: np.ndarray, rows_in: np.ndarray) -> RowProduct:
        pull, push = self.product.pull, self.product.push
        own = slice(self.layout.rows.start, self.layout.rows.stop)
        rows = np.concatenate([rows_out[own], rows_out[push.plan.ghosts]])
        columns = np.concatenate([rows_in[own], rows_in[pull.plan.ghosts]])
        matrix = self.local_matrix()[rows][:, columns].tocoo()

        (pull_plan, push_plan), kept = zip(*(
            cut_plan(plan, self.layout.restricted(chosen).rows, chosen, read, self.comm,
                     self.nodes)
            for plan, chosen, read in ((pull.plan, rows_in, matrix.col),
                                       (push.plan, rows_out, matrix.row))))
        matrix = matrix.tocsr()[kept[1]][:, kept[0]]
        return self.product_of(matrix, pull_plan, push_plan, self.comm,
                               [pull.buffers, push.buffers])

    def build_reverse_submatrix(self, product: RowProduct, rows_out: np.ndarray,
                                rows_in: np.ndarray) -> RowProduct:
        # The rank that holds (i, j) need not hold (j, i): use the transposed blocks.
        return product.transposed(int(np.count_nonzero(
            rows_in[self.layout.rows.start:self.layout.rows.stop])))

    def traffic(self) -> NonzeroTraffic:
        transfers = self._sizes(self.product)
        if self.symmetric and self.back is not self.product:
            transfers += self._sizes(self.back)
        layouts = self.layout, self.layout_in
        return self.Plan.Traffic(layouts, self.symmetric, transfers)

    def _sizes(self, product: RowProduct) -> list[ExchangeSizes]:
        """Return the ExchangeSizes of R and of S; all ranks call this together."""
        tables = gather_tables(self.comm, product.pull.plan, product.push.plan)
        return self.Plan.Traffic.sizes(*tables, self.nodes.numbers)


def held_nonzeros(adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm,
                  holders: Callable) -> tuple[np.ndarray, ...]:
    """Return rows, columns and values of the nonzeros stored on this rank.

    All ranks call this together. `holders` is a function like
    `NonzeroStrategy.holders`. The three arrays, (nnz,), have row and column numbers in
    the distributed order.
    """
    rows = rank_grid.layout.rows
    matrix, plan = own_rows(adjacency, rows, comm)
    numbers = np.concatenate([np.arange(rows.start, rows.stop), plan.ghosts])
    i = np.repeat(numbers[:rows.num_rows], np.diff(matrix.indptr))
    j = numbers[matrix.indices]
    bits = matrix.data.astype(np.float64).view(np.int64)  # only integers are sent like this
    del matrix
    holder = holders(adjacency, rank_grid, comm, i, j)
    (i, j, bits), _ = sent_to(holder, (i, j, bits), comm)
    return i, j, bits.view(np.float64).astype(adjacency.entry_dtype)


def sent_to(ranks: np.ndarray, arrays: tuple[np.ndarray, ...],
            comm: SerialComm) -> tuple[list, np.ndarray]:
    """Send entry i of each array, (nnz,) int64, to rank ranks[i].

    All ranks call this together. Return the received arrays, in the order of the ranks
    that sent them, and the source rank of each entry.
    """
    order = np.argsort(ranks, kind="stable")
    ends = np.searchsorted(ranks[order], np.arange(1, comm.size))
    come = [comm.alltoallv(np.split(array[order], ends)) for array in arrays]
    sources = np.repeat(np.arange(comm.size), [part.size for part in come[0]])
    return [np.concatenate(parts) for parts in come], sources
