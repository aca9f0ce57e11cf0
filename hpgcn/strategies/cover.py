"""Strategy `cover`: rows by parts; two ranks exchange the fewest rows of H and partial
sums.

A nonzero (i, j) is held by the owner of row i or by that of column j. A minimum vertex
cover of the block of the two ranks decides. A partial sum reads only own rows of H: it
is formed before anything arrives, and travels in the message of the rows. So the number
of messages is that of p2p on the same parts, in one phase. Own nonzeros are multiplied
while these are under way.

No rank takes on nonzeros beyond a limit: (1 + balance) times the mean, or the heaviest
row. This limit, or rows that are left out, could let a pair of ranks exchange more rows
and sums than the rows of p2p. Sums are given up in that case. So no message of any
product is longer than p2p's. Mini-batches keep the holders of the full product instead,
so theirs may be longer. Source: Kayaaslan, Aykanat and Ucar, SIAM J. Sci. Comput.
40(4), 2018, section 3; on top of demirci-2022, sections 3 and 4.1.
"""
import numpy as np
import scipy.sparse as sp

from hpgcn.parallel.csr import Csr
from hpgcn.parallel.halo_exchange import HaloExchange
from hpgcn.parallel.halo_plan import HaloPlan, HaloPlanSizes
from hpgcn.parallel.merged_exchange import MergedExchange, MergedSizes
from hpgcn.parallel.nodes.node_exchange import NodeExchange
from hpgcn.parallel.pattern import BlockPattern
from hpgcn.parallel.transfers import LOCAL
from hpgcn.parallel.vertex_covers import balanced_cover, trimmed_cover
from hpgcn.strategies.nonzeros import (
    HELD,
    READ,
    ROW,
    NonzeroPlan,
    NonzeroStrategy,
    NonzeroTraffic,
    sent_to,
)
from hpgcn.strategies.plan import Operand
from hpgcn.strategies.rows import RowProduct


class CoverTraffic(NonzeroTraffic):
    """Traffic of strategy cover: one message for each pair of ranks, with rows, then
    partial sums.
    """

    @staticmethod
    def merge(pulled, pushed, links):
        return [MergedSizes(pulled, pushed, links.reversed), MergedSizes(pushed, pulled, links)]


class CoverPlan(NonzeroPlan):
    """Plan of strategy cover: one message for each pair of ranks, with rows, then
    partial sums.
    """

    Traffic = CoverTraffic

    needs_order = True  # the limit may decide by the order of rows

    @classmethod
    def floor(cls, pattern, rank_grid):
        return CoverFloor(pattern, rank_grid) if isinstance(pattern, BlockPattern) else None

    @staticmethod
    def holders(pattern, rank_grid):
        owner = rank_grid.layout.row_blocks
        degrees = np.diff(pattern.indptr)
        loads = np.bincount(owner, degrees, rank_grid.layout.size).astype(np.int64)
        limit = limit_of(loads, degrees.max(initial=0), rank_grid.options["balance"])
        rows, columns = pattern.rows, pattern.indices
        return covered(rows, columns, owner[rows], owner[columns], loads, limit)

    def make_restricted(self, pattern):
        # If A is symmetric, the backward is a product of other rows as well.
        made = CoverPlan(self.trimmed(pattern), self.rank_grid)
        if made.traffic.reverse:
            flipped = self.pattern.restrict(pattern.rows_in, pattern.rows_out)
            made.back = CoverPlan(self.trimmed(flipped), self.rank_grid)
            made.traffic.reverse = [made.back.traffic.right, made.back.traffic.left]
        return made

    def trimmed(self, pattern):
        """Return a restricted pattern with new holders: sums that cost more than rows
        are dropped.
        """
        owner = self.rank_grid.layout.row_blocks
        rows, columns = pattern.rows, pattern.indices
        ends = owner[rows], owner[columns]
        return pattern.assign_holders(recovered(rows, columns, *ends, pattern.holders))

    def restrict_bytes(self, itemsize):
        # Nonzeros return to the owners of their rows and then go to their holders.
        return self.held_entries * (READ + HELD) + self.rows() * ROW

    def block_operand(self, transposed):
        # The own block, one for each source and one for each target.
        pulled, pushed = self.traffic.right.own, self.traffic.left.own
        layout = self.layout
        if transposed:
            pulled, pushed, layout = pushed, pulled, self.layout_in
        rows = np.diff(layout.offsets)
        pointers = (1 + pulled.sources) * (rows + 1) + pushed.received + pushed.sources
        return Operand.of(
            rows.shape, self.held_entries, pointers,
            index_entries=self.listed_rows(transposed, True), results=rows + pushed.received,
            blocks=1 + pulled.sources + pushed.sources)


