"""Strategies that give each nonzero of A a rank of its own: A H = S A_loc R H, and nothing is left out.

R pulls row j of H to every rank that holds a nonzero of column j and does not own j; S pushes a
partial sum of row i from every rank that holds a nonzero of row i to the owner of i, who adds in the
order of ranks. A^T G swaps the two: as many rows pass. Masks apply to whole sums.

Each rank reads the rows that it owns, scales them, and sends every nonzero to its holder, once.
"""
from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.validation import index_dtype
from hpgcn.parallel.halo_exchange import HaloBuffers
from hpgcn.parallel.halo_plan import HaloPlanSizes
from hpgcn.parallel.pattern import Pattern
from hpgcn.strategies.p2p import halo_plan, own_rows
from hpgcn.strategies.plan import WEIGHT
from hpgcn.strategies.rows import RowPlan, RowStrategy

READ, HELD, ROW = 70, 60, 100  # bytes of an entry as it is read, and as it is held, while blocks are made; of a row
CUT = 40  # bytes of an entry of the matrix, while fewer rows are cut from it


class NonzeroPlan(RowPlan):
    """Pulls and pushes by the holders of nonzeros, which the entries of the pattern's matrix are.

    Subclasses say `merge`, how sizes of the two become transfers, and `operand`.
    """

    @classmethod
    def of(cls, pattern, arrangement):
        """See `Plan`: the holders are put into the pattern."""
        offsets = arrangement.layout.offsets
        owner = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
        matrix = pattern.matrix
        rows = np.repeat(np.arange(owner.size), np.diff(matrix.indptr))
        holder = cls.holders(pattern, rows, owner, arrangement)
        held = sp.csr_array((holder.astype(np.int32), matrix.indices, matrix.indptr), shape=matrix.shape)
        return cls(Pattern(held, pattern.symmetric, pattern.weighted), arrangement)

    @staticmethod
    def holders(pattern, rows, owner, arrangement):
        """Return the rank that holds each entry of the pattern, (nnz,).

        Parameters
        ----------
        rows : (nnz,) integers
            Of the entries.
        owner : (n,) integers
            Rank that owns each row.
        """
        raise NotImplementedError

    @staticmethod
    def merge(pulled, pushed, messages):
        """Return the plans of R and S from the HaloPlanSizes of both, and the messages of ranks if they share them."""
        raise NotImplementedError

    def transfers(self):
        """See `RowPlan`."""
        k = self.num_ranks
        offsets = self.arrangement.layout.offsets
        owner = np.repeat(np.arange(k), np.diff(offsets))
        matrix = self.pattern.matrix
        rows = np.repeat(np.arange(owner.size), np.diff(matrix.indptr))
        holder = matrix.data.astype(np.int64)
        pulled, pushed = (elsewhere(lines, holder, owner, k) for lines in (matrix.indices, rows))
        sizes = [HaloPlanSizes.of_pairs(*pairs, k) for pairs in (pulled, pushed)]
        shared = np.unique(np.concatenate([pulled[0] * k + pulled[1], pushed[1] * k + pushed[0]]))
        right, left = self.merge(*sizes, np.bincount(shared // k, minlength=k), np.bincount(shared % k, minlength=k))
        if self.symmetric and not self.pattern.square:
            return [right, left, left, right]
        return [right, left]

    def added_rows(self, transposed, whose):
        """Count the rows of the result that a rank adds to as blocks of ghosts arrive, (P,): it keeps their numbers.

        Parameters
        ----------
        transposed : bool
            Of A^T G.
        whose : function (owner of row, owner of column, holder) -> (nnz,) integers
            Which entries a block holds: a number for each block of a rank; -1 for one that adds nothing.
        """
        k = self.num_ranks
        owner = np.repeat(np.arange(k), np.diff(self.arrangement.layout.offsets))
        matrix = self.pattern.matrix
        lines = np.repeat(np.arange(owner.size), np.diff(matrix.indptr)), matrix.indices
        line, across = reversed(lines) if transposed else lines
        holder = matrix.data.astype(np.int64)
        block = whose(owner[line], owner[across], holder)
        added = block >= 0
        keys = (line[added].astype(np.int64) * k + block[added]) * k + holder[added]
        return np.bincount(np.unique(keys) % k, minlength=k)

    def entries(self):
        """Entries that each rank holds, (P,)."""
        return np.bincount(self.pattern.matrix.data, minlength=self.num_ranks)

    def operand(self, pattern, layout):
        """See `Plan`: of a symmetric matrix, too, the transpose of other rows is made of the blocks."""
        if pattern is not self.pattern:
            return self.adjoint(self.operands_of_blocks(False))
        return self.operands_of_blocks(False)

    def adjoint(self, forward):
        """See `Plan`: the transposes of the blocks."""
        return self.operands_of_blocks(True)

    def operands_of_blocks(self, transposed):
        """Return the Operand of the blocks, or of their transposes."""
        raise NotImplementedError

    def buffer_bytes(self, width, itemsize):
        """See `Plan`."""
        return (self.right.buffer_rows + self.left.buffer_rows) * width * itemsize

    def reading_bytes(self, itemsize):
        """See `Plan`: own rows as they are read, nonzeros on their way, then blocks."""
        offsets = self.arrangement.layout.offsets
        read = np.bincount(np.repeat(np.arange(self.num_ranks), np.diff(self.pattern.indptr[offsets])),
                           minlength=self.num_ranks)
        weight = WEIGHT * self.pattern.weighted
        held, _ = self.kept_bytes(itemsize)
        return read * (READ + weight) + self.entries() * HELD + held + self.rows() * ROW

    def cutting_bytes(self, itemsize):
        """See `Plan`: all of the matrix is put together again."""
        return self.entries() * CUT + self.rows() * ROW


class NonzeroStrategy(RowStrategy):
    """A-hat with a holder for each nonzero, on rows distributed by parts.

    Subclasses say `holders`, `product_of` and `matrix_of`.
    """

    takes_parts = needs_parts = True

    @classmethod
    def build(cls, adjacency, arrangement, comm, *, width=0):
        """See `Strategy`."""
        layout = arrangement.layout
        rows = layout.rows
        matrix, plan = own_rows(adjacency, rows, comm)
        numbers = np.concatenate([np.arange(rows.start, rows.stop), plan.ghosts])
        values = matrix.data.astype(np.float64).view(np.int64)  # as bits: only integers are exchanged like this
        entries = [np.repeat(numbers[:rows.num_rows], np.diff(matrix.indptr)), numbers[matrix.indices], values]
        del matrix, values
        holder = cls.holders(adjacency, arrangement, comm, *entries[:2])
        order = np.argsort(holder, kind="stable")
        ends = np.searchsorted(holder[order], np.arange(1, comm.size))
        i, j, values = (np.concatenate(comm.alltoallv(np.split(each[order], ends))) for each in entries)
        del entries, holder, order

        (i, targets), (j, sources) = (local_numbers(each, rows) for each in (i, j))
        shape = rows.num_rows + targets.size, rows.num_rows + sources.size
        values = values.view(np.float64).astype(adjacency.dtype)
        matrix = sp.csr_array((values, (i, j)), shape=shape)
        product = cls.product_of(matrix, halo_plan(rows, sources, comm), halo_plan(rows, targets, comm), comm,
                                 cls.buffers(comm, adjacency.dtype))
        strategy = cls(layout, layout, comm, product, symmetric=adjacency.symmetric)
        strategy.reserve(width)
        return strategy

    @staticmethod
    def holders(adjacency, arrangement, comm, rows, cols):
        """Return the holder of each nonzero of the own rows, (nnz,) int64; all ranks call this together."""
        raise NotImplementedError

    @staticmethod
    def buffers(comm, dtype):
        """Return the buffers of the transfers, which maps that are cut from this one borrow."""
        return tuple(HaloBuffers(comm.device, comm.relay, dtype) for _ in range(2))

    @staticmethod
    def product_of(matrix, pull, push, comm, buffers):
        """Return the RowProduct of the nonzeros held here.

        Parameters
        ----------
        matrix : csr_array (m + t, m_in + g)
            Own rows, then those of others; own columns, then ghosts.
        pull, push : hpgcn.parallel.halo_plan.HaloPlan
            Of the ghosts, and of the rows of others.
        """
        raise NotImplementedError

    @staticmethod
    def matrix_of(product):
        """Return what `product_of` was given: the matrix, pull, push and buffers."""
        raise NotImplementedError

    def cut(self, rows_out, rows_in):
        """See `RowStrategy`."""
        matrix, pull, push, buffers = self.matrix_of(self.product)
        own = slice(self.layout.rows.start, self.layout.rows.stop)
        rows = np.concatenate([rows_out[own], rows_out[push.ghosts]])
        columns = np.concatenate([rows_in[own], rows_in[pull.ghosts]])
        matrix = matrix[rows][:, columns]
        layouts = self.layout.restricted(rows_out).rows, self.layout.restricted(rows_in).rows

        plans = []
        kept = []
        touched = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)), matrix.indices
        for axis, (plan, chosen) in enumerate(((push, rows_out), (pull, rows_in))):
            used = np.zeros(matrix.shape[axis], bool)
            used[:layouts[axis].num_rows] = True
            used[touched[axis]] = True
            ghosts = (np.cumsum(chosen) - 1)[plan.ghosts[chosen[plan.ghosts]]]
            plans.append(halo_plan(layouts[axis], ghosts[used[layouts[axis].num_rows:]], self.comm))
            kept.append(used)
        return self.product_of(matrix[kept[0]][:, kept[1]], plans[1], plans[0], self.comm, buffers)

    def restrict(self, rows_out, rows_in):
        """See `Strategy`: A^T by the transposes of the blocks, unless they are symmetric together."""
        product = self.cut(rows_out, rows_in)
        layouts = self.layout.restricted(rows_out), self.layout.restricted(rows_in)
        reverse = None
        if self.symmetric and not np.array_equal(rows_out, rows_in):
            reverse = product.transposed(layouts[1].rows.num_rows)
        return type(self)(*layouts, self.comm, product, symmetric=self.symmetric, whole=self, reverse=reverse)

    def plan(self):
        """See `Strategy`."""
        _, pull, push, _ = self.matrix_of(self.product)
        plans = pull, push
        sizes = [number for plan in plans for number in
                 (plan.send_rows.size, plan.ghosts.size, plan.destinations.size, plan.sources.size)]
        sizes += [np.union1d(pull.destinations, push.sources).size, np.union1d(pull.sources, push.destinations).size]
        table = np.array(self.comm.allgather(sizes), np.int64).T
        right, left = self.Plan.merge(HaloPlanSizes(*table[:4]), HaloPlanSizes(*table[4:8]), *table[8:])
        transfers = [right, left]
        if self.symmetric and self.back is not self.product:
            transfers += [left, right]
        return self.Plan(None, None, (self.layout, self.layout_in), self.symmetric, transfers)

    @property
    def buffer_bytes(self):
        """See `Strategy`."""
        return 0 if self.whole else sum(buffer.owned.nbytes + buffer.ghost.nbytes
                                        for buffer in self.matrix_of(self.product)[3])


def elsewhere(lines, holder, owner, k):
    """Owner and holder of each pair of a line, a row or a column, and a rank that does not own it; two (pairs,) int64."""
    pairs = np.unique(lines.astype(np.int64) * k + holder)
    holder = pairs % k
    owner = owner[pairs // k].astype(np.int64)
    others = owner != holder
    return owner[others], holder[others]


def local_numbers(numbers, rows):
    """Relabel rows or columns: own ones to 0..m-1, the g others to m..m+g-1; and these g, increasing."""
    own = (numbers >= rows.start) & (numbers < rows.stop)
    ghosts = np.unique(numbers[~own])
    m = rows.num_rows
    local = np.where(own, numbers - rows.start, m + np.searchsorted(ghosts, numbers))
    return local.astype(index_dtype(m + ghosts.size)), ghosts
