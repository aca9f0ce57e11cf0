"""The nonzeros stored on a rank, out of which it cuts batches without messages.

A rank that holds a nonzero has the rows that it reads and the sums that it forms. The
owners of its row and of its column receive its two vertices once, before training. So
owners can derive which rows other ranks read, and which sums they send.
"""
from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.graphs.partition import positions_of, run_offsets
from hpgcn.graphs.validation import index_dtype
from hpgcn.parallel.csr import BatchCsr
from hpgcn.parallel.halo_plan import HaloPlan
from hpgcn.parallel.layout import RowPartition
from hpgcn.parallel.transfers import LOCAL
from hpgcn.parallel.workspace import Workspace
from hpgcn.sampling import submatrix_kernels

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.parallel.csr import Csr
    from hpgcn.runtime.device import Host
    from hpgcn.strategies.rows import RowStrategy


@dataclass(frozen=True, eq=False)
class LocalMatrix:
    """The nonzeros stored on this rank, as a matrix (m + t, m + g).

    It has own rows, then rows of other ranks; own columns, then ghosts.

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

    strategy: RowStrategy
    indptr: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    row_vertex: np.ndarray
    column_vertex: np.ndarray
    pull: HaloPlan
    push: HaloPlan

    @staticmethod
    def of(strategy: Any, vertex: np.ndarray, comm: SerialComm) -> LocalMatrix:
        """Return the LocalMatrix of this rank.

        `vertex`, (m,), are the ORIGINAL numbers of own rows. All ranks call this
        together.
        """
        matrix = strategy.local_matrix()
        columns = matrix.indices.astype(index_dtype(matrix.shape[1]), copy=False)
        pull, push = strategy.plans
        ghosts, targets = (to_holders(plan, vertex, comm) for plan in (pull, push))
        return LocalMatrix(strategy, matrix.indptr, columns, matrix.data,
                           np.concatenate([vertex, targets]), np.concatenate([vertex, ghosts]),
                           pull, push)

    @property
    def num_own(self) -> int:
        """Rows that this rank owns (m)."""
        return self.row_vertex.size - self.push.ghosts.size

    def in_tables(self) -> LocalMatrix:
        """Return this matrix for random accesses.

        If arrays are in files, the result has those of 8 bytes a vertex in memory, and
        message buffers of its own.
        """
        device = self.strategy.comm.device
        if not device.in_files:
            return self
        pull, push = (replace(plan, **{name: device.keep(getattr(plan, name)) for name in (
            "ghosts", "send_rows")}) for plan in (self.pull, self.push))
        return replace(self, strategy=_with_own_buffers(self.strategy), pull=pull, push=push,
                       **{name: device.keep(getattr(self, name))
                          for name in ("indptr", "row_vertex", "column_vertex")})

    def on_device(self, stored: Csr | None = None) -> LocalMatrix:
        """Return this matrix in the memory of the rank's device, where batches are cut.

        `stored` is the same matrix there, if the strategy stores it as one block.
        `column_vertex` stays on the host.
        """
        put = self.strategy.comm.device.put
        arrays = self.indptr.astype(np.int64, copy=False), self.columns, self.values
        indptr, columns, values = ((stored.indptr, stored.indices, stored.data) if stored else
                                   map(put, arrays))
        pull, push = (replace(plan, send_rows=put(plan.send_rows))
                      for plan in (self.pull, self.push))
        return replace(self, indptr=indptr, columns=columns, values=values, pull=pull, push=push,
                       row_vertex=put(self.row_vertex))

    @property
    def kernels(self) -> ModuleType:
        """The loops that cut batches, for the rank's device."""
        on_host = self.strategy.comm.device.xp is np
        return submatrix_kernels if on_host else import_module("hpgcn.kernels.cuda.submatrix")

    def entries_of(self, rows: Array, *arrays: Array) -> tuple[Array, ...]:
        """Return where the entries of rows begin and end, and their arrays.

        Begins and ends are (r,) int64. The arrays are `arrays`, (nnz,) each. If these
        are in files, only the entries of the rows are read.
        """
        begins, ends = (self.indptr[each].astype(np.int64, copy=False) for each in (rows, rows + 1))
        device = self.strategy.comm.device
        if not device.in_files:
            return begins, ends, *arrays
        pointers, positions = positions_of(begins, ends)
        return pointers[:-1], pointers[1:], *(device.take(each, positions) for each in arrays)

    def remote_entries(self) -> tuple[tuple, tuple]:
        """Return (rows, columns) of nonzeros in ghost columns or ghost rows.

        Rows of other ranks come last.
        """
        far = np.flatnonzero(self.columns >= self.num_own)
        read = np.searchsorted(self.indptr, far, side="right") - 1, self.columns[far]
        counts = np.diff(self.indptr[self.num_own:])
        rows = np.repeat(np.arange(self.num_own, self.indptr.size - 1), counts)
        return read, (rows, self.columns[self.indptr[self.num_own]:])

    def blocks(self, cut: tuple[Array, ...], shape: tuple[int, int], pull: HaloPlan,
               push: HaloPlan) -> dict[int, dict]:
        """Return the blocks of a cut matrix, by target, then by source.

        The result is a dict, as in RowProduct. `cut` are row pointers, columns and
        values. `shape` has the number of own rows and of own columns of the cut matrix.
        `pull` and `push` are the HaloPlans that are left; their ghosts are the other
        columns and rows.
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
                block = self.kernels.take_block(pointers, columns, values, cursor, first, low,
                                                high)
                row[source] = BatchCsr(*block, num_columns=high - low, device=device)
        return blocks


def _run(number: int, own: int, plan: HaloPlan) -> tuple[int, int]:
    """Return the bounds of a target's rows or a source's columns.

    They are positions in the local matrix.
    """
    if number == LOCAL:
        return 0, own
    if number < 0:  # all other ranks together
        return own, own + plan.ghosts.size
    return tuple(own + cut for cut in plan.recv_offsets[number:number + 2].tolist())


def _with_own_buffers(strategy: RowStrategy) -> RowStrategy:
    """Return a RowStrategy for `submap`, with buffers of its own.

    Its message buffers and sums are empty, and grow when they are needed.
    """
    transfers = {}
    for name in ("pull", "push"):
        transfers[name] = copy(getattr(strategy.product, name))
        if transfers[name].buffers is not None:
            transfers[name].buffers = transfers[name].buffers.empty_copy()
    strategy = copy(strategy)
    strategy.product = replace(strategy.product, **transfers)
    strategy.float32_sums = Workspace(np.float32, strategy.comm.device)
    return strategy


def to_holders(plan: HaloPlan, array: np.ndarray, comm: SerialComm) -> np.ndarray:
    """Send values of own rows, (m,) of 8 bytes, to the ranks that read them.

    Return the values of ghosts, (g,).
    """
    words = np.ascontiguousarray(array[plan.send_rows]).view(np.int64)
    parts = [words[first:last] for first, last in pairwise(plan.send_offsets.tolist())]
    return np.concatenate(comm.alltoallv(parts)).view(array.dtype)


def lists_to_owners(plan: HaloPlan, ghost: np.ndarray, numbers: np.ndarray,
                    comm: SerialComm) -> tuple[np.ndarray, np.ndarray]:
    """Send numbers that belong to ghosts to the owners of these ghosts.

    All ranks call this together. `ghost`, (k,), has the ghost that each of the
    `numbers`, (k,) int64, belongs to. Return row pointers over the rows that are sent,
    (s + 1,), and the numbers.
    """
    order = np.argsort(ghost, kind="stable")
    counts = np.bincount(ghost, minlength=plan.ghosts.size)
    cuts = plan.recv_offsets
    ends = run_offsets(counts)[cuts]
    parts = [numbers[order[ends[q]:ends[q + 1]]] for q in range(comm.size)]
    counts = np.concatenate(comm.alltoallv([counts[cuts[q]:cuts[q + 1]]
                                            for q in range(comm.size)]))
    return run_offsets(counts), np.concatenate(comm.alltoallv(parts))


def plan_of(plan: HaloPlan, ghosts: Array, sent: Array, place: Array, rows: int,
            device: Host) -> HaloPlan:
    """Return the HaloPlan of some ghosts and sent rows of a plan.

    `ghosts` and `sent` are increasing positions, on the device or on the host. `place`
    has the new number of each own row that is left, and `rows` is how many are left.
    Row numbers of the result lie on the device.
    """
    layout = RowPartition(np.array([0, rows]), 0)
    return HaloPlan(layout, ghosts, _cuts(ghosts, plan.recv_offsets, device),
                    place[plan.send_rows[device.put(sent)]].astype(np.int64),
                    _cuts(sent, plan.send_offsets, device))


def _cuts(positions: Array, offsets: np.ndarray, device: Host) -> np.ndarray:
    """Return how many of the increasing `positions` precede each offset, on the host."""
    if isinstance(positions, np.ndarray):
        return np.searchsorted(positions, offsets)
    return device.get(device.xp.searchsorted(positions, device.put(offsets)))
