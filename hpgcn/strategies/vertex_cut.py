"""Strategy `vertex-cut`: each nonzero may be stored on any rank.

A file that was partitioned by nonzeros names the holder of each nonzero. With any other
file the owner of its row holds it, as in p2p. A product pulls rows of H, then pushes
partial sums. A rank multiplies its own rows of H while other rows arrive, and computes
the sums of its own rows while partial sums are sent.

Sources: distgnn-2021, section 5 (clones with one root, Libra); Catalyurek and Aykanat
(2001), Pelt and Bisseling (2014) for partitions of nonzeros.
"""
from __future__ import annotations

import logging
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.kernels.host.record import repeat
from hpgcn.parallel.csr import Csr
from hpgcn.parallel.halo_exchange import HaloExchange
from hpgcn.parallel.nodes.node_exchange import exchange_of
from hpgcn.parallel.spooled_exchange import SpooledBlock
from hpgcn.parallel.transfers import LOCAL
from hpgcn.strategies.nonzeros import NonzeroPlan, NonzeroStrategy, NonzeroTraffic
from hpgcn.strategies.plan import Operand
from hpgcn.strategies.rows import RowProduct

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.normalization import NormalizedAdjacency
    from hpgcn.kernels import Array
    from hpgcn.parallel.halo_plan import HaloPlan
    from hpgcn.parallel.pattern import Pattern
    from hpgcn.parallel.workspace import HaloBuffers
    from hpgcn.strategies.plan import Product, RankGrid

log = logging.getLogger("hpgcn")
REMOTE = -2  # rows of all other ranks together, as a source and as a target


class VertexCutTraffic(NonzeroTraffic):
    """Traffic of strategy vertex-cut: two halo exchanges, one after the other."""

    one_block = True


class VertexCutPlan(NonzeroPlan):
    """Plan of strategy vertex-cut: two halo exchanges, one after the other."""

    Traffic = VertexCutTraffic

    @staticmethod
    def holders(pattern: Pattern, rank_grid: RankGrid) -> np.ndarray:
        owner = np.repeat(rank_grid.layout.row_blocks.astype(np.int32), np.diff(pattern.indptr))
        if pattern.holders is None:
            return owner
        return np.where(pattern.on_diagonal, owner, pattern.holders)

    def block_operand(self, transposed: bool) -> Operand:
        # Rows of this and of other ranks, with own columns and with ghosts.
        pulled, pushed, layout = self.traffic.right, self.traffic.left, self.layout
        if transposed:
            pulled, pushed, layout = pushed, pulled, self.layout_in
        rows = np.diff(layout.offsets)
        wide, tall = (np.count_nonzero(each.received_parts, axis=0) for each in (pulled, pushed))
        return Operand.of(
            rows.shape, self.held_entries, (1 + wide) * (rows + 1 + pushed.received + tall),
            index_entries=self.listed_rows(transposed, False), results=rows + pushed.received,
            blocks=(1 + wide) * (1 + tall))


class OneBlockHaloExchange(HaloExchange):
    """A halo exchange that yields the rows of all other ranks as one block, REMOTE."""

    def __init__(self, plan: HaloPlan, comm: SerialComm, buffers: HaloBuffers) -> None:
        super().__init__(plan, comm, buffers)
        self.ghosts = {REMOTE: slice(0, plan.ghosts.size)} if plan.ghosts.size else {}

    def start(self, H: Array, what: str) -> None:
        """Start sending rows of H (m, f) to their readers."""
        self.joined = False  # whether rows of ranks of this node are in the one block
        super().start(H, what)

    def received_rows(self, wanted: Iterable[int],
                      what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (LOCAL, own rows), then (REMOTE, rows of all other ranks).

        The rows of other ranks are yielded once all have arrived.
        """
        if LOCAL in wanted:
            yield LOCAL, self.H
        channel = self.exchange.channel
        for source in self.exchange.arriving(what):
            if source in channel.near and not self.joined:
                with self.comm.clock("comm"):
                    place = slice(*channel.cuts[source:source + 2].tolist())
                    repeat(operator.setitem, channel.incoming, place, channel.near[source])
        self.joined = True
        self.release()
        if REMOTE in wanted:
            yield REMOTE, channel.incoming


class RemoteBlock(SpooledBlock):
    """The OneBlockHaloExchange of ranks that have a Spool."""

    block = REMOTE


class VertexCut(NonzeroStrategy):
    """Strategy `vertex-cut`: each nonzero may be stored on any rank."""

    name = "vertex-cut"
    Plan = VertexCutPlan
    accepts_nonzero_owners = supports_bf16 = True
    options = ("delay",)
    supports_nodes = ("products",)
    method = "cover"

    @classmethod
    def waits(cls, product: Product) -> int:
        # Rows of other ranks come before the sums for them.
        return 2

    @staticmethod
    def holders(adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm,
                rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        # The file's docstring states the rule.
        layout = rank_grid.layout.rows
        source = adjacency.source
        with comm.collective_errors():
            given = source.edge_part(layout.start, layout.stop)
            slab = adjacency.slab or source.slab(layout.start, layout.stop)

        holder = np.full(rows.size, comm.rank)
        if given is not None:
            stored = layout.start + np.repeat(np.arange(layout.num_rows), np.diff(slab.indptr))
            holder[rows != columns] = given[stored != slab.indices]
        elif comm.size > 1 and comm.rank == 0:
            log.warning("%s has no partition of the nonzeros, so each stays with its row; `hpgcn "
                        "partition --method cover` makes one",
                        source.where)

        return holder

    @staticmethod
    def product_of(matrix: Any, pull: Any, push: Any,
                   comm: SerialComm, buffers: list) -> RowProduct:
        pulls, pushes = (exchange_of(plan, comm, buffer, OneBlockHaloExchange, RemoteBlock)
                         for plan, buffer in zip((pull, push), buffers))
        m, m_in = push.layout.num_rows, pull.layout.num_rows
        matrix.sort_indices()
        sources, targets = (slices({LOCAL: own, **transfer.ghost_counts})
                            for own, transfer in ((m_in, pulls), (m, pushes)))
        blocks = {}
        for target in (*list(targets)[1:], LOCAL):
            rows = matrix[targets[target]]
            blocks[target] = {source: Csr.of(rows[:, columns], comm.device)
                              for source, columns in sources.items()}
        return RowProduct(blocks, pulls, pushes, m)

    def transfers_of(self, pull: HaloPlan, push: HaloPlan) -> Sequence:
        return [OneBlockHaloExchange(plan, self.comm, transfer.buffers) for plan, transfer in
                ((pull, self.product.pull), (push, self.product.push))]

    @property
    def buffer_bytes(self) -> int:
        return 0 if self.parent else super().buffer_bytes + self.product.push.nbytes


def slices(counts: dict[int, int]) -> dict[int, slice]:
    """Return consecutive slices of `counts`, a dict of lengths, under the same keys."""
    ends = np.cumsum(list(counts.values())).tolist()
    return {key: slice(end - length, end) for (key, length), end in zip(counts.items(), ends)}
