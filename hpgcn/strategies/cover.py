"""Strategy `cover`: two ranks exchange the fewest rows and partial sums.

Rows are owned by parts. A nonzero (i, j) is held by the owner of row i or by that of
column j. A minimum vertex cover of the block of the two ranks decides. A partial sum
reads only rows of H on its rank. So it is computed before anything arrives, and sent in
the message of the rows. The number of messages is that of p2p on the same parts, in one
phase. Meanwhile each rank multiplies the nonzeros of its own rows and columns.

No rank holds more nonzeros than a limit: (1 + balance) times the mean, or the heaviest
row. Because of this limit, or of rows that are left out, two ranks might exchange more
rows and sums than p2p sends rows. They then exchange no sums. So no message of any
product is longer than that of p2p. Mini-batches keep the holders of the full product
instead, so their messages may be longer. Source: Kayaaslan, Aykanat and Ucar, SIAM J.
Sci. Comput. 40(4), 2018, section 3; on top of demirci-2022, sections 3 and 4.1.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.partition import run_offsets
from hpgcn.parallel.covers.vertex_covers import balanced_cover, trimmed_cover
from hpgcn.parallel.csr import Csr, inverse
from hpgcn.parallel.halo_exchange import HaloExchange, joined_transfers
from hpgcn.parallel.halo_plan import needs
from hpgcn.parallel.nodes.node_exchange import NodeExchange
from hpgcn.parallel.pattern import BlockPattern
from hpgcn.parallel.pattern_counts import count_held
from hpgcn.parallel.spooled_exchange import joined_by_spool
from hpgcn.parallel.transfers import LOCAL
from hpgcn.strategies.nonzeros import (
    HELD,
    READ,
    ROW,
    NonzeroPlan,
    NonzeroStrategy,
    NonzeroTraffic,
    sent_to,
)
from hpgcn.strategies.p2p import local_numbers
from hpgcn.strategies.plan import Operand
from hpgcn.strategies.rows import RowProduct

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.normalization import NormalizedAdjacency
    from hpgcn.parallel.halo_plan import HaloPlan
    from hpgcn.parallel.layout import BlockLayout, RowPartition
    from hpgcn.parallel.pattern import Pattern
    from hpgcn.runtime.device import Host
    from hpgcn.strategies.plan import Product, RankGrid
    from hpgcn.strategies.strategy import StrategyOptions


class CoverTraffic(NonzeroTraffic):
    """Traffic of strategy cover: a message for each pair of ranks.

    It has rows, then partial sums.
    """

    joined = True


class CoverPlan(NonzeroPlan):
    """Plan of strategy cover: a message for each pair of ranks.

    It has rows, then partial sums.
    """

    Traffic = CoverTraffic

    needs_order = searches_holders = True

    @classmethod
    def floor(cls, pattern: Pattern, rank_grid: RankGrid) -> CoverFloor | None:
        return CoverFloor(pattern, rank_grid) if isinstance(pattern, BlockPattern) else None

    @classmethod
    def of(cls, pattern: Pattern, rank_grid: RankGrid) -> CoverPlan:
        if isinstance(pattern, BlockPattern):
            return CoverCounts(pattern, rank_grid)
        # The holders are found once for each pattern.
        key = "cover", rank_grid.layout.offsets.tobytes(), rank_grid.options["balance"]
        held = pattern.keep(key, lambda: pattern.assign_holders(cls.holders(pattern, rank_grid)))
        return cls(held, rank_grid)

    @staticmethod
    def holders(pattern: Pattern, rank_grid: RankGrid) -> np.ndarray:
        owner = rank_grid.layout.row_blocks
        pushed = balanced_cover(pattern.matrix, owner, owner, *loads_of(pattern, rank_grid))
        return holders_of(pattern.matrix, owner, owner, pushed)

    @property
    def counts(self) -> np.ndarray:
        """What ranks hold of each block, (5, P, P), as `Pattern.held`."""
        return self.pattern.held(self.rank_grid.layout.offsets)

    def tables(self) -> Sequence:
        if self.rank_grid.nodes.aware:
            return super().tables()
        return [self.counts[0]], [self.counts[2].T]

    def added_rows(self, transposed: bool, by_source: bool) -> np.ndarray:
        if self.rank_grid.nodes.aware:
            return super().added_rows(transposed, by_source)
        return self.counts[3].sum(0) if transposed else self.counts[1].sum(1)

    @property
    def held_entries(self) -> np.ndarray:
        entries = np.diff(self.pattern.indptr[self.rank_grid.layout.offsets]).astype(np.int64)
        return entries + self.counts[4].sum(0) - self.counts[4].sum(1)

    def make_restricted(self, pattern: Pattern) -> CoverPlan:
        # If A is symmetric, the backward is a product of other rows as well.
        kind = CoverFloor if self.is_floor else CoverPlan
        made = kind(self.trimmed(pattern), self.rank_grid)
        if pattern.symmetric and not pattern.square:
            flipped = self.pattern.restrict(pattern.rows_in, pattern.rows_out)
            made.back = kind(self.trimmed(flipped), self.rank_grid)
            made.traffic.reverse = [made.back.traffic.right, made.back.traffic.left]
        return made

    def trimmed(self, pattern: Pattern) -> Pattern:
        """Return a restricted pattern without sums that cost more than rows.

        The holders of its nonzeros are chosen anew.
        """
        owner = self.rank_grid.layout.row_blocks
        pushed = pattern.holders != np.repeat(owner, np.diff(pattern.indptr))
        pushed = trimmed_cover(pattern.matrix, owner, owner, pushed)
        return pattern.assign_holders(holders_of(pattern.matrix, owner, owner, pushed))

    def restrict_bytes(self, itemsize: int) -> np.ndarray:
        # Nonzeros return to the owners of their rows and then go to their holders.
        return self.held_entries * (READ + HELD) + self.rows() * ROW

    def block_operand(self, transposed: bool) -> Operand:
        # The own block, one for each source and one for each target.
        pulled, pushed = self.traffic.right, self.traffic.left
        layout = self.layout
        if transposed:
            pulled, pushed, layout = pushed, pulled, self.layout_in
        rows = np.diff(layout.offsets)
        pointers = (1 + pulled.sources) * (rows + 1) + pushed.received + pushed.sources
        return Operand.of(
            rows.shape, self.held_entries, pointers,
            index_entries=self.listed_rows(transposed, True), results=rows + pushed.received,
            blocks=1 + pulled.sources + pushed.sources)


class CoverCounts(CoverPlan):
    """A CoverPlan of all rows of a BlockPattern.

    Covers are counted, and no entry has a holder.
    """

    @property
    def counts(self) -> np.ndarray:
        pattern = self.pattern
        loads, limit = loads_of(pattern, self.rank_grid)
        return pattern.keep(("cover", limit), lambda: count_held(
            pattern.whole.indptr, pattern.whole.indices, self._pushed(loads, limit), pattern.part,
            pattern.order, pattern.offsets))

    def _pushed(self, loads: np.ndarray, limit: int) -> np.ndarray:
        """Return the entries that owners of columns hold in runs, (nnz,) bool."""
        pattern = self.pattern
        return balanced_cover(pattern.whole, pattern.part, pattern.part, loads, limit,
                              order=pattern.order, numbers=lambda: inverse(pattern.run_order))


class CoverFloor(CoverPlan):
    """Lower bounds of a CoverPlan, without a cover.

    A cover is no smaller than any matching of rows with columns. Messages between ranks
    are those of p2p.
    """

    is_floor = True

    def make_traffic(self, layouts: tuple[BlockLayout, ...]) -> CoverTraffic:
        ghosts, matched = self.pattern.ghosts(self.rank_grid.layout.offsets)
        # a block for each pair, on either of its ranks
        self.pairs = int(np.count_nonzero(ghosts)) // self.num_ranks
        transfers = self.Traffic.sizes([matched], [0 * matched], None, (ghosts.T, ghosts))
        return self.Traffic(layouts, self.pattern.symmetric, transfers)

    def trimmed(self, pattern: Pattern) -> Pattern:
        return pattern

    @property
    def held_entries(self) -> np.ndarray:
        return np.full(self.num_ranks, int(self.pattern.indptr[-1]) // self.num_ranks)

    def block_operand(self, transposed: bool) -> Operand:
        layout = self.layout_in if transposed else self.layout
        rows = np.full(self.num_ranks, int(layout.offsets[-1]) // self.num_ranks)
        listed = 0 if transposed else self.all_buffer_rows
        pointers = rows + 1 + 2 * self.pairs  # a block of sums may have a single row
        return Operand.of(rows.shape, self.held_entries, pointers, index_entries=listed,
                          results=rows, blocks=1 + self.pairs)


class Cover(NonzeroStrategy):
    """Strategy `cover`.

    Each pair of ranks exchanges the fewest rows of H and partial sums.
    """

    name = "cover"
    Plan = CoverPlan
    options = ("balance",)
    word = "balance"
    supports_nodes = ("products",)

    @classmethod
    def waits(cls, product: Product) -> int:
        # Attention forms sums for other ranks once it has their scores.
        return 2 if product.heads and not product.backward else 1

    @classmethod
    def own_options(cls, options: StrategyOptions, device: Host) -> dict:
        return {"balance": options.balance}

    @staticmethod
    def holders(adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm,
                rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        layout = rank_grid.layout.rows
        loads = np.array(comm.allgather(rows.size), np.int64)
        heaviest = comm.max([np.bincount(rows - layout.start).max(initial=0)])[0]
        limit = limit_of(loads, int(heaviest), rank_grid.options["balance"])

        def total(array: np.ndarray) -> np.ndarray:
            return comm.sum(array).astype(np.int64)

        ends = local_pattern(rows, columns, layout, layout)
        return holders_of(*ends, balanced_cover(*ends, loads=loads, limit=limit, total=total))

    def build_submatrix(self, rows_out: np.ndarray, rows_in: np.ndarray) -> RowProduct:
        # The owners of rows choose again which sums to exchange.
        own = np.arange(self.layout.rows.start, self.layout.rows.stop)
        layout, layout_in = (self.layout.restricted(chosen).rows for chosen in (rows_out, rows_in))
        matrix = self.local_matrix().tocoo()
        lines = [np.concatenate([own, half.plan.ghosts])[numbers] for half, numbers in (
            (self.product.push, matrix.row), (self.product.pull, matrix.col))]
        kept = rows_out[lines[0]] & rows_in[lines[1]]
        i, j = ((np.cumsum(chosen) - 1)[numbers[kept]]
                for chosen, numbers in zip((rows_out, rows_in), lines))
        bits = matrix.data[kept].astype(np.float64).view(np.int64)
        del matrix, lines, kept

        (i, j, bits), holder = sent_to(owners_of(layout, i), (i, j, bits), self.comm)
        order = np.argsort(i, kind="stable")
        i, j, bits, holder = (array[order] for array in (i, j, bits, holder))
        ends = local_pattern(i, j, layout, layout_in)
        holder = holders_of(*ends, trimmed_cover(*ends, holder != self.comm.rank))
        (i, j, bits), _ = sent_to(holder, (i, j, bits), self.comm)
        entries = i, j, bits.view(np.float64).astype(self.dtype)
        buffers = [self.product.pull.buffers, self.product.push.buffers]
        return self.product_by(entries, layout, layout_in, self.comm, buffers, self.nodes)

    def build_reverse_submatrix(self, product: RowProduct, rows_out: np.ndarray,
                                rows_in: np.ndarray) -> RowProduct:
        # The reverse is a product of its own.
        return self.build_submatrix(rows_in, rows_out)

    @staticmethod
    def product_of(matrix: Any, pull: Any, push: Any,
                   comm: SerialComm, buffers: list) -> RowProduct:
        firsts = [plan.parts[0] for plan in (pull, push)]
        if comm.spool and firsts[0] is pull:
            transfers = joined_by_spool(pull, push, comm, buffers[0])
        else:
            transfers = joined_transfers(*firsts, comm=comm, buffers=buffers[0])
        if firsts[0] is not pull:
            transfers = [NodeExchange(plan, first, HaloExchange, comm, buffer)
                         for plan, first, buffer in zip((pull, push), transfers, buffers)]
        pull, push = transfers

        # blocks of sums for each target, and one for each source of rows
        m, m_in = push.plan.layout.num_rows, pull.plan.layout.num_rows
        matrix.sort_indices()
        blocks = {q: {LOCAL: Csr.of(rows, comm.device)}
                  for q, rows in ghosts_of(push, matrix[m:, :m_in])}
        blocks[LOCAL] = {LOCAL: Csr.of(matrix[:m, :m_in], comm.device)}
        by_column = matrix[:m, m_in:].T.tocsr()
        for q, columns in ghosts_of(pull, by_column):
            blocks[LOCAL][q] = Csr.of(columns.T.tocsr(), comm.device)
        return RowProduct(blocks, pull, push, m)

    def transfers_of(self, pull: HaloPlan, push: HaloPlan) -> Sequence:
        return joined_transfers(pull, push, self.comm, self.product.pull.buffers)

    @property
    def buffer_bytes(self) -> int:
        # Both transfers share the buffers of first messages.
        second = getattr(self.product.push, "second", None)
        return super().buffer_bytes + (second.nbytes if second and not self.parent else 0)


def loads_of(pattern: Pattern, rank_grid: RankGrid) -> tuple[np.ndarray, int]:
    """Return the nonzeros in the rows of each rank, (P,), and the limit.

    The limit is the most nonzeros that a rank may hold.
    """
    loads = np.diff(pattern.indptr[rank_grid.layout.offsets]).astype(np.int64)
    heaviest = np.diff(pattern.indptr).max(initial=0)
    return loads, limit_of(loads, heaviest, rank_grid.options["balance"])


def limit_of(loads: np.ndarray, heaviest: int, balance: float) -> int:
    """Return the most nonzeros that a rank may hold.

    Some of them may come from rows of other ranks.
    """
    return max(int((1 + balance) * loads.sum() / loads.size), heaviest)


def holders_of(matrix: Any, reader: np.ndarray, owner: np.ndarray,
               pushed: np.ndarray) -> np.ndarray:
    """Return the holder of each entry of a csr_array, (nnz,).

    The owner of its row, or of its column if it is `pushed`, (nnz,) bool.

    `reader`, `owner`: the owners of its rows and of its columns.
    """
    holder = np.repeat(reader.astype(np.int32), np.diff(matrix.indptr))
    holder[pushed] = owner[matrix.indices[pushed]]
    return holder


def local_pattern(rows: np.ndarray, columns: np.ndarray, layout: RowPartition,
                  layout_in: RowPartition) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the entries of a rank's own rows, and two arrays of owners.

    The entries are a csr_array. The arrays have the owner of each of its rows and
    columns. `rows` and `columns`, (nnz,), are numbers in the RowPartitions `layout` and
    `layout_in`; rows do not decrease. Columns are numbered like those of a rank's
    matrix: own rows of H, then ghosts.
    """
    ghosts = needs(columns, layout_in)
    numbers = local_numbers(columns, ghosts, layout_in)
    sizes = np.bincount(rows - layout.start, minlength=layout.num_rows)
    shape = layout.num_rows, layout_in.num_rows + ghosts.size
    matrix = sp.csr_array((np.ones(rows.size, bool), numbers, run_offsets(sizes)), shape=shape)
    owner = np.full(shape[1], layout.rank)
    owner[layout_in.num_rows:] = owners_of(layout_in, ghosts)
    return matrix, np.full(shape[0], layout.rank), owner


def owners_of(layout: RowPartition, rows: np.ndarray) -> np.ndarray:
    """Return the rank that owns each of `rows`, (r,), in a RowPartition."""
    return np.searchsorted(layout.offsets, rows, side="right") - 1


def ghosts_of(transfer: Any, matrix: Any) -> Iterator[tuple]:
    """Yield (source, its rows) of a matrix with a row for each ghost."""
    first = 0
    for source, rows in transfer.ghost_counts.items():
        yield source, matrix[first:first + rows]
        first += rows
