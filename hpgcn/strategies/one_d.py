"""Row-parallel aggregation by broadcasts: `1d`, and `1.5d` in fewer, taller stages on replicas.

In `1d` each rank holds the rows of A, H and G in its block; W is on every rank. The
slab of A is divided into one column block per rank when it is read. In stage k rank k
broadcasts its rows of H to all ranks, and every rank multiplies its block k by them.
The own block comes first, because it waits for no message; the others follow in the
order of ranks. One of two buffers receives while the other is multiplied. A broadcast
starts once its buffer is no longer read. If A is symmetric, the backward is the same
code applied to G; otherwise it is the adjoint. In stage k every rank then computes its
partial sum for the rows of rank k. These sums are reduced to rank k while the next one
is computed.

`1d` is valid for any P and any row blocks, empty ones included. In a product of width f
rank p sends m_p f (P - 1) words in P - 1 messages. In a product by partial sums it
sends (n - m_p) f words to the P - 1 other ranks. Both are n f (P - 1) words and P (P -
1) messages over all ranks; empty blocks send nothing. A rank stores the slab of A, P
row pointers for each row, and the numbers of the rows in blocks of others. It also stores
the transpose if A is not symmetric. Two buffers are as tall as the largest block of another
rank.

In `1.5d` there are P / c groups of c replicas; rank = group x c + replica. Group i owns
big block i of the rows of H and G, each replica a piece of it; every element has one
owner. The P / c big blocks are stages, assigned evenly to the replicas in order.
Replica j holds, of the rows of A in big block i, only the columns of its stages. A
product has three steps. The first is an allgather of the big block over its replicas.
The second is 1d among the P / c ranks of each replica in its own stages. The third is a
reduce_scatter over the replicas.

`1.5d` is valid for any c that divides P; if P / c < c some replicas multiply nothing.
With c = 1 it is 1d. In a product of width f the allgather sends n f (c - 1) words, the
stages n f (P/c - 1), and the reduce_scatter n f (c - 1). The stages take P/c (P/c - 1)
messages, the rest 2 P (c - 1). A rank stores 1 / c of the columns of the big block's
rows of A, and four buffers. Two are as tall as the largest big block that arrives, and
two as tall as its own.

Products between fewer rows run the same code on other blocks, in the same buffers. m_p
and n are then numbers of rows of H. If A is symmetric, the backward broadcasts rows of
G. It has blocks of its own unless both sets of rows are equal. If A is not symmetric,
it reduces rows of H.

Source: cagnet-2020, section IV-A, Algorithm 1, with sigma after the sum, and section
IV-B, Algorithm 2 (which stores H itself c times); mg-gcn-2021, section 4.3.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hpgcn.comm.pending import PIECE_BYTES, UNDER_WAY
from hpgcn.errors import ConfigError, agreed, assigned
from hpgcn.graphs.normalization import PORTIONS
from hpgcn.parallel import transfers
from hpgcn.parallel.csr import Csr
from hpgcn.parallel.layout import split
from hpgcn.parallel.spooled_exchange import SpooledStages
from hpgcn.parallel.transfers import LOCAL, replica_assignment
from hpgcn.parallel.workspace import Workspace
from hpgcn.strategies.plan import Operand, SpoolMemory, sum_bytes
from hpgcn.strategies.rows import RowPlan, RowProduct, RowStrategy, RowTraffic
from hpgcn.strategies.spooled_blocks import SpooledBlocks
from hpgcn.strategies.strategy import most_square

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.normalization import NormalizedAdjacency
    from hpgcn.parallel.layout import BlockLayout
    from hpgcn.parallel.pattern import Pattern
    from hpgcn.strategies.plan import Product, RankGrid
    from hpgcn.strategies.strategy import StrategyOptions


def groups_of(rank_grid: RankGrid) -> tuple[int, ...]:
    """Return (groups, replicas) of a RankGrid: its shape, or (P, 1) if it has a single axis."""
    return (*rank_grid.shape, 1)[:2]


def heights_of(layout: BlockLayout, groups: tuple[int, ...]) -> np.ndarray:
    """Return the number of rows of each piece of each big block; (P / c, c)."""
    return np.diff(layout.offsets).reshape(groups)


class StagedTraffic(RowTraffic):
    """Traffic of strategies 1d and 1.5d: broadcasts in stages.

    Big blocks are gathered from the replicas before, and summed over the replicas after
    the stages. `groups`: the pair that `groups_of` returns.
    """

    packing = MappingProxyType({})

    def __init__(self, layouts: tuple[BlockLayout, ...], symmetric: bool,
                 groups: tuple[int, ...]) -> None:
        rows_out, rows_in = (heights_of(layout, groups) for layout in layouts)
        plans = self._both(rows_in, rows_out)
        if symmetric and not np.array_equal(rows_in, rows_out):
            plans += self._both(rows_out, rows_in)
        super().__init__(layouts, symmetric, plans)
        self.groups = groups

    def spooled(self, product: Product, itemsize: int, in_files: int,
                rule: Callable) -> np.ndarray:
        # Rows go to all ranks that multiply by them, sums to the owners of their rows.
        rows_in, rows_out, pull, push = self._ways(product)
        pulled = (rows_in * product.width * itemsize) * pull
        pushed = (rows_out * product.width * sum_bytes(itemsize))[:, None] * push.T
        return rule(pulled, in_files, once=True) + rule(pushed, in_files)

    def held(self, product: Product, itemsize: int) -> SpoolMemory:
        # Rows of a big block, and the sums of another one.
        rows_in, rows_out, *_ = self._ways(product)
        sizes = (rows_in * product.width * itemsize, rows_out * product.width * sum_bytes(itemsize))
        pieces = max(int(each.max()) for each in sizes)
        joined = sum(int(each.reshape(self.groups).sum(1).max()) for each in sizes)
        return SpoolMemory(joined + pieces * self.num_ranks.bit_length(), pieces)

    def _ways(self, product: Product) -> tuple[np.ndarray, ...]:
        """Return the rows of each rank of H and of the result, and two tables (P, P) bool.

        They mark [p, q] if rank p multiplies by the rows of rank q, and if it forms sums
        for the rows of rank q.
        """
        rows_out, rows_in = (np.diff(layout.offsets) for layout in (self.layout, self.layout_in))
        group, replica = np.divmod(np.arange(self.num_ranks), self.groups[1])
        by_column = replica[:, None] == replica_assignment(*self.groups).argmax(1)[group]
        full = np.diff(split(*self.groups)) > 0  # replicas that have stages
        by_row = (group[:, None] == group) & full[replica][:, None]
        if product.backward:
            rows_out, rows_in = rows_in, rows_out
        if product.backward and not self.symmetric:
            return rows_in, rows_out, by_row, by_column
        return rows_in, rows_out, by_column, by_row

    @staticmethod
    def _both(rows_in: np.ndarray, rows_out: np.ndarray) -> list:
        pull = transfers.StagedPlan(rows_in)
        push = transfers.OwnRowsPlan()
        if rows_in.shape[1] > 1:
            pull = transfers.GatheredPlan(rows_in, pull)
            push = transfers.GatheredPlan(rows_out, push)
        return [pull, push]


class StagedRowPlan(RowPlan):
    """Plan of strategies 1d and 1.5d, whose blocks are multiplied in stages."""

    Traffic = StagedTraffic

    def make_traffic(self, layouts: tuple[BlockLayout, ...]) -> StagedTraffic:
        return StagedTraffic(layouts, self.pattern.symmetric, groups_of(self.rank_grid))

    def _heights(self, layout: BlockLayout) -> np.ndarray:
        return heights_of(layout, groups_of(self.rank_grid))

    def adjoint(self, forward: Operand) -> Operand:
        # The transposes of the blocks.
        groups, replicas = groups_of(self.rank_grid)
        deals = replica_assignment(groups, replicas)  # block of columns k -> replica that holds it
        heights = self._heights(self.layout_in).sum(1) @ deals
        shape = groups, replicas
        return Operand.of(
            shape, forward.entries.reshape(shape), heights + deals.sum(0), results=heights,
            blocks=forward.blocks.reshape(shape))

    def operand(self, pattern: Pattern, layout: BlockLayout) -> Operand:
        # A block for each stage.
        rows = self._heights(layout)
        groups, replicas = rows.shape
        deals = replica_assignment(groups, replicas)
        big = self.rank_grid.layout.offsets[::replicas]
        entries = pattern.nonzeros(big, big) @ deals
        touched = pattern.touched_rows(big, big)
        stages = deals.sum(0)
        # others are added to the first one: the own block, or the first in order
        first = (deals * (1 + np.eye(groups, dtype=int)[:, :, None])).argmax(1)
        added = touched @ deals - np.take_along_axis(touched, first, 1) * (stages > 0)
        tall = rows.sum(1, keepdims=True)
        return Operand.of(rows.shape, entries, stages * (tall + 1), index_entries=added,
                          results=tall + rows * (replicas > 1), blocks=stages)

    def buffer_bytes(self, width: int, itemsize: int) -> np.ndarray:
        sums = width * sum_bytes(itemsize)
        reduces = not self.pattern.symmetric
        held = self.traffic.right.held_bytes(width * itemsize, sums, reduces=reduces)
        return np.ravel(held) + self.sums_held(width, itemsize)

    def reduced_bytes(self, width: int, itemsize: int) -> np.ndarray:
        # Two copies of the pieces in transit for the two tallest blocks of other ranks.
        # One copy is sent, one arrives. Long sums take Rabenseifner's algorithm, for a
        # power of two of ranks. Each other rank sends all that it has to the rank
        # before and receives nothing (Thakur, Rabenseifner and Gropp 2005).
        rows = self._heights(self.layout)
        big = rows.sum(1)
        place = np.arange(big.size)
        others = np.where(place[:, None] == place, 0, big)
        tallest = np.sort(others, axis=1)[:, -2:].sum(1)
        pieces = np.minimum(tallest * width * sum_bytes(itemsize), UNDER_WAY * PIECE_BYTES)
        left_over = big.size - (1 << big.size.bit_length() - 1)
        gets = (place % 2 == 0) | (place >= 2 * left_over)
        return np.repeat((1 + gets) * pieces * (not self.pattern.symmetric), rows.shape[1])

    def read_peak_bytes(self, itemsize: int) -> np.ndarray:
        # Rows are read in portions, their blocks put together one by one.
        forward = self.operands[0]
        held, transposes = self.kept_bytes(itemsize)
        rows = self.of_big_rows(forward.entries, groups_of(self.rank_grid)[1])
        several = forward.blocks > 1
        cut = held + transposes + held // np.maximum(forward.blocks, 1) * several
        filling = self.read_chunk_bytes(held, rows, np.where(several, PORTIONS, 1))
        return self.degree_bytes() + np.maximum(filling, cut)


class StagedStrategy(RowStrategy):
    """Base class of strategies 1d and 1.5d: stages of big blocks.

    A big block has c pieces. `stages` are the RankStages of this rank; a restricted map
    takes those of its parent.
    """

    Plan = StagedRowPlan
    supports_edge_features = True

    def __init__(self, layout: BlockLayout, layout_in: BlockLayout, comm: SerialComm,
                 product: RowProduct, *, stages: RankStages | None = None, **others: Any) -> None:
        super().__init__(layout, layout_in, comm, product, **others)
        self.stages = stages or self.parent.stages

    @classmethod
    def build(cls, adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm, *,
              width: int = 0) -> Self:
        layout = rank_grid.layout

        workspace = Workspace(adjacency.row_dtype, comm.device)
        stages = RankStages(rank_grid, comm, workspace, adjacency.dtype,
                            reduces=not adjacency.symmetric,
                            by_blocks=cls.sends_own_rows and comm.spool is not None)
        portions = PORTIONS if len(stages.intervals) > 1 else 1
        start, stop = stages.rows
        bounds = start + split(stop - start, portions)

        # read blocks, and let each go once it is copied
        with comm.collective_errors():
            matrices = adjacency.blocks(bounds.tolist(), stages.intervals)
        blocks = {}
        for stage in range(len(matrices)):
            blocks[stage] = Csr.of(matrices.pop(0), comm.device)

        product = stages.product(blocks, layout, layout)
        return cls.of(adjacency, rank_grid, comm, product, width, stages=stages)

    def build_submatrix(self, rows_out: np.ndarray, rows_in: np.ndarray) -> RowProduct:
        stages = self.stages
        kept = rows_out[slice(*stages.rows)]
        with self.comm.collective_errors():
            columns = [rows_in[slice(*interval)] for interval in stages.intervals]
            blocks = {stage: Csr.of(block.select(kept, columns[stage]), block.device)
                      for stage, block in self.product.blocks[LOCAL].items()}
        layouts = self.layout.restricted(rows_in), self.layout.restricted(rows_out)
        return stages.product(blocks, *layouts)

    def traffic(self) -> StagedTraffic:
        layouts = self.layout, self.layout_in
        return StagedTraffic(layouts, self.symmetric, groups_of(self.stages.rank_grid))

    def close(self) -> None:
        """Free the communicators; a restricted map leaves that to its parent."""
        if not self.parent:
            self.stages.close()


class RankStages:
    """Stages and communicators of a rank in a staged product.

    `sums`: dtype of partial sums. `reduces`: whether these pass through the buffers of
    stages. `by_blocks`: whether all rows pass through a Spool.
    """

    def __init__(self, rank_grid: RankGrid, comm: SerialComm, workspace: Workspace, sums: np.dtype,
                 *, reduces: bool, by_blocks: bool) -> None:
        groups, replicas = groups_of(rank_grid)
        group, replica = divmod(comm.rank, replicas)
        big = rank_grid.layout.offsets[::replicas].tolist()
        first, last = split(groups, replicas)[replica:replica + 2].tolist()

        self.rank_grid = rank_grid
        self.comm = comm
        self.by_blocks = by_blocks
        self.workspace = workspace
        self.sums = sums
        self.reduced = sums if reduces else None
        self.group = group
        self.first = first  # group whose rows are broadcast in the first stage of this rank
        self.rows = big[group], big[group + 1]  # rows of A that this rank holds: its big block
        self.intervals = list(pairwise(big[first:last + 1]))  # columns of A of each of its stages

        self.row = comm.group(range(group * replicas, (group + 1) * replicas))
        self.column = comm.group(range(replica, comm.size, replicas))

    def product(self, blocks: dict[int, Csr], layout_in: BlockLayout,
                layout: BlockLayout) -> RowProduct:
        """Return the RowProduct of `blocks`, a dict by stage.

        `layout_in` and `layout` are the layouts of its input and its result. The own block
        comes first, as it is multiplied.
        """
        own = self.group - self.first
        blocks = {stage: blocks[stage] for stage in sorted(blocks, key=lambda each: each != own)}
        if self.by_blocks:
            pull, push = self._spooled(layout_in, layout)
            return RowProduct({LOCAL: blocks}, pull, push, layout.rows.num_rows)
        replicas = groups_of(self.rank_grid)[1]
        big = np.diff(layout_in.offsets[::replicas])[self.first:][:len(self.intervals)].tolist()
        kind = SpooledStages if self.column.spool else transfers.StagedRows
        pull = kind(big, self.first, self.column, self.workspace, self.reduced)
        push = transfers.OwnRows()
        if replicas > 1:
            pull = transfers.GatheredRows(self._heights(layout_in), self.row, pull, self.workspace,
                                          self.sums)
            push = transfers.GatheredRows(self._heights(layout), self.row, push, self.workspace,
                                          self.sums)
        return RowProduct({LOCAL: blocks}, pull, push, layout.rows.num_rows)

    def _spooled(self, layout_in: BlockLayout, layout: BlockLayout) -> Iterator[SpooledBlocks]:
        """Yield the transfers of rows of the stages, and of sums of the own big block."""
        groups, replicas = shape = groups_of(self.rank_grid)
        bounds = split(groups, replicas)
        numbers = range(self.first, self.first + len(self.intervals))
        stages = {group - self.first: group
                  for group in sorted(numbers, key=lambda group: group != self.group)}
        holder = int(np.searchsorted(bounds, self.group, "right")) - 1  # multiplies own rows
        column = range(holder, self.comm.size, replicas)
        yield SpooledBlocks(heights_of(layout_in, shape), stages, [*column], self.comm,
                            reduces=True)
        row = self.group * replicas + np.flatnonzero(np.diff(bounds))
        local = {LOCAL: self.group} if stages else {}
        yield SpooledBlocks(heights_of(layout, shape), local, row.tolist(), self.comm,
                            reduces=False)

    def _heights(self, layout: BlockLayout) -> np.ndarray:
        """Return the number of rows of each piece of this rank's big block; (c,) int64."""
        return np.diff(layout.offsets).reshape(groups_of(self.rank_grid))[self.group]

    def close(self) -> None:
        """Free the communicators."""
        self.row.close()
        self.column.close()


