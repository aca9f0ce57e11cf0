"""Rows by parts, and for each pair of ranks the fewest rows of H and partial sums: strategy `cover`.

A nonzero (i, j) is held by the owner of row i or by that of column j, whichever a minimum vertex
cover of the block of the two ranks says. A partial sum reads own rows of H alone: it is formed before
anything arrives, and travels in the message of the rows. So there are as many messages as p2p sends on
the same parts, or fewer, in one phase, and never more rows; own nonzeros are multiplied meanwhile.

No rank takes on nonzeros beyond a limit: (1 + balance) times the mean, or the heaviest row.
Source: Kayaaslan, Aykanat and Ucar, SIAM J. Sci. Comput. 40(4), 2018, section 3; on top of
demirci-2022, sections 3 and 4.1.
"""
from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from hpgcn.parallel.csr import Csr
from hpgcn.parallel.cover import balanced_cover
from hpgcn.parallel.halo_exchange import HaloBuffers
from hpgcn.parallel.merged_exchange import MergedExchange, MergedSizes
from hpgcn.parallel.transfers import OWN
from hpgcn.strategies.nonzeros import NonzeroPlan, NonzeroStrategy
from hpgcn.strategies.plan import Operand
from hpgcn.strategies.rows import RowProduct


class CoverPlan(NonzeroPlan):
    """One message a pair: rows, then sums."""

    @staticmethod
    def holders(pattern, rows, owner, arrangement):
        """See `NonzeroPlan`."""
        degrees = np.diff(pattern.indptr)
        loads = np.bincount(owner, degrees, arrangement.layout.size).astype(np.int64)
        limit = limit_of(loads, degrees.max(initial=0), arrangement.options["balance"])
        return covered(rows, pattern.indices, owner[rows], owner[pattern.indices], loads, limit)

    @staticmethod
    def merge(pulled, pushed, sent, received):
        """See `NonzeroPlan`."""
        return MergedSizes(pulled, pushed, received), MergedSizes(pushed, pulled, sent)

    def operands_of_blocks(self, transposed):
        """See `NonzeroPlan`: the own block, one a source, one a target."""
        pulled, pushed = self.right.own, self.left.own
        layout = self.layout
        if transposed:
            pulled, pushed, layout = pushed, pulled, self.layout_in
        rows = np.diff(layout.offsets)
        entries = self.entries()
        listed = self.added_rows(transposed, lambda line, across, holder: np.where(across != holder, across, -1))
        if not transposed:
            listed = listed + self.right.buffer_rows + self.left.buffer_rows
        return Operand.of(
            rows.shape, entries, (1 + pulled.sources) * (rows + 1) + pushed.received + pushed.sources,
            listed=listed, results=rows + pushed.received, blocks=1 + pulled.sources + pushed.sources)


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
    def buffers(comm, dtype):
        """See `NonzeroStrategy`: one pair."""
        return (HaloBuffers(comm.device, comm.relay, dtype),)

    @staticmethod
    def holders(adjacency, arrangement, comm, rows, cols):
        """See `NonzeroStrategy`."""
        layout = arrangement.layout.rows
        loads = np.array(comm.allgather(rows.size), np.int64)
        heaviest = comm.max([np.bincount(rows - layout.start).max(initial=0)])[0]
        limit = limit_of(loads, int(heaviest), arrangement.options["balance"])
        reader = np.full(rows.size, comm.rank)
        owner = np.searchsorted(layout.offsets, cols, side="right") - 1

        def total(array):
            return comm.sum(array).astype(np.int64)

        return covered(rows, cols, reader, owner, loads, limit, total=total)

    @staticmethod
    def product_of(matrix, pull, push, comm, buffers):
        """See `NonzeroStrategy`."""
        rows, sums = MergedExchange(pull, push, comm, *buffers).halves
        m, m_in = push.layout.num_rows, pull.layout.num_rows
        matrix.sort_indices()
        own = matrix[:m]
        blocks = {q: {OWN: Csr.of(part, comm.device)} for q, part in _parts(matrix[m:, :m_in], push)}
        blocks[OWN] = {OWN: Csr.of(own[:, :m_in], comm.device)}
        ghost = own[:, m_in:].T.tocsr()  # by column: cutting it is then cheap for any number of sources
        for q, part in _parts(ghost, pull):
            blocks[OWN][q] = Csr.of(part.T.tocsr(), comm.device)
        return RowProduct(blocks, rows, sums, m)

    @staticmethod
    def matrix_of(product):
        """See `NonzeroStrategy`."""
        pull, push = product.pull.plan, product.push.plan
        own = sp.hstack([block.to_scipy() for block in product.blocks[OWN].values()], format="csr")
        others = [product.blocks[q][OWN].to_scipy() for q in push.sources.tolist()]
        nothing = sp.csr_array((0, own.shape[1]), dtype=own.dtype)
        for part in others:
            part.resize(part.shape[0], own.shape[1])
        return sp.vstack([own, *others, nothing], format="csr"), pull, push, (product.pull.exchange.buffers,)


def limit_of(loads, heaviest, balance):
    """Nonzeros that a rank may hold by taking on others'."""
    return max(int((1 + balance) * loads.sum() / loads.size), heaviest)


def covered(rows, cols, reader, owner, loads, limit, **options):
    """Return the holder of each nonzero, (nnz,) int64: the owner of its row or of its column."""
    holder = reader.astype(np.int64)
    across = np.flatnonzero(reader != owner)
    pushed = balanced_cover(rows[across], cols[across], reader[across], owner[across], loads, limit, **options)
    holder[across[pushed]] = owner[across[pushed]]
    return holder


def _parts(matrix, plan):
    """Yield (rank, its rows) of a matrix whose rows are the ghosts of a plan."""
    for q in plan.sources.tolist():
        yield q, matrix[int(plan.recv_offsets[q]):int(plan.recv_offsets[q + 1])]