class CoverFloor(CoverPlan):
    """Lower bounds of a CoverPlan, without a cover.

    A cover is no smaller than any matching of rows with columns. Messages between ranks
    are those of p2p.
    """

    is_floor = True

    def make_traffic(self, layouts):
        ghosts, matched = self.pattern.ghosts(self.rank_grid.layout.offsets)
        k = self.num_ranks
        pulled, read = HaloPlanSizes.of_table(matched), HaloPlanSizes.of_table(ghosts)
        pushed = HaloPlanSizes(*np.zeros((4, k), np.int64))
        # a block for each pair, on either of its ranks
        self.pairs = int(read.sources.sum()) // k
        transfers = self.Traffic.merge(pulled, pushed, read)
        return self.Traffic(layouts, self.pattern.symmetric, transfers)

    def make_restricted(self, pattern):
        made = CoverFloor(pattern, self.rank_grid)
        if pattern.symmetric and not pattern.square:
            flipped = self.pattern.restrict(pattern.rows_in, pattern.rows_out)
            made.back = CoverFloor(flipped, self.rank_grid)
            made.traffic.reverse = [made.back.traffic.right, made.back.traffic.left]
        return made

    @property
    def held_entries(self):
        return np.full(self.num_ranks, self.pattern.indices.size // self.num_ranks)

    def block_operand(self, transposed):
        layout = self.layout_in if transposed else self.layout
        rows = np.full(self.num_ranks, int(layout.offsets[-1]) // self.num_ranks)
        listed = 0 if transposed else self.all_buffer_rows
        pointers = rows + 1 + 2 * self.pairs  # a block of sums may have a single row
        return Operand.of(rows.shape, self.held_entries, pointers, index_entries=listed,
                          results=rows, blocks=1 + self.pairs)


class Cover(NonzeroStrategy):
    """Strategy `cover`: each pair of ranks exchanges the fewest rows of H and partial
    sums.
    """

    name = "cover"
    Plan = CoverPlan
    options = ("balance",)
    supports_nodes = ("products",)

    @classmethod
    def own_options(cls, options, device):
        return {"balance": options.balance}

    @staticmethod
    def holders(adjacency, rank_grid, comm, rows, columns):
        layout = rank_grid.layout.rows
        loads = np.array(comm.allgather(rows.size), np.int64)
        heaviest = comm.max([np.bincount(rows - layout.start).max(initial=0)])[0]
        limit = limit_of(loads, int(heaviest), rank_grid.options["balance"])
        owner = owners_of(layout, columns)

        def total(array):
            return comm.sum(array).astype(np.int64)

        return covered(rows, columns, np.full(rows.size, comm.rank), owner, loads, limit, total)

    def build_submatrix(self, rows_out, rows_in):
        # The owners of rows choose again which sums to exchange.
        own = np.arange(self.layout.rows.start, self.layout.rows.stop)
        layouts = [self.layout.restricted(chosen).rows for chosen in (rows_out, rows_in)]
        matrix = self.local_matrix().tocoo()
        lines = [np.concatenate([own, half.plan.ghosts])[numbers] for half, numbers in (
            (self.product.push, matrix.row), (self.product.pull, matrix.col))]
        kept = rows_out[lines[0]] & rows_in[lines[1]]
        i, j = ((np.cumsum(chosen) - 1)[numbers[kept]]
                for chosen, numbers in zip((rows_out, rows_in), lines))
        bits = matrix.data[kept].astype(np.float64).view(np.int64)
        del matrix, lines, kept

        reader, owner = (owners_of(layout, numbers) for layout, numbers in zip(layouts, (i, j)))
        (i, j, owner, bits), holder = sent_to(reader, (i, j, owner, bits), self.comm)
        holder = recovered(i, j, np.full(i.size, self.comm.rank), owner, holder)
        (i, j, bits), _ = sent_to(holder, (i, j, bits), self.comm)
        entries = i, j, bits.view(np.float64).astype(self.dtype)
        buffers = [self.product.pull.buffers, self.product.push.buffers]
        sharing = None if isinstance(self.product.pull.plan, HaloPlan) else self.nodes
        return self.product_by(entries, *layouts, self.comm, buffers, sharing)

    def build_reverse_submatrix(self, product, rows_out, rows_in):
        # The reverse is a product of its own.
        return self.build_submatrix(rows_in, rows_out)

    @staticmethod
    def product_of(matrix, pull, push, comm, buffers):
        firsts = [plan if isinstance(plan, HaloPlan) else plan.first for plan in (pull, push)]
        transfers = MergedExchange(*firsts, comm, buffers[0]).transfers
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

    def transfers_of(self, pull, push):
        return MergedExchange(pull, push, self.comm, self.product.pull.buffers).transfers

    @property
    def buffer_bytes(self):
        # Both transfers share the buffers of first messages.
        second = getattr(self.product.push, "second", None)
        return super().buffer_bytes + (second.nbytes if second and not self.parent else 0)

    @staticmethod
    def matrix_of(product):
        own = [block.to_scipy() for block in product.blocks[LOCAL].values()]
        parts = [sp.hstack(own, format="csr")]
        for q in product.push.sources:
            rows = product.blocks[q][LOCAL].to_scipy()
            rows.resize(rows.shape[0], parts[0].shape[1])
            parts.append(rows)
        return sp.vstack(parts, format="csr")


def limit_of(loads, heaviest, balance):
    """Return the most nonzeros that a rank may store after it takes some from other
    ranks.
    """
    return max(int((1 + balance) * loads.sum() / loads.size), heaviest)


def covered(rows, columns, reader, owner, loads, limit, *total):
    """Return the holder of each nonzero, (nnz,) int64: the owner of its row, or of its column.

    Arguments as `hpgcn.parallel.vertex_covers.balanced_cover`, of all nonzeros.
    """
    holder = reader.astype(np.int64)
    across = np.flatnonzero(reader != owner)
    entries = (array[across] for array in (rows, columns, reader, owner))
    pushed = across[balanced_cover(*entries, loads, limit, *total)]
    holder[pushed] = owner[pushed]
    return holder


def recovered(rows, columns, reader, owner, holder):
    """Return the holders, (nnz,) int64, of the nonzeros left after rows and columns
    were dropped.

    `holder`: their holders in the full matrix, as returned by `covered`. The other
    arguments are those of `covered`.
    """
    across = np.flatnonzero(reader != owner)
    entries = (array[across] for array in (rows, columns, reader, owner))
    kept = trimmed_cover(*entries, holder[across] != reader[across])
    holder = reader.astype(np.int64)
    holder[across[kept]] = owner[across[kept]]
    return holder


def owners_of(layout, rows):
    """Return the rank that owns each of `rows`, (r,), in a RowPartition."""
    return np.searchsorted(layout.offsets, rows, side="right") - 1


def ghosts_of(transfer, matrix):
    """Yield (source, rows of that source) of a matrix that has a row for each ghost of
    a transfer.
    """
    first = 0
    for source, rows in transfer.ghost_counts.items():
        yield source, matrix[first:first + rows]
        first += rows