class OneD(StagedStrategy):
    """Strategy `1d`: broadcasts in stages without replicas."""

    name = "1d"
    accepts_partition = supports_attention = supports_bf16 = spools = True

    @classmethod
    def mask_slices(cls, shape: tuple[int, ...]) -> int:
        return 1


class OneAndAHalfD(StagedStrategy):
    """Strategy `1.5d`: c replicas; by default the largest divisor c of P with c c <= P."""

    name = "1.5d"
    axes = "(P/c)xc"
    supports_bf16 = spools = sends_own_rows = True
    options = ("replication",)
    word = "replication"

    @classmethod
    def waits(cls, product: Product) -> int:
        # Rows, then sums.
        return 2

    @property
    def replication(self) -> int:
        """Number of replicas (c)."""
        return groups_of(self.stages.rank_grid)[1]

    @classmethod
    def default_shape(cls, ranks: int) -> tuple[int, ...]:
        return most_square(ranks)

    @classmethod
    def choose_shape(cls, options: StrategyOptions, ranks: int) -> tuple[int, ...]:
        shape = super().choose_shape(options, ranks)
        if not options.replication:
            return shape
        if ranks % options.replication:
            raise agreed(ConfigError(
                f"{assigned('strategy', f'{cls.name}:{options.replication}')}: expected a divisor "
                f"of the {ranks} ranks"))
        return ranks // options.replication, options.replication
