"""Any rank for any nonzero: strategy `vertex-cut`.

A partitioned file says who holds each nonzero (hpgcn partition --method vertex-cut, medium-grain...); without it
each is held by the owner of its row, as p2p has it. In two phases rows of H are pulled, and partial
sums pushed; sums for others are formed of own rows while rows arrive, sums of own rows while sums do.

Sources: distgnn-2021, section 5 (clones with one root, Libra); Catalyurek and Aykanat (2001), Pelt and
Bisseling (2014) for partitions of nonzeros.
"""
from __future__ import annotations

import logging

import numpy as np
import scipy.sparse as sp

from hpgcn.parallel.csr import Csr
from hpgcn.parallel.halo_exchange import HaloExchange
from hpgcn.parallel.transfers import OWN
from hpgcn.strategies.nonzeros import NonzeroPlan, NonzeroStrategy
from hpgcn.strategies.plan import Operand
from hpgcn.strategies.rows import RowProduct

log = logging.getLogger("hpgcn")
OTHERS = -2  # rows of all other ranks together, as a source and as a target


class VertexCutPlan(NonzeroPlan):
    """Two halo exchanges, one after the other."""

    @staticmethod
    def holders(pattern, rows, owner, arrangement):
        """See `NonzeroPlan`."""
        holder = owner[rows]
        if pattern.holders is not None:
            across = rows != pattern.indices  # loops go with their vertex
            holder = np.where(across, pattern.holders, holder)
        return holder

    @staticmethod
    def merge(pulled, pushed, sent, received):
        """See `NonzeroPlan`."""
        return pulled, pushed

    def operands_of_blocks(self, transposed):
        """See `NonzeroPlan`: own rows and others', by own columns and by ghosts."""
        pulled, pushed = self.right, self.left
        layout = self.layout
        if transposed:
            pulled, pushed, layout = pushed, pulled, self.layout_in
        rows = np.diff(layout.offsets)
        ghosts, targets = pulled.received > 0, pushed.received > 0
        listed = self.added_rows(transposed, lambda line, across, holder: np.where(across != holder, line != holder, -1))
        if not transposed:
            listed = listed + self.right.buffer_rows + self.left.buffer_rows
        return Operand.of(
            rows.shape, self.entries(), (1 + ghosts) * (rows + 1 + targets * (pushed.received + 1)),
            listed=listed, results=rows + pushed.received, blocks=(1 + ghosts) * (1 + targets))


class TogetherExchange(HaloExchange):
    """A halo exchange that hands out the rows of all other ranks as one block, OTHERS."""

    def arrivals(self, wanted, what):
        """Yield (OWN, own rows), then (OTHERS, all others) once they have arrived."""
        if OWN in wanted:
            yield OWN, self.H
        for _ in self._arrived(self.channel, what):
            pass
        if OTHERS in wanted:
            yield OTHERS, self.channel.incoming

    def rooms(self, channel):
        """Yield (OTHERS, room for all partial sums)."""
        if self.plan.ghosts.size:
            yield OTHERS, channel.outgoing


class VertexCut(NonzeroStrategy):
    """A-hat with nonzeros held by any rank."""

    name = "vertex-cut"
    Plan = VertexCutPlan

    @staticmethod
    def holders(adjacency, arrangement, comm, rows, cols):
        """See `NonzeroStrategy`: as the file says."""
        layout = arrangement.layout.rows
        given = adjacency.source.edge_part(layout.start, layout.stop)
        holder = np.full(rows.size, comm.rank, np.int64)
        if given is None:
            if comm.size > 1 and comm.rank == 0:
                log.warning("%s does not say who holds each nonzero: each stays with its row, as strategy p2p has "
                            "it; `hpgcn partition --method medium-grain` makes owners of nonzeros",
                            getattr(adjacency.source, "path", adjacency.source.header.name))
            return holder
        slab = adjacency.slab or adjacency.source.slab(layout.start, layout.stop)
        stored_rows = layout.start + np.repeat(np.arange(layout.num_rows), np.diff(slab.indptr))
        holder[rows != cols] = given[stored_rows != slab.indices]
        return holder

    @staticmethod
    def product_of(matrix, pull, push, comm, buffers):
        """See `NonzeroStrategy`."""
        transfers = [TogetherExchange(plan, comm, buffer) for plan, buffer in zip((pull, push), buffers)]
        m, m_in = push.layout.num_rows, pull.layout.num_rows
        matrix.sort_indices()
        targets = {OTHERS: matrix[m:], OWN: matrix[:m]}
        blocks = {}
        for target, rows in targets.items():
            if target == OWN or push.ghosts.size:
                blocks[target] = {OWN: Csr.of(rows[:, :m_in], comm.device)}
                if pull.ghosts.size:
                    blocks[target][OTHERS] = Csr.of(rows[:, m_in:], comm.device)
        return RowProduct(blocks, *transfers, m)

    @staticmethod
    def matrix_of(product):
        """See `NonzeroStrategy`."""
        rows = [sp.hstack([block.to_scipy() for block in product.blocks[target].values()], format="csr")
                for target in (OWN, OTHERS) if target in product.blocks]
        pull, push = product.pull, product.push
        return sp.vstack(rows, format="csr"), pull.plan, push.plan, (pull.buffers, push.buffers)
