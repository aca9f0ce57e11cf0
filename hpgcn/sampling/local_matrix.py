"""The nonzeros stored on a rank, out of which it cuts batches without messages.

A rank that holds a nonzero has the rows that it reads and the sums that it forms. The
owners of its row and of its column receive its two vertices once, before training. So
owners can derive which rows other ranks read, and which sums they send.
"""
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.parallel.csr import Csr
from hpgcn.parallel.halo_plan import HaloPlan
from hpgcn.parallel.layout import RowPartition
from hpgcn.parallel.transfers import LOCAL
from hpgcn.sampling import submatrix_kernels


@dataclass(frozen=True, eq=False)
class LocalMatrix:
    """Nonzeros stored on this rank: own rows, then rows of other ranks (m + t); own
    columns, then ghosts (m + g).

    Attributes
    ----------
    strategy : hpgcn.strategies.RowStrategy
    indptr, columns, values : arrays
        The matrix, columns increasing in each row.
    row_vertex, column_vertex : (m + t,) and (m + g,) int64
        ORIGINAL numbers.
    pull, push : hpgcn.parallel.halo_plan.HaloPlan
        Plan of the ghosts, and plan of the rows of other ranks.
    """

    strategy: object
    indptr: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    row_vertex: np.ndarray
    column_vertex: np.ndarray
    pull: HaloPlan
    push: HaloPlan

    @staticmethod
    def of(strategy, vertex, comm):
        """Return the LocalMatrix of this rank; `vertex`: ORIGINAL numbers of own rows
        (m,). All ranks call this together.
        """
        matrix = strategy.local_matrix()
        pull, push = strategy.plans
        ghosts, targets = (to_holders(plan, vertex, comm) for plan in (pull, push))
        return LocalMatrix(strategy, matrix.indptr, matrix.indices, matrix.data,
                           np.concatenate([vertex, targets]), np.concatenate([vertex, ghosts]),
                           pull, push)

    @property
    def num_own(self):
        """Rows that this rank owns (m)."""
        return self.row_vertex.size - self.push.ghosts.size

    def remote_entries(self):
        """Return (rows, columns) of nonzeros in ghost columns, then of nonzeros in rows
        of other ranks.
        """
        far = np.flatnonzero(self.columns >= self.num_own)
        read = np.searchsorted(self.indptr, far, side="right") - 1, self.columns[far]
        counts = np.diff(self.indptr[self.num_own:])
        rows = np.repeat(np.arange(self.num_own, self.indptr.size - 1), counts)
        return read, (rows, self.columns[self.indptr[self.num_own]:])

    def blocks(self, cut, shape, pull, push):
        """Return the blocks of a cut matrix, a dict by target, then by source, as in
        RowProduct.

        `cut`: row pointers, columns and values. `shape`: own rows and own columns of
        the cut matrix. `pull`, `push`: HaloPlans that are left; their ghosts are the
        other columns and rows.
        """
        device = self.strategy.comm.device
        pointers, columns, values = cut
        blocks = {}

        for target, sources in self.strategy.product.blocks.items():
            first, last = _run(target, shape[0], push)
            if target != LOCAL and first == last:
                continue
            cursor = pointers[first:last].copy()
            row = blocks[target] = {}

            # cut from the left to the right: cursors move on
            for source in sorted(sources, key=lambda each: (each != LOCAL, each)):
                low, high = _run(source, shape[1], pull)
                if source != LOCAL and low == high:
                    continue
                block = submatrix_kernels.take_block(pointers, columns, values, cursor, first,
                                                     low, high)
                row[source] = Csr(*map(device.put, block), high - low, device)
        return blocks


def _run(number, own, plan):
    """Return the bounds of the rows of a target, or of the columns of a source, in the
    local matrix.
    """
    if number == LOCAL:
        return 0, own
    if number < 0:  # all other ranks together
        return own, own + plan.ghosts.size
    return tuple(own + cut for cut in plan.recv_offsets[number:number + 2].tolist())


def to_holders(plan, array, comm):
    """Send values of own rows, (m,) of 8 bytes, to the ranks that read them; return
    those of ghosts, (g,).
    """
    words = np.ascontiguousarray(array[plan.send_rows]).view(np.int64)
    parts = [words[first:last] for first, last in pairwise(plan.send_offsets.tolist())]
    return np.concatenate(comm.alltoallv(parts)).view(array.dtype)


def lists_to_owners(plan, ghost, numbers, comm):
    """Send numbers that belong to ghosts to the owners of these ghosts; all ranks call
    this together.

    ghost: (k,) which ghost each of the numbers, (k,) int64, belongs to. Returns row
    pointers over the rows that are sent, (s + 1,), and the numbers.
    """
    order = np.argsort(ghost, kind="stable")
    counts = np.bincount(ghost, minlength=plan.ghosts.size)
    cuts = plan.recv_offsets
    ends = run_offsets(counts)[cuts]
    parts = [numbers[order[ends[q]:ends[q + 1]]] for q in range(comm.size)]
    counts = [counts[cuts[q]:cuts[q + 1]] for q in range(comm.size)]
    counts = np.concatenate(comm.alltoallv(counts))
    return run_offsets(counts), np.concatenate(comm.alltoallv(parts))


def plan_of(plan, ghosts, sent, place, rows):
    """Return the HaloPlan of the ghosts and sent rows at increasing positions `ghosts`
    and `sent` of a plan.

    `place`: new number of each own row that is left; `rows`: how many are left.
    """
    layout = RowPartition(np.array([0, rows]), 0)
    return HaloPlan(layout, ghosts, np.searchsorted(ghosts, plan.recv_offsets),
                    place[plan.send_rows[sent]].astype(np.int64),
                    np.searchsorted(sent, plan.send_offsets))
