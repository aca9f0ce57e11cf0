"""Rows by parts; between two ranks the fewest rows of H and partial sums: strategy `cover`.

A nonzero (i, j) is held by the owner of row i or by that of column j, whichever a minimum vertex
cover of the block of the two ranks says. A partial sum reads own rows of H alone: it is formed
before anything arrives, and travels in the message of the rows. So there are as many messages as
p2p sends on the same parts, in one phase, and never more rows; own nonzeros are multiplied while
messages are under way.

No rank takes on nonzeros beyond a limit: (1 + balance) times the mean, or the heaviest row.
Source: Kayaaslan, Aykanat and Ucar, SIAM J. Sci. Comput. 40(4), 2018, section 3; on top of
demirci-2022, sections 3 and 4.1.
"""
from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from hpgcn.parallel.cover import balanced_cover
from hpgcn.parallel.csr import Csr
from hpgcn.parallel.merged_exchange import MergedExchange, MergedSizes
from hpgcn.parallel.transfers import OWN
from hpgcn.strategies.nonzeros import NonzeroPlan, NonzeroStrategy
from hpgcn.strategies.plan import Operand
from hpgcn.strategies.rows import RowProduct


class CoverPlan(NonzeroPlan):
    """One message a pair: rows, then sums."""

    @staticmethod
    def holders(pattern, arrangement):
        """See `NonzeroPlan`."""
        owner = arrangement.layout.row_blocks
        degrees = np.diff(pattern.indptr)
        loads = np.bincount(owner, degrees, arrangement.layout.size).astype(np.int64)
        limit = limit_of(loads, degrees.max(initial=0), arrangement.options["balance"])
        rows, columns = pattern.rows, pattern.indices
        return covered(rows, columns, owner[rows], owner[columns], loads, limit)

    @staticmethod
    def merge(pulled, pushed, sent, received):
        """See `NonzeroPlan`."""
        return [MergedSizes(pulled, pushed, received), MergedSizes(pushed, pulled, sent)]

    def blocks(self, transposed):
        """See `NonzeroPlan`; the own block, one for each source, one for each target."""
        pulled, pushed, layout = self.right.own, self.left.own, self.layout
        if transposed:
            pulled, pushed, layout = pushed, pulled, self.layout_in
        rows = np.diff(layout.offsets)
        pointers = (1 + pulled.sources) * (rows + 1) + pushed.received + pushed.sources
        return Operand.of(
            rows.shape, self.held_entries, pointers, listed=self.listed_rows(transposed, True),
            results=rows + pushed.received, blocks=1 + pulled.sources + pushed.sources)


class Cover(NonzeroStrategy):
    """A-hat on rows distributed by parts, rows or sums sent."""

    name = "cover"
    Plan = CoverPlan
    options = ("balance",)

    @classmethod
    def own_options(cls, config, device):
        """See `Strategy`."""
        return {"balance": config.balance}

    @staticmethod
    def holders(adjacency, arrangement, comm, rows, columns):
        """See `NonzeroStrategy`."""
        layout = arrangement.layout.rows
        loads = np.array(comm.allgather(rows.size), np.int64)
        heaviest = comm.max([np.bincount(rows - layout.start).max(initial=0)])[0]
        limit = limit_of(loads, int(heaviest), arrangement.options["balance"])
        owner = np.searchsorted(layout.offsets, columns, side="right") - 1

        def total(array):
            return comm.sum(array).astype(np.int64)

        return covered(rows, columns, np.full(rows.size, comm.rank), owner, loads, limit, total)

    @staticmethod
    def product_of(matrix, pull, push, comm, buffers):
        """See `NonzeroStrategy`."""
        exchange = MergedExchange(pull, push, comm, buffers[0])
        m, m_in = push.layout.num_rows, pull.layout.num_rows
        matrix.sort_indices()
        blocks = {q: {OWN: Csr.of(rows, comm.device)}
                  for q, rows in ghosts_of(push, matrix[m:, :m_in])}
        blocks[OWN] = {OWN: Csr.of(matrix[:m, :m_in], comm.device)}
        by_column = matrix[:m, m_in:].T.tocsr()
        for q, columns in ghosts_of(pull, by_column):
            blocks[OWN][q] = Csr.of(columns.T.tocsr(), comm.device)
        return RowProduct(blocks, *exchange.halves, m)

    def transfers_of(self, pull, push):
        """See `RowStrategy`."""
        return MergedExchange(pull, push, self.comm, self.product.pull.buffers).halves

    @staticmethod
    def matrix_of(product):
        """See `NonzeroStrategy`."""
        own = [block.to_scipy() for block in product.blocks[OWN].values()]
        parts = [sp.hstack(own, format="csr")]
        for q in product.push.plan.sources.tolist():
            rows = product.blocks[q][OWN].to_scipy()
            rows.resize(rows.shape[0], parts[0].shape[1])
            parts.append(rows)
        return sp.vstack(parts, format="csr")


def limit_of(loads, heaviest, balance):
    """Nonzeros that a rank may hold by taking on others'."""
    return max(int((1 + balance) * loads.sum() / loads.size), heaviest)


def covered(rows, columns, reader, owner, loads, limit, *total):
    """Return the holder of each nonzero, (nnz,) int64: the owner of its row, or of its column.

    Arguments as `hpgcn.parallel.cover.balanced_cover`, of all nonzeros.
    """
    holder = reader.astype(np.int64)
    across = np.flatnonzero(reader != owner)
    entries = (array[across] for array in (rows, columns, reader, owner))
    pushed = across[balanced_cover(*entries, loads, limit, *total)]
    holder[pushed] = owner[pushed]
    return holder


def ghosts_of(plan, matrix):
    """Yield (rank, its rows) of a matrix whose rows are the ghosts of a plan."""
    for q in plan.sources.tolist():
        yield q, matrix[int(plan.recv_offsets[q]):int(plan.recv_offsets[q + 1])]
